// SPDX-License-Identifier: MIT
#include "frontends/cli/case_layout.h"

#include <utility>

#include "attest/base/text.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::value, std::move(id), "[input] " + std::move(message)};
}

}  // namespace

Result<FileLayout> layout_of(const std::string& word, const std::optional<Convention>& convention) {
  if (word == "bhtd") return FileLayout::bhtd;
  if (word == "bthd") return FileLayout::bthd;
  if (word == "packed") return FileLayout::packed;
  if (word == "lbe") return FileLayout::lbe;
  if (!word.empty()) {
    return bad("bad-layout", sentence("--layout is bhtd, bthd, packed or lbe; found '", word, "'"));
  }
  if (!convention) return FileLayout::bhtd;
  switch (convention->layout) {
    case Layout::bthd:
      return FileLayout::bthd;
    case Layout::bt_hd:
      return FileLayout::packed;
    case Layout::lbe:
      return FileLayout::lbe;
    case Layout::bhtd:
    case Layout::bhtd_to_bthd:
    case Layout::not_stated:
      return FileLayout::bhtd;
  }
  return FileLayout::bhtd;
}

Result<PlacedTensor> placed(AnyTensor tensor, FileLayout layout, std::int64_t heads,
                            std::string_view name) {
  const Shape s = tensor.shape();
  const bool packed = layout == FileLayout::packed || layout == FileLayout::lbe;
  const std::size_t least = layout == FileLayout::bthd || layout == FileLayout::lbe ? 3 : 2;
  const std::size_t most = packed ? 3 : 4;
  if (s.size() < least || s.size() > most) {
    return bad("bad-rank", sentence(name, " has shape ", to_string(s), "; with this layout rank ",
                                    least, " to ", most, " is expected"));
  }
  if (packed && (heads < 1 || s.back() % heads != 0)) {
    return bad("bad-heads", sentence(name, " has ", s.back(), " features, which ", heads,
                                     " heads cannot share; say --heads and --kv-heads"));
  }
  const auto steps = row_major_strides(s);
  const std::size_t last = s.size() - 1;
  PlacedTensor out{std::move(tensor), {1, 1, 1, s[last]}, {0, 0, 0, 1}};
  const auto axis = [&](std::size_t to, std::size_t from_axis) {
    out.extents[to] = s[from_axis];
    out.strides[to] = steps[from_axis];
  };
  if (packed) {
    out.extents[1] = heads;
    out.extents[3] = out.strides[1] = s[last] / heads;
    if (layout == FileLayout::lbe) {
      axis(2, 0);
      axis(0, 1);
    } else {
      axis(2, last - 1);
      if (last == 2) axis(0, 0);
    }
  } else {
    const bool time_first = layout == FileLayout::bthd;
    axis(time_first ? 1 : 2, last - 1);
    if (last >= 2) axis(time_first ? 2 : 1, last - 2);
    if (last >= 3) axis(0, 0);
  }
  return out;
}

Result<Tensor<double>> widened(const PlacedTensor& from, std::string_view name) {
  const auto numbers = from.memory.to_f64(name);
  if (!numbers) return numbers.failure();
  const auto& extents = from.extents;
  const View<const double, 4> view(numbers->data(), extents, from.strides);
  Tensor<double> out(Shape(extents.begin(), extents.end()));
  if (out.size() == 0) return out;  // one extent is 0; the others may be anything
  std::size_t n = 0;
  for (std::int64_t b = 0; b < extents[0]; ++b) {
    for (std::int64_t h = 0; h < extents[1]; ++h) {
      for (std::int64_t t = 0; t < extents[2]; ++t) {
        for (std::int64_t d = 0; d < extents[3]; ++d) out.elements()[n++] = view(b, h, t, d);
      }
    }
  }
  return out;
}

Tensor<double> as_given(const GivenLayout& given, const Tensor<double>& output) {
  const std::int64_t B = output.extent(0);
  const std::int64_t H = output.extent(1);
  const std::int64_t T = output.extent(2);
  const std::int64_t E = output.extent(3);
  // Where element (b, h, t, e) goes, axis by axis, outermost first.
  Shape shape;
  std::array<std::size_t, 4> order{0, 1, 2, 3};
  switch (given.layout) {
    case FileLayout::bhtd:
      shape = {B, H, T, E};
      break;
    case FileLayout::bthd:
      order = {0, 2, 1, 3};
      shape = {B, T, H, E};
      break;
    case FileLayout::packed:
      order = {0, 2, 1, 3};
      shape = {B, T, H * E};
      break;
    case FileLayout::lbe:
      order = {2, 0, 1, 3};
      shape = {T, B, H * E};
      break;
  }
  while (shape.size() > given.rank) shape.erase(shape.begin());
  Tensor<double> out(shape);
  if (out.size() == 0) return out;
  const std::array<std::int64_t, 4> extents{B, H, T, E};
  std::array<std::int64_t, 4> at{};
  std::size_t n = 0;
  for (at[order[0]] = 0; at[order[0]] < extents[order[0]]; ++at[order[0]]) {
    for (at[order[1]] = 0; at[order[1]] < extents[order[1]]; ++at[order[1]]) {
      for (at[order[2]] = 0; at[order[2]] < extents[order[2]]; ++at[order[2]]) {
        for (at[3] = 0; at[3] < E; ++at[3])
          out.elements()[n++] = output(at[0], at[1], at[2], at[3]);
      }
    }
  }
  return out;
}

Tensor<double> without_missing_axes(const GivenLayout& given, Tensor<double> values) {
  Shape shape = values.shape();
  const bool no_heads = given.layout == FileLayout::bhtd && given.rank == 2;
  const bool no_batch =
      (given.layout == FileLayout::packed && given.rank == 2) ||
      (given.layout != FileLayout::packed && given.layout != FileLayout::lbe && given.rank == 3);
  shape.erase(shape.begin(), shape.begin() + (no_heads ? 2 : no_batch ? 1 : 0));
  return std::move(values).reshaped(std::move(shape));
}

}  // namespace attest::cli
