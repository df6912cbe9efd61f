// SPDX-License-Identifier: MIT
#include "attest/attention/kernels/decode_block.h"
#include "attest/attention/kernels/forward_pairs.h"

/// Decoding in dot products of pairs of bfloat16.
///
/// Queries and keys are pairs as they lie in memory. Two rows of values are joined into pairs of one
/// column each, which puts the columns into another order; outputs keep it until the end.
namespace attest::kernels::ATTEST_ISA {
namespace {

struct Pairs {
  using Number = std::uint16_t;
  using QueryNumber = std::uint16_t;
  using Register = U32;
  static constexpr int step = 2 * lanes<float>;
  static constexpr int keys_at_once = 2;
  static void place_query(std::uint16_t* to, const ForwardBlock<float>& task, int r) {
    const auto* from = static_cast<const std::uint16_t*>(task.query[r]);
    for (int d = 0; d < decode_row(task.D); ++d) {
      to[d] = d < task.D ? from[d * task.query_step] : std::uint16_t{0};
    }
  }
  ATTEST_INLINE static U32 read(const std::uint16_t* from) {
    return bits_as<U32>(_mm512_loadu_si512(from));
  }
  ATTEST_INLINE static U32 read_first(const std::uint16_t* from, int count) {
    return bits_as<U32>(
        _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1ULL << count) - 1), from));
  }
  ATTEST_INLINE static F32 multiply(U32 a, U32 b, F32 sum) {
    return bits_as<F32>(
        _mm512_dpbf16_ps(bits_as<__m512>(sum), bits_as<__m512bh>(a), bits_as<__m512bh>(b)));
  }
  static Rows<std::uint16_t> rows_at(const Matrix& matrix, Storage, std::int64_t first, int count,
                                     int columns, std::uint16_t* room) {
    const PairRows rows = pair_rows(matrix, first, count, columns, room);
    return {rows.data, rows.row};
  }
  static float product_factor(const Modifiers<float>& modify) { return modify.query_factor; }
  static float number(std::uint16_t from) { return from_bf16(from); }
  ATTEST_INLINE static I32 not_finite(U32 x) {
    constexpr std::uint32_t low = 0x7F80U;
    return ((x & low) == low) | ((x & (low << 16U)) == (low << 16U));
  }
  /// Lane l of the first register: columns 8·(l div 4) + l mod 4; of the second: four further.
  ATTEST_INLINE static void join(U32* pairs, U32 even, U32 odd) {
    const auto a = bits_as<__m512i>(even);
    const auto b = bits_as<__m512i>(odd);
    pairs[0] = bits_as<U32>(_mm512_unpacklo_epi16(a, b));
    pairs[1] = bits_as<U32>(_mm512_unpackhi_epi16(a, b));
  }
  static constexpr int column_of(int place) {
    const int lane = place % step % lanes<float>;
    const int further = place % step / lanes<float> * 4;
    return place / step * step + lane / 4 * 8 + further + lane % 4;
  }
  /// Rounded to nearest even, in place: the weights of two keys in one word; beyond the last key they
  /// are 0 already.
  static void place_weights(float* weights, int keys) {
    for (int j = 0; j < keys; j += step) {
      F32 low = load(weights + j);
      F32 high = load(weights + j + lanes<float>);
      const auto both = _mm512_cvtne2ps_pbh(bits_as<__m512>(high), bits_as<__m512>(low));
      __builtin_memcpy(weights + j / 2, &both, sizeof both);
    }
  }
  static float weight(const float* weights, int j) {
    std::uint16_t half;
    __builtin_memcpy(&half, reinterpret_cast<const std::uint16_t*>(weights) + j, sizeof half);
    return from_bf16(half);
  }
  ATTEST_INLINE static U32 weights_at(const float* weights, int j) {
    std::uint32_t word;
    __builtin_memcpy(&word, weights + j / 2, sizeof word);
    return word + U32{};
  }
};

/// The columns of an output, from the order of `Pairs` to theirs.
void set_in_order(float* output, int rows, int E) {
  const int row = static_cast<int>(decode_row(E));
  for (int r = 0; r < rows; ++r) {
    for (int first = 0; first < row; first += Pairs::step) {
      float* here = output + r * row + first;
      float ordered[Pairs::step];
      for (int k = 0; k < Pairs::step; ++k) ordered[Pairs::column_of(k)] = here[k];
      __builtin_memcpy(here, ordered, sizeof ordered);
    }
  }
}

void decode(const DecodeBlock<float>& block) {
  const ForwardBlock<float>& task = *block.rows;
  decode_as<Pairs>(block);
  set_in_order(block.output, task.rows, task.E);
}

}  // namespace

DecodeKernel<float> decode_bf16() { return decode; }

}  // namespace attest::kernels::ATTEST_ISA
