// SPDX-License-Identifier: MIT
// attest attend by the engine: the library's bits in the number type of the files, every option, and
// which tier computes what.
#include <gtest/gtest.h>

#include <functional>

#include "attest/attention/attention.h"
#include "attest/base/attention_case.h"
#include "attest/base/random.h"
#include "attest/io/tensor_file.h"
#include "attest/lab/attention.h"
#include "attest/lab/positions.h"
#include "run_program.h"

namespace attest::test {
namespace {

/// Numbers that all four types have.
Tensor<double> bell(Shape shape, std::uint64_t seed) {
  Random random(seed);
  Tensor<double> out(std::move(shape));
  for (double& x : out.elements()) x = random.bell();
  return AnyTensor::from_f64(AnyTensor::from_f64(out, DType::bf16).to_f64("x").value(), DType::f16)
      .to_f64("x")
      .value();
}

/// B 2, H 4 over G 2, T 6, S 6, D 5, E 3.
AttentionCase grouped() {
  AttentionCase call;
  call.query = bell({2, 4, 6, 5}, 1);
  call.key = bell({2, 2, 6, 5}, 2);
  call.value = bell({2, 2, 6, 3}, 3);
  return call;
}

io::NamedTensors file_of(const AttentionCase& call, DType dtype) {
  io::NamedTensors file;
  file.add("query", AnyTensor::from_f64(call.query, dtype));
  file.add("key", AnyTensor::from_f64(call.key, dtype));
  file.add("value", AnyTensor::from_f64(call.value, dtype));
  return file;
}

void write(const std::string& path, const AttentionCase& call, DType dtype = DType::f32) {
  ASSERT_TRUE(io::write_tensors(path, file_of(call, dtype)));
}

/// Runs attend with --out, and returns what was written.
io::NamedTensors attended(std::vector<std::string> arguments, std::string* notes = nullptr) {
  const ScratchFolder scratch;
  arguments.insert(arguments.begin(), "attend");
  arguments.insert(arguments.end(), {"--out", scratch.file("out.safetensors")});
  const Ended ended = run_attest(arguments);
  EXPECT_EQ(ended.code, 0) << ended.err;
  if (notes != nullptr) *notes = ended.err;
  const auto file = io::read_tensors(scratch.file("out.safetensors"));
  return file ? *file : io::NamedTensors{};
}

template <class T>
Tensor<T> stored(const Tensor<double>& from) {
  const AnyTensor any = AnyTensor::from_f64(from, dtype_of<T>);
  Tensor<T> out(from.shape());
  std::memcpy(out.data(), any.bytes().data(), any.bytes().size());
  return out;
}

template <class T>
struct Expected {
  AttentionResult<T> result;
  Tensor<AccumulatorOf<T>> weights;  // of batch 1, head 2
};

/// The same call by the library.
template <class T>
Expected<T> by_library(const AttentionCase& call, const Execution& execution = {}) {
  using Sum = AccumulatorOf<T>;
  const Tensor<T> query = stored<T>(call.query), key = stored<T>(call.key),
                  value = stored<T>(call.value);
  AttentionOptions<Sum> options = options_with<Sum>(call.options(), {});
  Tensor<Sum> bias;
  if (call.bias) {
    bias = stored<Sum>(*call.bias);
    options.bias = std::as_const(bias).template view<4>();
  }
  const AttentionInputs<T> inputs{query.template view<4>(), key.template view<4>(),
                                  value.template view<4>()};
  Expected<T> out{attention(inputs.query, inputs.key, inputs.value, options, execution), {}};
  out.weights =
      attention_weights(inputs, options, std::as_const(out.result.log_sum_exp).template view<3>(),
                        {1, 2, 0, query.extent(2)}, execution);
  return out;
}

template <class T>
void expect_bits(const AnyTensor* found, const Tensor<T>& expected) {
  ASSERT_NE(found, nullptr);
  ASSERT_EQ(found->dtype(), dtype_of<T>);
  ASSERT_EQ(found->shape(), expected.shape());
  EXPECT_EQ(std::memcmp(found->bytes().data(), expected.data(), found->bytes().size()), 0);
}

template <class T>
void expect_librarys_bits() {
  SCOPED_TRACE(name_of(dtype_of<T>));
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  write(scratch.file("dump.safetensors"), call, dtype_of<T>);
  for (const IsaState& set : instruction_sets()) {
    if (!set.present) continue;
    SCOPED_TRACE(name_of(set.isa));
    const auto expected = by_library<T>(call, {.isa = set.isa});
    for (const char* threads : {"1", "3"}) {
      const auto found =
          attended({scratch.file("dump.safetensors"), "--isa", std::string(name_of(set.isa)),
                    "--threads", threads, "--weights", "--lse"});
      expect_bits(found.find("output"), expected.result.memory);
      expect_bits(found.find("log_sum_exp"), expected.result.log_sum_exp);
      const AnyTensor* weights = found.find("weights");
      ASSERT_NE(weights, nullptr);
      ASSERT_EQ(weights->shape(), (Shape{2, 4, 6, 6}));
      const std::size_t head = expected.weights.size() * sizeof(AccumulatorOf<T>);
      EXPECT_EQ(std::memcmp(weights->bytes().data() + 6 * head, expected.weights.data(), head), 0);
    }
  }
}

TEST(AttendEngine, GivesTheLibrarysBitsInTheTypeOfTheFile) {
  expect_librarys_bits<float>();
  expect_librarys_bits<double>();
  expect_librarys_bits<BFloat16>();
  expect_librarys_bits<Half>();
}

/// What the command line says and what it means.
struct Option {
  std::vector<std::string> words;
  std::function<void(AttentionCase&)> meaning;
};

const std::vector<Option>& options() {
  static const std::vector<Option> all = {
      {{"--causal"}, [](auto& c) { c.mask = Mask::causal(); }},
      {{"--causal", "-1", "--empty-row", "zero"},
       [](auto& c) {
         c.mask = Mask::causal_at(-1);
         c.empty_row = EmptyRow::zero;
       }},
      {{"--window", "1,0"},
       [](auto& c) {
         c.mask.window = {1, 0};
       }},
      {{"--key-lengths", "5,2"},
       [](auto& c) {
         c.mask.key_lengths = {5, 2};
       }},
      {{"--query-starts", "0,2,6"},
       [](auto& c) {
         c.mask.packing = {{0, 2, 6}, {0, 2, 6}};
       }},
      {{"--query-starts", "0,2,6", "--key-starts", "0,5,6", "--causal", "bottom-right",
        "--empty-row", "zero"},
       [](auto& c) {
         c.mask = Mask::causal_bottom_right();
         c.mask.packing = {{0, 2, 6}, {0, 5, 6}};
         c.empty_row = EmptyRow::zero;
       }},
      {{"--query-documents", "1,1,4,4,1,2", "--causal"},
       [](auto& c) {
         c.mask = Mask::causal();
         c.mask.documents = {{1, 1, 4, 4, 1, 2}, {1, 1, 4, 4, 1, 2}};
       }},
      {{"--scale", "-0.25"}, [](auto& c) { c.scale = -0.25; }},
      {{"--softcap", "0.5"}, [](auto& c) { c.softcap = 0.5; }},
      {{"--sink", "0,1,-1,2"},
       [](auto& c) {
         c.sink = {0, 1, -1, 2};
       }},
      {{"--alibi"}, [](auto& c) { c.alibi_slopes = lab::alibi_slopes(4); }},
      {{"--alibi-slopes", "0.5,1,0,2"},
       [](auto& c) {
         c.alibi_slopes = {0.5, 1, 0, 2};
       }},
      {{"--dropout", "0.25"},
       [](auto& c) {
         c.dropout = {0.25, 0};
       }},
      {{"--dropout", "0.25", "--seed", "9"}, [](auto& c) {
         c.dropout = {0.25, 9};
       }}};
  return all;
}

TEST(AttendEngine, EveryOptionReachesTheEngineAndTheExactTier) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("dump.safetensors");
  write(path, grouped());
  const auto plain = by_library<float>(grouped());
  for (const Option& option : options()) {
    std::vector<std::string> arguments = option.words;
    arguments.insert(arguments.begin(), path);
    SCOPED_TRACE(option.words[0]);
    AttentionCase call = grouped();
    option.meaning(call);
    arguments.push_back("--engine");
    const auto expected = by_library<float>(call);
    expect_bits(attended(arguments).find("output"), expected.result.memory);
    EXPECT_NE(std::memcmp(expected.result.memory.data(), plain.result.memory.data(),
                          plain.result.memory.size() * sizeof(float)),
              0)
        << "the option changes nothing, so nothing was shown";
    arguments.back() = "--exact";
    expect_bits(attended(arguments).find("output"),
                lab::attention(call.inputs(), call.options()).value().output);
  }
}

TEST(AttendEngine, ListsAndMasksComeFromTheFileToo) {
  const ScratchFolder scratch;
  AttentionCase call = grouped();
  call.mask.packing = {{0, 2, 6}, {0, 3, 6}};
  call.mask.documents = {std::vector<std::int64_t>(12, 1), std::vector<std::int64_t>(12, 1)};
  call.mask.documents.query[1] = call.mask.documents.key[0] = 5;
  call.sink = {0, 1, -1, 2};
  call.alibi_slopes = {0.5, 1, 0, 2};
  call.mask.key_lengths = {6, 5};
  call.bias = bell({1, 4, 1, 6}, 4);
  call.visible = Tensor<bool>({1, 1, 6, 6});
  for (std::size_t n = 0; n < 36; ++n) call.visible->elements()[n] = n % 5 != 1;
  call.empty_row = EmptyRow::zero;
  io::NamedTensors file = file_of(call, DType::f32);
  const auto add_whole = [&](const char* name, Shape shape, const std::vector<std::int64_t>& list) {
    file.add(name, Tensor<std::int64_t>(std::move(shape), list));
  };
  add_whole("cu_seqlens_q", {3}, call.mask.packing.query_starts);
  add_whole("key_starts", {3}, call.mask.packing.key_starts);
  add_whole("query_documents", {2, 6}, call.mask.documents.query);
  add_whole("key_documents", {2, 6}, call.mask.documents.key);
  add_whole("key_lengths", {2}, call.mask.key_lengths);
  file.add("sink", Tensor<double>({4}, call.sink));
  file.add("alibi_slopes", Tensor<double>({4}, call.alibi_slopes));
  file.add("bias", *call.bias);
  file.add("mask", *call.visible);
  ASSERT_TRUE(io::write_tensors(scratch.file("dump.npz"), file));
  std::string notes;
  const auto found =
      attended({scratch.file("dump.npz"), "--engine", "--empty-row", "zero"}, &notes);
  expect_bits(found.find("output"), by_library<float>(call).result.memory);
  EXPECT_NE(notes.find("reading 'cu_seqlens_q' as query_starts"), std::string::npos) << notes;
  EXPECT_EQ(notes.find("not used"), std::string::npos) << notes;
}

TEST(AttendEngine, LayoutInIsLayoutOut) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  const auto expected = by_library<float>(call).result.memory;  // [B, H, T, E]
  const auto swapped = [](const Tensor<double>& from) {
    const std::int64_t B = from.extent(0), H = from.extent(1), T = from.extent(2),
                       D = from.extent(3);
    Tensor<double> out({B, T, H, D});
    for (std::int64_t n = 0; n < B * T * H * D; ++n) {
      const std::int64_t b = n / (T * H * D), t = n / (H * D) % T, h = n / D % H, d = n % D;
      out(b, t, h, d) = from(b, h, t, d);
    }
    return out;
  };
  Tensor<double> wide(expected.shape());
  std::ranges::copy(expected.elements(), wide.elements().begin());
  AttentionCase other;
  for (const auto& [from, to] : {std::pair(&call.query, &other.query),
                                 {&call.key, &other.key},
                                 {&call.value, &other.value}}) {
    *to = swapped(*from);
  }
  write(scratch.file("bthd.safetensors"), other);
  expect_bits(
      attended({scratch.file("bthd.safetensors"), "--engine", "--layout", "bthd"}).find("output"),
      stored<float>(swapped(wide)));
  for (auto* tensor : {&other.query, &other.key, &other.value}) {
    *tensor = std::move(*tensor).reshaped(
        {tensor->extent(0), tensor->extent(1), tensor->extent(2) * tensor->extent(3)});
  }
  write(scratch.file("packed.safetensors"), other);
  expect_bits(attended({scratch.file("packed.safetensors"), "--engine", "--layout", "packed",
                        "--heads", "4", "--kv-heads", "2"})
                  .find("output"),
              stored<float>(swapped(wide).reshaped({2, 6, 12})));
}

TEST(AttendEngine, MixedTypesAreComputedInTheOneThatHoldsThemAll) {
  const ScratchFolder scratch;
  const AttentionCase call = grouped();
  io::NamedTensors file = file_of(call, DType::bf16);
  file.tensors[1].second = AnyTensor::from_f64(call.key, DType::f16);
  ASSERT_TRUE(io::write_tensors(scratch.file("mixed.safetensors"), file));
  std::string notes;
  expect_bits(attended({scratch.file("mixed.safetensors"), "--engine"}, &notes).find("output"),
              by_library<float>(call).result.memory);
  EXPECT_NE(notes.find("in f32: query is bf16, key f16, value bf16"), std::string::npos) << notes;
  file.tensors[2].second = call.value;
  ASSERT_TRUE(io::write_tensors(scratch.file("mixed.safetensors"), file));
  expect_bits(attended({scratch.file("mixed.safetensors"), "--engine"}).find("output"),
              by_library<double>(call).result.memory);
}

TEST(AttendEngine, ABiasIsNeverRounded) {
  const ScratchFolder scratch;
  AttentionCase call = grouped();
  call.bias = Tensor<double>({1, 1, 6, 6});
  call.bias->elements()[3] = -std::numeric_limits<double>::infinity();
  io::NamedTensors file = file_of(call, DType::f32);
  file.add("bias", *call.bias);  // f64, but every number is one of f32
  ASSERT_TRUE(io::write_tensors(scratch.file("dump.safetensors"), file));
  expect_bits(attended({scratch.file("dump.safetensors"), "--engine"}).find("output"),
              by_library<float>(call).result.memory);
  call.bias->elements()[4] = 0.1;
  file.tensors.back().second = *call.bias;
  ASSERT_TRUE(io::write_tensors(scratch.file("dump.safetensors"), file));
  std::string notes;
  expect_bits(attended({scratch.file("dump.safetensors"), "--engine"}, &notes).find("output"),
              by_library<double>(call).result.memory);
  EXPECT_NE(notes.find("the bias has numbers that f32 has not"), std::string::npos) << notes;
}

TEST(AttendEngine, WholeNumbersAreComputedInBinary64) {
  const ScratchFolder scratch;
  write_text(scratch.file("dump.json"),
             R"({"query": [[1, 2]], "key": [[3, 4], [5, 6]], "value": [[7, 8], [9, 10]]})");
  EXPECT_EQ(attended({scratch.file("dump.json"), "--engine"}).find("output")->dtype(), DType::f64);
  io::NamedTensors file;
  for (const char* name : {"query", "key", "value"}) {
    file.add(name, Tensor<std::int64_t>({1, 2}, std::vector<std::int64_t>{3, 4}));
  }
  ASSERT_TRUE(io::write_tensors(scratch.file("dump.npz"), file));
  std::string notes;
  const auto whole = attended({scratch.file("dump.npz"), "--engine"}, &notes);
  ASSERT_NE(whole.find("output"), nullptr);
  EXPECT_EQ(whole.find("output")->dtype(), DType::f64);
  EXPECT_EQ(whole.find("output")->number(1), 4);
  EXPECT_NE(notes.find("in f64: the files hold i64"), std::string::npos) << notes;
}

TEST(AttendEngine, TheTierDependsOnTheShapeAlone) {
  const ScratchFolder scratch;
  // B*H*T*S*(D+E+8) is 2^27 with 3640 keys less a little, and more with 3641.
  const auto chosen = [&](std::int64_t keys, std::int64_t width) {
    AttentionCase call;
    call.query = Tensor<double>({1, 1, 3687, width});
    call.key = Tensor<double>({1, 1, keys, width});
    call.value = Tensor<double>({1, 1, keys, 1});
    write(scratch.file("dump.safetensors"), call);
    std::string notes;
    attended({scratch.file("dump.safetensors"), "--causal", "top-left"}, &notes);
    return notes;
  };
  const std::string small = chosen(3640, 1);
  EXPECT_NE(small.find("note: exact tier: B*H*T*S*(D+E+8) is 1.34e+08, at most 2^27"),
            std::string::npos)
      << small;
  const std::string large = chosen(3641, 1);
  EXPECT_NE(large.find("note: engine in f32 on "), std::string::npos) << large;
  EXPECT_NE(large.find("more than 2^27; --exact would take about 1 s"), std::string::npos) << large;
}

TEST(AttendEngine, HeadsWiderThanTheEngineTakesGoToTheExactTier) {
  const ScratchFolder scratch;
  AttentionCase call;
  call.query = Tensor<double>({1, 1, 400, 513});
  call.key = Tensor<double>({1, 1, 800, 513});
  call.value = Tensor<double>({1, 1, 800, 1});
  write(scratch.file("dump.safetensors"), call);
  std::string notes;
  attended({scratch.file("dump.safetensors"), "--key-lengths", "2"}, &notes);
  EXPECT_NE(notes.find("note: exact tier: "), std::string::npos) << notes;
  EXPECT_NE(notes.find("the engine's heads have 512 numbers at most"), std::string::npos) << notes;
  const Ended forced = run_attest({"attend", scratch.file("dump.safetensors"), "--engine"});
  EXPECT_EQ(forced.code, 2);
  EXPECT_NE(forced.err.find("512"), std::string::npos) << forced.err;
}

TEST(AttendEngine, ADtypeOfTheFileIsChosenByName) {
  const ScratchFolder scratch;
  write(scratch.file("dump.safetensors"), grouped());
  const auto narrow = attended({scratch.file("dump.safetensors"), "--engine", "--dtype", "bf16"});
  EXPECT_EQ(narrow.find("output")->dtype(), DType::bf16);
  EXPECT_EQ(attended({scratch.file("dump.safetensors")}).find("output")->dtype(), DType::f64);
}

TEST(AttendEngine, TheEnvironmentChoosesTheSet) {
  const ScratchFolder scratch;
  write(scratch.file("dump.safetensors"), grouped());
  setenv("ATTEST_ISA", "portable", 1);
  std::string notes;
  expect_bits(attended({scratch.file("dump.safetensors"), "--engine"}, &notes).find("output"),
              by_library<float>(grouped(), {.isa = Isa::portable}).result.memory);
  EXPECT_NE(notes.find("on portable"), std::string::npos) << notes;
  setenv("ATTEST_ISA", "avx9", 1);
  const Ended wrong = run_attest({"attend", scratch.file("dump.safetensors"), "--engine"});
  EXPECT_TRUE(wrong.err.starts_with("error bad-isa: ")) << wrong.err;
  EXPECT_EQ(wrong.code, 2);
  EXPECT_EQ(run_attest({"attend", scratch.file("dump.safetensors")}).code, 0);  // the exact tier
  unsetenv("ATTEST_ISA");
}

TEST(AttendEngine, TheNoteNamesTheSetAndWhoseKernelsItHas) {
  const ScratchFolder scratch;
  write(scratch.file("dump.safetensors"), grouped());
  for (const IsaState& set : instruction_sets()) {
    if (!set.present) continue;
    const std::string name(name_of(set.isa));
    std::string notes;
    attended({scratch.file("dump.safetensors"), "--isa", name}, &notes);
    const std::string kernels = " (its f32 kernels are those of avx512)";
    EXPECT_NE(
        notes.find("engine in f32 on " + name + (set.isa > Isa::avx512 ? kernels : "") + ", "),
        std::string::npos)
        << notes;
  }
}

TEST(AttendEngine, FailsAsTheExactTierDoes) {
  const ScratchFolder scratch;
  const std::string path = scratch.file("dump.safetensors");
  write(path, grouped());
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--causal", "-1"}, "no-visible-key"},
      {{"--key-lengths", "7"}, "bad-option"},
      {{"--sink", "1"}, "shape-mismatch"},
      {{"--softcap", "0"}, "bad-option"},
      {{"--dropout", "1"}, "bad-option"},
      {{"--query-starts", "0,7"}, "bad-option"},
      {{"--query-documents", "1,2"}, "bad-option"},
      {{"--alibi-slopes", "1,2,3"}, "shape-mismatch"}};
  for (const auto& [options, id] : wrong) {
    for (const char* tier : {"--exact", "--engine"}) {
      auto arguments = options;
      arguments.insert(arguments.begin(), {"attend", path});
      arguments.push_back(tier);
      const Ended ended = run_attest(arguments);
      EXPECT_EQ(ended.code, 2) << options[0];
      EXPECT_EQ(ended.out, "");
      EXPECT_NE(ended.err.find("error " + id + ": "), std::string::npos) << ended.err;
    }
  }
}

}  // namespace
}  // namespace attest::test
