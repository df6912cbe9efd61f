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
  if (!extents->is(io::Json::Kind::array) || !values->is(io::Json::Kind::array)) {
    return bad_trace(path, line, "shape and values must be arrays");
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
  // A trace of one row keeps its number: two different rows are two different stages.
  const io::Json* first_row = json.find("first_row");
  const bool given = first_row != nullptr && first_row->integer_if() != nullptr;
  const std::int64_t first = given ? *first_row->integer_if() : 0;
  const std::string place = first == 0 ? "" : sentence("(from row ", first, ")");
  return std::pair<std::string, AnyTensor>(*id->string_if() + place, numbers);
}

/// The first line says that this is a trace, and of which version.
Result<void> read_title(std::string_view line, const std::string& path) {
  const auto json = io::parse_json(line, sentence(path, ", line 1"));
  if (!json) return json.failure();
  const io::Json* version = json->find("attest-trace");
  if (version == nullptr || version->integer_if() == nullptr || *version->integer_if() != 1) {
    return bad_trace(path, 1, "only version 1 of attest-trace is known");
  }
  return {};
}

Result<check::NamedStages> read_trace(std::string_view text, const std::string& path) {
  check::NamedStages out;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (++number == 1) {
      if (auto ok = read_title(line, path); !ok) return ok.failure();
      continue;
    }
    if (line.empty() || line == "\r") continue;
    const auto json = io::parse_json(line, sentence(path, ", line ", number));
    if (!json) return json.failure();
    auto stage = read_stage(*json, path, number);
    if (!stage) return stage.failure();
    for (const auto& [name, tensor] : out) {
      if (name != stage->first) continue;
      return bad_trace(path, number, sentence("stage '", name, "' stands twice"));
    }
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
  // Files without names hold one tensor each: it is compared with the other file's one.
  const io::TensorFileOptions options{.npz = {}, .stream = {}, .single_name = "tensor"};
  const auto tensors = io::parse_tensors(*bytes, path, options);
  if (!tensors) return tensors.failure();
  return check::to_stages(*tensors);
}

}  // namespace attest::cli
