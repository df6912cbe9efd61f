// SPDX-License-Identifier: MIT
// What the Python snippets have in common: reading a probe, and writing it again with the outputs.
#include "attest/check/probe/snippet.h"

#include <array>

#include "attest/base/shape.h"
#include "attest/check/probe/snippet_parts.h"
#include "attest/io/origin.h"

namespace attest::check {
namespace {

constexpr std::array frameworks{Framework::numpy, Framework::pytorch, Framework::jax,
                                Framework::onnxruntime, Framework::cpp};

std::string stem_of(const ProbePlace& place) {
  const std::size_t dot = place.name.find_last_of('.');
  return place.format == ProbeFormat::npy_folder ? place.name : place.name.substr(0, dot);
}

constexpr std::string_view safetensors_helpers = R"(
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?", "I64": "<i8",
         "I32": "<i4", "U8": "u1"}


def load():
    """The tensors of the probe; bf16 as float32, which holds each of them."""
    with open(PROBE, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        x = np.frombuffer(data[begin:end], TYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":
            x = (x.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = x.reshape(entry["shape"]).copy()
    return tensors


def save(results):
    """The probe's own bytes, claim included, and after them the results."""
    with open(PROBE, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    for name, x in results.items():
        x = np.ascontiguousarray(x)
        dtype = {"float64": "F64", "float32": "F32", "float16": "F16"}[x.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(x.shape),
                        "data_offsets": [len(data), len(data) + x.nbytes]}
        data += x.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(DUMP, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
)";

constexpr std::string_view npz_helpers = R"(

def load():
    return dict(np.load(PROBE))


def save(results):
    np.savez(DUMP, **np.load(PROBE), **results)
)";

constexpr std::string_view folder_helpers = R"(

def load():
    return {name[:-4]: np.load(os.path.join(PROBE, name))
            for name in sorted(os.listdir(PROBE)) if name.endswith(".npy")}


def save(results):
    os.makedirs(DUMP, exist_ok=True)
    for name, x in {**load(), **results}.items():
        np.save(os.path.join(DUMP, name + ".npy"), x)
)";

std::string_view helpers_for(ProbeFormat format) {
  switch (format) {
    case ProbeFormat::safetensors:
      return safetensors_helpers;
    case ProbeFormat::npz:
      return npz_helpers;
    case ProbeFormat::npy_folder:
      break;
  }
  return folder_helpers;
}

std::string_view imports_for(Framework framework) {
  switch (framework) {
    case Framework::pytorch:
      return "import torch\nimport torch.nn.functional as F\n";
    case Framework::jax:
      return "import jax\nimport jax.numpy as jnp\n";
    case Framework::onnxruntime:
      return "import onnx\nimport onnxruntime\n";
    default:
      return "";
  }
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

/// "query [3, 6, 11, 12], key [3, 6, 19, 12], …", one a line.
void write_contract(Lines& out, const Probe& probe) {
  out(R"(""")", "The function under test: put your own in its place.");
  out();
  for (const auto& [name, tensor] : probe.file.tensors) {
    out(name, " ", to_string(tensor.shape()), " ", name_of(tensor.dtype()));
  }
  for (const auto& [option, text] : texts_of(probe.words)) out(option, ": ", text);
  const bool gradients = probe.request.features.gradients;
  out("Returns output", gradients ? ", d_query, d_key and d_value" : "", ", laid out as query is.",
      R"(""")");
}

Result<void> write_body(Lines& out, const Probe& probe, Framework framework) {
  switch (framework) {
    case Framework::pytorch:
      if (sdpa_offers(probe)) {
        write_sdpa_body(out, probe);
      } else {
        write_plain_body(out, probe, torch_spelling());
      }
      return {};
    case Framework::jax:
      if (jax_offers(probe)) {
        write_jax_body(out, probe);
      } else {
        write_plain_body(out, probe, jax_spelling());
      }
      return {};
    case Framework::onnxruntime:
      return write_onnxruntime_body(out, probe);
    default:
      write_plain_body(out, probe, numpy_spelling());
      return {};
  }
}

/// From NumPy's arrays to the framework's, and back.
struct Conversion {
  std::string_view to, back;
};
Conversion conversion_for(Framework framework, DType dtype) {
  const bool half = dtype == DType::bf16;
  switch (framework) {
    case Framework::pytorch:
      return {half ? "{k: t.to(torch.bfloat16) if t.is_floating_point() else t\n"
                     "          for k, t in ((k, torch.from_numpy(x)) for k, x in probe.items())}"
                   : "{k: torch.from_numpy(x) for k, x in probe.items()}",
              half ? "x.detach().float().numpy()" : "x.detach().numpy()"};
    case Framework::jax:
      return {half ? "{k: jnp.asarray(x, jnp.bfloat16 if x.dtype == np.float32 else None)\n"
                     "          for k, x in probe.items()}"
                   : "{k: jnp.asarray(x) for k, x in probe.items()}",
              half ? "np.asarray(x, np.float32)" : "np.asarray(x)"};
    default:
      return {"probe", "np.asarray(x)"};
  }
}

void write_main(Lines& out, const Probe& probe, Framework framework) {
  std::vector<std::string> results{"output"};
  if (probe.request.features.gradients) {
    for (const char* name : {"d_query", "d_key", "d_value"}) results.emplace_back(name);
  }
  const Conversion conversion = conversion_for(framework, probe.request.dtype);
  out()()(R"(if __name__ == "__main__":)");
  out.indent(4);
  out("probe = load()");
  out("inputs = ", conversion.to);
  std::vector<std::string> given;
  for (const std::string& name : arguments_of(probe)) {
    given.push_back(sentence("inputs[\"", name, "\"]"));
  }
  out("results = attention(", joined(given), ")");
  if (results.size() == 1) out("results = (results,)");
  std::string names;
  for (const std::string& name : results) names += (names.empty() ? "\"" : ", \"") + name + "\"";
  // Weights, scores and log_sum_exp under these names are checked too.
  out("names = (", names, results.size() == 1 ? ",)" : ")",
      "  # more to be checked: \"weights\", \"scores\", \"log_sum_exp\"");
  out("save({name: ", conversion.back, " for name, x in zip(names, results)})");
  out("print(\"wrote \" + os.path.basename(DUMP))");
  out.indent(-4);
}

Result<std::string> python_snippet(const Probe& probe, const ProbePlace& place,
                                   Framework framework) {
  Lines out;
  out(R"(""")", "Runs one attention function on ", place.name, " and writes ", name_of_dump(place),
      ".");
  out();
  out("Edit `attention`, then");
  out();
  out("    python3 ", name_of_snippet(place, framework));
  out("    attest check ", name_of_dump(place));
  out(R"(""")");
  if (place.format == ProbeFormat::safetensors) out("import json");
  out("import os");
  out()("import numpy as np");
  std::string text = out.text();
  text += imports_for(framework);
  if (framework == Framework::jax && probe.request.dtype == DType::f64) {
    text += "\njax.config.update(\"jax_enable_x64\", True)\n";
  }
  Lines rest;
  rest();
  rest("HERE = os.path.dirname(os.path.abspath(__file__))");
  rest("PROBE = os.path.join(HERE, \"", place.name, "\")");
  rest("DUMP = os.path.join(HERE, \"", name_of_dump(place), "\")");
  rest()();
  rest("def attention(", joined(arguments_of(probe)), "):");
  rest.indent(4);
  write_contract(rest, probe);
  if (auto ok = write_body(rest, probe, framework); !ok) return ok.failure();
  rest.indent(-4);
  text += rest.text() + "\n" + std::string(helpers_for(place.format));
  Lines main;
  write_main(main, probe, framework);
  return text + main.text();
}

}  // namespace

std::string_view name_of(Framework framework) noexcept {
  switch (framework) {
    case Framework::numpy:
      return "numpy";
    case Framework::pytorch:
      return "pytorch";
    case Framework::jax:
      return "jax";
    case Framework::onnxruntime:
      return "onnxruntime";
    case Framework::cpp:
      return "cpp";
  }
  return "unknown";
}

Result<Framework> framework_of(std::string_view name) {
  std::string known;
  for (const Framework framework : frameworks) {
    if (name == name_of(framework)) return framework;
    known += sentence(known.empty() ? "" : ", ", name_of(framework));
  }
  return Failure{
      ErrorKind::value, "unknown-framework",
      sentence("[probe] there is no snippet for ", io::in_quotes(name), "; there are ", known)};
}

std::string name_of_dump(const ProbePlace& place) {
  const std::string stem = stem_of(place);
  return stem + "_out" + place.name.substr(stem.size());
}

std::string name_of_snippet(const ProbePlace& place, Framework framework) {
  return sentence(stem_of(place), "_", name_of(framework),
                  framework == Framework::cpp ? ".cpp" : ".py");
}

Result<std::string> snippet_for(const Probe& probe, const ProbePlace& place, Framework framework) {
  return framework == Framework::cpp ? cpp_snippet(probe, place)
                                     : python_snippet(probe, place, framework);
}

}  // namespace attest::check
