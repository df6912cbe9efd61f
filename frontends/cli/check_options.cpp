// SPDX-License-Identifier: MIT
#include "frontends/cli/check_options.h"

#include <array>

#include "attest/base/text.h"
#include "frontends/cli/options.h"

namespace attest::cli {
namespace {

/// An option of a few words; another word is a usage error that lists them.
template <std::size_t N>
void add_choice(CLI::App& command, const std::string& name, std::string& target,
                const std::array<const char*, N>& words, const std::string& help) {
  command.add_option_function<std::string>(
      name,
      [&target, name, words](const std::string& word) {
        std::string known;
        for (const char* each : words) {
          if (word == each) target = word;
          known += sentence(known.empty() ? "" : ", ", each);
        }
        if (target != word || word.empty()) {
          throw CLI::ValidationError(name,
                                     sentence("wants one of ", known, "; found '", word, "'"));
        }
      },
      help);
}

}  // namespace

void add_dump_options(CLI::App& command, DumpOptions& o) {
  add_case_options(command, o.inputs);
  for (const auto& [role, help] : dump_roles) {
    command.add_option_function<std::string>(
        std::string("--") + role,
        [&o, name = std::string(role)](const std::string& value) {
          if (value.empty()) throw CLI::ValidationError("--" + name, "wants a file or a name");
          o.inputs.names[name] = value;
        },
        std::string("A file of its own, or a tensor's name in FILE: ") + help);
  }
  add_word(command, "--prefix", o.prefix,
           "Only the tensors of FILE whose names begin so, and without it: layer3.attn.");
  add_choice(command, "--scores-are", o.scores_are,
             std::array{"dot", "scaled", "capped", "biased", "masked"},
             "Which table 'scores' is: dot, scaled, capped, biased or masked");
  add_choice(command, "--output-layout", o.output_layout,
             std::array{"bhtd", "bthd", "packed", "lbe"},
             "Layout of the output, if its shape fits several: bhtd, bthd, packed or lbe");
  add_choice(command, "--precision", o.precision, std::array{"f64", "f32", "tf32", "f16", "bf16"},
             "What it computes in: f64, f32, tf32, f16 or bf16 (default: the coarsest number type "
             "of the dump)");
  add_integer(command, "--past", o.past, "So many leading keys came from a cache", {.least = 0});
  add_choice(command, "--rope", o.rope, std::array{"half", "interleaved"},
             "Query and key are turned by rotary positions first: half pairs feature i with i+R/2, "
             "interleaved 2i with 2i+1. Give both as they were before");
  add_number(command, "--rope-base", o.rope_base, "Base of the angles (default 10000)",
             NumberRange::not_negative);
  add_integer(command, "--rope-dim", o.rope_dim, "R: the first so many features turn (default D)",
              {.least = 2});
  add_integers(command, "--query-positions", o.query_positions,
               "Rotary position of each query (default: where causal masking puts it)");
  add_integers(command, "--key-positions", o.key_positions,
               "Rotary position of each key (default 0, 1, ...)");
}

bool makes_claim(const DumpOptions& o) {
  const CaseOptions& c = o.inputs;
  return !c.causal.empty() || !c.window.empty() || !c.query_offset.empty() || c.scale ||
         c.softcap || c.alibi || !c.alibi_slopes.empty() || c.dropout || !c.empty_row.empty() ||
         !c.convention.empty() || !o.rope.empty() || !c.key_lengths.empty() ||
         !c.query_starts.empty() || !c.key_starts.empty() || !c.query_documents.empty() ||
         !c.key_documents.empty() || !c.sink.empty();
}

}  // namespace attest::cli
