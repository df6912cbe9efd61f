// SPDX-License-Identifier: MIT
// Which order of axes makes a dump's tensors fit each other.
#include "frontends/cli/check_layout.h"

#include <algorithm>

#include "attest/base/text.h"

namespace attest::cli {
namespace {

Failure bad(std::string id, std::string message) {
  return {ErrorKind::shape, std::move(id), "[check] " + std::move(message)};
}

std::string_view words_of(FileLayout layout) {
  switch (layout) {
    case FileLayout::bhtd:
      return "[B, H, T, D]";
    case FileLayout::bthd:
      return "[B, T, H, D]";
    case FileLayout::packed:
      return "[B, T, H*D]";
    case FileLayout::lbe:
      return "[T, B, H*D]";
  }
  return "";
}

using Extents = std::array<std::int64_t, 4>;

/// [B, H, T, D] of a shape that lies so, or nothing.
std::optional<Extents> extents_of(const Shape& s, FileLayout layout, std::int64_t heads) {
  const std::size_t rank = s.size();
  if (layout == FileLayout::packed || layout == FileLayout::lbe) {
    if (rank < 2 || rank > 3 || heads < 1 || s.back() % heads != 0) return std::nullopt;
    if (layout == FileLayout::lbe) {
      if (rank != 3) return std::nullopt;
      return Extents{s[1], heads, s[0], s[2] / heads};
    }
    return Extents{rank == 3 ? s[0] : 1, heads, s[rank - 2], s.back() / heads};
  }
  if (rank < 2 || rank > 4 || (layout == FileLayout::bthd && rank < 3)) return std::nullopt;
  Extents out{rank == 4 ? s[0] : 1, rank >= 3 ? s[rank - 3] : 1, s[rank - 2], s[rank - 1]};
  if (layout == FileLayout::bthd) std::swap(out[1], out[2]);
  return out;
}

bool known(const Shape& shape) { return !shape.empty(); }

/// Whether the tensors can belong to one call if they lie so.
bool fits(const GivenShapes& g, const ChosenLayout& as) {
  std::optional<Extents> q, k, v;
  if (known(g.query) && !(q = extents_of(g.query, as.layout, as.heads))) return false;
  if (known(g.key) && !(k = extents_of(g.key, as.layout, as.kv_heads))) return false;
  if (known(g.value) && !(v = extents_of(g.value, as.layout, as.kv_heads))) return false;
  const auto shared = [](std::int64_t h, std::int64_t kv) { return kv > 0 && h % kv == 0; };
  if (q && k && ((*q)[0] != (*k)[0] || (*q)[3] != (*k)[3] || !shared((*q)[1], (*k)[1]))) {
    return false;
  }
  if (k && v && ((*k)[0] != (*v)[0] || (*k)[1] != (*v)[1])) return false;
  if (q && g.packed_end && (*q)[2] != *g.packed_end) return false;
  const Shape& table = g.table;
  if (known(table) && table.size() >= 2) {
    const std::int64_t queries = table[table.size() - 2];
    if (q && (*q)[2] != queries) return false;
    // Cached keys make a table wider than the keys.
    if (v && (*v)[2] > table.back()) return false;
    if (table.size() == 4 && q && ((*q)[0] != table[0] || (*q)[1] != table[1])) return false;
    if (table.size() == 4 && v && ((*v)[0] != table[0] || !shared(table[1], (*v)[1]))) return false;
  }
  if (known(g.output) && q && v) {
    const Extents produced{(*q)[0], (*q)[1], (*q)[2], (*v)[3]};
    if (arrangements(g.output, produced, as.layout).empty()) return false;
  }
  return true;
}

/// Head counts of packed rows, from the options, the weights, or the widths.
ChosenLayout with_heads(const DumpOptions& o, const GivenShapes& g, FileLayout layout) {
  ChosenLayout out{layout};
  if (layout != FileLayout::packed && layout != FileLayout::lbe) return out;
  out.heads = o.inputs.heads.value_or(g.table.size() == 4 ? g.table[1] : 0);
  out.kv_heads = o.inputs.kv_heads.value_or(0);
  if (out.kv_heads > 0 || out.heads < 1) return out;
  out.kv_heads = out.heads;
  // D = width of query / H, so that G = width of key / D.
  if (known(g.query) && known(g.key) && g.query.back() % out.heads == 0) {
    const std::int64_t width = g.query.back() / out.heads;
    if (width > 0 && g.key.back() % width == 0) out.kv_heads = g.key.back() / width;
  }
  return out;
}

const Shape& inputs_of(const GivenShapes& g) { return known(g.query) ? g.query : g.value; }

/// Whether rank 3 is [B, T, H*D] or [T, B, H*D] to that framework, and never heads apart.
bool packs_rank_3(const std::optional<Convention>& convention) {
  if (!convention) return false;
  return convention->layout == Layout::bt_hd || convention->layout == Layout::lbe ||
         convention->name.starts_with("onnx-");
}

std::vector<FileLayout> candidates(const DumpOptions& o,
                                   const std::optional<Convention>& convention,
                                   const GivenShapes& g) {
  const Shape& shape = inputs_of(g);
  if (shape.size() == 3 && packs_rank_3(convention)) return {FileLayout::packed, FileLayout::lbe};
  if (shape.size() == 4) return {FileLayout::bhtd, FileLayout::bthd};
  const bool heads = o.inputs.heads || g.table.size() == 4;
  if (shape.size() == 2) {
    return heads ? std::vector{FileLayout::packed} : std::vector{FileLayout::bhtd};
  }
  if (o.inputs.heads) return {FileLayout::packed, FileLayout::lbe};
  if (heads) return {FileLayout::bhtd, FileLayout::packed, FileLayout::bthd};
  return {FileLayout::bhtd, FileLayout::bthd};
}

std::string shapes_text(const GivenShapes& g) {
  std::string out;
  const std::pair<const char*, const Shape*> all[] = {{"query", &g.query},
                                                      {"key", &g.key},
                                                      {"value", &g.value},
                                                      {"weights or scores", &g.table},
                                                      {"output", &g.output}};
  for (const auto& [name, shape] : all) {
    if (known(*shape)) out += sentence(out.empty() ? "" : ", ", name, " ", to_string(*shape));
  }
  return out;
}

/// The layouts that fit, the convention's first.
std::vector<ChosenLayout> fitting(const DumpOptions& o, const std::optional<Convention>& convention,
                                  const GivenShapes& g) {
  std::vector<FileLayout> order = candidates(o, convention, g);
  if (convention) {
    const auto preferred = layout_of("", convention);
    const auto found = preferred ? std::ranges::find(order, *preferred) : order.end();
    if (found != order.end()) std::rotate(order.begin(), found, found + 1);
  }
  std::vector<ChosenLayout> out;
  for (const FileLayout layout : order) {
    const ChosenLayout as = with_heads(o, g, layout);
    if (fits(g, as)) out.push_back(as);
  }
  return out;
}

}  // namespace

namespace {

/// How many heads rows of rank 3 could hold side by side, with two features each at least.
std::vector<std::int64_t> packed_heads(const GivenShapes& g, FileLayout read_as) {
  constexpr std::int64_t most = 256;
  std::vector<std::int64_t> out;
  const std::int64_t width = inputs_of(g).back();
  // One head beside nothing is what heads apart are already.
  const std::int64_t least = read_as == FileLayout::bhtd ? 2 : 1;
  for (std::int64_t heads = least; heads <= std::min(most, width / 2); ++heads) {
    DumpOptions packed;
    packed.inputs.heads = heads;
    if (width % heads == 0 && fits(g, with_heads(packed, g, FileLayout::packed))) {
      out.push_back(heads);
    }
  }
  return out;
}

Result<ChosenLayout> chosen(const DumpOptions& o, const std::optional<Convention>& convention,
                            const GivenShapes& g) {
  if (!o.inputs.layout.empty()) {
    const auto said = layout_of(o.inputs.layout, convention);
    if (!said) return said.failure();
    ChosenLayout out = with_heads(o, g, *said);
    // One head, wherever heads would stand.
    const Shape& shape = known(g.query) ? g.query : g.value;
    if (shape.size() == 2 && out.heads < 1) out.layout = FileLayout::bhtd;
    return out;
  }
  if (!known(g.query) && !known(g.value)) return ChosenLayout{};
  const Shape& shape = inputs_of(g);
  const bool heads_known = o.inputs.heads || g.table.size() == 4;
  if (shape.size() == 3 && !heads_known && packs_rank_3(convention)) {
    return bad("missing-heads",
               sentence("to ", convention->name, " rank 3 is ",
                        convention->layout == Layout::lbe ? "[T, B, H*D]" : "[B, T, H*D]",
                        ", and nothing says how many heads there are: --heads H; or --layout bhtd "
                        "if it is [H, T, D]"));
  }
  std::vector<ChosenLayout> open = fitting(o, convention, g);
  if (open.empty()) {
    return bad("bad-layout",
               sentence("in no order of axes do these fit each other: ", shapes_text(g),
                        shape.size() == 3 ? "; packed rows [B, T, H*D] need --heads" : ""));
  }
  ChosenLayout out = open[0];
  if (shape.size() == 2 && out.layout == FileLayout::bhtd) return out;
  out.why = sentence("layout: ", words_of(out.layout));
  if (shape.size() == 3 && !heads_known) out.packed_heads = packed_heads(g, out.layout);
  const bool packed = !out.packed_heads.empty();
  if (open.size() == 1 && !packed) out.why += ", the only order in which the shapes fit each other";
  for (std::size_t n = 1; n < open.size(); ++n) {
    out.why += sentence(n == 1 ? "; the shapes would fit " : " and ", words_of(open[n].layout));
  }
  if (open.size() > 1) out.why += " too: --layout says otherwise";
  if (packed) out.why += "; rank 3 could be [B, T, H*D] too: --heads says so";
  return out;
}

}  // namespace

Result<ChosenLayout> choose_layout(const DumpOptions& o,
                                   const std::optional<Convention>& convention,
                                   const GivenShapes& g) {
  auto out = chosen(o, convention, g);
  if (!out) return out;
  const bool counts = out->layout == FileLayout::packed || out->layout == FileLayout::lbe;
  if (counts || (!o.inputs.heads && !o.inputs.kv_heads)) return out;
  return bad("heads-not-used",
             sentence("--heads and --kv-heads are for packed rows; these tensors lie as ",
                      words_of(out->layout)));
}

std::vector<Arrangement> arrangements(const Shape& shape, const Extents& e, FileLayout first) {
  const auto [B, H, T, E] = e;
  // Each as axes of the four, outermost first, with the product that stands side by side last.
  const std::vector<std::pair<std::string, std::vector<std::pair<int, std::int64_t>>>> known_orders{
      {"[B, H, T, E]", {{0, B}, {1, H}, {2, T}, {3, E}}},
      {"[B, T, H, E]", {{0, B}, {2, T}, {1, H}, {3, E}}},
      {"[B, T, H*E]", {{0, B}, {2, T}, {13, H * E}}},
      {"[T, B, H*E]", {{2, T}, {0, B}, {13, H * E}}}};
  const std::size_t preferred = static_cast<std::size_t>(first);
  std::vector<std::size_t> order{preferred};
  // Where heads lie apart in the inputs, packed rows come next: people merge heads at the end.
  for (const std::size_t n : {std::size_t{2}, std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    if (n != preferred) order.push_back(n);
  }
  std::vector<Arrangement> out;
  for (const std::size_t n : order) {
    const auto& [axes, parts] = known_orders[n];
    Shape full;
    for (const auto& [axis, extent] : parts) full.push_back(extent);
    // Axes of 1 may be missing, from the left.
    Shape shorter = full;
    while (shorter.size() > shape.size() && shorter.size() > 2) {
      const auto one = std::ranges::find(shorter.begin(), shorter.end() - 2, 1);
      if (one == shorter.end() - 2) break;
      shorter.erase(one);
    }
    if (shorter != shape) continue;
    Arrangement found{axes, {}};
    std::int64_t step = 1;
    for (std::size_t axis = parts.size(); axis-- > 0;) {
      const auto& [which, extent] = parts[axis];
      if (which == 13) {
        found.strides[3] = 1;
        found.strides[1] = E;
      } else {
        found.strides[static_cast<std::size_t>(which)] = step;
      }
      step *= extent;
    }
    // The step along an axis of 1 is never taken.
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (e[axis] == 1) found.strides[axis] = 0;
    }
    const bool again = std::ranges::any_of(
        out, [&](const Arrangement& each) { return each.strides == found.strides; });
    if (!again) out.push_back(std::move(found));
  }
  return out;
}

Result<Tensor<double>> arranged(const Tensor<double>& tensor, const OutputRequest& request,
                                std::vector<std::string>& remarks) {
  const auto& [B, H, T, E] = request.extents;
  FileLayout first = request.inputs;
  if (!request.word.empty()) first = layout_of(request.word, std::nullopt).value();
  std::vector<Arrangement> ways = arrangements(tensor.shape(), request.extents, first);
  const std::string wanted[] = {"[B, H, T, E]", "[B, T, H, E]", "[B, T, H*E]", "[T, B, H*E]"};
  if (!request.word.empty()) {
    std::erase_if(ways, [&](const Arrangement& way) {
      return way.axes != wanted[static_cast<std::size_t>(first)];
    });
  }
  if (ways.empty()) {
    return bad("bad-output-shape",
               sentence(request.name, " has shape ", to_string(tensor.shape()),
                        request.word.empty() ? "; the inputs ask for [B, H, T, E] = "
                                             : "; it is no such layout of [B, H, T, E] = ",
                        to_string(Shape{B, H, T, E}),
                        request.word.empty() ? " in some order, or packed" : ""));
  }
  if (ways.size() > 1) {
    std::string others;
    for (std::size_t n = 1; n < ways.size(); ++n) {
      others += sentence(n == 1 ? "" : " and ", ways[n].axes);
    }
    remarks.push_back(sentence(request.name, " is read as ", ways[0].axes, "; its shape fits ",
                               others, " too: --output-layout says otherwise"));
  }
  const View<const double, 4> view(tensor.data(), request.extents, ways[0].strides);
  Tensor<double> out(Shape{B, H, T, E});
  std::size_t n = 0;
  if (out.size() == 0) return out;
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < H; ++h) {
      for (std::int64_t t = 0; t < T; ++t) {
        for (std::int64_t x = 0; x < E; ++x) out.elements()[n++] = view(b, h, t, x);
      }
    }
  }
  return out;
}

Result<Tensor<double>> table_of(Tensor<double> tensor, std::string_view name,
                                const lab::AttentionShape& s) {
  const Shape given = tensor.shape();
  const bool sums = s.S == 0;
  Shape full{s.B, s.H, s.T};
  if (!sums) full.push_back(s.S);
  const std::size_t least = sums ? 1 : 2;
  std::vector<Shape> accepted{full};
  if (sums) accepted.push_back({s.B, s.H, s.T, 1});
  Shape joined = full;
  joined[0] *= joined[1];
  joined.erase(joined.begin() + 1);
  accepted.push_back(joined);  // [B*H, T, S], as batched products have it
  Shape shorter = full;
  while (shorter.size() > least) {
    const auto one =
        std::ranges::find(shorter.begin(), shorter.end() - static_cast<std::ptrdiff_t>(least), 1);
    if (one == shorter.end() - static_cast<std::ptrdiff_t>(least)) break;
    shorter.erase(one);
    accepted.push_back(shorter);
  }
  if (std::ranges::find(accepted, given) != accepted.end()) {
    return std::move(tensor).reshaped(std::move(full));
  }
  if (sums && given == Shape{s.B, s.T, s.H}) {
    Tensor<double> out(full);
    for (std::int64_t b = 0; b < s.B; ++b) {
      for (std::int64_t t = 0; t < s.T; ++t) {
        for (std::int64_t h = 0; h < s.H; ++h) out(b, h, t) = tensor(b, t, h);
      }
    }
    return out;
  }
  const bool averaged = !sums && s.H > 1 && given == Shape{s.B, s.T, s.S};
  return bad("bad-table-shape",
             sentence(name, " has shape ", to_string(given), "; ", to_string(full),
                      sums ? " [B, H, T] is expected" : " [B, H, T, S] is expected",
                      averaged ? ": these are averages over heads, which no output comes from "
                                 "(nn.MultiheadAttention: average_attn_weights=False)"
                               : ""));
}

}  // namespace attest::cli
