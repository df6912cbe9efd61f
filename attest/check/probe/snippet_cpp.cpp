// SPDX-License-Identifier: MIT
// The snippet in C++: one file without libraries, with plain loops where the function under test goes.
#include <utility>

#include "attest/base/conventions.h"
#include "attest/base/shape.h"
#include "attest/check/probe/snippet_parts.h"

namespace attest::check {
namespace {

constexpr std::string_view file_helpers = R"(
/// The probe: 8 bytes with the length of a JSON header, the header, the tensors.
struct File {
  std::string header, data;
};

File read_file() {
  std::ifstream in(PROBE, std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (all.size() < 8) std::cerr << "cannot read " << PROBE << "\n", std::exit(2);
  std::uint64_t size = 0;
  std::memcpy(&size, all.data(), 8);
  return {all.substr(8, size), all.substr(8 + size)};
}

double half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double x = std::ldexp(exponent ? fraction + 1024 : fraction, exponent ? exponent - 25 : -24);
  if (exponent == 31) x = fraction ? NAN : INFINITY;
  return bits & 0x8000 ? -x : x;
}

/// The tensor of that name, whatever its number type: booleans are 0 and 1.
Numbers read(const File& file, const std::string& name) {
  const std::size_t entry = file.header.find("\"" + name + "\":{");
  if (entry == std::string::npos) std::cerr << "no tensor " << name << "\n", std::exit(2);
  const std::size_t type = file.header.find("\"dtype\":\"", entry) + 9;
  const std::string dtype = file.header.substr(type, file.header.find('"', type) - type);
  const char* place = &file.header[file.header.find("\"data_offsets\":[", entry) + 16];
  char* comma = nullptr;
  const std::size_t begin = std::strtoull(place, &comma, 10);
  const std::size_t end = std::strtoull(comma + 1, nullptr, 10);
  const std::size_t width = dtype == "BOOL" ? 1 : dtype[dtype.size() - 2] == '1' ? 2
                            : dtype[dtype.size() - 2] == '3' ? 4 : 8;
  Numbers out;
  for (std::size_t at = begin; at < end; at += width) {
    const char* bytes = &file.data[at];
    const auto as = [&](auto x) { std::memcpy(&x, bytes, sizeof x); return x; };
    out.push_back(static_cast<Number>(
        dtype == "F64" ? as(0.0) : dtype == "F32" ? as(0.0F) : dtype == "I32" ? as(std::int32_t{})
        : dtype == "F16" ? half(as(std::uint16_t{}))
        : dtype == "BF16" ? bfloat(as(std::uint16_t{}))
        : *bytes));
  }
  return out;
}
)";

class CppSnippet {
 public:
  CppSnippet(const Probe& probe, const ProbePlace& place)
      : p_(probe), place_(place), f_(probe.request.features), mask_(probe.claim.call.mask) {}

  std::string text() {
    write_top();
    write_function();
    write_main();
    return top_.text() + std::string(file_helpers) + body_.text();
  }

 private:
  [[nodiscard]] bool has(std::string_view name) const { return p_.file.find(name) != nullptr; }

  void write_top() {
    const std::string name = name_of_snippet(place_, Framework::cpp);
    const std::string program = name.substr(0, name.size() - 4);
    top_("// Runs one attention function on ", place_.name, " and writes ", name_of_dump(place_),
         ".");
    top_("// Edit `attention`, then");
    top_("//");
    top_("//     g++ -std=c++17 -O2 ", name, " -o ", program, " && ./", program);
    top_("//     attest check ", name_of_dump(place_));
    for (const char* header : {"cmath", "cstdint", "cstdlib", "cstring", "fstream", "iostream",
                               "iterator", "string", "vector"}) {
      top_("#include <", header, ">");
    }
    const auto& n = p_.shape.call;
    top_();
    top_("const std::string PROBE = \"", place_.name, "\", DUMP = \"", name_of_dump(place_), "\";");
    top_("using Number = ", p_.request.dtype == DType::f64 ? "double" : "float", ";");
    top_("using Numbers = std::vector<Number>;");
    const std::string past = has("past_key") ? sentence(", PAST = ", p_.shape.past) : "";
    top_("constexpr int B = ", n.B, ", H = ", n.H, ", G = ", n.G, ", T = ", n.T, ", S = ", n.S,
         ", D = ", n.D, ", E = ", n.E, past, ";");
    top_();
    top_("double bfloat(std::uint16_t bits) {");
    top_("  const std::uint32_t wide = std::uint32_t{bits} << 16;");
    top_("  float x = 0;");
    top_("  std::memcpy(&x, &wide, sizeof x);");
    top_("  return x;");
    top_("}");
  }

  /// The place of [b, h, i, d] in the layout of the file; `width` and the like are its extents.
  static std::string index(const std::string& layout) {
    if (layout == "bhtd") return "((b * heads + h) * length + i) * width + d";
    if (layout == "lbe") return "((i * B + b) * heads + h) * width + d";
    return "((b * length + i) * heads + h) * width + d";
  }

  void write_function() {
    body_();
    body_("/// Where [b, h, i, d] lies in a tensor of so many heads, rows and columns.");
    body_("std::size_t at(int b, int h, int i, int d, int heads, ",
          p_.shape.layout == "lbe" ? "int, " : "int length, ", "int width) {");
    body_("  return std::size_t(", index(p_.shape.layout), ");");
    body_("}");
    if (p_.shape.output_layout != p_.shape.layout) {
      body_();
      body_("/// The same for the output, which is laid out ", p_.shape.output_layout, ".");
      body_(
          "std::size_t at_output(int b, int h, int i, int d, int heads, int length, int width) {");
      body_("  return std::size_t(", index(p_.shape.output_layout), ");");
      body_("}");
    }
    if (f_.rope) write_turned();
    body_();
    body_("struct Results {");
    body_("  Numbers output", f_.gradients ? ", d_query, d_key, d_value" : "", ";");
    body_("};");
    body_();
    body_("/// The function under test: put your own in its place.");
    body_("///");
    for (const auto& [name, tensor] : p_.file.tensors) {
      body_("/// ", name, " ", to_string(tensor.shape()), " ", name_of(tensor.dtype()));
    }
    for (const auto& [option, said] : texts_of(p_.words)) body_("/// ", option, ": ", said);
    std::string arguments;
    for (const std::string& name : arguments_of(p_)) {
      arguments += sentence(arguments.empty() ? "" : ", ", "const Numbers& ", name);
    }
    body_("Results attention(", arguments, ") {");
    body_.indent(2);
    body_("Results out{Numbers(B * H * T * E)",
          f_.gradients ? ", Numbers(B * H * T * D), Numbers(B * G * S * D), Numbers(B * G * S * E)"
                       : "",
          "};");
    body_("const double scale = ",
          p_.claim.call.scale ? shortest(*p_.claim.call.scale) : "1 / std::sqrt(double(D))", ";");
    body_("for (int b = 0; b < B; ++b) for (int h = 0; h < H; ++h) for (int i = 0; i < T; ++i) {");
    body_.indent(2);
    write_row();
    body_.indent(-2);
    body_("}");
    body_("return out;");
    body_.indent(-2);
    body_("}");
  }

  [[nodiscard]] std::string place_of_output() const {
    return p_.shape.output_layout == p_.shape.layout ? "at" : "at_output";
  }

  void write_turned() {
    body_();
    body_(
        "/// x[b, h, i, d] turned by its position: pairs of features by position * base^(-2 pair / "
        "D).");
    body_(
        "double turned(const Numbers& x, int b, int h, int i, int d, int heads, int length, double "
        "position) {");
    if (f_.interleaved) {
      body_("  const int pair = d / 2, other = d % 2 == 0 ? d + 1 : d - 1;");
      body_("  const double sign = d % 2 == 0 ? -1 : 1;");
    } else {
      body_("  const int pair = d % (D / 2), other = d < D / 2 ? d + D / 2 : d - D / 2;");
      body_("  const double sign = d < D / 2 ? -1 : 1;");
    }
    body_("  const double angle = position * std::pow(", p_.words.rope_base.value_or(10000),
          ".0, -2.0 * pair / D);");
    body_("  return x[at(b, h, i, d, heads, length, D)] * std::cos(angle) +");
    body_("         sign * x[at(b, h, i, other, heads, length, D)] * std::sin(angle);");
    body_("}");
  }

  /// Reads of query, key and value, cached or turned.
  void write_reads() {
    const bool by_batch = f_.rope && p_.claim.rope->query_positions.size() !=
                                         static_cast<std::size_t>(p_.shape.call.T);
    const std::string q_position = by_batch ? "query_positions[b * T + i]" : "query_positions[i]";
    const std::string length = has("past_key") ? "S - PAST" : "S";
    const std::string j = has("past_key") ? "j - PAST" : "j";
    body_("const int g = h / (H / G);");
    body_("const auto q = [&](int d) -> double {");
    body_("  return ",
          f_.rope ? sentence("turned(query, b, h, i, d, H, T, ", q_position, ")")
                  : "query[at(b, h, i, d, H, T, D)]",
          ";");
    body_("};");
    for (const auto& [name, tensor, width, axis] :
         {std::tuple{"k", "key", "D", "d"}, std::tuple{"v", "value", "E", "e"}}) {
      body_("const auto ", name, " = [&](int j, int ", axis, ") -> double {");
      const bool turn = f_.rope && *name == 'k';
      const std::string cached =
          p_.shape.layout == "bthd"
              ? sentence("at(b, g, j, ", axis, ", G, PAST, ", width, ")")
              : sentence("std::size_t(((b * G + g) * PAST + j) * ", width, " + ", axis, ")");
      if (has("past_key") && !turn) {
        body_("  if (j < PAST) return past_", tensor, "[", cached, "];");
      }
      if (turn) {
        if (has("past_key")) {
          body_("  if (j < PAST) return turned(past_key, b, g, j, d, G, PAST, key_positions[j]);");
        }
        body_("  return turned(key, b, g, ", j, ", d, G, ", length, ", key_positions[j]);");
      } else {
        body_("  return ", tensor, "[at(b, g, ", j, ", ", axis, ", G, ", length, ", ", width,
              ")];");
      }
      body_("};");
    }
  }

  void write_position() {
    if (f_.packed) {
      body_("int document = 0;");
      body_("while (i >= query_starts[document + 1]) ++document;");
      body_("const int first = int(key_starts[document]), last = int(key_starts[document + 1]);");
      body_("const int position = first + i - int(query_starts[document])",
            mask_.corner == Corner::bottom_right
                ? " + last - first - int(query_starts[document + 1] - query_starts[document])"
                : "",
            ";");
      return;
    }
    if (!f_.causal && !f_.window && !f_.alibi) return;
    std::string offset;
    if (f_.lengths && (mask_.corner == Corner::bottom_right || mask_.query_offset.size() > 1)) {
      offset = " + int(key_lengths[b]) - T";
    } else if (mask_.corner == Corner::bottom_right) {
      offset = " + S - T";
    } else if (!mask_.query_offset.empty()) {
      offset = sentence(" + ", mask_.query_offset[0]);
    }
    body_("const int position = i", offset, ";  // of query i among the keys");
  }

  [[nodiscard]] std::vector<std::string> hidden_if() const {
    std::vector<std::string> out;
    if (f_.causal) out.emplace_back("j > position");
    if (mask_.window.left) out.push_back(sentence("j < position - ", *mask_.window.left));
    if (mask_.window.right) out.push_back(sentence("j > position + ", *mask_.window.right));
    if (f_.lengths) out.emplace_back("j >= key_lengths[b]");
    if (f_.packed) out.emplace_back("j < first || j >= last");
    if (f_.mask) {
      const AnyTensor& mask = *p_.file.find("mask");
      const auto convention = find_convention(p_.words.convention);
      const bool true_hidden = mask.dtype() == DType::boolean && convention &&
                               convention->boolean_mask == BooleanMask::true_hidden;
      const bool zero_visible = is_floating(mask.dtype()) || true_hidden;
      out.push_back(sentence("mask[(b * T + i) * S + j] ", zero_visible ? "!=" : "==", " 0"));
    }
    return out;
  }

  void write_row() {
    write_reads();
    write_position();
    body_("std::vector<double> scores(S), weights(S);");
    const bool slope = f_.softcap && f_.gradients;
    if (slope) body_("std::vector<double> slope(S);  // of the cap, for the way back");
    const std::string start = f_.sink ? "sink[h]" : "-INFINITY";
    body_("double peak = ", start, ", total = 0;");
    body_("for (int j = 0; j < S; ++j) {");
    body_.indent(2);
    const auto rules = hidden_if();
    std::string hidden;
    for (const std::string& rule : rules) hidden += (hidden.empty() ? "" : " || ") + rule;
    body_("scores[j] = -INFINITY;");
    if (!hidden.empty()) body_("if (", hidden, ") continue;");
    body_("double score = 0;");
    body_("for (int d = 0; d < D; ++d) score += q(d) * k(j, d);");
    body_("score *= scale;");
    if (f_.softcap) {
      const double cap = *p_.words.softcap;
      if (slope) body_("slope[j] = 1 - std::pow(std::tanh(score / ", cap, "), 2);");
      body_("score = ", cap, " * std::tanh(score / ", cap, ");");
    }
    if (f_.bias) body_("score += bias[((b * H + h) * T + i) * S + j];");
    if (f_.alibi) body_("score -= alibi_slopes[h] * std::abs(position - j);");
    body_("scores[j] = score;");
    body_("peak = std::fmax(peak, score);");
    body_.indent(-2);
    body_("}");
    if (p_.claim.call.empty_row == EmptyRow::zero) {
      body_("if (peak == -INFINITY) continue;  // a row without keys stays 0");
    }
    body_("for (int j = 0; j < S; ++j) total += weights[j] = std::exp(scores[j] - peak);");
    if (f_.sink) body_("total += std::exp(sink[h] - peak);  // joins the denominator alone");
    body_("for (int j = 0; j < S; ++j) weights[j] /= total;");
    if (f_.gradients && f_.dropout) body_("const std::vector<double> softmax = weights;");
    if (f_.dropout) {
      body_(
          "for (int j = 0; j < S; ++j) weights[j] *= dropout_keep[((b * H + h) * T + i) * S + j] "
          "/ ",
          1 - *p_.words.dropout, ";");
    }
    body_("for (int e = 0; e < E; ++e) {");
    body_("  double sum = 0;");
    body_("  for (int j = 0; j < S; ++j) if (weights[j] != 0) sum += weights[j] * v(j, e);");
    body_("  out.output[", place_of_output(), "(b, h, i, e, H, T, E)] = Number(sum);");
    body_("}");
    if (f_.gradients) write_backward();
  }

  void write_backward() {
    const std::string softmax = f_.dropout ? "softmax" : "weights";
    body_("std::vector<double> d_weights(S);");
    body_("double mean = 0;");
    body_("for (int j = 0; j < S; ++j) {");
    body_("  for (int e = 0; e < E; ++e) d_weights[j] += d_output[", place_of_output(),
          "(b, h, i, e, H, T, E)] * v(j, "
          "e);");
    if (f_.dropout) {
      body_("  d_weights[j] *= dropout_keep[((b * H + h) * T + i) * S + j] / ",
            1 - *p_.words.dropout, ";");
    }
    body_("  mean += ", softmax, "[j] * d_weights[j];");
    body_("}");
    body_("for (int j = 0; j < S; ++j) {");
    body_("  const double d_dot = scale * ", softmax, "[j] * (d_weights[j] - mean)",
          f_.softcap ? " * slope[j]" : "", ";");
    body_("  for (int d = 0; d < D; ++d) {");
    body_("    out.d_query[at(b, h, i, d, H, T, D)] += Number(d_dot * k(j, d));");
    body_("    out.d_key[at(b, g, j, d, G, S, D)] += Number(d_dot * q(d));");
    body_("  }");
    body_("  for (int e = 0; e < E; ++e) {");
    body_("    out.d_value[at(b, g, j, e, G, S, E)] +=");
    body_("        Number(weights[j] * d_output[", place_of_output(), "(b, h, i, e, H, T, E)]);");
    body_("  }");
    body_("}");
  }

  void write_main() {
    body_();
    body_("/// Appends a tensor to the file.");
    body_(
        "void append(File& file, const std::string& name, const Numbers& x, const std::string& "
        "shape) {");
    body_("  const std::size_t begin = file.data.size(), bytes = x.size() * sizeof(Number);");
    body_("  file.data.append(reinterpret_cast<const char*>(x.data()), bytes);");
    body_("  file.header.erase(file.header.rfind('}'));");
    body_(
        "  file.header += \",\\\"\" + name + \"\\\":{\\\"dtype\\\":\\\"F\" + std::to_string(8 * "
        "sizeof(Number)) +");
    body_(
        "                 \"\\\",\\\"shape\\\":\" + shape + \",\\\"data_offsets\\\":[\" + "
        "std::to_string(begin) + \",\" +");
    body_("                 std::to_string(begin + bytes) + \"]}}\";");
    body_("}");
    body_();
    body_("int main() {");
    body_.indent(2);
    body_("File file = read_file();");
    std::string arguments;
    for (const std::string& name : arguments_of(p_)) {
      arguments += sentence(arguments.empty() ? "" : ", ", "read(file, \"", name, "\")");
    }
    body_("const Results results = attention(", arguments, ");");
    append("output", shape_of_output());
    if (f_.gradients) {
      append("d_query", p_.file.find("query")->shape());
      append("d_key", p_.file.find("key")->shape());
      append("d_value", p_.file.find("value")->shape());
    }
    body_("while (file.header.size() % 8 != 0) file.header += ' ';");
    body_("const std::uint64_t size = file.header.size();");
    body_("std::ofstream out(DUMP, std::ios::binary);");
    body_("out.write(reinterpret_cast<const char*>(&size), 8) << file.header << file.data;");
    body_("std::cout << \"wrote \" << DUMP << \"\\n\";");
    body_("return out.good() ? 0 : 2;");
    body_.indent(-2);
    body_("}");
  }

  void append(const char* name, const Shape& shape) {
    body_("append(file, \"", name, "\", results.", name, ", \"", to_string(shape), "\");");
  }

  [[nodiscard]] Shape shape_of_output() const {
    Shape shape = p_.file.find("query")->shape();
    const auto& n = p_.shape.call;
    const bool packed = p_.shape.layout == "packed" || p_.shape.layout == "lbe";
    if (p_.shape.output_layout != p_.shape.layout) std::swap(shape[1], shape[2]);
    shape.back() = packed ? n.H * n.E : n.E;
    return shape;
  }

  const Probe& p_;
  const ProbePlace& place_;
  const ProbeFeatures& f_;
  const Mask& mask_;
  Lines top_, body_;
};

}  // namespace

Result<std::string> cpp_snippet(const Probe& probe, const ProbePlace& place) {
  if (place.format != ProbeFormat::safetensors) {
    return Failure{ErrorKind::value, "not-offered",
                   "[probe] the C++ snippet reads safetensors, which takes no library; write the "
                   "probe as .safetensors"};
  }
  return CppSnippet(probe, place).text();
}

}  // namespace attest::check
