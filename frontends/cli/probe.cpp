// SPDX-License-Identifier: MIT
#include "attest/check/probe/probe.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "attest/base/shape.h"
#include "attest/base/text.h"
#include "attest/check/probe/separation.h"
#include "attest/check/probe/snippet.h"
#include "attest/io/bytes.h"
#include "attest/io/origin.h"
#include "attest/io/tensor_file.h"
#include "frontends/cli/command.h"
#include "frontends/cli/options.h"
#include "frontends/cli/print.h"

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
  std::optional<std::int64_t> head_dim;
  bool long_lengths = false;
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
  const auto unfit = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '"' || c == '\\';
  };
  if (std::ranges::any_of(target.place.name, unfit) || !io::is_utf8(target.place.name)) {
    return bad("bad-option",
               sentence("OUT's name stands in programs, and so has no quotes, backslashes, control "
                        "characters or broken UTF-8; found '",
                        out, "'"));
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
                              .long_lengths = o.long_lengths,
                              .head_dim = o.head_dim.value_or(0),
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

/// Numbers of another probe in the same folder would be read with this one's.
Result<void> holds_nothing_else(const Target& target, const io::NamedTensors& file) {
  const std::string path = target.path(target.place.name);
  std::error_code error;
  for (const auto& entry : files::directory_iterator(path, error)) {
    const files::path& there = entry.path();
    if (there.extension() != ".npy" || file.find(there.stem().string()) != nullptr) continue;
    return bad("file-exists", sentence(path, " holds ", there.filename().string(),
                                       ", which is no part of this probe: name another folder"));
  }
  return {};
}

Result<void> write_probe(const check::Probe& probe, const Target& target) {
  const std::string path = target.path(target.place.name);
  if (target.place.format == check::ProbeFormat::safetensors) {
    return io::write_tensors(path, probe.file);
  }
  const io::NamedTensors file = without_metadata(probe);
  if (target.place.format == check::ProbeFormat::npz) return io::write_tensors(path, file);
  if (auto ok = holds_nothing_else(target, file); !ok) return ok;
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

std::string joined(const std::vector<std::string>& labels, std::string_view between) {
  std::string out;
  for (const std::string& label : labels) out += (out.empty() ? "" : std::string(between)) + label;
  return out;
}

/// The names without their values, each once.
std::vector<std::string> names_in(const std::vector<std::string>& labels) {
  std::vector<std::string> out;
  for (const std::string& label : labels) {
    std::string name = label.substr(0, label.find(" ("));
    if (std::ranges::find(out, name) == out.end()) out.push_back(std::move(name));
  }
  return out;
}

/// What the outputs on this probe tell apart, and what not.
std::string told(const check::Separation& separation) {
  const auto at = [&](check::Precision precision) { return separation.untold_at(precision); };
  std::string out =
      sentence("  tells apart     ", separation.mistakes,
               " single mistakes; pairs too alike for f32: ", at(check::Precision::f32),
               ", f16: ", at(check::Precision::f16), ", bf16: ", at(check::Precision::bf16), "\n");
  for (const check::MistakePair& pair : separation.near) {
    const auto alike = [&](check::Precision precision) {
      return pair.apart < check::told_apart * check::unit_of(precision);
    };
    if (!alike(check::Precision::f16)) break;
    out +=
        sentence("    too alike for ", alike(check::Precision::f32) ? "f32: " : "f16: ", pair.first,
                 " and ", pair.second, ", ", three_digits(pair.apart), " of the output apart\n");
  }
  for (const auto& labels : separation.same) {
    out += sentence("    the same output: ", joined(labels, " = "), "\n");
  }
  if (!separation.unseen.empty()) {
    out += sentence("    no trace of: ", joined(names_in(separation.unseen), ", "), "\n");
  }
  return out;
}

/// What stands where, and what to do next.
std::string told(const check::MeasuredProbe& measured, const Target& target,
                 const std::vector<Snippet>& snippets) {
  const check::Probe& probe = measured.probe;
  const auto& n = probe.shape.call;
  std::string out = sentence(target.path(target.place.name), ": B ", n.B, ", H ", n.H, ", G ", n.G,
                             ", T ", n.T, ", S ", n.S, ", D ", n.D, ", E ", n.E, "\n");
  std::string claim;
  for (const auto& [option, text] : texts_of(probe.words)) {
    claim += sentence(claim.empty() ? "--" : " --", option, option == "alibi" ? "" : " ",
                      option == "alibi" ? "" : text);
  }
  out += sentence("  claims    ", claim, "\n");
  for (const auto& [name, tensor] : probe.file.tensors) {
    out += sentence("  ", name, std::string(name.size() < 16 ? 16 - name.size() : 1, ' '),
                    to_string(tensor.shape()), " ", name_of(tensor.dtype()), "\n");
  }
  for (const std::string& remark : probe.remarks) out += sentence("  note: ", remark, "\n");
  out += told(measured.separation);
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

/// Seeds that are drawn where none is given: what tells most apart is taken.
constexpr std::int64_t seeds_tried = 4;

Result<check::MeasuredProbe> measured(const check::ProbeRequest& request, std::int64_t seeds) {
  Progress progress("probe");
  return check::decisive_probe(request, seeds,
                               [&](std::int64_t tried) { progress.show(tried, seeds); });
}

/// What a framework does not say or have, in the words of this command: features and no options.
Failure in_words_of_features(Failure failure) {
  if (failure.id != "not-stated" && failure.id != "not-offered") return failure;
  std::string& text = failure.message;
  const bool corner = text.find("means by causal") != std::string::npos;
  text.resize(std::min(text.find("; say it in"), text.size()));
  text += corner ? "; ask for top-left or bottom-right in place of causal"
                 : "; without --convention the probe says it in attest's words";
  return failure;
}

int probe(const Options& o) {
  auto target = target_of(o.out);
  if (!target) return fail(target.failure());
  const auto request = request_of(o);
  if (!request) return fail(request.failure());
  const auto made = measured(*request, o.seed ? 1 : seeds_tried);
  if (!made) return fail(in_words_of_features(made.failure()));
  const auto snippets = snippets_of(o, made->probe, *target);
  if (!snippets) return fail(snippets.failure());
  if (auto ok = write_all(made->probe, *target, *snippets); !ok) return fail(ok.failure());
  return write_out(told(*made, *target, *snippets));
}

constexpr const char* footer = R"(
Features: causal, top-left, bottom-right, window, mask, bias, grouped, alibi, sink, softcap, scale,
rope, rope-interleaved, cache, lengths, packed, dropout, gradients.

The inputs are such that different mistakes give different numbers: no two sizes are equal, no length
is a multiple of 16, every batch has another length, the softmax is neither flat nor on one key. The
number of mistakes that are told apart is printed, and what is not. The file says what is claimed, so
that attest check needs no flags. A snippet runs one function on it and writes the inputs again with its
output beside them.

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
  add_unsigned(*command, "--seed", o->seed,
               "Of the numbers; default: of 1 to 4 the one that tells most apart");
  add_integer(*command, "--head-dim", o->head_dim,
              "Width of query, key and value, for kernels that take no other",
              {.least = 2, .most = 1024});
  command->add_flag("--long", o->long_lengths,
                    "More than 128 queries and keys, for kernels that work in blocks");
  auto* snippet = add_word(
      *command, "--snippet", o->snippets,
      "Programs beside the probe: numpy, pytorch, jax, onnxruntime, cpp, separated by commas");
  command->add_flag("--force", o->force, "Overwrite snippets that are there")->needs(snippet);
  command->callback([&action, o] { action = [o] { return probe(*o); }; });
}

}  // namespace attest::cli
