// SPDX-License-Identifier: MIT
#include "frontends/cli/json_arguments.h"

#include <algorithm>
#include <limits>

#include "attest/base/text.h"
#include "attest/lab/workbook.h"

namespace attest::cli {
namespace {

using Kind = io::Json::Kind;

/// A JSON number as binary64, or what is wrong with it.
std::optional<double> number_of(const io::Json& json) {
  if (const double* number = json.double_if()) return *number;
  if (const std::int64_t* integer = json.integer_if()) return static_cast<double>(*integer);
  return std::nullopt;
}

}  // namespace

Failure JsonArguments::wrong(std::string_view id, std::string_view what, const io::Json& at) const {
  return {ErrorKind::type, std::string(id),
          sentence("[", operation_, "] ", what, " (byte ", at.offset(), " of the line)")};
}

Result<JsonArguments> JsonArguments::read(const io::Json& json, std::string_view operation,
                                          const std::vector<std::string>& keys) {
  JsonArguments out(json, operation);
  if (!json.is(Kind::object)) {
    return out.wrong("bad-type", sentence("a line must be an object; found ", name_of(json.kind())),
                     json);
  }
  for (const auto& member : json.members()) {
    const bool ignored = member.name == "op" || member.name == "expect" || member.name == "error";
    if (ignored || std::ranges::find(keys, member.name) != keys.end()) continue;
    std::string known;
    for (const auto& key : keys) known += (known.empty() ? "" : " ") + key;
    return out.wrong("unknown-key", sentence("unknown key '", member.name, "'; there are: ", known),
                     member.value);
  }
  return out;
}

Result<const io::Json*> JsonArguments::required(std::string_view name) const {
  const io::Json* found = json_->find(name);
  if (found == nullptr) return wrong("missing-key", sentence(name, " is missing"), *json_);
  return found;
}

template <class T, class Read>
Result<Tensor<T>> JsonArguments::rectangle(std::string_view name, const io::Json& rows,
                                           const Read& read) const {
  if (!rows.is(Kind::array)) {
    return wrong("bad-type",
                 sentence(name, " must be an array of rows; found ", name_of(rows.kind())), rows);
  }
  std::vector<T> numbers;
  const std::size_t width = rows.items().empty() ? 0 : rows.items()[0].items().size();
  for (std::size_t i = 0; i < rows.items().size(); ++i) {
    const io::Json& row = rows.items()[i];
    if (!row.is(Kind::array)) {
      return wrong("bad-type",
                   sentence(name, "[", i, "] must be a row; found ", name_of(row.kind())), row);
    }
    if (row.items().size() != width) {
      return wrong("ragged-rows",
                   sentence(name, "[", i, "] has ", row.items().size(),
                            " entries, the first row has ", width),
                   row);
    }
    for (std::size_t j = 0; j < width; ++j) {
      auto value = read(row.items()[j], sentence(name, "[", i, ",", j, "]"));
      if (!value) return value.failure();
      numbers.push_back(*value);
    }
  }
  // std::vector<bool> has no elements to point at, so they are copied one by one.
  Tensor<T> out({static_cast<std::int64_t>(rows.items().size()), static_cast<std::int64_t>(width)});
  std::copy(numbers.begin(), numbers.end(), out.elements().begin());
  return out;
}

Result<Tensor<double>> JsonArguments::matrix(std::string_view name) const {
  const auto rows = required(name);
  if (!rows) return rows.failure();
  return rectangle<double>(
      name, **rows, [&](const io::Json& cell, const std::string& place) -> Result<double> {
        if (cell.is(Kind::big_integer)) {
          return wrong("bad-matrix",
                       sentence(place, " is a whole number beyond 64 bits; at most ",
                                lab::workbook::max_size, " in size is expected"),
                       cell);
        }
        if (const auto number = number_of(cell)) return *number;
        return wrong("bad-type", sentence(place, " must be a number; found ", name_of(cell.kind())),
                     cell);
      });
}

Result<std::optional<Tensor<bool>>> JsonArguments::mask(std::string_view name) const {
  const io::Json* rows = json_->find(name);
  if (rows == nullptr || rows->is(Kind::null)) return std::optional<Tensor<bool>>();
  auto out = rectangle<bool>(
      name, *rows, [&](const io::Json& cell, const std::string& place) -> Result<bool> {
        if (const bool* value = cell.boolean_if()) return *value;
        return wrong("bad-type",
                     sentence(place, " must be true or false; found ", name_of(cell.kind())), cell);
      });
  if (!out) return out.failure();
  return std::optional<Tensor<bool>>(*std::move(out));
}

Result<std::vector<double>> JsonArguments::scores(std::string_view name) const {
  const auto row = required(name);
  if (!row) return row.failure();
  if (!(*row)->is(Kind::array)) {
    return wrong("bad-type", sentence(name, " must be an array; found ", name_of((*row)->kind())),
                 **row);
  }
  std::vector<double> out;
  for (const io::Json& cell : (*row)->items()) {
    if (cell.is(Kind::null)) {
      out.push_back(-std::numeric_limits<double>::infinity());
    } else if (const auto number = number_of(cell)) {
      out.push_back(*number);
    } else {
      return wrong("bad-type",
                   sentence(name, "[", out.size(), "] must be a number or null; found ",
                            name_of(cell.kind())),
                   cell);
    }
  }
  return out;
}

Result<bool> JsonArguments::boolean(std::string_view name, bool otherwise) const {
  const io::Json* found = json_->find(name);
  if (found == nullptr) return otherwise;
  if (const bool* value = found->boolean_if()) return *value;
  return wrong("bad-type", sentence(name, " must be true or false; found ", name_of(found->kind())),
               *found);
}

Result<double> JsonArguments::positive(std::string_view name, double otherwise) const {
  const io::Json* found = json_->find(name);
  if (found == nullptr) return otherwise;
  const auto number = number_of(*found);
  if (!number) {
    return wrong("bad-type", sentence(name, " must be a number; found ", name_of(found->kind())),
                 *found);
  }
  if (!(*number > 0)) {
    return wrong("bad-value", sentence(name, " must be above 0; found ", *number), *found);
  }
  return *number;
}

}  // namespace attest::cli
