// SPDX-License-Identifier: MIT
// attest check: whether anybody's attention is right, and which mistake gives its numbers if not.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "attest/base/text.h"
#include "attest/check/diagnose/diagnosis.h"
#include "attest/io/bytes.h"
#include "attest/io/tensor_file.h"
#include "frontends/cli/check_block.h"
#include "frontends/cli/check_catalogue.h"
#include "frontends/cli/check_dump.h"
#include "frontends/cli/check_packed.h"
#include "frontends/cli/check_readings.h"
#include "frontends/cli/check_stages.h"
#include "frontends/cli/check_unread.h"
#include "frontends/cli/check_verdict.h"
#include "frontends/cli/command.h"
#include "frontends/cli/options.h"
#include "frontends/cli/print.h"

namespace attest::cli {
namespace {

struct CheckOptions {
  DumpOptions dump;
  BlockOptions block;
  bool json = false;
  std::string html;
  bool list = false;
  bool page = false;
  std::string explain;
  std::optional<std::int64_t> most_mistakes;
  std::string asked;  ///< the command as it was given
};

/// As a shell takes it for one word.
std::string quoted(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n'\"$&|;<>()*?[]#~`\\!") == std::string::npos) {
    return word;
  }
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// The command as a shell would take it again, for a page that is read elsewhere.
std::string asked_of(const CLI::App& command) {
  std::string out = "attest " + command.get_name();
  for (const CLI::Option* option : command.parse_order()) {
    if (option->get_name() == "--html") continue;
    if (!option->get_positional()) out += " " + option->get_name();
    if (option->get_expected_min() == 0 && option->get_expected_max() == 0) continue;  // a flag
    for (const std::string& word : option->results()) {
      out += " " + quoted(word);
    }
  }
  return one_line(out, 4000);
}

void add_asked(check::Diagnosis& page, const CheckOptions& o) {
  page.remarks.insert(page.remarks.begin(), "asked: " + o.asked);
}

Result<void> write_text(const std::string& path, const std::string& text) {
  return io::write_file(path, std::as_bytes(std::span(text)));
}

/// Whether the page would be that file, or a tensor's in that folder.
bool is_read(const std::filesystem::path& page, const std::string& path) {
  namespace files = std::filesystem;
  std::error_code error;
  if (files::is_directory(path, error)) {
    const files::path folder = page.has_parent_path() ? page.parent_path() : files::path(".");
    return io::format_of_path(page.string()) == io::TensorFormat::npy &&
           files::equivalent(folder, path, error) && !error;
  }
  return files::equivalent(path, page, error) && !error && files::is_regular_file(path, error);
}

/// A page must not take the place of what is read, nor stand in the midst of the verdict.
Result<void> can_write_page(const CheckOptions& o) {
  if (o.html.empty()) return {};
  if (o.html == "-") {
    return Failure{ErrorKind::value, "bad-option",
                   "[check] --html - : standard output has the verdict; name a file for the page"};
  }
  if (auto ok = can_write("--html", o.html); !ok) return ok;
  std::vector<std::string> read{o.dump.inputs.file};
  for (const auto& [flag, name] : o.dump.inputs.names) read.push_back(name);
  for (const std::string& path : read) {
    if (path.empty() || !is_read(o.html, path)) continue;
    return Failure{ErrorKind::value, "bad-option",
                   sentence("[check] --html ", o.html, " is a file that is read: name another")};
  }
  return {};
}

int check_without_claim(LoadedDump& loaded, const CheckOptions& o) {
  if (o.most_mistakes) {
    return fail({ErrorKind::value, "not-used",
                 "[check] --most-mistakes is of a search, which needs a claim: say what is meant, "
                 "--causal none if it is plain attention"});
  }
  auto readings = [&] {
    CheckProgress progress("check");
    return compare_usual_readings(loaded, progress.function());
  }();
  if (!readings) return fail(in_words_of_options(readings.failure()));
  if (std::ranges::none_of(*readings, &Reading::reproduces)) {
    if (const auto heads = heads_that_clear(o.dump, loaded)) note(packed_sentence(*heads));
  }
  if (!o.html.empty()) {
    const auto shown = std::ranges::find(*readings, true, &Reading::reproduces);
    const Reading& reading = shown == readings->end() ? readings->front() : *shown;
    check::Diagnosis page = page_of(*readings, reading);
    page.remarks = loaded.remarks;
    page.remarks.push_back("the errors are those of the reading " + reading.flags + ": " +
                           reading.label);
    add_asked(page, o);
    const auto ok = write_text(o.html, check::to_html(loaded.dump, page));
    if (!ok) return fail(ok.failure());
    note("wrote " + o.html);
  }
  const int written = write_out(o.json ? to_json(*readings) + "\n" : to_text(*readings));
  return written == Exit::done ? exit_of(*readings) : written;
}

int check_whole_block(const CheckOptions& o) {
  const auto verdict = check_block(o.dump, o.block, o.most_mistakes.value_or(3));
  if (!verdict) return fail(verdict.failure());
  const auto& [compared, diagnosis] = *verdict;
  if (!o.html.empty()) {
    check::Diagnosis page = diagnosis;
    add_asked(page, o);
    const auto ok = write_text(o.html, check::to_html(compared, page));
    if (!ok) return fail(ok.failure());
    note("wrote " + o.html);
  }
  const int written = write_out(o.json ? check::to_json(compared, diagnosis) + "\n"
                                       : check::to_text(compared, diagnosis));
  return written == Exit::done ? exit_of(diagnosis.judgement) : written;
}

int check_dump(const CheckOptions& o) {
  if (o.list) return write_out(list_of_mistakes());
  if (o.page) return write_out(mistakes_page());
  if (!o.explain.empty()) {
    const auto text = explanation_of(o.explain);
    return text ? write_out(*text) : fail(text.failure());
  }
  if (const auto ok = can_write_page(o); !ok) return fail(ok.failure());
  if (o.block.chosen) return check_whole_block(o);
  auto loaded = load_dump(o.dump);
  if (!loaded) return fail(in_words_of_options(loaded.failure()));
  if (!loaded->dump.stages.empty()) leave_out_sums(loaded->dump, loaded->remarks);
  for (const std::string& remark : loaded->remarks) note(remark);
  if (!loaded->claimed) return check_without_claim(*loaded, o);
  auto diagnosis = diagnosed(*loaded, o.most_mistakes.value_or(3));
  if (!diagnosis) return fail(in_words_of_options(diagnosis.failure()));
  consider_packed(o.dump, *loaded, *diagnosis);
  consider_unread(o.dump, *loaded, *diagnosis);
  if (!o.html.empty()) {
    check::Diagnosis page = *diagnosis;
    page.remarks.insert(page.remarks.end(), loaded->remarks.begin(), loaded->remarks.end());
    add_asked(page, o);
    const auto ok = write_text(o.html, check::to_html(loaded->dump, page));
    if (!ok) return fail(ok.failure());
    note("wrote " + o.html);
  }
  const int written = write_out(o.json ? check::to_json(loaded->dump, *diagnosis) + "\n"
                                       : check::to_text(loaded->dump, *diagnosis));
  return written == Exit::done ? exit_of(diagnosis->judgement) : written;
}

/// What prints of the catalogue reads no dump: nothing else has a meaning beside it.
void refuse_what_is_not_read(const CLI::App& command, const CheckOptions& o) {
  if (!o.list && !o.page && o.explain.empty()) return;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const bool prints = name == "--list" || name == "--mistakes" || name == "--explain";
    if (prints || option->count() == 0) continue;
    throw CLI::ValidationError(name, "has no meaning beside --list, --mistakes or --explain");
  }
}

constexpr const char* footer = R"(
FILE holds what an attention function was given (query, key, value and, where it has them, mask,
bias, sink, key_lengths, cu_seqlens, past_key and past_value, cos and sin) and what it made of
them: output, or weights, scores, log_sum_exp. Names that frameworks use are known (q, Q,
attn_mask, attn_weights, lse, ...); what was guessed is said on standard error. Enough is
query, key, value and output; or scores and weights; or weights, value and output; or any other
two tables that follow from one another.

The verdict is relative to a claim: --convention NAME, the options below, or what the file says
of itself (metadata attest.causal = top-left and so on, or an ONNX Attention node's attributes).
--causal none claims plain attention. Where nothing is claimed, the usual readings of the tensors
are compared: exit 0 if all of them give these numbers, else 3.

--block takes a whole transformer block: its weights under the names of the usual libraries, its
input x, and its output or any tables in between (projections, weights, concat, residuals, norms,
ffn). What the tensors do not say (heads, norm, placement, activation) is assumed and said, or
given by options.

Exit 0 right (also: right within the rounding of its number type), 1 wrong, 2 bad input, 3 this
input cannot tell.

Five lines make a dump.
  PyTorch         from safetensors.torch import save_file
                  q, k, v = (torch.randn(2, 6, 11, 12) for _ in range(3))
                  out = my_attention(q, k, v)
                  save_file({n: t.contiguous() for n, t in zip(("query", "key", "value", "output"),
                            (q, k, v, out))}, "dump.safetensors")
                  attest check dump.safetensors --convention pytorch-sdpa --causal
  JAX             q, k, v = (jax.random.normal(s, (2, 11, 6, 12)) for s in jax.random.split(seed, 3))
                  out = my_attention(q, k, v)
                  np.savez("dump.npz", query=q, key=k, value=v, output=out)
                  attest check dump.npz --convention jax --causal
  NumPy           out = my_attention(q, k, v)             # [B, H, T, D]
                  np.savez("dump.npz", query=q, key=k, value=v, output=out)
                  attest check dump.npz --causal none
  ONNX Runtime    feeds = {"Q": q, "K": k, "V": v}
                  out = onnxruntime.InferenceSession("model.onnx").run(None, feeds)
                  np.savez("dump.npz", **feeds, output=out[0])
                  attest check dump.npz --convention onnx-24 --causal none
  C++             attest::io::NamedTensors dump;          // attest/io/tensor_file.h
                  dump.add("query", q);                   // attest::Tensor<float>, [B, H, T, D]
                  dump.add("key", k), dump.add("value", v), dump.add("output", out);
                  attest::io::write_tensors("dump.safetensors", dump).value();
                  attest check dump.safetensors --causal bottom-right

Examples:
  attest check dump.safetensors --causal bottom-right --html report.html
  attest check dump.npz --convention flash-attention --causal --window 128,0
  attest check --query q.npy --key k.npy --value v.npy --output o.npy --causal none
  attest check acts.safetensors --prefix ex0. --scale 0.125 --causal
  attest check block.safetensors --block --heads 8 --norm rms --placement pre --causal
  attest check --explain causal.top_left)";

}  // namespace

void add_check(CLI::App& app, Action& action) {
  auto o = std::make_shared<CheckOptions>();
  auto* command = app.add_subcommand(
      "check", "Say whether somebody's attention is right, and which mistake explains it if not");
  command->footer(footer);
  add_dump_options(*command, o->dump);
  add_block_options(*command, o->block);
  add_integer(*command, "--most-mistakes", o->most_mistakes,
              "So many mistakes are combined at most (default 3)", {.least = 1, .most = 3});
  command->add_flag("--json", o->json, "The verdict as JSON");
  add_word(*command, "--html", o->html, "Write a page with a heat map of the error there");
  auto* list = command->add_flag("--list", o->list, "List the mistakes that are known");
  auto* page = command->add_flag("--mistakes", o->page, "Print them as docs/mistakes.md");
  auto* explain = add_word(*command, "--explain", o->explain, "Print one mistake");
  list->excludes(page)->excludes(explain);
  page->excludes(explain);
  for (auto* print : {list, page, explain}) {
    print->excludes(command->get_option("--json"))->excludes(command->get_option("--html"));
  }
  command->callback([&action, o, command] {
    refuse_what_is_not_read(*command, *o);
    o->asked = asked_of(*command);
    action = [o] { return check_dump(*o); };
  });
}

}  // namespace attest::cli
