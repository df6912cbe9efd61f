// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "attest/io/bytes.h"
#include "attest/io/json.h"
#include "attest/io/named_tensors.h"

namespace attest::io {

// Failure ids of this header, beside those of json.h and bytes.h:
//
//   ragged             rows of different length (kind: shape)
//   mixed-types        booleans among numbers, or numbers among booleans (kind: type)
//   not-a-number       null, a text, an object where a number belongs (kind: type)
//   bad-number         an integer that binary64 cannot hold exactly, or a value that its dtype cannot
//   unsupported-dtype  an unknown dtype (kind: type)
//   bad-entry          a {"dtype", "shape", "data"} with other fields, or a field of a wrong kind
//   size-mismatch      "data" has another number of elements than "shape" says
//   bad-metadata       __metadata__ is not an object of strings
//   bad-name           (writing) a tensor called __metadata__

/// Reads JSON tensors.
///
/// Format        {"query": [[1, 2.5], [3, 4]], "mask": [[true, false]], …}, nested arrays with the
///               last axis innermost; or {"dtype": "f32", "shape": [2, 2], "data": [1, 2.5, 3, 4]}
///               in place of an array; "__metadata__" may hold an object of strings. A file that is
///               one array, or one such object, is one tensor called `single_name`.
/// Dtypes        nested arrays: numbers are f64, true and false bool, [] is f64. The long form: all
///               of attest's, by attest's names.
/// Edge cases    the strings "inf", "-inf" and "nan" stand for numbers, in both forms, since JSON
///               has none for them. null is refused, and so are rows of different length, booleans
///               among numbers, and integers that the dtype does not hold exactly. A bare number is
///               a tensor of rank 0. A decimal number is rounded to binary64, then to the dtype.
/// Accuracy      what serialize_json_tensors wrote reads back to the same bits, but for the payload
///               and sign of a NaN.
/// Errors        name the place: "query[1][2] is a boolean among numbers".
[[nodiscard]] Result<NamedTensors> parse_json_tensors(std::string_view text,
                                                      std::string_view source_name,
                                                      std::string_view single_name = "tensor");

/// One value, as above, in a tree that the caller parsed: a case of a test list, a request.
[[nodiscard]] Result<AnyTensor> tensor_from_json(const Json& value, std::string_view name,
                                                 const Origin& origin);

[[nodiscard]] Result<NamedTensors> read_json_tensors(const std::string& path,
                                                     std::string_view single_name = "tensor");

/// One line for each tensor. f64 and bool are written as nested arrays; other dtypes, rank 0 and
/// tensors without an element in the long form, which alone keeps their dtype and shape.
[[nodiscard]] Result<std::string> serialize_json_tensors(const NamedTensors& tensors);

[[nodiscard]] Result<void> write_json_tensors(const std::string& path, const NamedTensors& tensors);

}  // namespace attest::io
