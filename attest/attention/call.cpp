// SPDX-License-Identifier: MIT
#include "attest/attention/call.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "attest/attention/call_check.h"

namespace attest::engine {

std::int64_t size_of(kernels::Storage storage) {
  switch (storage) {
    case kernels::Storage::f64:
      return 8;
    case kernels::Storage::f32:
      return 4;
    case kernels::Storage::bf16:
    case kernels::Storage::f16:
      return 2;
  }
  return 0;
}

const void* at(const Tensor4& tensor, std::int64_t a, std::int64_t b, std::int64_t c) {
  const std::int64_t offset = a * tensor.strides[0] + b * tensor.strides[1] + c * tensor.strides[2];
  return static_cast<const char*>(tensor.data) + offset * size_of(tensor.storage);
}

namespace {

/// An entry that is one for all batches or one for each.
std::int64_t of_batch(const std::vector<std::int64_t>& values, std::int64_t b) {
  return values[values.size() == 1 ? 0 : static_cast<std::size_t>(b)];
}

/// Part of the keys that position rules speak of: all, or those of one document.
struct Span {
  std::int64_t query_begin = 0;
  std::int64_t query_end = 0;
  std::int64_t key_begin = 0;
  std::int64_t key_end = 0;
};

Span document_of(const Packing& packing, std::int64_t i) {
  // The last document that starts at or before i and is not empty of queries there.
  const auto& starts = packing.query_starts;
  const auto after = std::upper_bound(starts.begin(), starts.end(), i);
  const auto n = static_cast<std::size_t>(after - starts.begin()) - 1;
  return {starts[n], starts[n + 1], packing.key_starts[n], packing.key_starts[n + 1]};
}

std::int64_t offset_in(const Mask& mask, const Span& span, std::int64_t b,
                       std::int64_t key_length) {
  switch (mask.corner) {
    case Corner::square:
    case Corner::top_left:
      return 0;
    case Corner::bottom_right: {
      const bool packed = !mask.packing.query_starts.empty();
      const std::int64_t keys = packed ? span.key_end - span.key_begin : key_length;
      return keys - (span.query_end - span.query_begin);
    }
    case Corner::at_offset:
      return of_batch(mask.query_offset, b);
  }
  return 0;
}

}  // namespace

Ranges::Ranges(const Call& call) : mask_(*call.mask), shape_(call.shape) {
  if (!mask_.documents.query.empty()) find_id_ranges();
}

std::int64_t Ranges::query_id(std::int64_t b, std::int64_t i) const {
  const auto& ids = mask_.documents.query;
  const bool shared = std::ssize(ids) == shape_.T;
  return ids[static_cast<std::size_t>(shared ? i : b * shape_.T + i)];
}

const std::int64_t* Ranges::key_ids(std::int64_t b) const {
  const auto& ids = mask_.documents.key;
  const bool shared = std::ssize(ids) == shape_.S;
  return ids.data() + (shared ? 0 : b * shape_.S);
}

void Ranges::find_id_ranges() {
  struct Found {
    std::int64_t first = 0;
    std::int64_t last = 0;
    std::int64_t count = 0;
  };
  const DocumentIds& ids = mask_.documents;
  ids_shared_ = std::ssize(ids.query) == shape_.T && std::ssize(ids.key) == shape_.S;
  const std::int64_t batches = ids_shared_ ? 1 : shape_.B;
  for (std::int64_t b = 0; b < batches; ++b) {
    std::unordered_map<std::int64_t, Found> found;
    const std::int64_t* of_key = key_ids(b);
    for (std::int64_t j = 0; j < shape_.S; ++j) {
      Found& of_id = found[of_key[j]];
      if (of_id.count++ == 0) of_id.first = j;
      of_id.last = j + 1;
    }
    for (std::int64_t i = 0; i < shape_.T; ++i) {
      const auto it = found.find(query_id(b, i));
      const Found range = it == found.end() ? Found{} : it->second;
      id_first_.push_back(range.first);
      id_last_.push_back(range.last);
      ids_scattered_ |= range.last - range.first != range.count;
    }
  }
}

RowRange Ranges::of(std::int64_t b, std::int64_t i) const {
  Span span{0, shape_.T, 0, shape_.S};
  if (!mask_.packing.query_starts.empty()) span = document_of(mask_.packing, i);
  const std::int64_t length = mask_.key_lengths.empty() ? shape_.S : of_batch(mask_.key_lengths, b);
  const std::int64_t position =
      span.key_begin + (i - span.query_begin) + offset_in(mask_, span, b, length);
  RowRange range{position, span.key_begin, std::min(span.key_end, length)};
  if (mask_.future_hidden) range.last = std::min(range.last, position + 1);
  if (mask_.window.left) range.first = std::max(range.first, position - *mask_.window.left);
  if (mask_.window.right) range.last = std::min(range.last, position + *mask_.window.right + 1);
  if (!id_first_.empty()) {
    const auto k = static_cast<std::size_t>(ids_shared_ ? i : b * shape_.T + i);
    range.first = std::max(range.first, id_first_[k]);
    range.last = std::min(range.last, id_last_[k]);
  }
  return range;
}

namespace {

double number_at(const Tensor4& tensor, const void* row, std::int64_t index) {
  const std::int64_t k = index * tensor.strides[3];
  switch (tensor.storage) {
    case kernels::Storage::f64:
      return static_cast<const double*>(row)[k];
    case kernels::Storage::f32:
      return static_cast<const float*>(row)[k];
    case kernels::Storage::bf16:
      return to_float(static_cast<const BFloat16*>(row)[k]);
    case kernels::Storage::f16:
      return to_double(static_cast<const Half*>(row)[k]);
  }
  return 0;
}

}  // namespace

bool sees_a_key(const Call& call, const Ranges& ranges, std::int64_t b, std::int64_t h,
                std::int64_t i) {
  const RowRange range = ranges.of(b, i);
  const void* bias = call.bias.data != nullptr ? at(call.bias, b, h, i) : nullptr;
  for (std::int64_t j = std::max<std::int64_t>(range.first, 0);
       j < std::min(range.last, call.shape.S); ++j) {
    if (call.visible && !call.visible(b, h, i, j)) continue;
    if (ranges.ids_scattered() && ranges.key_ids(b)[j] != ranges.query_id(b, i)) continue;
    if (bias != nullptr && number_at(call.bias, bias, j) == -HUGE_VAL) continue;
    return true;
  }
  return false;
}

/// Whether there is memory, or none is needed.
template <class T>
bool given(const View<const T, 4>& view) {
  return view || std::any_of(view.extents.begin(), view.extents.end(),
                             [](std::int64_t extent) { return extent == 0; });
}

template <class T, class Bias>
Result<Call> checked_call(const AttentionInputs<T>& in, const AttentionOptions<Bias>& options) {
  const Sizes sizes{.given = given(in.query) && given(in.key) && given(in.value),
                    .query = in.query.extents,
                    .key = in.key.extents,
                    .value = in.value.extents};
  if (auto ok = check_sizes(sizes); !ok) return ok.failure();
  Call call;
  call.shape = {in.query.extent(0), in.query.extent(1), in.key.extent(1),  in.query.extent(2),
                in.key.extent(2),   in.query.extent(3), in.value.extent(3)};
  const std::array<std::int64_t, 4> whole{call.shape.B, call.shape.H, call.shape.T, call.shape.S};
  if (auto ok = check_mask(options.mask, call.shape); !ok) return ok.failure();
  const Numbers numbers{.wide = std::is_same_v<AccumulatorOf<T>, double>,
                        .bias = options.bias ? &options.bias.extents : nullptr,
                        .scale = options.scale,
                        .softcap = options.softcap,
                        .alibi_slopes = &options.alibi_slopes,
                        .sink = &options.sink,
                        .dropout = options.dropout};
  if (auto ok = check_numbers(numbers, call.shape); !ok) return ok.failure();
  call.query = erase(in.query);
  call.key = erase(in.key);
  call.value = erase(in.value);
  if (options.bias) call.bias = erase(broadcast(options.bias, whole));
  if (options.mask.visible) call.visible = broadcast(options.mask.visible, whole);
  call.mask = &options.mask;
  call.scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(call.shape.D)));
  call.softcap = options.softcap.value_or(0);
  if (!options.alibi_slopes.empty()) call.alibi_slopes = &options.alibi_slopes;
  if (!options.sink.empty()) call.sink = &options.sink;
  call.dropout = options.dropout;
  call.empty_row = options.empty_row;
  return call;
}

#define ATTEST_INSTANTIATE(T, Bias)                                      \
  template Result<Call> checked_call<T, Bias>(const AttentionInputs<T>&, \
                                              const AttentionOptions<Bias>&);
ATTEST_INSTANTIATE(float, float)
ATTEST_INSTANTIATE(float, BFloat16)
ATTEST_INSTANTIATE(double, double)
ATTEST_INSTANTIATE(BFloat16, float)
ATTEST_INSTANTIATE(BFloat16, BFloat16)
ATTEST_INSTANTIATE(Half, float)
ATTEST_INSTANTIATE(Half, BFloat16)
#undef ATTEST_INSTANTIATE

}  // namespace attest::engine
