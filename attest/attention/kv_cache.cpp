// SPDX-License-Identifier: MIT
#include "attest/attention/kv_cache.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "attest/base/shape.h"
#include "attest/base/text.h"

namespace attest {
namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 40U;  // as the engine's own limit

Failure failure_of(ErrorKind kind, const char* id, const std::string& message) {
  return {kind, id, "[kv_cache] " + message};
}

Result<void> check_size(const Shape& shape) {
  const auto count = element_count(shape);
  if (count && *count <= most_elements) return {};
  return failure_of(ErrorKind::shape, "too-large",
                    sentence("memory of shape ", to_string(shape), " has more than 2^40 elements"));
}

Result<void> must_agree(const char* name, const char* letter, std::int64_t found,
                        std::int64_t wanted) {
  if (found == wanted) return {};
  return failure_of(ErrorKind::shape, "shape-mismatch",
                    sentence("the ", name, " must have the cache's ", letter, "; it has ", found,
                             ", the cache has ", wanted));
}

/// Moves `rows` [B, G, n, width] to the places from `at` on.
template <class T>
void place(Tensor<T>& whole, View<const T, 4> rows, std::int64_t at) {
  const View<T, 4> to = whole.template view<4>();
  if (rows.extent(2) == 0) return;  // however many heads there are
  for (std::int64_t b = 0; b < rows.extent(0); ++b) {
    for (std::int64_t g = 0; g < rows.extent(1); ++g) {
      for (std::int64_t j = 0; j < rows.extent(2); ++j) {
        T* const target = &to(b, g, at + j, 0);
        if (rows.strides[3] == 1) {
          std::copy_n(&rows(b, g, j, 0), rows.extent(3), target);
          continue;
        }
        for (std::int64_t d = 0; d < rows.extent(3); ++d) target[d] = rows(b, g, j, d);
      }
    }
  }
}

/// The same rows in memory for more of them.
template <class T>
Tensor<T> regrown(View<const T, 4> filled, std::int64_t capacity) {
  Tensor<T> out({filled.extent(0), filled.extent(1), capacity, filled.extent(3)});
  place(out, filled, 0);
  return out;
}

}  // namespace

template <class T>
KvCache<T>::KvCache(Tensor<T> key, Tensor<T> value, Growth growth)
    : key_(std::move(key)), value_(std::move(value)), growth_(growth) {}

template <class T>
Result<KvCache<T>> KvCache<T>::try_make(const KvCacheShape& shape, Growth growth) {
  for (const std::int64_t extent : {shape.B, shape.G, shape.capacity}) {
    if (extent < 0) {
      return failure_of(ErrorKind::value, "bad-option",
                        sentence("B, G and capacity must not be negative; found ", extent));
    }
  }
  for (const std::int64_t width : {shape.D, shape.E}) {
    if (width < 1) {
      return failure_of(ErrorKind::value, "bad-option",
                        sentence("D and E must be at least 1; found ", width));
    }
  }
  const Shape key{shape.B, shape.G, shape.capacity, shape.D};
  const Shape value{shape.B, shape.G, shape.capacity, shape.E};
  if (auto ok = check_size(key); !ok) return ok.failure();
  if (auto ok = check_size(value); !ok) return ok.failure();
  return KvCache(Tensor<T>(key), Tensor<T>(value), growth);
}

template <class T>
Result<void> KvCache<T>::check(View<const T, 4> key, View<const T, 4> value) const {
  if (!key || !value) {
    return failure_of(ErrorKind::shape, "shape-mismatch", "key and value must be given");
  }
  const std::array<std::int64_t, 4> own = {key_.extent(0), key_.extent(1), 0, key_.extent(3)};
  if (auto ok = must_agree("key", "B", key.extent(0), own[0]); !ok) return ok;
  if (auto ok = must_agree("key", "G", key.extent(1), own[1]); !ok) return ok;
  if (auto ok = must_agree("key", "D", key.extent(3), own[3]); !ok) return ok;
  if (auto ok = must_agree("value", "B", value.extent(0), own[0]); !ok) return ok;
  if (auto ok = must_agree("value", "G", value.extent(1), own[1]); !ok) return ok;
  if (auto ok = must_agree("value", "E", value.extent(3), value_.extent(3)); !ok) return ok;
  if (key.extent(2) != value.extent(2) || key.extent(2) < 0) {
    return failure_of(ErrorKind::shape, "shape-mismatch",
                      sentence("key and value must have as many positions; key has ", key.extent(2),
                               ", value has ", value.extent(2)));
  }
  if (key.extent(2) > most_elements) {
    return failure_of(ErrorKind::shape, "too-large",
                      sentence(key.extent(2), " positions are more than 2^40"));
  }
  if (growth_ == Growth::fixed && key.extent(2) > capacity() - length_) {
    return failure_of(ErrorKind::value, "cache-full",
                      sentence("the cache holds ", length_, " of ", capacity(), " keys; ",
                               key.extent(2), " more do not fit"));
  }
  return {};
}

template <class T>
Result<void> KvCache<T>::try_append(View<const T, 4> key, View<const T, 4> value) {
  if (auto ok = check(key, value); !ok) return ok;
  const std::int64_t needed = length_ + key.extent(2);
  // What is appended may lie in the old memory: it must live until the rows are moved.
  Tensor<T> old_key, old_value;
  if (needed > capacity()) {
    const std::int64_t wanted = std::max(needed, 2 * capacity());
    const Shape key_shape{key_.extent(0), key_.extent(1), wanted, key_.extent(3)};
    const Shape value_shape{key_.extent(0), key_.extent(1), wanted, value_.extent(3)};
    if (auto ok = check_size(key_shape); !ok) return ok;
    if (auto ok = check_size(value_shape); !ok) return ok;
    Tensor<T> wider_key = regrown(this->key(), wanted);
    Tensor<T> wider_value = regrown(this->value(), wanted);
    old_key = std::exchange(key_, std::move(wider_key));
    old_value = std::exchange(value_, std::move(wider_value));
  }
  place(key_, key, length_);
  place(value_, value, length_);
  offset_ = length_;
  length_ = needed;
  return {};
}

template <class T>
Result<void> KvCache<T>::try_truncate(std::int64_t length) {
  if (length < 0 || length > length_) {
    return failure_of(ErrorKind::value, "bad-option",
                      sentence("a cache of ", length_, " keys cannot be cut to ", length));
  }
  length_ = length;
  offset_ = std::min(offset_, length);
  return {};
}

template class KvCache<float>;
template class KvCache<double>;
template class KvCache<BFloat16>;
template class KvCache<Half>;

}  // namespace attest
