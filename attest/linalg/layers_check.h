// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "attest/base/dtype.h"
#include "attest/base/result.h"
#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "attest/base/view.h"
#include "attest/linalg/execution.h"
#include "attest/linalg/flush.h"
#include "attest/linalg/kernels/layers.h"

/// What the layers' checks and drivers share. Not for users.
namespace attest::layers {

template <class... Parts>
[[nodiscard]] Failure shape_mismatch(std::string_view operation, const Parts&... parts) {
  return {ErrorKind::shape, "shape-mismatch", sentence("[", operation, "] ", parts...)};
}
template <class... Parts>
[[nodiscard]] Failure bad_option(std::string_view operation, const Parts&... parts) {
  return {ErrorKind::value, "bad-option", sentence("[", operation, "] ", parts...)};
}
template <class... Parts>
[[nodiscard]] Failure bad_stride(std::string_view operation, const Parts&... parts) {
  return {ErrorKind::shape, "bad-stride", sentence("[", operation, "] ", parts...)};
}

/// Rows of numbers that lie beside each other; what is written must not lie upon itself.
enum class Use { read, write };

template <class T>
[[nodiscard]] Result<void> check_rows(std::string_view operation, std::string_view name,
                                      const View<T, 2>& view, Use use) {
  if (!view) return shape_mismatch(operation, name, " must be given");
  const auto [N, C] = view.extents;
  if (N < 0 || C < 0) {
    return shape_mismatch(operation, "extents must not be negative; ", name, " has ",
                          to_string(view.extents));
  }
  if (C > 1 && view.strides[1] != 1) {
    return bad_stride(operation, "numbers of a row must lie beside each other; ", name,
                      " has stride ", view.strides[1], ", not 1");
  }
  if (use == Use::write && N > 1 && std::abs(view.strides[0]) < C) {
    return bad_stride(operation, "rows that are written must not overlap; ", name, " has ", C,
                      " columns and stride ", view.strides[0], " from row to row");
  }
  return {};
}

/// That, and the same shape as x.
template <class T, class X>
[[nodiscard]] Result<void> check_like(std::string_view operation, std::string_view name,
                                      const View<T, 2>& view, Use use, std::string_view x_name,
                                      const View<X, 2>& x) {
  if (!view) return shape_mismatch(operation, name, " must be given");
  if (view.extents != x.extents) {
    return shape_mismatch(operation, x_name, " and ", name, " must have the same shape; ", x_name,
                          " has ", to_string(x.extents), ", ", name, " has ",
                          to_string(view.extents));
  }
  return check_rows(operation, name, view, use);
}

/// Where the kernels for storage type S stand in their tables.
template <class S>
inline constexpr int storage_of = -1;
template <>
inline constexpr int storage_of<double> = 0;
template <>
inline constexpr int storage_of<float> = 1;
template <>
inline constexpr int storage_of<Half> = 2;
template <>
inline constexpr int storage_of<BFloat16> = 3;

/// The functions that give an instruction set's table, the widest that this library has for it:
/// bfloat16 products and tiles are no use to the layers.
template <class Table>
struct TableMakers {
  Table (*portable)() noexcept;
  Table (*avx2)() noexcept;
  Table (*avx512)() noexcept;
};
#if defined(__x86_64__)
namespace narrow = kernels::avx2;
namespace wide = kernels::avx512;
#else
namespace narrow = kernels::portable;
namespace wide = kernels::portable;
#endif
inline constexpr TableMakers<kernels::SoftmaxTable> softmax_makers{
    kernels::portable::softmax_table, narrow::softmax_table, wide::softmax_table};
inline constexpr TableMakers<kernels::NormTable> norm_makers{kernels::portable::norm_table,
                                                             narrow::norm_table, wide::norm_table};
inline constexpr TableMakers<kernels::ActivationTable> activation_makers{
    kernels::portable::activation_table, narrow::activation_table, wide::activation_table};
inline constexpr TableMakers<kernels::RopeTable> rope_makers{kernels::portable::rope_table,
                                                             narrow::rope_table, wide::rope_table};

/// The list, one table an instruction set: full with portable kernels, then overridden.
template <class Table>
[[nodiscard]] std::array<Table, 5> all_tables(const TableMakers<Table>& makers) {
  std::array<Table, 5> out;
  out.fill(makers.portable());
  out[static_cast<std::size_t>(Isa::avx2)] = makers.avx2();
  for (const Isa isa : {Isa::avx512, Isa::avx512bf16, Isa::amx}) {
    out[static_cast<std::size_t>(isa)] = makers.avx512();
  }
  return out;
}

/// The table of the instruction set that the call asks for.
/// Fails         bad-isa.
template <class Table>
[[nodiscard]] Result<const Table*> table_for(const Execution& execution,
                                             const std::array<Table, 5>& tables) {
  const Result<Isa> isa = isa_for(execution);
  if (!isa) return isa.failure();
  return &tables[static_cast<std::size_t>(*isa)];
}

/// work(piece) for each piece; a single one on this thread, without waking the others.
template <class Work>
void run_pieces(const Execution& execution, std::int64_t pieces, const Work& work) {
  const auto plainly = [&work](std::int64_t piece) {
    const PlainArithmetic plain;
    work(piece);
  };
  if (pieces <= 0) return;
  if (pieces == 1) return plainly(0);
  threads_for(execution).run(pieces, plainly);
}

/// work(range) on parts of `rows` rows of `cols` numbers, each part worth waking a thread for. Where
/// the cuts are changes nothing, since each row is calculated by itself.
template <class Work>
void run_rows(const Execution& execution, std::int64_t rows, std::int64_t cols, const Work& work) {
  constexpr std::int64_t numbers_in_piece = 16384;
  const std::int64_t each =
      std::max<std::int64_t>(1, numbers_in_piece / std::max<std::int64_t>(cols, 1));
  const std::int64_t pieces = (rows + each - 1) / each;
  run_pieces(execution, pieces, [&](std::int64_t piece) { work(partition(rows, pieces, piece)); });
}

/// Rows from `first` on.
template <class T>
[[nodiscard]] kernels::RowsIn rows_in(const View<T, 2>& view, std::int64_t first) {
  return {view.data + first * view.strides[0], view.strides[0]};
}
template <class T>
[[nodiscard]] kernels::RowsOut rows_out(const View<T, 2>& view, std::int64_t first) {
  return {view.data + first * view.strides[0], view.strides[0]};
}

}  // namespace attest::layers
