// SPDX-License-Identifier: MIT
#include "frontends/cli/read_stages.h"

#include <limits>
#include <string_view>

#include "attest/base/text.h"
#include "attest/io/bytes.h"
#include "attest/io/json.h"
#include "attest/io/tensor_file.h"

namespace attest::cli {
namespace {

constexpr std::string_view first_words = "{\"attest-trace\"";

Failure bad_trace(const std::string& path, std::size_t line, std::string_view what) {
  return {ErrorKind::file, "bad-trace", sentence("[diff] ", path, ", line ", line, ": ", what)};
}

std::optional<double> number_of(const io::Json& json) {
  if (const double* number = json.double_if()) return *number;
  if (const std::int64_t* integer = json.integer_if()) return static_cast<double>(*integer);
  const std::string* text = json.string_if();
  if (text == nullptr) return std::nullopt;
  if (*text == "inf") return std::numeric_limits<double>::infinity();
  if (*text == "-inf") return -std::numeric_limits<double>::infinity();
  if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

Result<std::pair<std::string, AnyTensor>> read_stage(const io::Json& json, const std::string& path,
                                                     std::size_t line) {
  const io::Json* id = json.find("id");
  const io::Json* extents = json.find("shape");
  const io::Json* values = json.find("values");
  if (id == nullptr || id->string_if() == nullptr || extents == nullptr || values == nullptr) {
    return bad_trace(path, line, "a stage needs id, shape and values");
  }
  Shape shape;
  for (const io::Json& extent : extents->items()) {
    if (extent.integer_if() == nullptr)
      return bad_trace(path, line, "shape must hold whole numbers");
    shape.push_back(*extent.integer_if());
  }
  const auto count = element_count(shape);
  if (!count || *count != static_cast<std::int64_t>(values->items().size())) {
    return bad_trace(
        path, line,
        sentence("shape ", to_string(shape), " does not fit ", values->items().size(), " values"));
  }
  Tensor<double> numbers(shape);
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    const auto number = number_of(values->items()[n]);
    if (!number) return bad_trace(path, line, sentence("values[", n, "] is not a number"));
    numbers.elements()[n] = *number;
  }
  return std::pair<std::string, AnyTensor>(*id->string_if(), numbers);
}

Result<check::NamedStages> read_trace(std::string_view text, const std::string& path) {
  check::NamedStages out;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (++number == 1 || line.empty()) continue;  // the first line says what was calculated
    const auto json = io::parse_json(line, sentence(path, ", line ", number));
    if (!json) return json.failure();
    auto stage = read_stage(*json, path, number);
    if (!stage) return stage.failure();
    out.push_back(*std::move(stage));
  }
  return out;
}

}  // namespace

Result<check::NamedStages> read_stages(const std::string& path) {
  const auto bytes = io::read_file(path);
  if (!bytes) return bytes.failure();
  const std::string_view text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  if (text.starts_with(first_words)) return read_trace(text, path);
  const auto tensors = io::parse_tensors(*bytes, path);
  if (!tensors) return tensors.failure();
  return check::to_stages(*tensors);
}

}  // namespace attest::cli
