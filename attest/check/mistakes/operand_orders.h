// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "attest/check/mistakes/operand_recipe.h"

namespace attest::check {

/// The batch entry that stands at b of B.
constexpr std::int64_t batch_at(BatchUse use, std::int64_t b, std::int64_t B) noexcept {
  switch (use) {
    case BatchUse::own:
      break;
    case BatchUse::next:
      return (b + 1) % B;
    case BatchUse::previous:
      return (b + B - 1) % B;
    case BatchUse::reversed:
      return B - 1 - b;
    case BatchUse::first:
      return 0;
  }
  return b;
}

/// The head that stands at h of H in G groups.
constexpr std::int64_t head_at(HeadOrder order, std::int64_t h, std::int64_t H,
                               std::int64_t G) noexcept {
  const std::int64_t n = H / G;
  switch (order) {
    case HeadOrder::claimed:
    case HeadOrder::group_means:
      break;
    case HeadOrder::reversed:
      return H - 1 - h;
    case HeadOrder::next:
      return (h + 1) % H;
    case HeadOrder::previous:
      return (h + H - 1) % H;
    case HeadOrder::regrouped:
      return h % G * n + h / G;
    case HeadOrder::regrouped_back:
      return h % n * G + h / n;
  }
  return h;
}

/// The key head that query head h of H reads, of G; −1 if it reads more than one.
constexpr std::int64_t key_head_at(HeadMap map, std::int64_t h, std::int64_t H,
                                   std::int64_t G) noexcept {
  const std::int64_t n = H / G;
  switch (map) {
    case HeadMap::claimed:
      break;
    case HeadMap::tiled:
      return h % G;
    case HeadMap::first:
      return 0;
    case HeadMap::last:
      return G - 1;
    case HeadMap::reversed:
      return G - 1 - h / n;
    case HeadMap::next:
      return (h / n + 1) % G;
    case HeadMap::previous:
      return (h / n + G - 1) % G;
    case HeadMap::divided_by_G:
      return h / G;
    case HeadMap::modulo_group:
      return h % n;
    case HeadMap::mean:
    case HeadMap::repeated_keys:
    case HeadMap::reshaped_keys:
      return -1;
  }
  return h / n;
}

}  // namespace attest::check
