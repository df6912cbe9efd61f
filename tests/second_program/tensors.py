# SPDX-License-Identifier: MIT
"""safetensors files, and the number types that numpy does not have."""
import json
import struct

import numpy as np

NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "bool": "BOOL"}


class Bfloat16:
    """Numbers as their upper 16 bits."""

    def __init__(self, bits):
        self.bits, self.shape = bits, bits.shape


def bf16_bits(x):
    """To nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded).reshape(np.shape(x))


def as_bf16(x):
    return Bfloat16(bf16_bits(x))


def round_to(x, kind):
    """The nearest numbers of a narrower type, in the type that they came in."""
    if kind is None:
        return x
    if kind == "float16":
        return x.astype(np.float16).astype(x.dtype)
    if kind == "tf32":
        bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
        bits = (bits + 0xFFF + ((bits >> 13) & 1)) & ~np.uint64(0x1FFF)
        return bits.astype(np.uint32).view(np.float32).reshape(np.shape(x)).astype(x.dtype)
    wide = bf16_bits(x).astype(np.uint32) << 16
    return np.ascontiguousarray(wide, np.uint32).view(np.float32).reshape(np.shape(x)).astype(x.dtype)


def write(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        raw = x.bits.tobytes() if isinstance(x, Bfloat16) else np.ascontiguousarray(x).tobytes()
        dtype = "BF16" if isinstance(x, Bfloat16) else NAMES[x.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)
