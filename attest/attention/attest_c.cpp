// SPDX-License-Identifier: MIT
#include "attest/attention/attest_c.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "attest/attention/attention.h"
#include "attest/attention/attention_backward.h"
#include "attest/base/shape.h"
#include "attest/base/text.h"

namespace attest {
namespace {

// ---- errors -----------------------------------------------------------------------------------

template <class... Words>
Failure bad_shape(const Words&... words) {
  return {ErrorKind::shape, "shape-mismatch", sentence("[attest_c] ", words...)};
}
template <class... Words>
Failure bad_option(const Words&... words) {
  return {ErrorKind::value, "bad-option", sentence("[attest_c] ", words...)};
}
template <class... Words>
Failure bad_dtype(const Words&... words) {
  return {ErrorKind::type, "unsupported-dtype", sentence("[attest_c] ", words...)};
}

struct LastError {
  std::string id;
  std::string message;
  // Where even the texts cannot be stored, these are shown instead.
  const char* shown_id = "";
  const char* shown_message = "";
};
thread_local LastError last_error;

attest_status report(attest_status status, const char* id, const char* message) noexcept {
  try {
    last_error.id = id;
    last_error.message = message;
    last_error.shown_id = last_error.id.c_str();
    last_error.shown_message = last_error.message.c_str();
  } catch (...) {
    last_error.shown_id = "no-memory";
    last_error.shown_message = "[attest_c] memory that cannot be had";
  }
  return status;
}

attest_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::shape:
      return ATTEST_ERROR_SHAPE;
    case ErrorKind::value:
      return ATTEST_ERROR_VALUE;
    case ErrorKind::type:
      return ATTEST_ERROR_TYPE;
    case ErrorKind::file:
      break;
  }
  return ATTEST_ERROR_OTHER;
}

/// Runs the work; nothing that it throws gets past here.
template <class Work>
attest_status guarded(const Work& work) noexcept {
  try {
    const Result<void> done = work();
    if (done) return ATTEST_OK;
    const Failure& failure = done.failure();
    return report(status_of(failure.kind), failure.id.c_str(), failure.message.c_str());
  } catch (const Error& error) {
    return report(status_of(error.kind()), error.id().c_str(), error.what());
  } catch (const std::bad_alloc&) {
    return report(ATTEST_ERROR_MEMORY, "no-memory", "[attest_c] memory that cannot be had");
  } catch (const std::exception& error) {
    return report(ATTEST_ERROR_OTHER, "internal", error.what());
  } catch (...) {
    return report(ATTEST_ERROR_OTHER, "internal", "[attest_c] something that is no exception");
  }
}

// ---- views ------------------------------------------------------------------------------------

template <class T>
constexpr std::int32_t code_of() {
  if constexpr (std::is_same_v<T, float>) return ATTEST_F32;
  if constexpr (std::is_same_v<T, double>) return ATTEST_F64;
  if constexpr (std::is_same_v<T, Half>) return ATTEST_F16;
  if constexpr (std::is_same_v<T, BFloat16>) return ATTEST_BF16;
  if constexpr (std::is_same_v<T, bool>) return ATTEST_BOOL;
}

const char* name_of_code(std::int32_t code) {
  constexpr std::array<const char*, 6> names = {"nothing", "f32", "f64", "f16", "bf16", "bool"};
  const bool known = code >= 0 && code < static_cast<std::int32_t>(names.size());
  return known ? names[static_cast<std::size_t>(code)] : "an unknown code";
}

/// Absent: nothing at all is said. A view without memory must at least say its rank.
template <class Described>
bool absent(const Described& view) {
  return view.data == nullptr && view.rank == 0;
}

/// The C description as a typed view; an absent one stays absent. `T` is const for what is read.
template <class T, std::size_t Rank, class Described>
Result<void> read_view(const char* name, const Described& from, View<T, Rank>& to) {
  using Element = std::remove_const_t<T>;
  if (absent(from)) return {};
  if (from.rank != static_cast<std::int32_t>(Rank)) {
    return bad_shape(name, " must have rank ", Rank, "; it has ", from.rank);
  }
  if (from.dtype != code_of<Element>()) {
    return bad_dtype(name, " must be ", name_of_code(code_of<Element>()), "; it is ",
                     name_of_code(from.dtype));
  }
  bool empty = false;
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (from.extents[axis] < 0) {
      return bad_shape("extents must not be negative; axis ", axis, " of ", name, " has ",
                       from.extents[axis]);
    }
    empty = empty || from.extents[axis] == 0;
    to.extents[axis] = from.extents[axis];
    to.strides[axis] = from.strides[axis];
  }
  if (from.data == nullptr && !empty) return bad_shape(name, " has extents but no data");
  // A view is present by its pointer; an empty one may come without memory, and none is touched.
  alignas(8) static std::byte nowhere[8];
  to.data = static_cast<T*>(from.data);
  if (from.data == nullptr) to.data = reinterpret_cast<T*>(nowhere);
  return {};
}

/// A bool of C++ is 0 or 1 and nothing else; a caller's byte may be anything.
Result<void> check_booleans(const attest_view& from) {
  const auto* const bytes = static_cast<const unsigned char*>(from.data);
  const auto& step = from.strides;
  std::array<std::int64_t, 4> n{};
  for (std::size_t axis = 0; axis < n.size(); ++axis) {  // a repeated byte is looked at once
    n[axis] = step[axis] == 0 ? std::min<std::int64_t>(from.extents[axis], 1) : from.extents[axis];
    if (n[axis] == 0) return {};
  }
  for (std::int64_t a = 0; a < n[0]; ++a) {
    for (std::int64_t b = 0; b < n[1]; ++b) {
      for (std::int64_t c = 0; c < n[2]; ++c) {
        for (std::int64_t d = 0; d < n[3]; ++d) {
          const unsigned char byte = bytes[a * step[0] + b * step[1] + c * step[2] + d * step[3]];
          if (byte > 1) return bad_option("visible must hold bytes 0 and 1; found ", int{byte});
        }
      }
    }
  }
  return {};
}

// ---- options ----------------------------------------------------------------------------------

Result<attest_attention_options> known_options(const attest_attention_options* given) {
  constexpr std::size_t ours = sizeof(attest_attention_options);
  // The last field of the first version; what comes after it may be missing.
  constexpr std::size_t first_version =
      offsetof(attest_attention_options, isa) + sizeof(attest_attention_options::isa);
  attest_attention_options out{};
  if (given == nullptr) return out;
  if (given->size < first_version) {
    return bad_option("options.size must be sizeof(attest_attention_options), at least ",
                      first_version, "; it is ", given->size);
  }
  // A newer caller may say what this library does not know, if it says nothing there.
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t n = ours; n < given->size; ++n) {
    if (bytes[n] != 0) return bad_option("options has a field that this version does not know");
  }
  std::memcpy(&out, given, std::min(ours, given->size));
  return out;
}

template <class List, class Number>
Result<void> read_list(const char* name, const List& from, std::vector<Number>& to) {
  if (from.count == 0) return {};
  if (from.count > std::size_t{1} << 40U) {
    return bad_option(name, " has ", from.count, " entries, more than any call can use");
  }
  if (from.data == nullptr) return bad_option(name, " has ", from.count, " entries but no data");
  to.assign(from.data, from.data + from.count);
  return {};
}

Result<void> read_choice(const char* name, std::int32_t code, std::int32_t last) {
  if (code >= 0 && code <= last) return {};
  return bad_option(name, " must lie between 0 and ", last, "; it is ", code);
}

Result<void> read_mask(const attest_attention_options& from,
                       const std::array<std::int64_t, 4>& whole, Mask& to) {
  constexpr std::array<Corner, 4> corners = {Corner::top_left, Corner::square, Corner::bottom_right,
                                             Corner::at_offset};
  for (const auto& [name, code, last] :
       {std::tuple{"corner", from.corner, 3}, std::tuple{"future_hidden", from.future_hidden, 1},
        std::tuple{"has_window_left", from.has_window_left, 1},
        std::tuple{"has_window_right", from.has_window_right, 1}}) {
    if (auto ok = read_choice(name, code, last); !ok) return ok;
  }
  to.future_hidden = from.future_hidden == 1;
  to.corner = corners[static_cast<std::size_t>(from.corner)];
  if (from.has_window_left == 1) to.window.left = from.window_left;
  if (from.has_window_right == 1) to.window.right = from.window_right;
  for (const auto& [name, list, target] :
       {std::tuple{"query_offset", &from.query_offset, &to.query_offset},
        std::tuple{"key_lengths", &from.key_lengths, &to.key_lengths},
        std::tuple{"query_starts", &from.query_starts, &to.packing.query_starts},
        std::tuple{"key_starts", &from.key_starts, &to.packing.key_starts},
        std::tuple{"query_ids", &from.query_ids, &to.documents.query},
        std::tuple{"key_ids", &from.key_ids, &to.documents.key}}) {
    if (auto ok = read_list(name, *list, *target); !ok) return ok;
  }
  if (auto ok = read_view("visible", from.visible, to.visible); !ok) return ok;
  // A mask of another shape is refused with the call; its bytes may not all be there.
  if (!to.visible || !broadcasts_to(to.visible.extents, whole)) return {};
  if (std::count(whole.begin(), whole.end(), 0) > 0) return {};  // nobody will look
  return check_booleans(from.visible);
}

template <class Bias>
Result<void> read_options(const attest_attention_options& from,
                          const std::array<std::int64_t, 4>& whole, AttentionOptions<Bias>& to) {
  if (auto ok = read_mask(from, whole, to.mask); !ok) return ok;
  if (auto ok = read_view("bias", from.bias, to.bias); !ok) return ok;
  for (const auto& [name, code, last] :
       {std::tuple{"has_scale", from.has_scale, 1}, std::tuple{"has_softcap", from.has_softcap, 1},
        std::tuple{"empty_row", from.empty_row, 2}}) {
    if (auto ok = read_choice(name, code, last); !ok) return ok;
  }
  if (from.has_scale == 1) to.scale = from.scale;
  if (from.has_softcap == 1) to.softcap = from.softcap;
  if (auto ok = read_list("alibi_slopes", from.alibi_slopes, to.alibi_slopes); !ok) return ok;
  if (auto ok = read_list("sink", from.sink, to.sink); !ok) return ok;
  to.dropout = {.rate = from.dropout_rate, .seed = from.dropout_seed};
  constexpr std::array<EmptyRow, 3> rows = {EmptyRow::error, EmptyRow::zero, EmptyRow::nan};
  to.empty_row = rows[static_cast<std::size_t>(from.empty_row)];
  return {};
}

Result<void> read_execution(const attest_attention_options& from, Execution& to) {
  if (auto ok = read_choice("reproducible", from.reproducible, 1); !ok) return ok;
  to.reproducible = from.reproducible == 1 ? Reproducible::per_row : Reproducible::per_call;
  if (from.isa == nullptr) return {};
  const auto isa = isa_of(from.isa);
  if (!isa) return isa.failure();
  to.isa = *isa;
  return {};
}

// ---- calls ------------------------------------------------------------------------------------

template <class T>
Result<void> read_inputs(const attest_attention_inputs& from, AttentionInputs<T>& to) {
  if (auto ok = read_view("query", from.query, to.query); !ok) return ok;
  if (auto ok = read_view("key", from.key, to.key); !ok) return ok;
  return read_view("value", from.value, to.value);
}

/// The extents of the scores: [B, H, T, S].
template <class T>
std::array<std::int64_t, 4> scores_of(const AttentionInputs<T>& in) {
  return {in.query.extents[0], in.query.extents[1], in.query.extents[2], in.key.extents[2]};
}

/// A call in the number types that the caller's codes say.
struct Forward {
  const attest_attention_outputs& outputs;
  const attest_attention_inputs& inputs;
  const attest_attention_options& options;

  template <class T, class Bias>
  [[nodiscard]] Result<void> as() const {
    AttentionOutputs<T> into;
    AttentionInputs<T> read;
    AttentionOptions<Bias> choices;
    Execution execution;
    if (auto ok = read_inputs(inputs, read); !ok) return ok;
    if (auto ok = read_options(options, scores_of(read), choices); !ok) return ok;
    if (auto ok = read_execution(options, execution); !ok) return ok;
    if (auto ok = read_view("output", outputs.output, into.output); !ok) return ok;
    if (auto ok = read_view("log_sum_exp", outputs.log_sum_exp, into.log_sum_exp); !ok) return ok;
    if (!into.output) return bad_shape("output must be given");
    return try_attention(into, read, choices, execution);
  }
};

struct Backward {
  const attest_attention_gradients& gradients;
  const attest_attention_inputs& inputs;
  const attest_attention_backward_inputs& results;
  const attest_attention_options& options;

  template <class T, class Bias>
  [[nodiscard]] Result<void> as() const {
    AttentionInputs<T> read;
    AttentionBackwardInputs<T> left;
    AttentionGradientOutputs<T> into;
    AttentionOptions<Bias> choices;
    Execution execution;
    if (auto ok = read_inputs(inputs, read); !ok) return ok;
    if (auto ok = read_options(options, scores_of(read), choices); !ok) return ok;
    if (auto ok = read_execution(options, execution); !ok) return ok;
    if (auto ok = read_view("output", results.output, left.output); !ok) return ok;
    if (auto ok = read_view("log_sum_exp", results.log_sum_exp, left.log_sum_exp); !ok) return ok;
    if (auto ok = read_view("d_output", results.d_output, left.d_output); !ok) return ok;
    if (auto ok = read_view("d_log_sum_exp", results.d_log_sum_exp, left.d_log_sum_exp); !ok) {
      return ok;
    }
    if (auto ok = read_view("d_query", gradients.d_query, into.d_query); !ok) return ok;
    if (auto ok = read_view("d_key", gradients.d_key, into.d_key); !ok) return ok;
    if (auto ok = read_view("d_value", gradients.d_value, into.d_value); !ok) return ok;
    if (auto ok = read_view("d_bias", gradients.d_bias, into.d_bias); !ok) return ok;
    if (auto ok = read_view("d_sink", gradients.d_sink, into.d_sink); !ok) return ok;
    return try_attention_backward(into, read, left, choices, execution);
  }
};

/// Chooses T by the query and Bias by the bias; every other tensor is then held to them.
template <class Call>
Result<void> in_types(const Call& call) {
  const std::int32_t own = call.inputs.query.dtype;
  const bool narrow_bias = !absent(call.options.bias) && call.options.bias.dtype == ATTEST_BF16;
  switch (own) {
    case ATTEST_F64:
      return call.template as<double, double>();
    case ATTEST_F32:
      return narrow_bias ? call.template as<float, BFloat16>() : call.template as<float, float>();
    case ATTEST_F16:
      return narrow_bias ? call.template as<Half, BFloat16>() : call.template as<Half, float>();
    case ATTEST_BF16:
      return narrow_bias ? call.template as<BFloat16, BFloat16>()
                         : call.template as<BFloat16, float>();
    default:
      break;
  }
  return bad_dtype("query must be f32, f64, f16 or bf16; its dtype is ", own);
}

}  // namespace
}  // namespace attest

extern "C" {

attest_status attest_attention_forward(const attest_attention_outputs* outputs,
                                       const attest_attention_inputs* inputs,
                                       const attest_attention_options* options) {
  return attest::guarded([&]() -> attest::Result<void> {
    if (outputs == nullptr || inputs == nullptr) {
      return attest::bad_shape("outputs and inputs must be given");
    }
    const auto known = attest::known_options(options);
    if (!known) return known.failure();
    return attest::in_types(attest::Forward{*outputs, *inputs, *known});
  });
}

attest_status attest_attention_backward(const attest_attention_gradients* gradients,
                                        const attest_attention_inputs* inputs,
                                        const attest_attention_backward_inputs* results,
                                        const attest_attention_options* options) {
  return attest::guarded([&]() -> attest::Result<void> {
    if (gradients == nullptr || inputs == nullptr || results == nullptr) {
      return attest::bad_shape("gradients, inputs and results must be given");
    }
    const auto known = attest::known_options(options);
    if (!known) return known.failure();
    return attest::in_types(attest::Backward{*gradients, *inputs, *results, *known});
  });
}

const char* attest_last_error(void) { return attest::last_error.shown_message; }
const char* attest_last_error_id(void) { return attest::last_error.shown_id; }
}
