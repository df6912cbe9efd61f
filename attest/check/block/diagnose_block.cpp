// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "attest/base/text.h"
#include "attest/check/block/block.h"
#include "attest/check/block/exact.h"
#include "attest/check/block/judge.h"
#include "attest/check/block/program.h"
#include "attest/check/block/reading_search.h"
#include "attest/check/block/readings.h"
#include "attest/check/block/search.h"
#include "attest/check/block/sentences.h"
#include "attest/lab/block.h"
#include "attest/lab/positions.h"

namespace attest::check {
namespace block {
namespace {

Failure bad_shape(std::string_view name, const Shape& found, std::string_view expected) {
  return {ErrorKind::shape, "shape-mismatch",
          sentence("[check block] ", name, " must have shape ", expected, "; it has ",
                   to_string(found))};
}

Result<void> check_config(const BlockConfig& c) {
  const auto bad = [](const auto&... parts) {
    return Failure{ErrorKind::value, "bad-option", sentence("[check block] ", parts...)};
  };
  constexpr std::int64_t largest = std::int64_t{1} << 20U;
  const std::pair<const char*, std::int64_t> extents[] = {
      {"model_dim", c.model_dim}, {"heads", c.heads},         {"kv_heads", c.kv_heads},
      {"head_dim", c.head_dim},   {"value_dim", c.value_dim}, {"ffn_dim", c.ffn_dim}};
  for (const auto& [name, extent] : extents) {
    if (extent < 1 || extent > largest) {
      return bad(name, " must be between 1 and ", largest, "; found ", extent);
    }
  }
  if (c.heads % c.kv_heads != 0) {
    return bad("heads must be a multiple of kv_heads; heads is ", c.heads, ", kv_heads is ",
               c.kv_heads);
  }
  if (!(c.epsilon >= 0 && std::isfinite(c.epsilon))) {
    return bad("epsilon must be finite and at least 0; found ", c.epsilon);
  }
  if (c.scale && !std::isfinite(*c.scale)) return bad("scale must be finite; found ", *c.scale);
  if (c.softcap && !(*c.softcap > 0 && std::isfinite(*c.softcap))) {
    return bad("softcap must be positive and finite; found ", *c.softcap);
  }
  if (c.rope) {
    if (auto ok = lab::rope_frequencies(*c.rope, c.head_dim); !ok) return ok.failure();
  }
  return {};
}

Result<void> check_dump(const BlockDump& dump) {
  if (auto ok = check_config(dump.config); !ok) return ok;
  const BlockConfig& c = dump.config;
  for (const lab::BlockParameter& parameter : lab::block_parameters(c)) {
    const Tensor<double>& tensor = dump.weights.*parameter.tensor;
    if (tensor.size() == 0 || tensor.shape() == parameter.shape) continue;
    return bad_shape(parameter.name, tensor.shape(), to_string(parameter.shape));
  }
  const std::int64_t rows = dump.rows();
  if (dump.sequences < 1 || rows % dump.sequences != 0) {
    return Failure{
        ErrorKind::shape, "shape-mismatch",
        sentence("[check block] the rows must be a multiple of the sequences; there are ", rows,
                 " rows and ", dump.sequences, " sequences")};
  }
  if (dump.x.size() != 0 && dump.x.shape() != Shape{rows, c.model_dim}) {
    return bad_shape("x", dump.x.shape(), to_string(Shape{rows, c.model_dim}));
  }
  for (const auto& [stage, table] : dump.stages) {
    const auto [r, columns] = shape_of(stage, c, rows, dump.sequences);
    if (table.values.shape() == Shape{r, columns} && r * columns != 0) continue;
    return bad_shape(table.name.empty() ? name_of(stage) : std::string_view(table.name),
                     table.values.shape(), to_string(Shape{r, columns}));
  }
  return {};
}

/// The longest sum that rounded numbers of one row go into.
Zones zones_of(const BlockDump& dump) {
  const BlockConfig& c = dump.config;
  const std::int64_t T = dump.rows() / dump.sequences;
  const std::int64_t terms =
      std::max({c.model_dim, c.ffn_dim, c.heads * c.value_dim, c.head_dim, T});
  return {rounding_of(dump.precision).safety, static_cast<double>(terms)};
}

/// Where to recompute all rows takes tens of milliseconds or more.
bool is_large(const BlockDump& dump) {
  const BlockConfig& c = dump.config;
  const double row = static_cast<double>(c.model_dim) *
                     static_cast<double>(2 * c.heads * c.head_dim + 3 * c.ffn_dim);
  return static_cast<double>(dump.rows()) * row > 0x1p25;  // products of the whole block
}

bool is_stacked(BlockStage stage) {
  return stage == BlockStage::weights || stage == BlockStage::heads;
}

/// These rows of the dump's tables, to be explained.
Trial trial_of(const BlockDump& dump, const std::vector<BlockStage>& stages, const RowSet& sample) {
  Trial trial;
  trial.config = dump.config;
  trial.claim = claimed(dump);
  trial.candidates = candidates_of(dump.config, trial.claim);
  trial.unit = rounding_of(dump.precision).store;
  trial.zones = zones_of(dump);
  trial.large = !sample.all;
  for (const BlockStage stage : stages) {
    const BlockTable& table = dump.stages.at(stage);
    const RowSet rows = is_stacked(stage) ? by_head(dump, sample) : sample;
    trial.links.push_back({std::string(name_of(stage)),
                           table.name.empty() ? std::string(name_of(stage)) : table.name,
                           given(table.values, table.values.extent(0), rows, false)});
  }
  const auto loud =
      std::make_shared<Program>(dump, trial.claim, Reach::links, Noise::with, nullptr, sample);
  const auto quiet =
      std::make_shared<Program>(dump, trial.claim, Reach::links, Noise::without, nullptr, sample);
  trial.start = [&dump, stages, loud, quiet, sample](const BlockRecipe& recipe,
                                                     Noise noise) -> Recompute {
    Program* const claim = noise == Noise::with ? loud.get() : quiet.get();
    auto program = std::make_shared<Program>(dump, recipe, Reach::links, noise, claim, sample);
    return [program, &dump, stages](std::size_t link) {
      Numbers out = program->stage(stages[link]);
      store_coarser(out, dump.stages.at(stages[link]).dtype, dump.precision);
      return out;
    };
  };
  if (!trial.large) return trial;
  trial.confirms = [&dump, stages, zones = trial.zones](const BlockRecipe& recipe) {
    Program program(dump, recipe, Reach::links, Noise::with);
    return std::all_of(stages.begin(), stages.end(), [&](BlockStage stage) {
      const BlockTable& table = dump.stages.at(stage);
      Numbers made = program.stage(stage);
      store_coarser(made, table.dtype, dump.precision);
      return fit_of(given(table.values, table.values.extent(0), false), made, zones).good();
    });
  };
  return trial;
}

/// The stages that the dump has and that can be computed from what it has.
std::vector<BlockStage> judgeable(const BlockDump& dump, Program& program, Diagnosis& out) {
  std::vector<BlockStage> stages;
  const std::vector<BlockStage> order = stages_of(dump.config);
  for (const auto& [stage, table] : dump.stages) {
    if (std::count(order.begin(), order.end(), stage) != 0) continue;
    out.remarks.push_back(sentence(table.name.empty() ? name_of(stage) : table.name,
                                   " is not a table of the claimed block, and is not judged"));
  }
  for (const BlockStage stage : order) {
    const auto found = dump.stages.find(stage);
    if (found == dump.stages.end()) continue;
    if (program.stage(stage).empty()) {
      out.remarks.push_back(
          sentence(name_of(stage), " is not judged: a table or weight that it needs is missing"));
      continue;
    }
    stages.push_back(stage);
  }
  return stages;
}

Layout layout_of(BlockStage stage, const BlockDump& dump) {
  Layout out;
  out.rows = dump.rows() / dump.sequences;
  using S = BlockStage;
  out.stacked = stage == S::weights || stage == S::heads;
  const bool queries = stage == S::query || stage == S::rope_query || stage == S::concat;
  const bool keys = stage == S::key || stage == S::rope_key || stage == S::value;
  if (out.stacked || queries) out.parts = dump.config.heads;
  if (keys) out.parts = dump.config.kv_heads;
  if (keys) out.part = "key/value head";
  return out;
}

/// The claim's tables beside the dump's.
class Comparison {
 public:
  Comparison(const BlockDump& dump, Reach reach, const DiagnoseOptions& options)
      : dump_(dump),
        options_(options),
        large_(is_large(dump)),
        reach_(reach),
        program_(dump, claimed(dump), reach, Noise::with) {}

  Program& program() { return program_; }

  /// Every stage by the exact tier; of a large dump, by the plain program in binary64, and by the exact tier
  /// in the rows that come worst off.
  std::vector<Judgements> judge_all(const std::vector<BlockStage>& stages,
                                    const std::vector<std::string>& names) {
    std::vector<Link> links;
    for (std::size_t n = 0; n < stages.size(); ++n) {
      const BlockTable& table = dump_.stages.at(stages[n]);
      links.push_back({names[n], table.name.empty() ? names[n] : table.name,
                       given(table.values, table.values.extent(0), false)});
    }
    RowSet deciding;
    if (large_) deciding = rows_that_decide(stages, links);
    Exact exact(dump_, reach_, deciding, &program_);
    const Sentences sentences{dump_, exact};
    std::vector<Judgements> out;
    for (std::size_t n = 0; n < stages.size(); ++n) {
      const BlockStage stage = stages[n];
      if (options_.progress) {
        options_.progress("the exact tier",
                          static_cast<double>(n) / static_cast<double>(stages.size()));
      }
      const Numbers tolerance = tolerances(stage);
      const Tensor<double> pasted = large_ ? with_rows(tolerance, exact, stage) : Tensor<double>();
      const Tensor<double>& expected = large_ ? pasted : exact.stage(stage);
      if (expected.size() != tolerance.value.size()) continue;
      const Judged on_trial{
          &links[n],
          &expected,
          &tolerance,
          zones_of(dump_),
          [&](std::int64_t r, std::int64_t c) { return sentences.address(stage, r, c); },
          [&](std::int64_t r, std::int64_t c) { return sentences.why(stage, r, c); }};
      out.push_back(judge(on_trial));
      if (out.back().judgement.wrong != 0 && where_.empty()) {
        where_ = places_of(on_trial, layout_of(stage, dump_));
      }
    }
    return out;
  }
  [[nodiscard]] const std::vector<std::string>& where() const { return where_; }

  /// Rows for a search: some that are wrong, and some that are not.
  [[nodiscard]] RowSet sample() const {
    if (!large_) return {};
    RowSet out;
    out.all = false;
    // Early ones, for under a causal mask they need few keys, but not so early that they see next to none.
    for (const bool wrong : {true, false}) {
      for (const std::size_t from : {std::size_t{3}, std::size_t{7}, std::size_t{0}}) {
        if (!wrong && from == 7) continue;
        std::size_t r = from;
        while (r < used_.size() && (used_[r] > 1) != wrong) ++r;
        if (r < used_.size()) out.ids.push_back(static_cast<std::int64_t>(r));
      }
    }
    std::sort(out.ids.begin(), out.ids.end());
    out.ids.erase(std::unique(out.ids.begin(), out.ids.end()), out.ids.end());
    return out;
  }

 private:
  [[nodiscard]] Numbers tolerances(BlockStage stage) {
    Numbers out = program_.stage(stage);
    store_coarser(out, dump_.stages.at(stage).dtype, dump_.precision);
    return out;
  }

  /// Of every row of the block, the largest share of its tolerance; and the worst rows, the first wrong one,
  /// the first and the last.
  RowSet rows_that_decide(const std::vector<BlockStage>& stages, const std::vector<Link>& links) {
    const std::int64_t rows = dump_.rows(), T = rows / dump_.sequences;
    used_.assign(static_cast<std::size_t>(rows), 0);
    std::vector<std::int64_t> chosen{0, rows - 1};
    for (std::size_t n = 0; n < stages.size(); ++n) {
      const Numbers made = tolerances(stages[n]);
      const std::vector<double> used = used_by_row(links[n].found, made, zones_of(dump_));
      std::size_t worst = 0, first = used.size();
      for (std::size_t r = 0; r < used.size(); ++r) {
        if (used[r] > used[worst]) worst = r;
        if (used[r] > 1 && first == used.size()) first = r;
      }
      const auto row_of = [&](std::size_t r) {
        const auto row = static_cast<std::int64_t>(r);
        const std::int64_t per = dump_.config.heads * T;
        return is_stacked(stages[n]) ? row / per * T + row % T : row;
      };
      for (std::size_t r = 0; r < used.size(); ++r) {
        double& kept = used_[static_cast<std::size_t>(row_of(r))];
        kept = std::max(kept, used[r]);
      }
      chosen.push_back(row_of(worst));
      if (first != used.size()) chosen.push_back(row_of(first));
    }
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    return {false, chosen};
  }

  Tensor<double> with_rows(const Numbers& table, Exact& exact, BlockStage stage) const {
    Tensor<double> out({table.rows, table.columns});
    std::copy(table.value.begin(), table.value.end(), out.data());
    const RowSet& rows = is_stacked(stage) ? by_head(dump_, exact.sample()) : exact.sample();
    const Tensor<double>& sure = exact.stage(stage);
    for (std::size_t n = 0; n < rows.ids.size() && sure.size() != 0; ++n) {
      std::copy_n(sure.data() + static_cast<std::int64_t>(n) * table.columns, table.columns,
                  out.data() + rows.ids[n] * table.columns);
    }
    return out;
  }

  const BlockDump& dump_;
  const DiagnoseOptions& options_;
  bool large_;
  Reach reach_;
  Program program_;
  std::vector<double> used_{};
  std::vector<std::string> where_{};
};

/// A dump by what its config says.
Result<Diagnosis> judge_claim(const BlockDump& dump, const DiagnoseOptions& options) {
  Diagnosis out;
  out.tolerance = tolerance_text(dump.precision, zones_of(dump));
  Comparison comparison(dump, Reach::links, options);
  const std::vector<BlockStage> stages = judgeable(dump, comparison.program(), out);
  if (stages.empty()) {
    return Failure{ErrorKind::value, "missing-tensor",
                   "[check block] nothing can be judged: give x, the weights and at least one "
                   "table that they lead to, or two tables of which one follows from the other"};
  }
  std::vector<std::string> names;
  for (const BlockStage stage : stages) names.emplace_back(name_of(stage));
  std::vector<Fit> fits;
  for (Judgements& judged : comparison.judge_all(stages, names)) {
    if (judged.judgement.wrong != 0 && out.first_wrong_stage.empty()) {
      out.first_wrong_stage = judged.judgement.stage;
      out.where = comparison.where();
    }
    fits.push_back(judged.fit);
    out.stages.push_back(std::move(judged.judgement));
  }
  // The last table from x alone: what small errors of all stages together come to.
  if (stages.size() > 1 && out.first_wrong_stage.empty() && dump.x.size() != 0) {
    Comparison whole(dump, Reach::whole, options);
    if (!whole.program().stage(stages.back()).empty()) {
      auto judged = whole.judge_all({stages.back()}, {names.back() + " from x"});
      if (!judged.empty()) out.stages.push_back(std::move(judged[0].judgement));
    }
  }
  const RowSet sample = comparison.sample();
  out.sampled = !sample.all;
  conclude(trial_of(dump, stages, sample), fits, options, out);
  return out;
}

/// Of a large dump, some rows for readings: early ones, for they see few keys.
RowSet spread_rows(const BlockDump& dump) {
  if (!is_large(dump)) return {};
  RowSet out{false, {}};
  for (const std::int64_t row : std::initializer_list<std::int64_t>{0, 2, 5, 11}) {
    if (row < dump.rows() && (out.ids.empty() || row > out.ids.back())) out.ids.push_back(row);
  }
  return out;
}

/// What wrong numbers were most likely meant as: the nearest reading, or one of a family from which one
/// mistake leads to them.
Picks base_of(const BlockDump& dump, const std::vector<ReadingAxis>& axes, const Readings& readings,
              const std::vector<BlockStage>& stages, std::int64_t& tried) {
  std::vector<Picks> bases = families(axes);
  bases.insert(bases.begin(), readings.picks);
  for (const Picks& picks : bases) {
    const BlockDump base = read_as(dump, axes, picks);
    const Found found = search(trial_of(base, stages, {}), {.most_mistakes = 1});
    tried += found.tried;
    if (!found.explanations.empty()) return picks;
  }
  return readings.picks;
}

/// A dump of which not everything was said: read in all usual ways first.
Result<Diagnosis> judge_readings(const BlockDump& dump, const std::vector<ReadingAxis>& axes,
                                 const DiagnoseOptions& options) {
  Diagnosis unused;
  Program program(dump, claimed(dump), Reach::links, Noise::with);
  const std::vector<BlockStage> stages = judgeable(dump, program, unused);
  if (stages.empty()) return judge_claim(dump, options);
  const Trial trial = trial_of(dump, stages, spread_rows(dump));
  Readings readings = search_readings(trial, dump, axes, options);
  std::int64_t tried = readings.tried;
  if (!readings.fits && !trial.large) readings.picks = base_of(dump, axes, readings, stages, tried);
  auto out = judge_claim(read_as(dump, axes, readings.picks), options);
  if (!out) return out;
  out->tried += tried;
  std::vector<std::string> remarks{assumed_text(axes, readings.picks)};
  if (out->judgement == Judgement::right || out->judgement == Judgement::right_by_rounding) {
    out->unsaid = unsaid(axes, readings.picks);
    const bool several = ambiguous(axes, readings);
    if (several) {
      out->judgement = Judgement::undecided;
      out->unsaid = ambiguous_text(axes, readings);
      out->would_decide.push_back("what you meant of these, said by its option");
    }
    for (const auto& texts : {meant_otherwise(axes, readings.picks), alike_texts(axes, readings)}) {
      remarks.insert(remarks.end(), texts.begin(), texts.end());
    }
  }
  out->remarks.insert(out->remarks.begin(), remarks.begin(), remarks.end());
  return out;
}

}  // namespace
}  // namespace block

Result<Diagnosis> diagnose_block(const BlockDump& dump, const DiagnoseOptions& options) {
  using namespace block;
  if (auto ok = check_dump(dump); !ok) return ok.failure();
  const std::vector<ReadingAxis> axes = axes_of(dump);
  return axes.empty() ? judge_claim(dump, options) : judge_readings(dump, axes, options);
}

}  // namespace attest::check
