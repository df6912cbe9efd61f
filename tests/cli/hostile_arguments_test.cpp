// SPDX-License-Identifier: MIT
// What the command line refuses, and what it does when its streams are not what they should be.
#include <gtest/gtest.h>

#include <algorithm>

#include "attest/base/random.h"
#include "attest/io/tensor_file.h"
#include "run_program.h"

namespace attest::test {
namespace {

/// A dump with these query and key/value shapes.
std::string dump(const ScratchFolder& scratch, const Shape& query, const Shape& key) {
  Random random(1);
  io::NamedTensors file;
  for (const auto& [name, shape] : {std::pair("query", query), {"key", key}, {"value", key}}) {
    Tensor<double> numbers(shape);
    for (double& x : numbers.elements()) x = random.bell();
    file.add(name, numbers);
  }
  std::string path = scratch.file("dump.npz");
  EXPECT_TRUE(io::write_tensors(path, file));
  return path;
}

void expect_refused(const std::vector<std::string>& arguments, const std::string& id) {
  const Ended ended = run_attest(arguments);
  std::string shown;
  for (const std::string& word : arguments) shown += word + " ";
  EXPECT_EQ(ended.code, 2) << shown;
  EXPECT_EQ(ended.out, "") << shown;
  EXPECT_TRUE(ended.err.starts_with("error " + id + ": ")) << shown << ended.err;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << shown << ended.err;
}

TEST(Arguments, NumbersAreDecimalWholeWordsInRange) {
  const std::vector<std::vector<std::string>> wrong = {{"--scale", ""},
                                                       {"--scale", "1x"},
                                                       {"--scale", " 1"},
                                                       {"--heads", "0"},
                                                       {"--heads", "-2"},
                                                       {"--sink", "1,,2"},
                                                       {"--sink", ""},
                                                       {"--key-lengths", "[1]"},
                                                       {"--row", "99999999999999999999"},
                                                       {"--digits", "61"},
                                                       {"--digits", "-1"},
                                                       {"--layout", ""},
                                                       {"--query-offset", "1.5"},
                                                       {"--convention", ""},
                                                       {"--query-starts", "0,,2"},
                                                       {"--key-starts", "0;2"},
                                                       {"--query-documents", "a"},
                                                       {"--key-documents", ""},
                                                       {"--alibi-slopes", "1,"},
                                                       {"--dropout", "-0.1"},
                                                       {"--dropout", "nan"},
                                                       {"--dropout", "inf"},
                                                       {"--seed", "-1"},
                                                       {"--seed", "18446744073709551616"},
                                                       {"--workbook", ""}};
  for (std::vector<std::string> arguments : wrong) {
    arguments.insert(arguments.begin(), "trace");
    expect_refused(arguments, "usage");
  }
  expect_refused({"diff", "a", "b", "--ulp", "-1"}, "usage");
  expect_refused({"diff", "a", "b", "--abs", "nan"}, "usage");
  expect_refused({"verify", "--seed", "-1"}, "usage");
}

TEST(Arguments, ALeadingZeroIsNoOctal) {
  EXPECT_NE(run_attest({"trace", "--digits", "010"}).out.find("0.6697615493"), std::string::npos);
}

TEST(Arguments, AScaleIsRoundedOnce) {
  // Just above halfway between 1 and its neighbour: two roundings would give 1.
  const Ended ended = run_attest(
      {"trace", "--csv", "--scale", "1.00000000000000011102230246251565404236316680908203126"});
  EXPECT_NE(ended.out.find("\"scaled[0,0]\",1.0000000000000002"), std::string::npos) << ended.out;
}

TEST(Arguments, AListIsOneWordAndLeavesTheFileAlone) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {2, 2}, {3, 2});
  EXPECT_EQ(run_attest({"attend", "--key-lengths", "2", path}).code, 0);
  EXPECT_EQ(run_attest({"trace", "--set", "query[0,0]=1", path}).code, 0);
}

TEST(Arguments, NothingIsSilentlyIgnored) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {2, 2}, {3, 2});
  expect_refused({"attend", path, "--heads", "2"}, "heads-not-used");
  expect_refused({"attend", path, "--kv-heads", "2"}, "heads-not-used");
  expect_refused({"attend", path, "--dtype", "f32"}, "not-used");
  expect_refused({"attend", path, "--seed", "3"}, "not-used");
  expect_refused({"attend", path, "--query-starts", "0,2"}, "missing-tensor");
  expect_refused({"attend", path, "--key-documents", "1,1,1"}, "missing-tensor");
  expect_refused({"attend", path, "--alibi", "--alibi-slopes", "1"}, "two-sources");
  expect_refused({"attend", path, "--out", scratch.file("o.npz"), "--digits", "3"}, "usage");
  expect_refused({"attend", path, "--oracle", "--hex"}, "usage");
  expect_refused({"trace", "--json", "--digits", "3"}, "usage");
  expect_refused({"trace", "--workbook", "block", "--row", "9"}, "no-such-row");
  expect_refused({"trace", "--workbook", "block", "--window", "1,1"}, "not-for-block");
  expect_refused({"trace", "--workbook", "block", "--dropout", "0.1"}, "not-for-block");
  expect_refused({"trace", "--workbook", "block", "--query-starts", "0,3"}, "not-for-block");
  expect_refused({"trace", "--workbook", "block", "--alibi-slopes", "1,1"}, "not-for-block");
  expect_refused({"attend", path, "--window", ",1", "--convention", "onnx-23"}, "not-offered");
}

TEST(Arguments, AnUnbatchedPackedRowKeepsItsHeads) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {3, 4}, {3, 4});
  const std::string one = run_attest({"attend", path, "--full"}).out;
  for (const char* layout : {"packed", "lbe"}) {
    const Ended two = run_attest({"attend", path, "--layout", layout, "--heads", "2", "--full"});
    EXPECT_EQ(two.code, 0) << two.err;
    EXPECT_NE(two.out, one) << layout;
  }
}

TEST(Arguments, SetNamesBatchAndHeadWhereThereAreSeveral) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {2, 2, 3, 2}, {2, 2, 3, 2});
  expect_refused({"trace", path, "--set", "query[0,0]=1"}, "no-such-input");
  expect_refused({"trace", "--set", "h0.query[0,0]=1"}, "no-such-input");
  EXPECT_EQ(run_attest({"trace", path, "--set", "batch1.h0.query[0,0]=1"}).code, 0);
}

TEST(Streams, AClosedStandardOutputIsAnErrorAndNeverPartOfAFile) {
  const ScratchFolder scratch;
  const std::string path = dump(scratch, {2, 2}, {3, 2});
  const std::string out = scratch.file("out.npz");
  const std::string command = quoted(ATTEST_PROGRAM) + " attend " + quoted(path) + " --out " +
                              quoted(out) + " >&- 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
  EXPECT_TRUE(io::read_tensors(out));
}

TEST(Streams, AClosedStandardErrorLeavesTheExitCode) {
  const std::string program = quoted(ATTEST_PROGRAM);
  EXPECT_EQ(WEXITSTATUS(std::system((program + " exact conv 2>&-").c_str())), 2);
  EXPECT_EQ(WEXITSTATUS(std::system((program + " exact conv 2>/dev/full").c_str())), 2);
  EXPECT_EQ(WEXITSTATUS(std::system((program + " demo 2>&- >/dev/null").c_str())), 0);
  EXPECT_EQ(WEXITSTATUS(std::system((program + " demo >/dev/full 2>/dev/null").c_str())), 2);
}

TEST(Streams, StandardInputThatCannotBeReadIsAnError) {
  const std::string program = quoted(ATTEST_PROGRAM);
  EXPECT_EQ(WEXITSTATUS(std::system((program + " exact softmax <&- 2>/dev/null").c_str())), 2);
  EXPECT_EQ(WEXITSTATUS(std::system((program + " exact softmax </tmp 2>/dev/null").c_str())), 2);
}

TEST(Streams, AnEndlessLineIsNoCase) {
  const Ended ended =
      run_attest({"exact", "softmax"},
                 "{\"scores\": [1]}\n" + std::string(3000000, 'y') + "\n{\"scores\": [1]}\n");
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.out.find("line-too-long"), std::string::npos);
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 3);
}

TEST(Messages, AreOneLineWhateverTheWordsHold) {
  expect_refused({"exact", "a\nb\x1b[31m"}, "unknown-operation");
  expect_refused({"why", "a\nb"}, "bad-address");
  expect_refused({"bo\ngus"}, "usage");
}

TEST(Sizes, EmptyTensorsWithHugeExtentsNeitherHangNorAllocate) {
  const ScratchFolder scratch;
  const auto file = [&](const std::string& name, const std::string& shape) {
    write_text(scratch.file(name), "{\"dtype\": \"f64\", \"shape\": " + shape + ", \"data\": []}");
    return scratch.file(name);
  };
  const std::string big = file("big.json", "[4611686018427387904, 0]");
  const std::string wide = file("wide.json", "[0, 4611686018427387904]");
  const std::string keys = file("keys.json", "[0, 2]");
  write_text(scratch.file("q.json"), "[[1, 2]]");
  for (const char* tier : {"--exact", "--engine", "--oracle", "--compare"}) {
    EXPECT_EQ(run_attest({"attend", "--query", big, "--key", keys, "--value", keys, tier}).code, 2);
    EXPECT_EQ(run_attest({"attend", "--query", scratch.file("q.json"), "--key", keys, "--value",
                          wide, "--empty-row", "zero", tier})
                  .code,
              2);
  }
}

TEST(Diff, ComparesFilesWithoutNamesWithEachOther) {
  const ScratchFolder scratch;
  io::NamedTensors file;
  file.add("x", Tensor<double>({2}));
  ASSERT_TRUE(io::write_tensors(scratch.file("mine.npy"), file));
  ASSERT_TRUE(io::write_tensors(scratch.file("theirs.npy"), file));
  EXPECT_EQ(run_attest({"diff", scratch.file("mine.npy"), scratch.file("theirs.npy")}).code, 0);
}

TEST(Diff, RefusesTracesThatAreNotWhole) {
  const ScratchFolder scratch;
  const std::string trace = run_attest({"trace", "--json"}).out;
  write_text(scratch.file("a"), trace);
  write_text(scratch.file("cut"), trace.substr(0, 40));
  write_text(scratch.file("other"), "{\"attest-trace\": 99}\n");
  write_text(scratch.file("twice"), trace + trace.substr(trace.find('\n') + 1));
  for (const char* name : {"cut", "other", "twice"}) {
    EXPECT_EQ(run_attest({"diff", scratch.file("a"), scratch.file(name)}).code, 2) << name;
  }
  // Two rows of one call are two different things.
  write_text(scratch.file("row0"), run_attest({"trace", "--json", "--row", "0"}).out);
  write_text(scratch.file("row1"), run_attest({"trace", "--json", "--row", "1"}).out);
  EXPECT_EQ(run_attest({"diff", scratch.file("row0"), scratch.file("row1")}).code, 1);
}

}  // namespace
}  // namespace attest::test
