// SPDX-License-Identifier: MIT
// attend by the engine, in the number type of the files.
#include <algorithm>
#include <memory>
#include <utility>

#include "attest/attention/attention.h"
#include "attest/base/text.h"
#include "attest/base/widened.h"
#include "frontends/cli/attend_tiers.h"

namespace attest::cli {
namespace {

template <class T, std::size_t Rank>
Tensor<double> as_doubles(const View<const T, Rank>& from) {
  Tensor<double> out(Shape(from.extents.begin(), from.extents.end()));
  std::array<std::int64_t, Rank> at{};
  for (double& x : out.elements()) {
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < Rank; ++axis) offset += at[axis] * from.strides[axis];
    x = attest::widened(from.data[offset]);
    for (std::size_t axis = Rank; axis-- > 0;) {
      if (++at[axis] < from.extents[axis]) break;
      at[axis] = 0;
    }
  }
  return out;
}

/// The tensor in the type that the engine computes in; that holds every number of it.
template <class T>
Result<PlacedTensor> in_type(const PlacedTensor& from, std::string_view name) {
  const auto numbers = from.memory.to_f64(name);
  if (!numbers) return numbers.failure();
  return PlacedTensor{AnyTensor::from_f64(*numbers, dtype_of<T>), from.extents, from.strides};
}

/// A call in one number type: views into the files' own memory, where that has the type already.
template <class T>
class TypedInputs {
 public:
  static Result<TypedInputs> of(const LoadedCase& loaded) {
    TypedInputs out;
    for (const auto& [from, to, name] : {std::tuple(&loaded.query, &out.views_.query, "query"),
                                         {&loaded.key, &out.views_.key, "key"},
                                         {&loaded.value, &out.views_.value, "value"}}) {
      if (from->memory.dtype() == dtype_of<T>) {
        *to = from->template view<T>();
        continue;
      }
      auto converted = in_type<T>(*from, name);
      if (!converted) return converted.failure();
      out.owned_.push_back(std::make_unique<PlacedTensor>(*std::move(converted)));
      *to = out.owned_.back()->template view<T>();
    }
    return out;
  }
  [[nodiscard]] const AttentionInputs<T>& views() const { return views_; }

 private:
  std::vector<std::unique_ptr<PlacedTensor>> owned_;
  AttentionInputs<T> views_;
};

/// The case's options with a bias in the type that it is summed in.
template <class Sum>
AttentionOptions<Sum> options_of(const AttentionCase& call, Tensor<Sum>& bias) {
  AttentionOptions<Sum> out = options_with<Sum>(call.options(), {});
  if (!call.bias) return out;
  bias = Tensor<Sum>(call.bias->shape());
  std::ranges::transform(call.bias->elements(), bias.elements().begin(),
                         [](double x) { return static_cast<Sum>(x); });
  out.bias = std::as_const(bias).template view<4>();
  return out;
}

/// All the weights, a head at a time: [B, H, T, S].
template <class T>
Result<Tensor<double>> weights_of(const AttentionInputs<T>& inputs,
                                  const AttentionOptions<AccumulatorOf<T>>& options,
                                  const Tensor<AccumulatorOf<T>>& log_sum_exp,
                                  const Execution& execution) {
  const auto [B, H, T_, D] = inputs.query.extents;
  const std::int64_t S = inputs.key.extent(2);
  const Shape shape{B, H, T_, S};
  if (!element_count(shape)) {
    return Failure{ErrorKind::shape, "too-large",
                   sentence("[attend] weights would have shape ", to_string(shape))};
  }
  Tensor<double> out(shape);
  auto next = out.elements().begin();
  for (std::int64_t head = 0; out.size() > 0 && head < B * H; ++head) {
    const auto rows = attention_weights(inputs, options, log_sum_exp.template view<3>(),
                                        {head / H, head % H, 0, T_}, execution);
    next = std::ranges::copy(rows.elements(), next).out;
  }
  return out;
}

/// The set that was chosen, and whose kernels it has for the type.
std::string set_of(DType type, Isa isa) {
  const Isa kernels = kernels_of(type, isa);
  if (kernels == isa) return std::string(name_of(isa));
  return sentence(name_of(isa), " (its ", name_of(type), " kernels are those of ", name_of(kernels),
                  ")");
}

template <class T>
Result<Outcome> run_in(const LoadedCase& loaded, const AttendOptions& o, Isa isa) {
  using Sum = AccumulatorOf<T>;
  const auto typed = TypedInputs<T>::of(loaded);
  if (!typed) return typed.failure();
  Tensor<Sum> bias;
  const AttentionOptions<Sum> options = options_of(loaded.call, bias);
  ThreadPool pool(static_cast<int>(o.threads.value_or(0)));
  const Execution execution{.threads = &pool, .isa = isa};
  const auto& [query, key, value] = typed->views();
  const auto result = attention(query, key, value, options, execution);
  Outcome out{{{.name = "output",
                .values = as_given(loaded.given, as_doubles(result.output())),
                .dtype = dtype_of<T>}},
              sentence("engine in ", name_of(dtype_of<T>), " on ", set_of(dtype_of<T>, isa), ", ",
                       pool.threads(), pool.threads() == 1 ? " thread" : " threads")};
  if (o.weights) {
    auto weights = weights_of<T>(typed->views(), options, result.log_sum_exp, execution);
    if (!weights) return weights.failure();
    out.results.push_back({.name = "weights",
                           .values = without_missing_axes(loaded.given, *std::move(weights)),
                           .dtype = dtype_of<Sum>});
  }
  if (o.log_sum_exp) {
    auto numbers = as_doubles(result.log_sum_exp.template view<3>());
    out.results.push_back({.name = "log_sum_exp",
                           .values = without_missing_axes(loaded.given, std::move(numbers)),
                           .dtype = dtype_of<Sum>});
  }
  return out;
}

/// Whether every number of the bias is one of binary32.
bool fits_f32(const Tensor<double>& bias) {
  return std::ranges::all_of(bias.elements(), [](double x) {
    return x != x || static_cast<double>(to_float_nearest(x)) == x;
  });
}

}  // namespace

lab::AttentionShape shape_of(const LoadedCase& loaded) {
  const auto& [B, H, T, D] = loaded.query.extents;
  return {B, H, loaded.key.extents[1], T, loaded.key.extents[2], D, loaded.value.extents[3]};
}

EngineType engine_type(const LoadedCase& loaded) {
  const DType types[] = {loaded.query.memory.dtype(), loaded.key.memory.dtype(),
                         loaded.value.memory.dtype()};
  EngineType out{types[0]};
  const bool mixed = types[1] != types[0] || types[2] != types[0];
  if (mixed) {
    out.dtype = DType::f32;
    out.remark = sentence("query is ", name_of(types[0]), ", key ", name_of(types[1]), ", value ",
                          name_of(types[2]));
  }
  for (const DType type : types) {
    if (type == DType::f64 || !is_floating(type)) out.dtype = DType::f64;
    if (!is_floating(type) && !mixed) out.remark = sentence("the files hold ", name_of(type));
  }
  if (loaded.call.bias && out.dtype != DType::f64 && !fits_f32(*loaded.call.bias)) {
    out.dtype = DType::f64;
    out.remark = "the bias has numbers that f32 has not";
  }
  return out;
}

Result<Isa> chosen_isa(const AttendOptions& o) {
  return o.isa.empty() ? default_isa() : isa_of(o.isa);
}

Result<Outcome> run_engine(const LoadedCase& loaded, const AttendOptions& o) {
  const auto isa = chosen_isa(o);
  if (!isa) return isa.failure();
  const Progress progress("attend");
  try {
    switch (engine_type(loaded).dtype) {
      case DType::f32:
        return run_in<float>(loaded, o, *isa);
      case DType::bf16:
        return run_in<BFloat16>(loaded, o, *isa);
      case DType::f16:
        return run_in<Half>(loaded, o, *isa);
      default:
        return run_in<double>(loaded, o, *isa);
    }
  } catch (const Error& error) {
    return Failure{error.kind(), error.id(), error.what()};
  }
}

}  // namespace attest::cli
