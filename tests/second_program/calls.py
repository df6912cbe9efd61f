# SPDX-License-Identifier: MIT
"""Calls to be computed right: sizes, numbers, and what is claimed of them."""
import numpy as np

from attention import Setting, alibi_slopes

KINDS = ("plain", "causal", "bottom_right", "window", "lengths", "mask", "empty_zero", "empty_nan", "grouped",
         "bias", "softcap", "alibi", "rope", "sink", "documents", "none_claimed")
INPUTS = ("normal", "flat", "peaked", "very_peaked", "large", "tiny", "offset", "key_offset", "same_keys",
          "outliers")
F = np.float32


def draw_tensors(rng, kind, size):
    """query, key and value of `size`, or of a size drawn."""
    pick = lambda low, high: int(rng.integers(low, high + 1))
    batch, heads, queries, keys, width = size or (
        pick(1, 3), int(rng.choice([1, 2, 3, 4, 6])), pick(1, 40), pick(1, 90), int(rng.choice([1, 3, 8, 16, 33, 64])))
    groups = heads
    if kind == "grouped":
        heads, groups = [(6, 2), (6, 3), (8, 2), (4, 1)][pick(0, 3)]
    if kind in ("causal", "alibi", "rope", "sink", "documents", "softcap"):
        queries = keys
    if kind == "bottom_right":
        keys = max(keys, queries)
    if kind == "documents":
        batch = 1
    value_width = width if rng.random() < 0.7 else width + pick(1, 9)
    draw = lambda h, n, d: rng.standard_normal((batch, h, n, d))
    query, key, value = draw(heads, queries, width), draw(groups, keys, width), draw(groups, keys, value_width)
    if kind == "rope" and width % 2:
        query, key = draw(heads, queries, 8), draw(groups, keys, 8)
    return query, key, value


def made_hard(rng, sort, query, key, value):
    """Numbers as they are met: scores near 0 or far apart, a large common part, a few large features."""
    if sort == "flat":
        query = query * 1e-4
    if sort == "peaked":
        query = query * 50 ** 0.5 * rng.uniform(1, 4)
    if sort == "very_peaked":
        query = query * 200
    if sort == "large":
        value = value * 1e4
    if sort == "tiny":
        value = value * 1e-20
    if sort == "offset":
        value = value + 1000
    if sort == "key_offset":
        key = key + 20
    if sort == "same_keys":
        key = np.broadcast_to(key[:, :, :1], key.shape).copy()
    if sort == "outliers":
        value[..., 0] = value[..., 0] * 500
        key[..., 0] = key[..., 0] * 10
    return tuple(x.astype(F) for x in (query, key, value))


def by_position(rng, kind, queries, keys):
    """Options and flags of what is seen because of where it stands."""
    if kind in ("causal", "alibi", "rope", "sink", "softcap"):
        return dict(causal=True), ["--causal"]
    if kind == "bottom_right":
        return dict(causal=True, offset=keys - queries), ["--causal", "bottom-right"]
    if kind == "window":
        left = int(rng.integers(0, 10))
        return dict(window=left, causal=True), ["--causal", "top-left", "--window", f"{left},"]
    if kind == "documents":
        cuts = sorted({int(c) for c in rng.integers(0, keys + 1, 2)} - {0, keys})
        starts = [0] + cuts + [keys]
        return dict(documents=starts), ["--query-starts", ",".join(map(str, starts))]
    if kind in ("plain", "grouped", "bias", "mask", "empty_zero", "empty_nan"):
        return {}, ["--causal", "none"]
    return {}, []


def by_table(rng, kind, batch, heads, queries, keys):
    """Options and flags of what is added to scores, or hides them by a table."""
    options, flags = {}, []
    if kind == "lengths":
        options["lengths"] = [int(n) for n in rng.integers(1, keys + 1, batch)]
        flags += ["--key-lengths", ",".join(map(str, options["lengths"]))]
    if kind in ("mask", "empty_zero", "empty_nan"):
        mask = rng.random((batch, 1, queries, keys)) < 0.6
        mask[..., int(rng.integers(keys))] = True
        if kind != "mask":
            mask[rng.random((batch, 1, queries)) < 0.2] = False
            mask[0, 0, 0] = False
            flags += ["--empty-row", kind[6:]]
        options["mask"] = mask
    if kind == "bias":
        options["bias"] = (rng.standard_normal((batch, heads, queries, keys)) * 2).astype(F)
    if kind == "softcap":
        options["softcap"] = float(rng.choice([0.5, 5.0, 30.0]))
        flags += ["--softcap", repr(options["softcap"])]
    if kind == "alibi":
        options["slopes"] = alibi_slopes(heads)
        flags += ["--alibi"]
    if kind == "rope":
        options["rope"] = 10000.0
        flags += ["--rope", "half"]
    if kind == "sink":
        options["sink"] = (2 * rng.standard_normal(heads)).astype(F)
    return options, flags


def draw_setting(rng, kind, sort, size=None):
    """A call of one of KINDS with numbers of one of INPUTS, and the flags that claim it."""
    query, key, value = made_hard(rng, sort, *draw_tensors(rng, kind, size))
    if kind == "window":
        query = query[:, :, :key.shape[2]]
    batch, heads, queries, keys = query.shape[0], query.shape[1], query.shape[2], key.shape[2]
    positions, position_flags = by_position(rng, kind, queries, keys)
    tables, table_flags = by_table(rng, kind, batch, heads, queries, keys)
    s = Setting(query, key, value, **positions, **tables)
    s.empty_nan = kind == "empty_nan"
    return s, position_flags + table_flags
