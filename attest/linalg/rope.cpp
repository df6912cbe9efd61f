// SPDX-License-Identifier: MIT
#include "attest/linalg/rope.h"

#include <cmath>
#include <utility>
#include <vector>

#include "attest/base/tensor.h"
#include "attest/linalg/layers_check.h"

namespace attest {
namespace {

using kernels::RopeJob;
using kernels::RopeTable;
using layers::bad_option;
using layers::bad_stride;
using layers::shape_mismatch;

constexpr std::int64_t far = std::int64_t{1} << 53U;  // beyond, doubles skip whole numbers

enum class Direction { forward, back };

/// What is turned and how, with the names that sentences call things by.
template <class S>
struct Call {
  const char* operation;
  const char* x_name;
  const char* y_name;
  View<S, 4> y;        // [B, H, T, D]
  View<const S, 4> x;  // [B, H, T, D]
  const RopeConfig& config;
  const RopePlaces& places;
  Direction direction;

  [[nodiscard]] std::int64_t R() const {
    return config.rotary_dim == 0 ? x.extent(3) : config.rotary_dim;
  }
  /// Whether all batches stand at the same positions.
  [[nodiscard]] bool shared() const {
    return places.positions ? places.positions.extent(0) == 1 && x.extent(0) != 1
                            : places.offsets.size() <= 1;
  }
  [[nodiscard]] std::int64_t position(std::int64_t b, std::int64_t t) const {
    if (places.positions) return places.positions(places.positions.extent(0) == 1 ? 0 : b, t);
    if (places.offsets.empty()) return t;
    return places.offsets[places.offsets.size() == 1 ? 0 : static_cast<std::size_t>(b)] + t;
  }
};

Result<const RopeTable*> table(const Execution& execution) {
  static const auto tables = layers::all_tables(layers::rope_makers);
  return layers::table_for(execution, tables);
}

/// Axes from the closest elements to the farthest: each must step over all of the ones before.
template <class T>
bool overlaps_itself(const View<T, 4>& view) {
  std::array<std::size_t, 4> axes{0, 1, 2, 3};
  std::sort(axes.begin(), axes.end(), [&](std::size_t a, std::size_t b) {
    return std::abs(view.strides[a]) < std::abs(view.strides[b]);
  });
  std::int64_t reach = 1;
  for (const std::size_t axis : axes) {
    if (view.extents[axis] <= 1) continue;
    if (std::abs(view.strides[axis]) < reach) return true;
    reach = std::abs(view.strides[axis]) * view.extents[axis];
  }
  return false;
}

template <class S>
Result<void> check_views(const Call<S>& call) {
  const char* const operation = call.operation;
  if (!call.x) return shape_mismatch(operation, call.x_name, " must be given");
  if (!call.y) return shape_mismatch(operation, call.y_name, " must be given");
  if (call.x.extents != call.y.extents) {
    return shape_mismatch(
        operation, call.x_name, " and ", call.y_name, " must have the same shape; ", call.x_name,
        " has ", to_string(call.x.extents), ", ", call.y_name, " has ", to_string(call.y.extents));
  }
  for (const std::int64_t extent : call.x.extents) {
    if (extent < 0) {
      return shape_mismatch(operation, "extents must not be negative; ", call.x_name, " has ",
                            to_string(call.x.extents));
    }
  }
  for (const auto& [name, stride] :
       {std::pair{call.x_name, call.x.strides[3]}, std::pair{call.y_name, call.y.strides[3]}}) {
    if (stride == 1) continue;
    return bad_stride(operation, "numbers of a row must lie beside each other; ", name,
                      " has stride ", stride, ", not 1");
  }
  if (overlaps_itself(call.y)) {
    return bad_stride(operation, "rows that are written must not overlap; ", call.y_name,
                      " has shape ", to_string(call.y.extents), " and strides ",
                      to_string(call.y.strides));
  }
  return {};
}

template <class S>
Result<void> check_options(const Call<S>& call) {
  const char* const operation = call.operation;
  const std::int64_t D = call.x.extent(3);
  if (call.R() < 2 || call.R() % 2 != 0 || call.R() > D) {
    return bad_option(operation, "rotary_dim must be even and between 2 and D = ", D, "; found ",
                      call.R());
  }
  if (!(call.config.base > 0 && std::isfinite(call.config.base))) {
    return bad_option(operation, "base must be positive and finite; found ", call.config.base);
  }
  const int pairing = static_cast<int>(call.config.pairing);
  if (pairing != 0 && pairing != 1) {
    return bad_option(operation, "a pairing must be 0 or 1; found ", pairing);
  }
  return {};
}

template <class S>
Result<void> check_places(const Call<S>& call) {
  const char* const operation = call.operation;
  const std::int64_t B = call.x.extent(0);
  const std::int64_t T = call.x.extent(2);
  const auto& [offsets, positions] = call.places;
  if (!positions) {
    if (offsets.size() > 1 && std::ssize(offsets) != B) {
      return bad_option(operation, "offsets must have 1 or B = ", B, " entries; it has ",
                        offsets.size());
    }
    for (const std::int64_t offset : offsets) {
      if (T <= far && offset >= -far && offset <= far - T) continue;
      return bad_option(operation, "positions must stay within 2^53; ", T, " rows start at ",
                        offset);
    }
    if (T <= far) return {};
    return bad_option(operation, "positions must stay within 2^53; T is ", T);
  }
  if (!offsets.empty()) {
    return bad_option(operation, "positions take the place of offsets; found ", offsets.size(),
                      " offsets beside them");
  }
  if ((positions.extent(0) != 1 && positions.extent(0) != B) || positions.extent(1) != T) {
    return shape_mismatch(operation, "positions must be [1 or B, T]; it has ",
                          to_string(positions.extents), ", ", call.x_name, " has ",
                          to_string(call.x.extents));
  }
  for (std::int64_t b = 0; b < positions.extent(0); ++b) {
    for (std::int64_t t = 0; t < T; ++t) {
      const std::int64_t found = positions(b, t);
      if (found >= -far && found <= far) continue;
      return bad_option(operation, "positions must stay within 2^53; position [", b, ", ", t,
                        "] is ", found);
    }
  }
  return {};
}

/// Cosines and sines of a few consecutive rows, in the order that the kernels want.
template <class T>
struct Turns {
  Tensor<T> cos;
  Tensor<T> sin;
};

template <class S>
Turns<AccumulatorOf<S>> turns_of(const Call<S>& call, const std::vector<double>& frequencies,
                                 std::int64_t b, Range rows) {
  using T = AccumulatorOf<S>;
  const bool twice = call.config.pairing == RopePairing::interleaved;
  const std::int64_t width = std::ssize(frequencies) * (twice ? 2 : 1);
  Turns<T> out{Tensor<T>({rows.end - rows.begin, width}),
               Tensor<T>({rows.end - rows.begin, width})};
  T* cosines = out.cos.data();
  T* sines = out.sin.data();
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    const auto position = static_cast<double>(call.position(b, t));
    for (const double frequency : frequencies) {
      const double angle = position * frequency;
      const T cosine = static_cast<T>(std::cos(angle));
      // y = turn(x, angle)      d_x = turn(d_y, −angle)
      const T sine =
          static_cast<T>(call.direction == Direction::back ? -std::sin(angle) : std::sin(angle));
      if (twice) {
        *cosines++ = cosine;
        *sines++ = -sine;
      }
      *cosines++ = cosine;
      *sines++ = sine;
    }
  }
  return out;
}

/// How many rows share a table: enough work for a thread, and a table that stays in the cache.
template <class S>
std::int64_t rows_in_piece(const Call<S>& call) {
  constexpr std::int64_t numbers_in_piece = 16384;
  const std::int64_t a_row = call.R() * std::max<std::int64_t>(1, call.x.extent(1)) *
                             (call.shared() ? std::max<std::int64_t>(1, call.x.extent(0)) : 1);
  return std::clamp<std::int64_t>(numbers_in_piece / a_row, 1, 32);
}

template <class S>
Result<void> turn(const Call<S>& call, const Execution& execution) {
  if (auto ok = check_views(call); !ok) return ok;
  if (auto ok = check_options(call); !ok) return ok;
  if (auto ok = check_places(call); !ok) return ok;
  const auto set = table(execution);
  if (!set) return set.failure();
  const std::int64_t B = call.x.extent(0);
  const std::int64_t H = call.x.extent(1);
  const std::int64_t T = call.x.extent(2);
  const std::int64_t D = call.x.extent(3);
  if (B == 0 || H == 0 || T == 0) return {};
  const auto kernel = (*set)->turn[layers::storage_of<S>];

  std::vector<double> frequencies;
  const auto R = static_cast<double>(call.R());
  for (std::int64_t i = 0; i < call.R() / 2; ++i) {
    frequencies.push_back(std::pow(call.config.base, static_cast<double>(-2 * i) / R));
  }
  const std::int64_t each = rows_in_piece(call);
  const std::int64_t blocks = (T + each - 1) / each;
  const std::int64_t batches = call.shared() ? B : 1;  // that one piece turns
  layers::run_pieces(execution, blocks * (B / batches), [&](std::int64_t piece) {
    const Range rows{piece % blocks * each, std::min(T, (piece % blocks + 1) * each)};
    const std::int64_t first = piece / blocks;
    const auto turns = turns_of(call, frequencies, first, rows);
    for (std::int64_t b = first; b < first + batches; ++b) {
      const RopeJob job{.heads = H,
                        .places = rows.end - rows.begin,
                        .width = D,
                        .pairs = call.R() / 2,
                        .interleaved = call.config.pairing == RopePairing::interleaved,
                        .x = &call.x(b, 0, rows.begin, 0),
                        .x_head = call.x.strides[1],
                        .x_place = call.x.strides[2],
                        .y = &call.y(b, 0, rows.begin, 0),
                        .y_head = call.y.strides[1],
                        .y_place = call.y.strides[2],
                        .cos = turns.cos.data(),
                        .sin = turns.sin.data()};
      kernel(job);
    }
  });
  return {};
}

}  // namespace

template <class S>
Result<void> try_rope(View<S, 4> y, std::type_identity_t<View<const S, 4>> x,
                      const RopeConfig& config, const RopePlaces& places,
                      const Execution& execution) {
  return turn<S>({"rope", "x", "y", y, x, config, places, Direction::forward}, execution);
}

template <class S>
Result<void> try_rope_backward(View<S, 4> d_x, std::type_identity_t<View<const S, 4>> d_y,
                               const RopeConfig& config, const RopePlaces& places,
                               const Execution& execution) {
  return turn<S>({"rope_backward", "d_y", "d_x", d_x, d_y, config, places, Direction::back},
                 execution);
}

#if defined(__cpp_exceptions)
template <class S>
void rope(View<S, 4> y, std::type_identity_t<View<const S, 4>> x, const RopeConfig& config,
          const RopePlaces& places, const Execution& execution) {
  try_rope(y, x, config, places, execution).value();
}

template <class S>
void rope_backward(View<S, 4> d_x, std::type_identity_t<View<const S, 4>> d_y,
                   const RopeConfig& config, const RopePlaces& places, const Execution& execution) {
  try_rope_backward(d_x, d_y, config, places, execution).value();
}
#endif

template Result<void> try_rope(View<double, 4> y, View<const double, 4> x, const RopeConfig& config,
                               const RopePlaces& places, const Execution& execution);
template Result<void> try_rope(View<float, 4> y, View<const float, 4> x, const RopeConfig& config,
                               const RopePlaces& places, const Execution& execution);
template Result<void> try_rope(View<Half, 4> y, View<const Half, 4> x, const RopeConfig& config,
                               const RopePlaces& places, const Execution& execution);
template Result<void> try_rope(View<BFloat16, 4> y, View<const BFloat16, 4> x,
                               const RopeConfig& config, const RopePlaces& places,
                               const Execution& execution);
template Result<void> try_rope_backward(View<double, 4> d_x, View<const double, 4> d_y,
                                        const RopeConfig& config, const RopePlaces& places,
                                        const Execution& execution);
template Result<void> try_rope_backward(View<float, 4> d_x, View<const float, 4> d_y,
                                        const RopeConfig& config, const RopePlaces& places,
                                        const Execution& execution);
template Result<void> try_rope_backward(View<Half, 4> d_x, View<const Half, 4> d_y,
                                        const RopeConfig& config, const RopePlaces& places,
                                        const Execution& execution);
template Result<void> try_rope_backward(View<BFloat16, 4> d_x, View<const BFloat16, 4> d_y,
                                        const RopeConfig& config, const RopePlaces& places,
                                        const Execution& execution);
#if defined(__cpp_exceptions)
template void rope(View<double, 4> y, View<const double, 4> x, const RopeConfig& config,
                   const RopePlaces& places, const Execution& execution);
template void rope(View<float, 4> y, View<const float, 4> x, const RopeConfig& config,
                   const RopePlaces& places, const Execution& execution);
template void rope(View<Half, 4> y, View<const Half, 4> x, const RopeConfig& config,
                   const RopePlaces& places, const Execution& execution);
template void rope(View<BFloat16, 4> y, View<const BFloat16, 4> x, const RopeConfig& config,
                   const RopePlaces& places, const Execution& execution);
template void rope_backward(View<double, 4> d_x, View<const double, 4> d_y,
                            const RopeConfig& config, const RopePlaces& places,
                            const Execution& execution);
template void rope_backward(View<float, 4> d_x, View<const float, 4> d_y, const RopeConfig& config,
                            const RopePlaces& places, const Execution& execution);
template void rope_backward(View<Half, 4> d_x, View<const Half, 4> d_y, const RopeConfig& config,
                            const RopePlaces& places, const Execution& execution);
template void rope_backward(View<BFloat16, 4> d_x, View<const BFloat16, 4> d_y,
                            const RopeConfig& config, const RopePlaces& places,
                            const Execution& execution);
#endif

}  // namespace attest
