// SPDX-License-Identifier: MIT
#include "attest/check/block/rows.h"

#include <algorithm>

namespace attest::check::block {
namespace {

using Marks = std::vector<char>;  // of every row, whether it is wanted

RowSet set_of(const Marks& marks) {
  RowSet out;
  out.all = false;
  for (std::size_t n = 0; n < marks.size(); ++n) {
    if (marks[n] != 0) out.ids.push_back(static_cast<std::int64_t>(n));
  }
  if (out.ids.size() == marks.size()) return {};
  return out;
}

void join(Marks& into, const Marks& more) {
  for (std::size_t n = 0; n < into.size(); ++n) {
    into[n] = static_cast<char>(into[n] != 0 || more[n] != 0);
  }
}

class Planner {
 public:
  Planner(const BlockDump& dump, const BlockRecipe& recipe, bool from_dump, const RowSet& sample)
      : dump_(dump), recipe_(recipe), from_dump_(from_dump) {
    H_ = dump.config.heads, G_ = dump.config.kv_heads;
    rows_ = dump.rows(), T_ = rows_ / dump.sequences;
    const Marks looked_at = marks_of(sample, rows_);
    const Marks heads_looked_at = marks_of(block::by_head(dump, sample), rows_ * H_);
    for (std::size_t s = 0; s < block_stages; ++s) {
      const auto stage = static_cast<BlockStage>(s);
      const bool stacked = stage == BlockStage::weights || stage == BlockStage::heads;
      computed_[s] = stacked ? heads_looked_at : looked_at;
      taken_[s] = Marks(computed_[s].size(), 0);
    }
  }

  RowPlan run() {
    using S = BlockStage;
    const bool post = recipe_.placement == NormPlacement::post;
    const bool sandwich = recipe_.placement == NormPlacement::sandwich;
    // From the last to the first: each stage asks the ones before it for rows.
    if (post) by_norm(S::norm2, NormPlace::norm2, S::residual2);
    const S hidden = post ? S::norm1 : S::residual1;
    ask(S::residual2, {hidden, sandwich ? S::norm2_out : S::down});
    ask_ffn_input(S::residual2);
    by_norm(S::norm2_out, NormPlace::norm2_out, S::down);
    ask(S::down, {S::gated});
    ask(S::gated, {S::activation, S::gate, S::up});
    ask(S::activation, {S::gate, S::up});
    ask_ffn_input(S::gate);
    ask_ffn_input(S::up);
    if (!post) by_norm(S::norm2, NormPlace::norm2, S::residual1);
    if (post) by_norm(S::norm1, NormPlace::norm1, S::residual1);
    ask(S::residual1, {sandwich ? S::norm1_out : S::output_projection});
    if (!post) ask(S::residual1, {S::norm1});
    by_norm(S::norm1_out, NormPlace::norm1_out, S::output_projection);
    ask(S::output_projection, {S::concat});
    merge();
    close_softmax();
    mix();
    score();
    ask(S::rope_query, {S::query});
    ask(S::rope_key, {S::key});
    packed();
    if (!post) {
      for (const S stage : {S::query, S::key, S::value}) ask(stage, {S::norm1});
    }
    RowPlan out;
    for (std::size_t s = 0; s < block_stages; ++s) {
      out.computed[s] = set_of(computed_[s]);
      out.taken[s] = set_of(taken_[s]);
    }
    return out;
  }

 private:
  static Marks marks_of(const RowSet& set, std::int64_t rows) {
    Marks out(static_cast<std::size_t>(rows), set.all ? 1 : 0);
    for (const std::int64_t id : set.ids) out[static_cast<std::size_t>(id)] = 1;
    return out;
  }
  static std::size_t index(BlockStage stage) { return static_cast<std::size_t>(stage); }
  [[nodiscard]] bool given(BlockStage stage) const {
    return from_dump_ && dump_.stages.count(stage) != 0;
  }
  void want(BlockStage stage, const Marks& marks) {
    join((given(stage) ? taken_ : computed_)[index(stage)], marks);
  }
  void ask(BlockStage stage, std::initializer_list<BlockStage> inputs) {
    for (const BlockStage input : inputs) want(input, computed_[index(stage)]);
  }
  void by_norm(BlockStage stage, NormPlace place, BlockStage input) {
    if (!recipe_.norm(place).over_positions) return ask(stage, {input});
    want(input, Marks(static_cast<std::size_t>(rows_), 1));
  }
  void ask_ffn_input(BlockStage stage) {
    using S = BlockStage;
    const bool post = recipe_.placement == NormPlacement::post;
    if (recipe_.ffn_place == BlockRecipe::Ffn::beside_norm1) {
      if (!post) ask(stage, {S::norm1});
    } else if (recipe_.ffn_reads_residual) {
      ask(stage, {S::residual1});
    } else {
      ask(stage, {post ? S::norm1 : S::norm2});
    }
  }

  /// Of which heads' rows the merged rows consist.
  void merge() {
    const Marks& rows = computed_[index(BlockStage::concat)];
    Marks heads(static_cast<std::size_t>(rows_ * H_), 0);
    for (std::int64_t n = 0; n < rows_ * H_; ++n) {
      const std::int64_t b = n / (H_ * T_), within = n % (H_ * T_), t = n % T_;
      const bool reshaped = recipe_.attend.merge == HeadOrder::reshaped;
      const std::int64_t row = b * T_ + (reshaped ? within / H_ : t);
      heads[static_cast<std::size_t>(n)] = rows[static_cast<std::size_t>(row)];
    }
    want(BlockStage::heads, heads);
  }

  /// A softmax over heads or queries needs all of them.
  void close_softmax() {
    ask(BlockStage::heads, {BlockStage::weights});
    const AttendRecipe::Over over = recipe_.attend.softmax;
    if (over != AttendRecipe::Over::heads && over != AttendRecipe::Over::queries) return;
    Marks& marks = computed_[index(BlockStage::weights)];
    Marks wider = marks;
    for (std::int64_t n = 0; n < rows_ * H_; ++n) {
      if (marks[static_cast<std::size_t>(n)] == 0) continue;
      const bool heads = over == AttendRecipe::Over::heads;
      const std::int64_t first = heads ? n / (H_ * T_) * H_ * T_ + n % T_ : n / T_ * T_;
      for (std::int64_t k = 0; k < (heads ? H_ : T_); ++k) {
        wider[static_cast<std::size_t>(first + k * (heads ? T_ : 1))] = 1;
      }
    }
    marks = wider;
  }

  /// The keys that the queries of these rows of weights may see, as rows of key or value.
  [[nodiscard]] Marks keys_of(const Marks& weights, HeadOrder order, bool everything) const {
    using Visible = AttendRecipe::Visible;
    const AttendRecipe& a = recipe_.attend;
    Marks out(static_cast<std::size_t>(rows_), 0);
    for (std::int64_t b = 0; b < dump_.sequences; ++b) {
      std::int64_t first = T_, last = -1;
      for (std::int64_t n = b * H_ * T_; n < (b + 1) * H_ * T_; ++n) {
        if (weights[static_cast<std::size_t>(n)] == 0) continue;
        first = std::min(first, n % T_), last = std::max(last, n % T_);
      }
      if (last < 0) continue;
      const bool forwards = a.visible == Visible::causal || a.visible == Visible::strict ||
                            a.visible == Visible::one_future;
      const bool whole = everything || a.after_softmax || order == HeadOrder::reshaped;
      if (a.visible == Visible::one_future) last = std::min(last + 1, T_ - 1);
      const std::int64_t from = !whole && a.visible == Visible::reversed ? first : 0;
      const std::int64_t to = !whole && forwards ? last : T_ - 1;
      for (std::int64_t j = from; j <= to; ++j) out[static_cast<std::size_t>(b * T_ + j)] = 1;
    }
    return out;
  }

  void mix() {
    // Weights of the dump may be on keys that the recipe hides; so are those of a second softmax, to which
    // a hidden key is one of weight 0.
    const bool everything =
        given(BlockStage::weights) || recipe_.attend.form == AttendRecipe::Form::twice;
    want(BlockStage::value,
         keys_of(computed_[index(BlockStage::heads)], recipe_.attend.value_heads, everything));
  }

  void score() {
    const Marks& weights = computed_[index(BlockStage::weights)];
    want(BlockStage::rope_key, keys_of(weights, recipe_.attend.key_heads, false));
    Marks queries(static_cast<std::size_t>(rows_), 0);
    for (std::int64_t n = 0; n < rows_ * H_; ++n) {
      if (weights[static_cast<std::size_t>(n)] == 0) continue;
      const std::int64_t b = n / (H_ * T_), within = n % (H_ * T_);
      const bool reshaped = recipe_.attend.query_heads == HeadOrder::reshaped;
      queries[static_cast<std::size_t>(b * T_ + (reshaped ? within / H_ : n % T_))] = 1;
    }
    want(BlockStage::rope_query, queries);
  }

  /// A packed table that is cut in another way lends rows to all three.
  void packed() {
    if (recipe_.attend.packing == Packing::blocked || !dump_.packed_table) return;
    Marks all(static_cast<std::size_t>(rows_), 0);
    const BlockStage three[] = {BlockStage::query, BlockStage::key, BlockStage::value};
    for (const BlockStage stage : three) join(all, taken_[index(stage)]);
    for (const BlockStage stage : three) taken_[index(stage)] = all;
  }

  const BlockDump& dump_;
  const BlockRecipe& recipe_;
  bool from_dump_;
  std::int64_t H_ = 1, G_ = 1, T_ = 0, rows_ = 0;
  std::array<Marks, block_stages> computed_{};
  std::array<Marks, block_stages> taken_{};
};

}  // namespace

std::vector<std::int64_t> RowSet::places(std::int64_t rows) const {
  std::vector<std::int64_t> out(static_cast<std::size_t>(rows), -1);
  for (std::int64_t n = 0; n < count(rows); ++n) out[static_cast<std::size_t>(at(n))] = n;
  return out;
}

Numbers picked(const Numbers& table, const RowSet& have, const RowSet& want) {
  if (have == want || table.empty()) return table;
  std::vector<std::int64_t> rows;
  std::size_t place = 0;
  for (const std::int64_t id : want.ids) {
    if (have.all) {
      rows.push_back(id);
      continue;
    }
    while (place < have.ids.size() && have.ids[place] < id) ++place;
    rows.push_back(static_cast<std::int64_t>(place));
  }
  return rows_of(table, rows);
}

Numbers given(const Tensor<double>& table, std::int64_t rows, const RowSet& want, bool noisy) {
  if (want.all || rows == 0 || table.size() == 0) return given(table, rows, noisy);
  const std::int64_t columns = static_cast<std::int64_t>(table.size()) / rows;
  Numbers out(want.count(rows), columns, noisy);
  for (std::int64_t n = 0; n < out.rows; ++n) {
    std::copy_n(table.data() + want.at(n) * columns, columns, out.value.data() + n * columns);
  }
  return out;
}

RowSet by_head(const BlockDump& dump, const RowSet& sample) {
  if (sample.all) return {};
  const std::int64_t H = dump.config.heads, T = dump.rows() / dump.sequences;
  RowSet out;
  out.all = false;
  for (const std::int64_t id : sample.ids) {
    for (std::int64_t h = 0; h < H; ++h) out.ids.push_back((id / T * H + h) * T + id % T);
  }
  std::sort(out.ids.begin(), out.ids.end());
  return out;
}

RowPlan plan_of(const BlockDump& dump, const BlockRecipe& recipe, bool from_dump,
                const RowSet& sample) {
  if (sample.all) return {};
  return Planner(dump, recipe, from_dump, sample).run();
}

}  // namespace attest::check::block
