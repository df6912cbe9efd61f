// SPDX-License-Identifier: MIT
// attest probe: its programs run, and what they write is right; what cannot be asked for is refused.
#include "attest/check/probe/probe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "attest/base/conventions.h"
#include "attest/check/engine_bound.h"
#include "attest/check/probe/snippet.h"
#include "attest/io/tensor_file.h"
#include "attest/lab/attention.h"
#include "attest/lab/attention_backward.h"
#include "attest/lab/positions.h"
#include "python.h"
#include "run_program.h"

namespace attest::test {
namespace {

using check::Probe;
using check::ProbeRequest;

/// Runs a command in a folder; its exit status, and what it said in `said`.
int run_in(const std::string& folder, const std::string& command, std::string& said) {
  const std::string log = folder + "/log";
  const int status =
      std::system(("cd " + quoted(folder) + " && " + command + " >log 2>&1").c_str());
  said = read_text(log);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// The flags of the command for a request.
std::vector<std::string> flags_of(const ProbeRequest& request) {
  std::string features;
  for (const auto name : names_of(request.features)) {
    features += (features.empty() ? "" : ",") + std::string(name);
  }
  std::vector<std::string> out{"--seed", std::to_string(request.seed)};
  if (!features.empty()) out.insert(out.end(), {"--features", features});
  if (!request.convention.empty()) out.insert(out.end(), {"--convention", request.convention});
  if (!request.layout.empty()) out.insert(out.end(), {"--layout", request.layout});
  if (request.hostile) out.emplace_back("--hostile");
  if (request.dtype != DType::f32) {
    out.insert(out.end(), {"--dtype", std::string(name_of(request.dtype))});
  }
  return out;
}

ProbeRequest asking(std::string_view features, std::string convention = "",
                    DType dtype = DType::f32) {
  return {.features = check::features_of(features).value(),
          .convention = std::move(convention),
          .dtype = dtype};
}
ProbeRequest hostile(std::string_view features) {
  ProbeRequest request = asking(features);
  request.hostile = true;
  return request;
}
ProbeRequest laid_out(std::string_view features, std::string layout) {
  ProbeRequest request = asking(features);
  request.layout = std::move(layout);
  return request;
}

/// A tensor of the dump in the order [B, H, T, D].
Tensor<double> in_our_order(const AnyTensor& x, const Probe& probe, std::int64_t heads,
                            const std::string& layout) {
  const std::int64_t B = probe.shape.call.B;
  const auto rows = static_cast<std::int64_t>(x.size()) / (B * heads);
  const bool batched = !probe.shape.without_batch;
  const std::size_t of_length = layout == "lbe" ? 0 : (layout == "bhtd") ? 1U + batched : batched;
  const std::int64_t length = x.shape()[of_length];
  const std::int64_t width = rows / length;
  Tensor<double> out({B, heads, length, width});
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t d = 0; d < width; ++d) {
          const std::int64_t place = layout == "bhtd"  ? ((b * heads + h) * length + i) * width + d
                                     : layout == "lbe" ? ((i * B + b) * heads + h) * width + d
                                                       : ((b * length + i) * heads + h) * width + d;
          out(b, h, i, d) = x.number(static_cast<std::size_t>(place));
        }
      }
    }
  }
  return out;
}

/// The claim with its query and key turned, as the exact tier takes them.
AttentionCase turned(const Probe& probe) {
  AttentionCase call = probe.claim.call;
  if (!probe.claim.rope) return call;
  const auto& rope = *probe.claim.rope;
  const auto turn = [&](Tensor<double>& x, const std::vector<std::int64_t>& positions) {
    // Each row by itself, since documents begin anew.
    const auto& n = x.shape();
    const bool by_batch = static_cast<std::int64_t>(positions.size()) != n[2];
    for (std::int64_t b = 0; b < n[0]; ++b) {
      for (std::int64_t i = 0; i < n[2]; ++i) {
        const std::int64_t position =
            positions[static_cast<std::size_t>(by_batch ? b * n[2] + i : i)];
        const View<const double, 4> row{&x(b, 0, i, 0), {1, n[1], 1, n[3]}, {0, n[2] * n[3], 0, 1}};
        const auto out = lab::rope(row, rope.config, std::span(&position, 1)).value();
        for (std::int64_t h = 0; h < n[1]; ++h) {
          for (std::int64_t d = 0; d < n[3]; ++d) x(b, h, i, d) = out(0, h, 0, d);
        }
      }
    }
  };
  turn(call.query, rope.query_positions);
  turn(call.key, rope.key_positions);
  return call;
}

void expect_within(const Tensor<double>& found, const Tensor<double>& exact,
                   const Tensor<double>& bound, const char* name) {
  ASSERT_EQ(found.shape(), exact.shape()) << name;
  double furthest = 0;
  for (std::size_t n = 0; n < found.size(); ++n) {
    const double apart = std::abs(found.elements()[n] - exact.elements()[n]);
    ASSERT_LE(apart, bound.elements()[n]) << name << " element " << n;
    furthest = std::max(furthest, apart);
  }
  EXPECT_GT(found.size(), 0U) << name;
}

/// Whether what a snippet wrote is the claim's result, number by number within the bound of single
/// precision: a program in plain arrays makes no more roundings than the engine's proof allows.
void expect_right(const io::NamedTensors& dump, const Probe& probe) {
  ASSERT_NE(dump.find("output"), nullptr);
  const AttentionCase call = turned(probe);
  const auto& n = probe.shape.call;
  const auto exact = lab::attention(call.inputs(), call.options());
  ASSERT_TRUE(exact) << exact.failure().message;
  const auto bound = check::engine_bound(call.inputs(), call.options(), {}).value();
  expect_within(in_our_order(*dump.find("output"), probe, n.H, probe.shape.output_layout),
                exact->output, bound.output, "output");
  for (const auto& [name, tensor] : probe.file.tensors) {
    EXPECT_NE(dump.find(name), nullptr) << "the dump lacks " << name;
  }
  EXPECT_EQ(check::read_claim(dump).value(), probe.words) << "the dump has lost its claim";
  if (!probe.request.features.gradients) return;
  const Tensor<double> d_output =
      in_our_order(*probe.file.find("d_output"), probe, n.H, probe.shape.output_layout);
  const lab::AttentionOutputGradients given{.d_output = d_output.view<4>()};
  const auto gradients = lab::attention_backward(call.inputs(), call.options(), given).value();
  const auto limits =
      check::engine_gradient_bound(call.inputs(), call.options(), given, {}).value();
  const std::string& layout = probe.shape.layout;
  expect_within(in_our_order(*dump.find("d_query"), probe, n.H, layout), gradients.d_query,
                limits.d_query, "d_query");
  expect_within(in_our_order(*dump.find("d_key"), probe, n.G, layout), gradients.d_key,
                limits.d_key, "d_key");
  expect_within(in_our_order(*dump.find("d_value"), probe, n.G, layout), gradients.d_value,
                limits.d_value, "d_value");
}

/// Whether this build has the command that probes are for.
bool attest_checks() {
  static const bool has = run_attest({"check", "--help"}).code == 0;
  return has;
}

/// Writes the probe and its snippet, runs it, and judges what it wrote.
void run_snippet(const ProbeRequest& request, const check::ProbePlace& place,
                 check::Framework framework, const std::string& command) {
  const ScratchFolder scratch;
  std::vector<std::string> arguments{"probe", scratch.file(place.name)};
  const auto flags = flags_of(request);
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"--snippet", std::string(name_of(framework))});
  std::string told;
  for (const std::string& flag : flags) told += flag + " ";
  SCOPED_TRACE(told + place.name);
  const Ended ended = run_attest(arguments);
  ASSERT_EQ(ended.code, 0) << ended.err;
  std::string said;
  ASSERT_EQ(run_in(scratch.file(""), command, said), 0) << said;
  const auto dump = io::read_tensors(scratch.file(check::name_of_dump(place)));
  ASSERT_TRUE(dump) << dump.failure().message;
  expect_right(*dump, make_probe(request).value());
  if (!attest_checks()) return;
  const Ended judged = run_attest({"check", scratch.file(check::name_of_dump(place))});
  EXPECT_EQ(judged.code, 0) << judged.out << judged.err;
}

/// One of each kind of thing that a snippet has to do.
std::vector<ProbeRequest> requests() {
  std::vector<ProbeRequest> out{asking(""),
                                asking("causal,grouped,softcap"),
                                asking("bottom-right,lengths,window,sink", "flash-attention"),
                                asking("top-left,window,bias,lengths", "jax"),
                                asking("mask,alibi", "pytorch-mha"),
                                asking("mask", "ggml"),
                                asking("alibi,lengths", "flash-attention"),
                                asking("causal,cache,grouped", "onnxruntime-gqa"),
                                asking("bottom-right,packed,window,alibi", "flash-attention"),
                                asking("scale,softcap,gradients,grouped,bias", "keras"),
                                asking("gradients,dropout,softcap,mask", "pytorch-mha"),
                                asking("gradients,causal", "ggml"),
                                asking("causal,cache,rope,grouped", "", DType::f64),
                                asking("bottom-right,packed,rope-interleaved", "", DType::f64),
                                asking("bottom-right,lengths,rope", "", DType::f64),
                                hostile("mask,lengths,sink"),
                                hostile("lengths"),
                                laid_out("grouped,mask", "lbe"),
                                laid_out("cache,causal,window", "bthd"),
                                laid_out("packed,causal", "packed")};
  std::erase_if(out, [](const ProbeRequest& request) { return !make_probe(request); });
  return out;
}

TEST(ProbeSnippets, NumpysIsRight) {
  const std::string interpreter = python();
  if (interpreter.empty()) GTEST_SKIP() << "no Python with NumPy";
  EXPECT_EQ(requests().size(), 19U) << "ggml has no causal flag; everything else can be asked for";
  for (const ProbeRequest& request : requests()) {
    run_snippet(request, {.name = "probe.safetensors"}, check::Framework::numpy,
                quoted(interpreter) + " probe_numpy.py");
  }
}

TEST(ProbeSnippets, NumpysReadsAndWritesEveryFormat) {
  const std::string interpreter = python();
  if (interpreter.empty()) GTEST_SKIP() << "no Python with NumPy";
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    for (const check::ProbePlace& place :
         {check::ProbePlace{"p.safetensors", check::ProbeFormat::safetensors},
          check::ProbePlace{"p.npz", check::ProbeFormat::npz},
          check::ProbePlace{"p", check::ProbeFormat::npy_folder}}) {
      run_snippet(asking("causal,mask", "", dtype), place, check::Framework::numpy,
                  quoted(interpreter) + " p_numpy.py");
    }
  }
}

TEST(ProbeSnippets, TheOneInCppIsRightAndCompilesWithoutWarnings) {
  const std::string compile = quoted(ATTEST_CXX) +
                              " -std=c++17 -O0 -Wall -Wextra -Werror probe_cpp.cpp -o program && "
                              "./program";
  std::vector<ProbeRequest> some = requests();
  some.push_back(asking("mask", "", DType::f16));
  some.push_back(asking("mask", "", DType::bf16));
  for (const ProbeRequest& request : some) {
    run_snippet(request, {.name = "probe.safetensors"}, check::Framework::cpp, compile);
  }
}

TEST(ProbeSnippets, EveryPythonOneParses) {
  const std::string interpreter = python();
  if (interpreter.empty()) GTEST_SKIP() << "no Python";
  const ScratchFolder scratch;
  std::string program = "import ast\n";
  int written = 0;
  for (const char* features :
       {"", "causal", "top-left,lengths,window", "mask,bias", "grouped,scale", "alibi",
        "sink,softcap", "rope", "rope-interleaved", "causal,cache", "packed,causal", "dropout",
        "gradients", "gradients,mask,grouped"}) {
    for (const Convention& convention : conventions()) {
      const auto probe = make_probe(asking(features, std::string(convention.name)));
      if (!probe) continue;
      for (const auto framework : {check::Framework::numpy, check::Framework::pytorch,
                                   check::Framework::jax, check::Framework::onnxruntime}) {
        const auto text = check::snippet_for(*probe, {.name = "p.safetensors"}, framework);
        if (!text) {
          EXPECT_EQ(framework, check::Framework::onnxruntime) << text.failure().message;
          EXPECT_EQ(text.failure().id, "not-offered");
          continue;
        }
        const std::string name = "s" + std::to_string(written++) + ".py";
        write_text(scratch.file(name), *text);
        program.append("ast.parse(open('").append(name).append("').read())\n");
      }
    }
  }
  EXPECT_GT(written, 400);
  write_text(scratch.file("all.py"), program);
  std::string said;
  EXPECT_EQ(run_in(scratch.file(""), quoted(interpreter) + " all.py", said), 0) << said;
}

TEST(ProbeCommand, SaysWhatToAskForWhereAFrameworkSaysNothing) {
  const ScratchFolder scratch;
  const auto refused = [&](const char* convention, const char* features) {
    const Ended ended = run_attest({"probe", scratch.file("p.safetensors"), "--convention",
                                    convention, "--features", features});
    EXPECT_EQ(ended.code, 2) << ended.out;
    EXPECT_EQ(ended.err.find("own options"), std::string::npos) << ended.err;
    return ended.err;
  };
  EXPECT_NE(refused("ggml", "causal").find("ask for top-left or bottom-right"), std::string::npos);
  EXPECT_NE(refused("mlx", "window").find("without --convention"), std::string::npos);
}

TEST(ProbeCommand, SaysWhatItWrote) {
  const ScratchFolder scratch;
  const Ended ended =
      run_attest({"probe", scratch.file("p.safetensors"), "--features", "causal,grouped"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("B 2, H 12, G 3, T 22, S 22, D 14, E 11"), std::string::npos)
      << ended.out;
  EXPECT_NE(ended.out.find("causal square"), std::string::npos);
  EXPECT_NE(ended.out.find("single mistakes; pairs too alike for f32: 0, f16: "),
            std::string::npos);
  EXPECT_NE(ended.out.find("no trace of: "), std::string::npos) << "T = S hides some";
  const auto file = io::read_tensors(scratch.file("p.safetensors")).value();
  EXPECT_EQ(check::read_claim(file).value().causal, "square");
}

TEST(ProbeCommand, SeedsAreReplayable) {
  const ScratchFolder scratch;
  const auto written = [&](const std::string& name, const std::string& seed) {
    EXPECT_EQ(run_attest({"probe", scratch.file(name), "--seed", seed}).code, 0);
    return read_text(scratch.file(name));
  };
  EXPECT_EQ(written("a.safetensors", "7"), written("b.safetensors", "7"));
  EXPECT_NE(read_text(scratch.file("a.safetensors")), written("c.safetensors", "8"));
}

TEST(ProbeCommand, KeepsASnippetThatMayHaveBeenEdited) {
  const ScratchFolder scratch;
  const std::vector<std::string> arguments{"probe", scratch.file("p.npz"), "--snippet", "numpy"};
  ASSERT_EQ(run_attest(arguments).code, 0);
  write_text(scratch.file("p_numpy.py"), "mine");
  const Ended refused = run_attest(arguments);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("error file-exists:"), std::string::npos) << refused.err;
  EXPECT_EQ(read_text(scratch.file("p_numpy.py")), "mine");
  std::vector<std::string> forced = arguments;
  forced.emplace_back("--force");
  EXPECT_EQ(run_attest(forced).code, 0);
  EXPECT_NE(read_text(scratch.file("p_numpy.py")), "mine");
}

TEST(ProbeCommand, RefusesWhatItCannotWrite) {
  const ScratchFolder scratch;
  const std::string out = scratch.file("p.safetensors");
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"--features", "casual"}, "unknown-feature"},
      {{"--features", "cache,lengths"}, "features-conflict"},
      {{"--features", "cache,gradients"}, "features-conflict"},
      {{"--convention", "torch"}, "unknown-convention"},
      {{"--convention", "pytorch-sdpa", "--features", "window"}, "not-stated"},
      {{"--layout", "bhdt"}, "bad-option"},
      {{"--dtype", "i8"}, "bad-option"},
      {{"--dtype", "float"}, "bad-option"},
      {{"--hostile"}, "bad-option"},
      {{"--seed", "-1"}, "usage"},
      {{"--head-dim", "1"}, "usage"},
      {{"--head-dim", "7", "--features", "rope"}, "bad-option"},
      {{"--snippet", "tensorflow"}, "unknown-framework"},
      {{"--snippet", "numpy,"}, "unknown-framework"},
      {{"--features", "sink", "--snippet", "onnxruntime"}, "not-offered"},
      {{"--features", ""}, "usage"},
      {{"--bogus"}, "usage"}};
  for (const auto& [flags, id] : wrong) {
    std::vector<std::string> arguments{"probe", out};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Ended ended = run_attest(arguments);
    EXPECT_EQ(ended.code, 2) << flags.back();
    EXPECT_TRUE(ended.err.starts_with("error " + std::string(id) + ": ")) << ended.err;
    EXPECT_TRUE(ended.out.empty());
    EXPECT_FALSE(std::filesystem::exists(out)) << "nothing is written before all is known";
  }
  EXPECT_EQ(run_attest({"probe"}).code, 2);
  EXPECT_EQ(run_attest({"probe", scratch.file("p.txt")}).code, 2);
  EXPECT_EQ(run_attest({"probe", scratch.file("none/p.npz")}).code, 2);
  EXPECT_EQ(run_attest({"probe", scratch.file("p.npz"), "--snippet", "cpp"}).code, 2);
}

}  // namespace
}  // namespace attest::test
