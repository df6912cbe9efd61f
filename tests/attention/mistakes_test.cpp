// SPDX-License-Identifier: MIT
// The right outputs of the catalogue of mistakes, and the cases from the field. The first are rounded
// to f32 from an independent program; they are looked for beside the source tree.
#include <gtest/gtest.h>

#include "attest/check/engine_bound.h"
#include "attest/io/tensor_file.h"
#include "attest/lab/attention.h"
#include "attest/lab/positions.h"
#include "tests/attention/engine_cases_typed.h"
#include "tests/support/matrices.h"
#include "tests/support/shared_files.h"

namespace attest::test {
namespace {

class Mistakes : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const auto folder = shared_path("data/mistakes");
    if (!folder) GTEST_SKIP() << not_shared;
    folder_ = *folder;
  }
  void read(const char* name) {
    auto file = io::read_tensors((folder_ / name).string());
    ASSERT_TRUE(file) << file.failure().message;
    file_ = *std::move(file);
    case_ = {};
    case_.query = numbers("in.q");
    case_.key = numbers("in.k");
    case_.value = numbers("in.v");
    case_.chosen.empty_row = EmptyRow::zero;
  }
  [[nodiscard]] Tensor<double> numbers(const char* name) const {
    const AnyTensor* found = file_.find(name);
    EXPECT_NE(found, nullptr) << name;
    auto out = found == nullptr ? Result<Tensor<double>>(Tensor<double>()) : found->to_f64(name);
    EXPECT_TRUE(out) << name;
    return *std::move(out);
  }
  [[nodiscard]] std::vector<std::int64_t> whole(const char* name) const {
    std::vector<std::int64_t> out;
    const Tensor<double> read = numbers(name);
    for (const double x : read.elements()) out.push_back(static_cast<std::int64_t>(x));
    return out;
  }
  /// The engine gives the file's right output: within its bound, and a rounding of the file.
  void expect_right() {
    const Tensor<double> right = numbers("out.correct");
    const auto bound =
        check::engine_bound(case_.inputs(), case_.options(), {case_.storage, GetParam()});
    ASSERT_TRUE(bound) << bound.failure().message;
    const EngineForward found = run_engine(case_, {.isa = GetParam()});
    ASSERT_FALSE(found.failure) << found.failure->message;
    ASSERT_EQ(found.output.shape(), right.shape());
    for (std::size_t n = 0; n < right.size(); ++n) {
      const double x = right.elements()[n];
      ASSERT_TRUE(within(found.output.elements()[n], x,
                         bound->output.elements()[n] + 0x1p-24 * std::fabs(x)))
          << "element " << n;
    }
  }
  std::filesystem::path folder_;
  io::NamedTensors file_;
  EngineCase case_;
};

TEST_P(Mistakes, CausalCorners) {
  for (const char* name : {"causal_square.safetensors", "causal_lq_lt_lk.safetensors",
                           "causal_lq_gt_lk.safetensors"}) {
    SCOPED_TRACE(name);
    read(name);
    case_.chosen.mask = Mask::causal_bottom_right();
    expect_right();
  }
}

TEST_P(Mistakes, AlibiBiasAndGroups) {
  read("alibi.safetensors");
  case_.chosen.mask = Mask::causal();
  case_.chosen.alibi_slopes = lab::alibi_slopes(6);
  expect_right();
  read("float_bias.safetensors");
  case_.bias = numbers("in.bias");
  expect_right();
  read("gqa.safetensors");
  expect_right();
}

TEST_P(Mistakes, LengthsMasksAndWindows) {
  read("key_padding.safetensors");
  case_.chosen.mask.key_lengths = whole("in.key_lengths");
  expect_right();
  read("mask_and_causal.safetensors");
  case_.chosen.mask = Mask::causal();
  case_.visible = *file_.find("in.mask")->to_bool("in.mask");
  expect_right();
  read("window.safetensors");
  case_.chosen.mask = Mask::causal();
  case_.chosen.mask.window.left = 3;
  expect_right();
}

TEST_P(Mistakes, DocumentsByNameAndByTheirStarts) {
  read("varlen.safetensors");
  case_.chosen.mask = Mask::causal();
  case_.chosen.mask.documents = {whole("in.segment"), whole("in.segment")};
  expect_right();
  case_.chosen.mask = Mask::causal_bottom_right();
  case_.chosen.mask.packing = {{0, 5, 9, 12}, {0, 5, 9, 12}};
  expect_right();
}

TEST_P(Mistakes, SinkAndSoftcap) {
  read("sink.safetensors");
  case_.chosen.mask = Mask::causal();
  const Tensor<double> sink = numbers("in.sink");
  case_.chosen.sink.assign(sink.elements().begin(), sink.elements().end());
  expect_right();
  read("softcap.safetensors");
  case_.chosen.softcap = 0.45;
  case_.visible = *file_.find("in.mask")->to_bool("in.mask");
  expect_right();
}

TEST_P(Mistakes, PlainWithHeadsInside) {
  read("plain.safetensors");
  case_.layout = Layout::heads_inside;
  const Tensor<double> packed = numbers("out.correct");  // [B, T, H·E]
  const EngineForward found = run_engine(case_, {.isa = GetParam()});
  const auto bound =
      check::engine_bound(case_.inputs(), case_.options(), {case_.storage, GetParam()});
  ASSERT_TRUE(bound && !found.failure);
  for_each_index(found.output.view<4>().extents, [&](const auto& i) {
    const double x = packed(i[0], i[2], i[1] * found.output.extent(3) + i[3]);
    ASSERT_TRUE(within(found.output(i[0], i[1], i[2], i[3]), x,
                       bound->output(i[0], i[1], i[2], i[3]) + 0x1p-24 * std::fabs(x)));
  });
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, Mistakes, ::testing::ValuesIn(present_isas()),
                         [](const auto& of) { return std::string(name_of(of.param)); });

/// The cases from the field, group A: their right answers, written with 17 digits.
class FieldCases : public ::testing::TestWithParam<Isa> {
 protected:
  static EngineCase of(const Rows& query, const Rows& key, const Rows& value) {
    EngineCase c;
    c.query = one_head(query);
    c.key = one_head(key);
    c.value = one_head(value);
    c.chosen.empty_row = EmptyRow::zero;
    return c;
  }
  static Rows column(const std::vector<double>& values) {
    Rows out;
    for (const double x : values) out.push_back({x});
    return out;
  }
  static void gives(EngineCase c, const Rows& right, std::int64_t h = 0) {
    for (const DType storage : {DType::f32, DType::f64}) {
      c.storage = c.bias_storage = storage;
      const EngineForward found = run_engine(c, {.isa = GetParam()});
      ASSERT_FALSE(found.failure) << found.failure->message;
      const auto bound = check::engine_bound(c.inputs(), c.options(), {storage, GetParam()});
      ASSERT_TRUE(bound);
      for (std::size_t i = 0; i < right.size(); ++i) {
        for (std::size_t e = 0; e < right[i].size(); ++e) {
          EXPECT_TRUE(within(found.output(0, h, i, e), right[i][e],
                             bound->output(0, h, i, e) + 1e-16 * std::fabs(right[i][e])))
              << "output[" << i << ", " << e << "]";
        }
      }
    }
  }
};

const std::vector<double> powers{1, 10, 100, 1000, 10000};
const Rows query1{{1, 0}, {0, 1}}, key1{{1, 0}, {0, 1}, {1, 1}}, value1{{1, 2}, {3, 4}, {5, 6}};

TEST_P(FieldCases, A01AndA11EmptyRowsAndHiddenNaN) {
  EngineCase c = of(query1, key1, value1);
  c.visible = mask_of({"TFT", "FFF"});
  gives(c, {{3, 4}, {0, 0}});
  c.key = one_head({{1, 0}, {0, 1}, {engine_infinity, std::nan("")}});
  c.value = one_head({{1, 2}, {3, 4}, {std::nan(""), -engine_infinity}});
  c.visible = mask_of({"TTF", "TFF"});
  gives(c, {{1.6604769013466861, 2.6604769013466861}, {1, 2}});
}

TEST_P(FieldCases, A03AFiniteSentinelWouldGiveTheMeanOfTheValues) {
  EngineCase c = of(query1, key1, value1);
  c.visible = mask_of({"TFT", "FFF"});
  gives(c, {{3, 4}, {0, 0}});
  // A bias of −∞ is a mask; a large finite one is a number, and gives the mean of the values.
  c.visible.reset();
  c.bias = one_head({{0, -engine_infinity, 0}, std::vector<double>(3, -engine_infinity)});
  gives(c, {{3, 4}, {0, 0}});
  c.bias = one_head({{0, -0x1p100, 0}, {-0x1p100, -0x1p100, -0x1p100}});
  for (const DType storage : {DType::f32, DType::f64}) {
    c.storage = c.bias_storage = storage;
    const EngineForward found = run_engine(c, {.isa = GetParam()});
    ASSERT_FALSE(found.failure);
    for (std::int64_t e = 0; e < 2; ++e) {  // three times a third of three small whole numbers
      const double mean = 3.0 + static_cast<double>(e),
                   u = storage == DType::f32 ? 0x1p-24 : 0x1p-53;
      EXPECT_TRUE(within(found.output(0, 0, 1, e), mean, 4 * u * mean));
    }
  }
}

TEST_P(FieldCases, A19ViewsAreReadByTheirOwnStrides) {
  std::vector<double> fused(36);
  for (std::size_t n = 0; n < fused.size(); ++n) fused[n] = static_cast<double>(n + 1) / 8;
  const std::vector<float> narrow(fused.begin(), fused.end());
  const double right[2][3][2] = {{{1.125, 1.25},
                                  {2.5843096612007801, 2.7093096612007801},
                                  {4.1232621204871039, 4.2482621204871039}},
                                 {{1.375, 1.5},
                                  {2.8507870276063675, 2.9757870276063675},
                                  {4.3739778978004074, 4.4989778978004074}}};
  // [position 3][q, k, v][head 2][2]; `step` of the key's positions is 0 where one key is expanded.
  const auto part = [](auto* data, std::int64_t which, std::int64_t step) {
    return View<std::remove_pointer_t<decltype(data)>, 4>(data + 4 * which, {1, 2, 3, 2},
                                                          {36, 2, step, 1});
  };
  const auto judge = [&](const auto* data, DType storage, const auto& options) {
    const Execution execution{.isa = GetParam()};
    const auto found =
        attention(part(data, 0, 12), part(data, 1, 12), part(data, 2, 12), options, execution);
    const auto bound = check::engine_bound(
        {part(fused.data(), 0, 12), part(fused.data(), 1, 12), part(fused.data(), 2, 12)},
        AttentionOptions<double>{.mask = Mask::causal()}, {storage, GetParam()});
    ASSERT_TRUE(bound);
    const auto key = part(data, 1, 0);
    const auto uniform = attention(part(data, 0, 12), key, part(data, 2, 12), options, execution);
    for_each_index(found.output().extents, [&](const auto& i) {
      const double x = right[i[1]][i[2]][i[3]];
      EXPECT_TRUE(within(static_cast<double>(found.output()(0, i[1], i[2], i[3])), x,
                         bound->output(0, i[1], i[2], i[3]) + 1e-16 * x));
      double sum = 0;  // equal scores: the mean of the values so far, exact but for one quotient
      for (std::int64_t j = 0; j <= i[2]; ++j) {
        sum += fused[static_cast<std::size_t>(12 * j + 8 + 2 * i[1] + i[3])];
      }
      const double mean = sum / static_cast<double>(i[2] + 1);
      const double u = storage == DType::f32 ? 0x1p-24 : 0x1p-53;
      EXPECT_TRUE(
          within(static_cast<double>(uniform.output()(0, i[1], i[2], i[3])), mean, 2 * u * mean));
    });
  };
  judge(fused.data(), DType::f64, AttentionOptions<double>{.mask = Mask::causal()});
  judge(narrow.data(), DType::f32, AttentionOptions<float>{.mask = Mask::causal()});
}

TEST_P(FieldCases, A28SoftmaxRunsOverKeys) {
  EngineCase c = of({{0}, {0}}, {{0}, {0}}, {{0}, {1}});
  c.storage = c.bias_storage = DType::f64;
  c.bias = one_head({{0, std::log(3.0)}, {0, 0}});
  const EngineForward found = run_engine(c, {.isa = GetParam()});
  const auto bound = check::engine_bound(c.inputs(), c.options(), {DType::f64, GetParam()});
  ASSERT_TRUE(bound && !found.failure);
  // The logarithm is rounded as the case is written: that moves the weights by a unit.
  EXPECT_TRUE(within(found.output(0, 0, 0, 0), .75, bound->output(0, 0, 0, 0) + 0x1p-53));
  EXPECT_EQ(found.output(0, 0, 1, 0), .5);
}

TEST_P(FieldCases, A05A06A08A13PositionsAndMasks) {
  EngineCase c = of(column({0, 0}), Rows(5, {0.0}), column(powers));
  c.chosen.mask = Mask::causal_bottom_right();
  gives(c, {{277.75}, {2222.2}});
  c.chosen.mask = Mask::causal_top_left();
  gives(c, {{1}, {5.5}});
  Rows stale = column({1, 2, 3, 4});
  stale.resize(8, {std::nan("")});
  Rows keys(4, {0.0});
  keys.resize(8, {std::nan("")});
  EngineCase cache = of({{0}}, keys, stale);
  cache.chosen.mask = Mask::causal_bottom_right();
  cache.chosen.mask.key_lengths = {4};
  gives(cache, {{2.5}});
  EngineCase lower = of(Rows(3, {0.0}), Rows(3, {0.0}), column({1, 10, 100}));
  lower.visible = mask_of({"TFF", "TTF", "TTT"});
  gives(lower, {{1}, {5.5}, {37}});
  EngineCase window = of(Rows(5, {0.0}), Rows(5, {0.0}), column(powers));
  window.chosen.mask = Mask::causal();
  window.chosen.mask.window.left = 1;
  gives(window, {{1}, {5.5}, {55}, {550}, {5500}});
}

TEST_P(FieldCases, A10A21A26ScalesAndWidths) {
  EngineCase c = of({std::vector<double>(64, 48)},
                    {std::vector<double>(64, 48), std::vector<double>(64, 47.96875)}, {{0}, {1}});
  gives(c, {{6.1441746022147178e-06}});
  const std::pair<std::size_t, double> widths[] = {{1, .73105857863000488},
                                                   {5, .90344199375317724},
                                                   {7, .9337486414889455},
                                                   {9, .95257412682243322},
                                                   {100, .99995460213129757}};
  for (const auto& [d, right] : widths) {
    gives(of({std::vector<double>(d, 1)}, {std::vector<double>(d, 1), std::vector<double>(d, 0)},
             {{1}, {0}}),
          {{right}});
  }
  gives(of({std::vector<double>(16, 2)}, {std::vector<double>(16, .5), std::vector<double>(16, 0)},
           {{1}, {0}}),
        {{.98201379003790844}});
}

TEST_P(FieldCases, A12KeyHeadsAreRepeatedNotTiled) {
  for (const auto& [H, G] : {std::pair{4, 2}, std::pair{6, 2}, std::pair{6, 3}}) {
    EngineCase c;
    c.query = Tensor<double>({1, H, 1, 1});
    c.key = Tensor<double>({1, G, 1, 1});
    c.value = Tensor<double>({1, G, 1, 1});
    for (int g = 0; g < G; ++g) c.value(0, g, 0, 0) = 10 * (g + 1);
    const EngineForward found = run_engine(c, {.isa = GetParam()});
    for (int h = 0; h < H; ++h) EXPECT_EQ(found.output(0, h, 0, 0), 10 * (h / (H / G) + 1));
  }
}

TEST_P(FieldCases, A18A22A24SlopesAndEmptySequences) {
  EngineCase c;
  c.query = Tensor<double>({1, 6, 3, 1});
  c.key = Tensor<double>({1, 1, 3, 1});
  c.value = one_head(column({1, 10, 100}));
  c.chosen.mask = Mask::causal();
  c.chosen.alibi_slopes = lab::alibi_slopes(6);
  gives(c, {{1}, {6.0595885079721829}, {45.442128731558603}}, 0);
  gives(c, {{1}, {6.6021339808166911}, {53.906321685976234}}, 4);
  EngineCase packed = of(column({0, 0, 0}), Rows(7, {0.0}), column({1, 2, 6, 9, 9, 9, 9}));
  packed.chosen.mask.packing = {{0, 2, 2, 3}, {0, 3, 7, 7}};
  gives(packed, {{3}, {3}, {0}});
  EXPECT_EQ(run_engine(packed, {.isa = GetParam()}).log_sum_exp(0, 0, 2), -engine_infinity);
  gives(of({{0}}, Rows(4, {0.0}), column({1, 2, 3, 4})), {{2.5}});
}

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, FieldCases, ::testing::ValuesIn(present_isas()),
                         [](const auto& of) { return std::string(name_of(of.param)); });

}  // namespace
}  // namespace attest::test
