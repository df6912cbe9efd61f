// SPDX-License-Identifier: MIT
#include <charconv>

#include "attest/base/text.h"
#include "attest/lab/trace.h"

namespace attest::lab {
namespace {

Failure bad_address(std::string_view text, std::string what) {
  return {ErrorKind::value, "bad-address",
          sentence("[trace] '", text, "' is not an address: ", what,
                   "; write stage[i,j], counted from 0")};
}

/// Where an address begins its stage, and which batch and head it names.
struct Place {
  std::int64_t b = 0;
  std::int64_t h = 0;
  std::string_view stage;
};

/// Reads "<word>N." off the front of `name`.
bool take_number(std::string_view& name, std::string_view word, std::int64_t& number) {
  if (!name.starts_with(word)) return false;
  const char* begin = name.data() + word.size();
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, number);
  if (error != std::errc{} || rest == end || *rest != '.') return false;
  name.remove_prefix(static_cast<std::size_t>(rest + 1 - name.data()));
  return true;
}

Failure no_such_input(std::string_view name, std::string_view known) {
  return {ErrorKind::value, "no-such-input",
          sentence("[trace] '", name, "' is not an input of this case; there are: ", known)};
}

Failure no_such_index(const Address& address, const Shape& shape) {
  return {ErrorKind::value, "no-such-index",
          sentence("[trace] ", address.text(), " lies outside ", to_string(shape))};
}

bool inside(const std::vector<std::int64_t>& index, const Shape& shape) {
  if (index.size() != shape.size()) return false;
  for (std::size_t axis = 0; axis < index.size(); ++axis) {
    if (index[axis] < 0 || index[axis] >= shape[axis]) return false;
  }
  return true;
}

/// A broadcast table made whole, so that one cell of it can be changed alone.
template <class T>
Tensor<T> whole(const std::optional<Tensor<T>>& part, const Shape& shape, T filler) {
  Tensor<T> out(shape);
  std::fill(out.elements().begin(), out.elements().end(), filler);
  if (!part) return out;
  const auto view = broadcast(part->template view<4>(), {shape[0], shape[1], shape[2], shape[3]});
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t i = 0; i < shape[2]; ++i) {
        for (std::int64_t j = 0; j < shape[3]; ++j) out(b, h, i, j) = view(b, h, i, j);
      }
    }
  }
  return out;
}

}  // namespace

std::string Address::text() const {
  std::string out = name;
  for (std::size_t axis = 0; axis < index.size(); ++axis) {
    out += sentence(axis == 0 ? "[" : ",", index[axis]);
  }
  return index.empty() ? out : out + "]";
}

Result<Address> parse_address(std::string_view text) {
  Address out;
  const std::size_t bracket = text.find('[');
  out.name = text.substr(0, bracket);
  if (out.name.empty()) return bad_address(text, "it has no stage name");
  for (const char c : out.name) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!word && c != '_' && c != '.')
      return bad_address(text, sentence("'", c, "' cannot stand in a name"));
  }
  if (bracket == std::string_view::npos) return out;
  if (!text.ends_with(']')) return bad_address(text, "the bracket is not closed");
  std::string_view rest = text.substr(bracket + 1, text.size() - bracket - 2);
  while (true) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc{} || number < 0)
      return bad_address(text, "an index is not a whole number");
    out.index.push_back(number);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty()) return out;
    if (rest.front() != ',') return bad_address(text, "indices are separated by commas");
    rest.remove_prefix(1);
  }
}

Result<void> set_input(AttentionCase& call, const Address& address, double value) {
  constexpr std::string_view known = "query key value mask bias";
  Place at{.stage = address.name};
  const bool names_batch = take_number(at.stage, "batch", at.b);
  const bool names_head = take_number(at.stage, "h", at.h);
  const std::int64_t B = call.query.extent(0);
  const std::int64_t H = call.query.extent(1);
  // As in a trace: a part is named if there are several of its kind, and only then.
  if (names_batch != (B > 1) || names_head != (H > 1)) {
    return no_such_input(address.name, sentence(B > 1 ? "batchN." : "", H > 1 ? "hN." : "",
                                                "query, key, value, mask, bias"));
  }
  const Shape table{B, H, call.query.extent(2), call.key.extent(2)};
  if (at.b < 0 || at.b >= B || at.h < 0 || at.h >= H)
    return no_such_index(address, call.query.shape());
  const auto store = [&](auto& tensor, std::int64_t head, auto number) -> Result<void> {
    const Shape plane{tensor.extent(2), tensor.extent(3)};
    if (!inside(address.index, plane)) return no_such_index(address, plane);
    tensor(at.b, head, address.index[0], address.index[1]) = number;
    return {};
  };
  const std::int64_t heads_per_group = H / std::max<std::int64_t>(call.key.extent(1), 1);
  if (at.stage == "query") return store(call.query, at.h, value);
  if (at.stage == "key") return store(call.key, at.h / heads_per_group, value);
  if (at.stage == "value") return store(call.value, at.h / heads_per_group, value);
  if (at.stage == "bias") {
    call.bias = whole(call.bias, table, 0.0);
    return store(*call.bias, at.h, value);
  }
  if (at.stage != "mask") return no_such_input(address.name, known);
  if (value != 0 && value != 1) {
    return Failure{ErrorKind::value, "bad-value",
                   sentence("[trace] a mask cell is 0 (hidden) or 1 (visible); found ", value)};
  }
  call.visible = whole(call.visible, table, true);
  return store(*call.visible, at.h, value == 1);
}

Result<void> set_input(Tensor<double>& rows, workbook::BlockParameters& parameters,
                       const Address& address, double value) {
  const std::pair<std::string_view, Tensor<double>*> inputs[] = {
      {"rows", &rows},        {"P1", &parameters.P1}, {"P2", &parameters.P2},
      {"WO", &parameters.WO}, {"W1", &parameters.W1}, {"W2", &parameters.W2}};
  for (const auto& [name, tensor] : inputs) {
    if (name != address.name) continue;
    if (!inside(address.index, tensor->shape())) return no_such_index(address, tensor->shape());
    (*tensor)(address.index[0], address.index[1]) = value;
    return {};
  }
  return no_such_input(address.name, "rows P1 P2 WO W1 W2");
}

}  // namespace attest::lab
