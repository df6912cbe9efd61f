// SPDX-License-Identifier: MIT
#include "attest/check/mistakes/operand_memory.h"

#include <algorithm>
#include <numeric>

namespace attest::check {
namespace {

std::size_t index_of(Role role) noexcept { return static_cast<std::size_t>(role); }

/// A feature of a fused projection: which of the three, its head, its place in the head.
struct Feature {
  Role role = Role::query;
  std::int64_t n = 0;
  std::int64_t w = 0;
};

/// The extents of a fused projection: H query heads, G of keys and of values, all D wide.
struct Fused {
  std::int64_t H = 0;
  std::int64_t G = 0;
  std::int64_t D = 0;

  [[nodiscard]] std::int64_t first_head(Role role) const {
    return role == Role::query ? 0 : role == Role::key ? H : H + G;
  }
  [[nodiscard]] std::int64_t width() const { return (H + 2 * G) * D; }
};

std::int64_t place_of(const Fused& fused, FusedOrder order, const Feature& f) {
  const auto c = static_cast<std::int64_t>(f.role);
  const std::int64_t n = fused.H / fused.G;
  switch (order) {
    case FusedOrder::chd:
      return (fused.first_head(f.role) + f.n) * fused.D + f.w;
    case FusedOrder::hcd:
      if (f.role == Role::query) {
        return ((f.n / n) * (n + 2) + f.n % n) * fused.D + f.w;
      }
      return (f.n * (n + 2) + n + c - 1) * fused.D + f.w;
    case FusedOrder::hdc:
      return (f.n * fused.D + f.w) * 3 + c;
    case FusedOrder::cdh:
      return (c * fused.D + f.w) * fused.H + f.n;
    case FusedOrder::dch:
      return (f.w * 3 + c) * fused.H + f.n;
    case FusedOrder::dhc:
      return (f.w * fused.H + f.n) * 3 + c;
  }
  return 0;
}

Feature feature_at(const Fused& fused, FusedOrder order, std::int64_t place) {
  const std::int64_t n = fused.H / fused.G;
  const std::int64_t head = place / fused.D, w = place % fused.D;
  const auto role = [](std::int64_t c) { return static_cast<Role>(c); };
  switch (order) {
    case FusedOrder::chd:
      if (head < fused.H) return {Role::query, head, w};
      if (head < fused.H + fused.G) return {Role::key, head - fused.H, w};
      return {Role::value, head - fused.H - fused.G, w};
    case FusedOrder::hcd: {
      const std::int64_t group = head / (n + 2), within = head % (n + 2);
      if (within < n) return {Role::query, group * n + within, w};
      return {within == n ? Role::key : Role::value, group, w};
    }
    case FusedOrder::hdc:
      return {role(place % 3), place / 3 / fused.D, place / 3 % fused.D};
    case FusedOrder::cdh:
      return {role(place / fused.H / fused.D), place % fused.H, place / fused.H % fused.D};
    case FusedOrder::dch:
      return {role(place / fused.H % 3), place % fused.H, place / fused.H / 3};
    case FusedOrder::dhc:
      return {role(place % 3), place / 3 % fused.H, place / 3 / fused.H};
  }
  return {};
}

bool by_heads(FusedOrder order) { return order == FusedOrder::chd || order == FusedOrder::hcd; }

}  // namespace

OperandShape claimed_shape(const Claim& claim, Role role) {
  const Tensor<double>& tensor = role == Role::query ? claim.call.query
                                 : role == Role::key ? claim.call.key
                                                     : claim.call.value;
  if (tensor.rank() == 4) {
    return {tensor.extent(0), tensor.extent(1), tensor.extent(2), tensor.extent(3)};
  }
  const lab::AttentionShape& known = claim.shape;
  if (role == Role::query) return {known.B, known.H, known.T, known.D};
  return {known.B, known.G, known.S, role == Role::key ? known.D : known.E};
}

std::optional<OperandMemory> OperandMemory::make(const Claim& claim, const OperandRecipe& recipe,
                                                 Role role) {
  OperandMemory out;
  out.role_ = role;
  out.data_ = {claim.call.query.data(), claim.call.key.data(), claim.call.value.data()};
  for (const Role each : own_roles) out.claimed_[index_of(each)] = claimed_shape(claim, each);
  if (!out.settle(claim, recipe)) return std::nullopt;
  return out;
}

bool OperandMemory::settle(const Claim& claim, const OperandRecipe& recipe) {
  loaded_ = recipe.loaded;
  reading_ = recipe.reading[index_of(role_)];
  batch_time_ = recipe.batch_time;
  written_ = recipe.fused_written;
  read_ = recipe.fused_read;
  past_ = claim.past;
  fused_ = written_ != read_ || reading_.strides != FusedStrides::right;
  shape_ = claimed_[index_of(role_)];

  const Role loaded = loaded_[index_of(role_)];
  const bool plain = !fused_ && batch_time_ == BatchTime::claimed &&
                     recipe.head_count == HeadCount::claimed && reading_.split == Split::right;
  direct_ = plain && loaded == role_;
  run_ = shape_.W;
  if (direct_) return true;
  if (shape_.count() == 0) return false;
  if (claimed_[index_of(loaded)] != shape_) return false;
  if (plain) return true;

  first_ = role_ == Role::query || recipe.cache_read_likewise ? 0 : past_;
  if (first_ >= shape_.L) return false;
  if (fused_ && !settle_fused(claim)) return false;
  shape_.L -= first_;
  if (batch_time_ == BatchTime::exchanged) std::swap(shape_.B, shape_.L);
  if (!settle_heads(recipe.head_count)) return false;
  // Cached rows are joined to these, so they must be alike.
  const OperandShape& claimed = claimed_[index_of(role_)];
  if (first_ != 0 && (batch_time_ != BatchTime::claimed || shape_.N != claimed.N ||
                      shape_.W != claimed.W || shape_.L != claimed.L - first_)) {
    return false;
  }
  shape_.L += first_;
  return true;
}

bool OperandMemory::settle_fused(const Claim& claim) {
  const OperandShape &query = claimed_[0], &key = claimed_[1], &value = claimed_[2];
  if (query.count() == 0 || key.count() == 0 || value.count() == 0) return false;
  if (key.N == 0 || query.N % key.N != 0 || key != value) return false;
  if (query.B != key.B || query.W != key.W || query.L != key.L - claim.past) return false;
  if (loaded_ != own_roles) return false;
  if (role_ != Role::query && first_ != past_) return false;
  return query.N == key.N || (by_heads(written_) && by_heads(read_));
}

bool OperandMemory::settle_heads(HeadCount count) {
  const std::int64_t width = shape_.N * shape_.W, claimed_width = shape_.W;
  if (count == HeadCount::one) shape_.N = 1;
  if (count == HeadCount::half) {
    if (shape_.N % 2 != 0) return false;
    shape_.N /= 2;
  }
  if (count == HeadCount::twice) {
    if (shape_.W % 2 != 0) return false;
    shape_.N *= 2;
  }
  shape_.W = width / shape_.N;
  if (reading_.split == Split::exchanged) std::swap(shape_.N, shape_.L);
  run_ = std::gcd(shape_.W, claimed_width);
  const bool torn =
      reading_.split == Split::width_major || (fused_ && !(by_heads(written_) && by_heads(read_)));
  if (torn) run_ = 1;
  in_columns_ = torn && batch_time_ == BatchTime::claimed &&
                reading_.strides == FusedStrides::right &&
                (reading_.split == Split::right || reading_.split == Split::width_major);
  return true;
}

const double* OperandMemory::row(std::int64_t b, std::int64_t n, std::int64_t l) const {
  return data_[index_of(role_)] + ((b * shape_.N + n) * shape_.L + l) * shape_.W;
}

void OperandMemory::copy_row(std::int64_t b, std::int64_t n, std::int64_t l,
                             std::span<double> out) {
  if (in_columns_ && l >= first_) {
    if (columns_batch_ != b || columns_head_ != n) find_columns(b, n);
    const std::int64_t further = (l - first_) * claimed_[index_of(role_)].W;
    for (std::size_t w = 0; w < columns_.size(); ++w) out[w] = columns_[w][further];
    return;
  }
  for (std::int64_t w = 0; w < shape_.W; w += run_) {
    std::copy_n(element(b, n, l, w), run_, out.begin() + w);
  }
}

void OperandMemory::find_columns(std::int64_t b, std::int64_t n) {
  columns_.resize(static_cast<std::size_t>(shape_.W));
  for (std::int64_t w = 0; w < shape_.W; ++w) {
    columns_[static_cast<std::size_t>(w)] = element(b, n, first_, w);
  }
  columns_batch_ = b;
  columns_head_ = n;
}

const double* OperandMemory::element(std::int64_t b, std::int64_t n, std::int64_t l,
                                     std::int64_t w) const {
  if (l < first_) {
    return data_[index_of(role_)] +
           ((b * shape_.N + n) * claimed_[index_of(role_)].L + l) * shape_.W + w;
  }
  l -= first_;
  const std::int64_t N = shape_.N, L = shape_.L - first_, W = shape_.W;
  switch (reading_.split) {
    case Split::right:
      break;
    case Split::reshaped: {
      const std::int64_t flat = (n * L + l) * W + w;
      return packed_element(b, flat / (N * W), flat % (N * W));
    }
    case Split::unshaped: {
      const std::int64_t flat = (l * N + n) * W + w;
      return packed_element(b, flat / W % L, flat / (L * W) * W + flat % W);
    }
    case Split::width_major:
      return packed_element(b, l, w * N + n);
    case Split::exchanged:
      return packed_element(b, n, l * W + w);
  }
  return packed_element(b, l, n * W + w);
}

const double* OperandMemory::packed_element(std::int64_t b, std::int64_t l, std::int64_t p) const {
  const OperandShape& claimed = claimed_[index_of(role_)];
  if (batch_time_ == BatchTime::exchanged) {
    std::swap(b, l);
  } else if (batch_time_ == BatchTime::reshaped) {
    const std::int64_t flat = b * (claimed.L - first_) + l;
    b = flat % claimed.B;
    l = flat / claimed.B;
  }
  return fused_ ? fused_element(b, l, p) : own_element(role_, b, l, p);
}

const double* OperandMemory::fused_element(std::int64_t b, std::int64_t l, std::int64_t p) const {
  const OperandShape& own = claimed_[index_of(role_)];
  const Fused fused{claimed_[0].N, claimed_[1].N, own.W};
  const std::int64_t L = claimed_[0].L;
  std::int64_t place = place_of(fused, read_, {role_, p / own.W, p % own.W});
  if (reading_.strides != FusedStrides::right) {
    // From the first number of this part on, as if nothing else lay between.
    const std::int64_t n = p / own.W, w = p % own.W;
    const std::int64_t dense = reading_.strides == FusedStrides::heads_first
                                   ? ((b * own.N + n) * L + l) * own.W + w
                                   : ((b * L + l) * own.N + n) * own.W + w;
    const std::int64_t flat = place_of(fused, read_, {role_, 0, 0}) + dense;
    b = flat / fused.width() / L;
    l = flat / fused.width() % L;
    place = flat % fused.width();
  }
  const Feature from = feature_at(fused, written_, place);
  return own_element(from.role, b, l, from.n * own.W + from.w);
}

const double* OperandMemory::own_element(Role role, std::int64_t b, std::int64_t l,
                                         std::int64_t p) const {
  const OperandShape& own = claimed_[index_of(role)];
  // A fused projection has the new keys and values alone.
  const std::int64_t at = role == Role::query ? l : l + (fused_ ? past_ : first_);
  return data_[index_of(loaded_[index_of(role)])] + ((b * own.N + p / own.W) * own.L + at) * own.W +
         p % own.W;
}

}  // namespace attest::check
