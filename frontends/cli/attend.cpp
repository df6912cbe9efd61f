// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <memory>

#include "attest/base/text.h"
#include "attest/check/compare_tiers.h"
#include "attest/io/tensor_file.h"
#include "frontends/cli/attend_tiers.h"
#include "frontends/cli/command.h"
#include "frontends/cli/options.h"

namespace attest::cli {
namespace {

enum class Tier { exact, engine, oracle };
struct Choice {
  Tier tier = Tier::exact;
  std::string why;
};

/// Depends on the options and the shape alone: the same input has the same tier on every machine.
Choice choose_tier(const LoadedCase& loaded, const AttendOptions& o) {
  if (o.oracle) return {Tier::oracle, "as --oracle says"};
  if (o.exact) return {Tier::exact, "as --exact says"};
  if (o.engine) return {Tier::engine, "as --engine says"};
  if (!o.isa.empty()) return {Tier::engine, "as --isa says"};
  if (o.threads) return {Tier::engine, "as --threads says"};
  const lab::AttentionShape s = shape_of(loaded);
  const double work = check::exact_work(s);
  const auto steps = fmt::format("B*H*T*S*(D+E+8) is {:.3g}", work);
  if (work <= check::much_exact_work) {
    return {Tier::exact, steps + ", at most 2^27; --engine takes the engine"};
  }
  if (!check::fits_engine(s)) {
    return {Tier::exact,
            steps + ", more than 2^27, but the engine's heads have 512 numbers at most"};
  }
  return {Tier::engine,
          fmt::format("{}, more than 2^27; --exact would take about {:.0f} s", steps, work * 8e-9)};
}

int write_file(const Outcome& outcome, const AttendOptions& o) {
  const auto wanted = dtype_from_name(o.dtype);
  io::NamedTensors tensors;
  std::string said;
  for (const Named& each : outcome.results) {
    const DType dtype = wanted.value_or(each.dtype);
    tensors.add(each.name, AnyTensor::from_f64(each.values, dtype));
    said += fmt::format("{} {} {}\n", each.name, to_string(each.values.shape()), name_of(dtype));
  }
  if (const auto ok = io::write_tensors(o.out, tensors); !ok) return fail(ok.failure());
  return write_out(fmt::format("wrote {}\n{}", o.out, said));
}

int print_outcome(const Outcome& outcome, const AttendOptions& o) {
  std::string out;
  for (const Named& each : outcome.results) {
    if (!o.oracle) {
      out += table(each.name, each.values, o.style);
      continue;
    }
    out += fmt::format("{} {}  ({} digits)\n", each.name, to_string(each.values.shape()),
                       std::max<std::int64_t>(o.style.digits.value_or(50), 2));
    const auto width = static_cast<std::size_t>(
        each.values.rank() == 0 ? 1 : std::max<std::int64_t>(each.values.shape().back(), 1));
    for (std::size_t n = 0; n < each.texts.size(); ++n) {
      out += "  " + each.texts[n];
      if (n % width == width - 1) out += '\n';
    }
  }
  return write_out(out);
}

/// Whether the format has the number type.
Result<void> can_hold(io::TensorFormat format, DType dtype) {
  const bool numpy = format == io::TensorFormat::npy || format == io::TensorFormat::npz;
  if (!numpy || dtype != DType::bf16) return {};
  return Failure{ErrorKind::type, "unsupported-dtype",
                 fmt::format("[attend] {} has no name for bf16; write .safetensors or .json, or "
                             "say --dtype f32, which holds every number of it",
                             io::name_of(format))};
}

/// What is asked of the output, before anything is calculated for it.
Result<void> check_output(const AttendOptions& o) {
  const auto bad = [](const char* id, std::string message) {
    return Failure{ErrorKind::value, id, "[attend] " + std::move(message)};
  };
  if (!o.dtype.empty()) {
    const auto dtype = dtype_from_name(o.dtype);
    if (!dtype || !is_floating(*dtype)) {
      return bad("bad-dtype", fmt::format("--dtype is f64, f32, f16 or bf16; found '{}'", o.dtype));
    }
    if (o.out.empty())
      return bad("not-used", "--dtype says how --out is written, and there is no --out");
  }
  if (o.out.empty()) return {};
  const auto format = io::format_of_path(o.out);
  if (!format) {
    return bad("unknown-format",
               fmt::format("--out wants .safetensors, .npz, .npy or .json; found '{}'", o.out));
  }
  if (auto ok = can_write("--out", o.out); !ok) return ok;
  if (const auto dtype = dtype_from_name(o.dtype)) {
    if (auto ok = can_hold(*format, *dtype); !ok) return ok;
  }
  if (*format == io::TensorFormat::npy && (o.weights || o.log_sum_exp)) {
    return bad("not-one-tensor", "an npy file holds one tensor; write .npz or .safetensors");
  }
  return {};
}

int compare(LoadedCase& loaded, const AttendOptions& o) {
  const EngineType type = engine_type(loaded);
  if (auto ok = widen(loaded); !ok) return fail(ok.failure());
  std::optional<Progress> progress("compare");
  check::CompareTiersOptions options{
      .storage = type.dtype,
      .threads = static_cast<int>(o.threads.value_or(0)),
      .rows = o.rows,
      .progress = [&](std::int64_t done, std::int64_t total) { progress->show(done, total); }};
  if (!o.isa.empty()) {
    const auto isa = isa_of(o.isa);
    if (!isa) return fail(isa.failure());
    options.isas = {*isa};
  }
  const auto report = check::compare_tiers(loaded.call, options);
  progress.reset();
  if (!report) return fail(in_words_of_options(report.failure()));
  if (!type.remark.empty()) {
    note(fmt::format("comparing in {}: {}", name_of(type.dtype), type.remark));
  }
  const int written = write_out(o.json ? to_json(*report) + "\n" : to_text(*report));
  if (written != Exit::done) return written;
  return exit_of(report->verdict());
}

Result<Outcome> run(LoadedCase& loaded, const AttendOptions& o, Tier tier) {
  switch (tier) {
    case Tier::exact:
      return run_exact(loaded, o);
    case Tier::engine:
      return run_engine(loaded, o);
    case Tier::oracle:
      return run_oracle(loaded, o);
  }
  return run_exact(loaded, o);
}

int attend(const AttendOptions& o) {
  if (const auto ok = check_output(o); !ok) return fail(ok.failure());
  if (!o.isa.empty()) {
    if (const auto isa = isa_of(o.isa); !isa) return fail(isa.failure());
  }
  auto loaded = load_case(o.inputs);
  if (!loaded) return fail(loaded.failure());
  for (const std::string& remark : loaded->remarks) note(remark);
  if (o.compare) return compare(*loaded, o);
  const Choice choice = choose_tier(*loaded, o);
  if (!o.out.empty() && o.dtype.empty() && choice.tier == Tier::engine) {
    const auto ok = can_hold(*io::format_of_path(o.out), engine_type(*loaded).dtype);
    if (!ok) return fail(ok.failure());
  }
  const auto outcome = run(*loaded, o, choice.tier);
  if (!outcome) return fail(in_words_of_options(outcome.failure()));
  note(fmt::format("{}: {}", outcome->tier, choice.why));
  if (const EngineType type = engine_type(*loaded);
      choice.tier == Tier::engine && !type.remark.empty()) {
    note(fmt::format("the engine computes in {}: {}", name_of(type.dtype), type.remark));
  }
  return o.out.empty() ? print_outcome(*outcome, o) : write_file(*outcome, o);
}

constexpr const char* footer = R"(
Rank 2 is one head [T, D], rank 3 is [H, T, D], rank 4 is [B, H, T, D]; --layout says otherwise.
The result has the layout of the query.

Small calls are computed by the exact tier, and those with B*H*T*S*(D+E+8) above 2^27, where it
needs more than about a second, by the engine: in the number type of the files, to its derived
bound, with the same bits for any number of threads. A note on standard error says which it was.
--isa and --threads ask for the engine; ATTEST_ISA in the environment is what --isa defaults to.

--compare prints no result. It runs the engine on every instruction set of this machine, with one
thread and with several (--threads 1: with one alone), and says how far each is from the exact tier:
the largest error, the bound of that number, and the largest fraction of a bound that any number
uses. Beside it stand the plain loop that everybody writes first, and the exact tier against the
oracle, where the call is small. The engine is left out of calls whose heads have more than 512
numbers, which it does not take. Of large calls 16 rows or more are compared, spread evenly;
--rows N chooses how many.

--oracle refuses calls that would take it more than about ten minutes.

Exit 0 when done, 2 on bad input; --compare: 0 if every bound is kept and threads change no bit, 1
if not, 3 if a tier promises nothing of any number, or nothing was judged.

Examples:
  attest attend dump.safetensors
  attest attend dump.npz --causal bottom-right --window 128,0 --weights
  attest attend --query q.npy --key k.npy --value v.npy --mask mask.npy --out result.npz
  attest attend dump.safetensors --layout bthd --convention flash-attention --causal
  attest attend dump.json --oracle
  attest attend dump.safetensors --engine --isa avx2 --threads 1 --out engine.safetensors
  attest attend dump.safetensors --causal --compare)";

void add_tiers(CLI::App& command, AttendOptions& o) {
  auto* exact = command.add_flag("--exact", o.exact, "The exact tier, however long it takes");
  auto* engine = command.add_flag("--engine", o.engine, "The engine, also for small calls");
  auto* oracle = command.add_flag("--oracle", o.oracle,
                                  "To 50 significant digits (or --digits N): small inputs only");
  auto* compare = command.add_flag("--compare", o.compare, "All tiers, and how far they are apart");
  exact->excludes(engine)->excludes(oracle)->excludes(compare);
  engine->excludes(oracle)->excludes(compare);
  oracle->excludes(compare);
  auto* isa = add_word(command, "--isa", o.isa,
                       "Instruction set of the engine; attest inspect --isa lists them");
  auto* threads = add_integer(command, "--threads", o.threads,
                              "Threads of the engine (default: one for each processor)",
                              {.least = 1, .most = 1024});
  for (auto* choice : {isa, threads}) choice->excludes(exact)->excludes(oracle);
  add_integer(command, "--rows", o.rows, "How many rows --compare looks at", {.least = 1})
      ->needs(compare);
  command.add_flag("--json", o.json, "The report of --compare as JSON")->needs(compare);
}

}  // namespace

void add_attend(CLI::App& app, Action& action) {
  auto o = std::make_shared<AttendOptions>();
  auto* command = app.add_subcommand(
      "attend", "Compute attention from tensor files and print or write it, or compare the tiers");
  command->footer(footer);
  add_case_options(*command, o->inputs);
  const auto styles = add_number_options(*command, o->style);
  add_tiers(*command, *o);
  auto* oracle = command->get_option("--oracle");
  oracle->excludes(styles[1])->excludes(styles[2]);
  auto* weights = command->add_flag("--weights", o->weights, "Also the weights [B, H, T, S]");
  auto* sums = command->add_flag("--lse", o->log_sum_exp, "Also log_sum_exp [B, H, T], natural");
  auto* out = add_word(*command, "--out", o->out,
                       "Write .safetensors, .npz, .npy or .json instead of printing");
  for (auto* style : styles) out->excludes(style);
  auto* dtype = add_word(*command, "--dtype", o->dtype,
                         "Of the written numbers: f64, f32, f16, bf16 (default: what the tier "
                         "computes in, f64 if exact)");
  auto* compare = command->get_option("--compare");
  for (auto* other : {weights, sums, out, dtype}) compare->excludes(other);
  for (auto* style : styles) compare->excludes(style);
  command->callback([&action, o] { action = [o] { return attend(*o); }; });
}

}  // namespace attest::cli
