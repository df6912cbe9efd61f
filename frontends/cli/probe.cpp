// SPDX-License-Identifier: MIT
#include "attest/check/probe/probe.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "attest/check/probe/snippet.h"
#include "attest/io/bytes.h"
#include "attest/io/tensor_file.h"
#include "frontends/cli/command.h"
#include "frontends/cli/options.h"

namespace attest::cli {
namespace {

namespace files = std::filesystem;

struct Options {
  std::string out;
  std::string features;
  std::string convention;
  std::string layout;
  std::string dtype;
  std::string snippets;
  std::optional<std::uint64_t> seed;
  bool hostile = false;
  bool force = false;
};

Failure bad(std::string_view id, std::string message) {
  return {ErrorKind::value, std::string(id), "[probe] " + std::move(message)};
}

/// The folder that OUT lies in, and its name there.
struct Target {
  files::path folder;
  check::ProbePlace place;
  [[nodiscard]] std::string path(const std::string& name) const { return (folder / name).string(); }
};

Result<Target> target_of(std::string out) {
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  const files::path path(out);
  Target target{path.parent_path(), {.name = path.filename().string()}};
  if (target.place.name.empty() || target.place.name == "." || target.place.name == "..") {
    return bad("bad-option", sentence("OUT is a file or a new folder; found '", out, "'"));
  }
  const auto format = io::format_of_path(out);
  if (format == io::TensorFormat::safetensors) return target;
  if (format == io::TensorFormat::npz) {
    target.place.format = check::ProbeFormat::npz;
    return target;
  }
  if (!path.has_extension()) {
    target.place.format = check::ProbeFormat::npy_folder;
    return target;
  }
  return bad("unknown-format", sentence(out,
                                        ": a probe is a .safetensors or .npz file, or a folder, "
                                        "named without extension, of .npy files"));
}

Result<check::ProbeRequest> request_of(const Options& o) {
  const auto features = check::features_of(o.features);
  if (!features) return features.failure();
  check::ProbeRequest request{.features = *features,
                              .convention = o.convention,
                              .layout = o.layout,
                              .hostile = o.hostile,
                              .seed = o.seed.value_or(1)};
  if (!o.dtype.empty()) {
    const auto dtype = dtype_from_name(o.dtype);
    if (!dtype || !is_floating(*dtype)) {
      return bad("bad-option", sentence("--dtype is f64, f32, f16 or bf16; found '", o.dtype, "'"));
    }
    request.dtype = *dtype;
  }
  return request;
}

/// Formats without metadata hold the claim as a tensor; npy and npz have no bf16, but float32 holds
/// each of its numbers.
io::NamedTensors without_metadata(const check::Probe& probe) {
  io::NamedTensors out;
  for (const auto& [name, tensor] : probe.file.tensors) {
    if (tensor.dtype() != DType::bf16) {
      out.add(name, tensor);
      continue;
    }
    Tensor<double> numbers(tensor.shape());
    for (std::size_t n = 0; n < numbers.size(); ++n) numbers.elements()[n] = tensor.number(n);
    out.add(name, AnyTensor::from_f64(numbers, DType::f32));
  }
  check::write_claim_as_tensor(probe.words, out);
  return out;
}

Result<void> write_probe(const check::Probe& probe, const Target& target) {
  const std::string path = target.path(target.place.name);
  if (target.place.format == check::ProbeFormat::safetensors) {
    return io::write_tensors(path, probe.file);
  }
  const io::NamedTensors file = without_metadata(probe);
  if (target.place.format == check::ProbeFormat::npz) return io::write_tensors(path, file);
  std::error_code error;
  files::create_directory(path, error);
  if (error) return bad("cannot-write", sentence(path, ": ", error.message()));
  for (const auto& [name, tensor] : file.tensors) {
    io::NamedTensors one;
    one.add(name, tensor);
    if (auto ok = io::write_tensors((files::path(path) / (name + ".npy")).string(), one); !ok) {
      return ok;
    }
  }
  return {};
}

struct Snippet {
  check::Framework framework;
  std::string path;
  std::string text;
};

/// All of them before anything is written.
Result<std::vector<Snippet>> snippets_of(const Options& o, const check::Probe& probe,
                                         const Target& target) {
  std::vector<Snippet> out;
  std::string_view list = o.snippets;
  for (bool more = !list.empty(); more;) {
    const std::size_t comma = list.find(',');
    const auto framework = check::framework_of(list.substr(0, comma));
    if (!framework) return framework.failure();
    more = comma != std::string_view::npos;
    if (more) list.remove_prefix(comma + 1);
    auto text = check::snippet_for(probe, target.place, *framework);
    if (!text) return text.failure();
    std::string path = target.path(check::name_of_snippet(target.place, *framework));
    if (!o.force && files::exists(path)) {
      return bad("file-exists", sentence(path,
                                         " is there, and may have been edited; --force "
                                         "writes it anew"));
    }
    out.push_back({*framework, std::move(path), *std::move(text)});
  }
  return out;
}

Result<void> write_all(const check::Probe& probe, const Target& target,
                       const std::vector<Snippet>& snippets) {
  if (auto ok = write_probe(probe, target); !ok) return ok;
  for (const Snippet& snippet : snippets) {
    const auto bytes = io::as_bytes(snippet.text);
    if (auto ok = io::write_file(snippet.path, bytes); !ok) return ok;
  }
  return {};
}

/// What stands where, and what to do next.
std::string told(const check::Probe& probe, const Target& target,
                 const std::vector<Snippet>& snippets) {
  const auto& n = probe.shape.call;
  std::string out = sentence(target.path(target.place.name), ": B ", n.B, ", H ", n.H, ", G ", n.G,
                             ", T ", n.T, ", S ", n.S, ", D ", n.D, ", E ", n.E, "\n");
  std::string claim;
  for (const auto& [option, text] : texts_of(probe.words)) {
    claim += sentence(claim.empty() ? "" : ", ", option, " ", text);
  }
  out += sentence("  claims    ", claim, "\n");
  for (const auto& [name, tensor] : probe.file.tensors) {
    out += sentence("  ", name, std::string(name.size() < 16 ? 16 - name.size() : 1, ' '),
                    to_string(tensor.shape()), " ", name_of(tensor.dtype()), "\n");
  }
  for (const std::string& remark : probe.remarks) out += sentence("  note: ", remark, "\n");
  for (const Snippet& snippet : snippets) {
    const bool cpp = snippet.framework == check::Framework::cpp;
    const std::string name = files::path(snippet.path).filename().string();
    out += sentence(snippet.path, ": put your function in place of `attention`, then ",
                    cpp ? "g++ -std=c++17 -O2 " + name + " && ./a.out" : "python3 " + name, "\n");
  }
  if (snippets.empty()) {
    return out +
           "Run your function on these and add `output`, laid out as query is, to the file.\n";
  }
  return out + sentence("attest check ", target.path(check::name_of_dump(target.place)), "\n");
}

int probe(const Options& o) {
  auto target = target_of(o.out);
  if (!target) return fail(target.failure());
  const auto request = request_of(o);
  if (!request) return fail(request.failure());
  const auto made = check::make_probe(*request);
  if (!made) return fail(made.failure());
  const auto snippets = snippets_of(o, *made, *target);
  if (!snippets) return fail(snippets.failure());
  if (auto ok = write_all(*made, *target, *snippets); !ok) return fail(ok.failure());
  return write_out(told(*made, *target, *snippets));
}

constexpr const char* footer = R"(
Features: causal, top-left, bottom-right, window, mask, bias, grouped, alibi, sink, softcap, scale,
rope, rope-interleaved, cache, lengths, packed, dropout, gradients.

The inputs are such that different mistakes give different numbers: no two sizes are equal, no length
is a multiple of 16, every batch has another length, the softmax is neither flat nor on one key. The
file says what is claimed, so that attest check needs no flags. A snippet runs one function on it and
writes the inputs again with its output beside them.

Examples:
  attest probe probe.safetensors --features causal,grouped --snippet numpy
  attest probe probe.npz --convention jax --features causal,window --snippet jax
  attest probe probe.safetensors --convention pytorch-sdpa --features mask --hostile --snippet pytorch
  attest check probe_out.safetensors)";

}  // namespace

void add_probe(CLI::App& app, Action& action) {
  auto o = std::make_shared<Options>();
  auto* command = app.add_subcommand(
      "probe", "Write inputs on which mistakes tell apart, and programs that run yours on them");
  command->footer(footer);
  command->add_option("OUT", o->out, "probe.safetensors, probe.npz, or a folder for .npy files")
      ->required();
  add_word(*command, "--features", o->features, "What the function does, separated by commas");
  add_word(*command, "--convention", o->convention,
           "Lay out and claim as this framework does: pytorch-sdpa, jax, onnx-24, …");
  add_word(*command, "--layout", o->layout, "bhtd, bthd, packed or lbe; default: the convention's");
  add_word(*command, "--dtype", o->dtype, "f64, f32 (default), f16 or bf16");
  command->add_flag("--hostile", o->hostile,
                    "A query that sees no key, and NaN in a hidden key and value");
  add_unsigned(*command, "--seed", o->seed, "Of the numbers (default 1)");
  add_word(*command, "--snippet", o->snippets,
           "Programs beside the probe: numpy, pytorch, jax, onnxruntime, cpp, separated by commas");
  command->add_flag("--force", o->force, "Overwrite snippets that are there");
  command->callback([&action, o] { action = [o] { return probe(*o); }; });
}

}  // namespace attest::cli
