// SPDX-License-Identifier: MIT
#include "attest/lab/oracle.h"

#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/base/text.h"
#include "attest/lab/oracle/attention.h"
#include "attest/lab/oracle/checks.h"
#include "attest/lab/oracle/evaluate.h"
#include "attest/lab/oracle/tape.h"

namespace attest::lab::oracle {
namespace {

// ---- attention --------------------------------------------------------------------------------

template <class... Parts>
Failure bad_attention(ErrorKind kind, const char* id, const Parts&... parts) {
  return failure(kind, id, "attention", parts...);
}

template <class... Parts>
Failure bad_option(const Parts&... parts) {
  return bad_attention(ErrorKind::value, "bad-option", parts...);
}

Failure unequal(const char* first, const char* second, const char* letter, std::int64_t one,
                std::int64_t other) {
  return bad_attention(ErrorKind::shape, "shape-mismatch", first, " and ", second,
                       " must have the same ", letter, "; ", first, " has ", one, ", ", second,
                       " has ", other);
}

MaybeFailure check_shapes(const AttentionInputs<double>& in) {
  const auto& [query, key, value] = in;
  if (!query || !key || !value) {
    return bad_attention(ErrorKind::shape, "missing-tensor", "query, key and value are all needed");
  }
  if (query.extent(0) != key.extent(0)) {
    return unequal("query", "key", "B", query.extent(0), key.extent(0));
  }
  if (key.extent(0) != value.extent(0)) {
    return unequal("key", "value", "B", key.extent(0), value.extent(0));
  }
  if (key.extent(1) != value.extent(1)) {
    return unequal("key", "value", "G", key.extent(1), value.extent(1));
  }
  if (key.extent(2) != value.extent(2)) {
    return unequal("key", "value", "S", key.extent(2), value.extent(2));
  }
  if (query.extent(3) != key.extent(3)) {
    return unequal("query", "key", "D", query.extent(3), key.extent(3));
  }
  if (query.extent(3) < 1) {
    return bad_attention(ErrorKind::shape, "shape-mismatch", "D must be at least 1");
  }
  if (key.extent(1) < 1 || query.extent(1) < 1 || query.extent(1) % key.extent(1) != 0) {
    return bad_attention(ErrorKind::shape, "shape-mismatch",
                         "the key/value heads must divide the query heads; H is ", query.extent(1),
                         ", G is ", key.extent(1));
  }
  return {};
}

/// One entry for all batches, or one for each.
bool fits_batches(const std::vector<std::int64_t>& entries, std::int64_t batches) {
  return entries.size() == 1 || static_cast<std::int64_t>(entries.size()) == batches;
}

/// Cumulative lengths of packed documents: from 0 up to the whole axis.
MaybeFailure check_cumulative(const char* name, const std::vector<std::int64_t>& starts,
                              std::int64_t whole) {
  if (starts.size() < 2 || starts.front() != 0 || starts.back() != whole) {
    return bad_option(name, " must go from 0 to ", whole, " in at least two entries; it has ",
                      starts.size());
  }
  for (std::size_t d = 1; d < starts.size(); ++d) {
    if (starts[d - 1] > starts[d]) {
      return bad_option(name, " must never fall; entry ", d, " is ", starts[d], " after ",
                        starts[d - 1]);
    }
  }
  return {};
}

MaybeFailure check_documents(const Mask& mask, const Extents& n) {
  const auto& [query_starts, key_starts] = mask.packing;
  if (!query_starts.empty() || !key_starts.empty()) {
    if (auto wrong = check_cumulative("query_starts", query_starts, n.T)) return wrong;
    if (auto wrong = check_cumulative("key_starts", key_starts, n.S)) return wrong;
    if (query_starts.size() != key_starts.size()) {
      return bad_option("query_starts and key_starts must have the same number of entries; they ",
                        "have ", query_starts.size(), " and ", key_starts.size());
    }
  }
  for (std::size_t d = 1; mask.corner == Corner::square && d < query_starts.size(); ++d) {
    const std::int64_t queries = query_starts[d] - query_starts[d - 1];
    const std::int64_t keys = key_starts[d] - key_starts[d - 1];
    if (queries != keys) {
      return bad_attention(
          ErrorKind::shape, "shape-mismatch",
          "a square mask needs as many queries as keys in every document; document ", d - 1,
          " has ", queries, " and ", keys);
    }
  }
  const auto& [query_names, key_names] = mask.documents;
  if (query_names.empty() && key_names.empty()) return {};
  const auto names = [&](const std::vector<std::int64_t>& list, std::int64_t length) {
    const auto size = static_cast<std::int64_t>(list.size());
    return size == length || size == n.B * length;
  };
  if (!names(query_names, n.T) || !names(key_names, n.S)) {
    return bad_option("document ids need an entry for each token, of one batch or of all; T is ",
                      n.T, ", S is ", n.S, ", they have ", query_names.size(), " and ",
                      key_names.size());
  }
  return {};
}

MaybeFailure check_mask(const Mask& mask, const Extents& n) {
  constexpr std::int64_t far = std::int64_t{1} << 53U;
  if (mask.corner == Corner::square && n.T != n.S) {
    return bad_attention(ErrorKind::shape, "shape-mismatch", "a square mask needs T = S; T is ",
                         n.T, ", S is ", n.S);
  }
  if (mask.corner == Corner::at_offset) {
    if (!fits_batches(mask.query_offset, n.B)) {
      return bad_option("query_offset needs one number, or one per batch; it has ",
                        mask.query_offset.size());
    }
    for (const std::int64_t offset : mask.query_offset) {
      if (offset > far || offset < -far) return bad_option("query_offset ", offset, " is too far");
    }
  }
  if (!mask.key_lengths.empty()) {
    if (!fits_batches(mask.key_lengths, n.B)) {
      return bad_option("key_lengths needs one number, or one per batch; it has ",
                        mask.key_lengths.size());
    }
    for (const std::int64_t length : mask.key_lengths) {
      if (length < 0 || length > n.S) {
        return bad_option("a key length must lie between 0 and S = ", n.S, "; one is ", length);
      }
    }
  }
  if (mask.visible && !broadcasts_to(mask.visible.extents, {n.B, n.H, n.T, n.S})) {
    return wrong_shape("attention", "visible",
                       Shape(mask.visible.extents.begin(), mask.visible.extents.end()),
                       {n.B, n.H, n.T, n.S});
  }
  return check_documents(mask, n);
}

MaybeFailure check_per_head(const char* name, const std::vector<double>& numbers, std::int64_t H) {
  if (numbers.empty()) return {};
  if (static_cast<std::int64_t>(numbers.size()) != H) {
    return bad_attention(ErrorKind::shape, "shape-mismatch", name,
                         " needs one number per head; H is ", H, ", it has ", numbers.size());
  }
  for (const double number : numbers) {
    if (!std::isfinite(number)) return not_finite("attention", name);
  }
  return {};
}

MaybeFailure check_options(const AttentionOptions<double>& options, const Extents& n) {
  if (auto wrong = check_mask(options.mask, n)) return wrong;
  if (auto wrong = check_per_head("alibi_slopes", options.alibi_slopes, n.H)) return wrong;
  if (auto wrong = check_per_head("sink", options.sink, n.H)) return wrong;
  if (options.bias && !broadcasts_to(options.bias.extents, {n.B, n.H, n.T, n.S})) {
    return wrong_shape("attention", "bias",
                       Shape(options.bias.extents.begin(), options.bias.extents.end()),
                       {n.B, n.H, n.T, n.S});
  }
  if (options.scale && !std::isfinite(*options.scale)) return bad_option("scale must be finite");
  if (options.softcap && !(std::isfinite(*options.softcap) && *options.softcap > 0)) {
    return bad_option("softcap must be finite and above 0");
  }
  if (!(options.dropout.rate >= 0 && options.dropout.rate < 1)) {
    return bad_option("a dropout rate must be at least 0 and below 1; it is ",
                      options.dropout.rate);
  }
  return {};
}

bool row_is_finite(const Array<Real>& x, std::int64_t b, std::int64_t h, std::int64_t row) {
  for (std::int64_t c = 0; c < x.extent(3); ++c) {
    if (!is_finite(x(b, h, row, c))) return false;
  }
  return true;
}

/// What query i of (b, h) looks at must be finite, and, if the policy says so, must not be nothing.
MaybeFailure check_row(const AttentionArrays<Real>& in, const AttentionRules& rules, Pair p) {
  const Extents n = in.extents();
  const std::int64_t g = formula::group_of(p.h, n);
  bool any = false;
  for (p.j = 0; p.j < n.S; ++p.j) {
    if (!sees(in, rules.mask, p)) continue;
    any = true;
    if (!row_is_finite(in.key, p.b, g, p.j)) return not_finite("attention", "a visible key");
    if (stays(rules.dropout, p) && !row_is_finite(in.value, p.b, g, p.j)) {
      return not_finite("attention", "a visible value");
    }
    if (in.bias.present() && !is_finite(broadcast_at(in.bias, {p.b, p.h, p.i, p.j}))) {
      return not_finite("attention", "a visible bias");
    }
  }
  if (any && !row_is_finite(in.query, p.b, p.h, p.i)) {
    return not_finite("attention", "a query that sees a key");
  }
  if (!any && rules.empty_row == EmptyRow::error) {
    return bad_attention(ErrorKind::value, "no-visible-key", "query ", p.i, " of batch ", p.b,
                         ", head ", p.h, " sees no key");
  }
  return {};
}

struct CheckedCall {
  AttentionArrays<Real> arrays;
  AttentionRules rules;
};

Result<CheckedCall> checked(const AttentionInputs<double>& inputs,
                            const AttentionOptions<double>& options) {
  if (auto wrong = check_shapes(inputs)) return *wrong;
  CheckedCall call;
  call.arrays.query = to_real(inputs.query);
  call.arrays.key = to_real(inputs.key);
  call.arrays.value = to_real(inputs.value);
  const Extents n = call.arrays.extents();
  if (auto wrong = check_options(options, n)) return *wrong;
  call.arrays.bias = to_real(options.bias);
  if (!options.sink.empty()) {
    call.arrays.sink = Array<Real>({n.H});
    call.arrays.sink.values.assign(options.sink.begin(), options.sink.end());
  }
  call.rules.mask = options.mask;
  call.rules.scale = options.scale;
  call.rules.softcap = options.softcap;
  call.rules.alibi_slopes.assign(options.alibi_slopes.begin(), options.alibi_slopes.end());
  call.rules.dropout = options.dropout;
  call.rules.empty_row = options.empty_row;
  for (std::int64_t b = 0; b < n.B; ++b) {
    for (std::int64_t h = 0; h < n.H; ++h) {
      for (std::int64_t i = 0; i < n.T; ++i) {
        if (auto wrong = check_row(call.arrays, call.rules, {b, h, i, 0})) return *wrong;
      }
    }
  }
  return call;
}

/// Whether any key of query i can be seen, that is, whether its results depend on anything.
bool sees_any(const CheckedCall& call, Pair p) {
  for (p.j = 0; p.j < call.arrays.extents().S; ++p.j) {
    if (sees(call.arrays, call.rules.mask, p)) return true;
  }
  return false;
}

}  // namespace

Result<Attention> attention(const AttentionInputs<double>& inputs,
                            const AttentionOptions<double>& options) {
  return guarded("attention", [&]() -> Result<Attention> {
    const Result<CheckedCall> call = checked(inputs, options);
    if (!call) return call.failure();
    AttentionValues<Real> values = formula::attention(call->arrays, call->rules);
    return Attention{std::move(values.output), std::move(values.weights), std::move(values.scores),
                     std::move(values.log_sum_exp)};
  });
}

namespace {

AttentionGradients pull_back_attention(const CheckedCall& call, View<const double, 4> d_output,
                                       View<const double, 3> d_log_sum_exp) {
  Tape<Real> tape;
  const AttentionArrays<Real>& in = call.arrays;
  const AttentionArrays<Var<Real>> variables{tape.variables(in.query), tape.variables(in.key),
                                             tape.variables(in.value), tape.variables(in.bias),
                                             tape.variables(in.sink)};
  const AttentionValues<Var<Real>> out = formula::attention(variables, call.rules);
  const Extents n = in.extents();
  for (std::int64_t b = 0; b < n.B; ++b) {
    for (std::int64_t h = 0; h < n.H; ++h) {
      for (std::int64_t i = 0; i < n.T; ++i) {
        for (std::int64_t e = 0; e < n.E; ++e) {
          tape.seed(out.output(b, h, i, e), Real(d_output(b, h, i, e)));
        }
        if (d_log_sum_exp) tape.seed(out.log_sum_exp(b, h, i), Real(d_log_sum_exp(b, h, i)));
      }
    }
  }
  tape.backward();
  const auto gradient = [&](const Array<Var<Real>>& of) {
    OracleTensor d;
    d.shape = of.shape;
    for (const Var<Real>& x : of.values) d.values.push_back(tape.gradient(x));
    return d;
  };
  return {gradient(variables.query), gradient(variables.key), gradient(variables.value),
          gradient(variables.bias), gradient(variables.sink)};
}

MaybeFailure check_seeds(const CheckedCall& call, View<const double, 4> d_output,
                         View<const double, 3> d_log_sum_exp) {
  const Extents n = call.arrays.extents();
  if (!d_output || d_output.extents != std::array<std::int64_t, 4>{n.B, n.H, n.T, n.E}) {
    return wrong_shape("attention", "d_output",
                       Shape(d_output.extents.begin(), d_output.extents.end()),
                       {n.B, n.H, n.T, n.E});
  }
  if (d_log_sum_exp && d_log_sum_exp.extents != std::array<std::int64_t, 3>{n.B, n.H, n.T}) {
    return wrong_shape("attention", "d_log_sum_exp",
                       Shape(d_log_sum_exp.extents.begin(), d_log_sum_exp.extents.end()),
                       {n.B, n.H, n.T});
  }
  const Array<Real> seeds = to_real(d_output);
  for (std::int64_t b = 0; b < n.B; ++b) {
    for (std::int64_t h = 0; h < n.H; ++h) {
      for (std::int64_t i = 0; i < n.T; ++i) {
        if (!sees_any(call, {b, h, i, 0}))
          continue;  // what is fed back to a filled row is not read
        if (!row_is_finite(seeds, b, h, i)) return not_finite("attention", "d_output");
        if (d_log_sum_exp && !std::isfinite(d_log_sum_exp(b, h, i))) {
          return not_finite("attention", "d_log_sum_exp");
        }
      }
    }
  }
  return {};
}

}  // namespace

Result<AttentionGradients> attention_backward(const AttentionInputs<double>& inputs,
                                              const AttentionOptions<double>& options,
                                              View<const double, 4> d_output,
                                              View<const double, 3> d_log_sum_exp) {
  return guarded("attention", [&]() -> Result<AttentionGradients> {
    const Result<CheckedCall> call = checked(inputs, options);
    if (!call) return call.failure();
    if (auto wrong = check_seeds(*call, d_output, d_log_sum_exp)) return *wrong;
    return pull_back_attention(*call, d_output, d_log_sum_exp);
  });
}

}  // namespace attest::lab::oracle
