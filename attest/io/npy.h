// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "attest/base/tensor.h"
#include "attest/io/bytes.h"

namespace attest::io {

// Failure ids of this header, beside those of bytes.h and sniff.h:
//
//   not-an-npy-file    it does not begin with \x93NUMPY
//   unsupported-version  not version 1.0, 2.0 or 3.0
//   truncated          the header, or the elements, end early
//   trailing-bytes     bytes after the last element
//   bad-header         the header is not the dictionary that the format asks for
//   duplicate-key      a key is given twice
//   bad-shape          the product of the extents does not fit, or there are more than 64
//   bad-number         an extent outside 64 bits
//   unsupported-dtype  complex numbers, objects, texts, dates, records … (kind: type); when
//   writing,
//                      bf16, which npy has no name for
//   bad-boolean        a byte of a boolean array is neither 0 nor 1

/// Reads one array from memory.
///
/// Format        "\x93NUMPY", the version, the header's length (2 bytes in 1.0, else 4), the header
///               {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, then the elements.
/// Dtypes        f2 f4 f8 b1 i1 i2 i4 i8 u1 u2 u4 u8 in either byte order; '=' and '|' mean the
///               order of this machine.
/// Edge cases    Fortran order is transposed here: element [i, j] of the result is what
///               numpy.load(...)[i, j] gives. Rank 0 and extents of 0 are fine.
/// Cost          one copy of the elements, which must all be there before anything is allocated.
[[nodiscard]] Result<AnyTensor> parse_npy(ByteSpan bytes, std::string_view source_name);

[[nodiscard]] Result<AnyTensor> read_npy(const std::string& path);

/// Version 1.0, C order, little-endian, the elements at a multiple of 64 bytes: what numpy.save
/// writes on most machines.
[[nodiscard]] Result<Bytes> serialize_npy(const AnyTensor& tensor);

[[nodiscard]] Result<void> write_npy(const std::string& path, const AnyTensor& tensor);

}  // namespace attest::io
