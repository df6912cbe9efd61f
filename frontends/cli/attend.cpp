// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <memory>

#include "attest/io/tensor_file.h"
#include "attest/lab/attention.h"
#include "attest/lab/oracle.h"
#include "frontends/cli/case_options.h"
#include "frontends/cli/command.h"

namespace attest::cli {
namespace {

struct AttendOptions {
  CaseOptions inputs;
  NumberStyle style;
  bool exact = false;
  bool oracle = false;
  bool weights = false;
  bool log_sum_exp = false;
  std::string out;
  std::string dtype = "f64";
};

/// What was computed, in the layout of the input; the oracle's decimal texts beside the doubles.
struct Named {
  std::string name;
  Tensor<double> values;
  std::vector<std::string> texts;  // of the oracle, one for each value
};
using Outcome = std::vector<Named>;

Result<Outcome> run_exact(const LoadedCase& loaded, const AttendOptions& o) {
  Progress progress("attend");
  const auto result =
      lab::attention(loaded.call.inputs(), loaded.call.options(),
                     o.weights ? lab::Weights::keep : lab::Weights::drop,
                     [&](std::int64_t done, std::int64_t total) { progress.show(done, total); });
  if (!result) return result.failure();
  Outcome out{{"output", as_given(loaded, result->output), {}}};
  if (o.weights) out.push_back({"weights", without_missing_axes(loaded, result->weights), {}});
  if (o.log_sum_exp)
    out.push_back({"log_sum_exp", without_missing_axes(loaded, result->log_sum_exp), {}});
  return out;
}

/// The oracle's numbers as the nearest doubles, in their order.
Tensor<double> nearest(const lab::oracle::OracleTensor& from) {
  Tensor<double> out(from.shape);
  for (std::size_t n = 0; n < from.values.size(); ++n) {
    out.elements()[n] = lab::oracle::nearest_double(from.values[n]);
  }
  return out;
}

/// Which element of `from` stands at each place of the output as it is given out.
std::vector<std::size_t> order_as_given(const LoadedCase& loaded, const Shape& shape) {
  Tensor<double> numbers(shape);
  for (std::size_t n = 0; n < numbers.size(); ++n) numbers.elements()[n] = static_cast<double>(n);
  const Tensor<double> moved = as_given(loaded, numbers);
  return {moved.elements().begin(), moved.elements().end()};
}

std::vector<std::string> oracle_texts(const lab::oracle::OracleTensor& from,
                                      const std::vector<std::size_t>& order, int digits) {
  std::vector<std::string> out;
  for (const std::size_t n : order) out.push_back(lab::oracle::digits(from.values[n], digits));
  return out;
}

Result<Outcome> run_oracle(const LoadedCase& loaded, const AttendOptions& o) {
  const Progress progress("attend --oracle");
  const auto result = lab::oracle::attention(loaded.call.inputs(), loaded.call.options());
  if (!result) return result.failure();
  constexpr int digits = 50;
  std::vector<std::size_t> same(result->weights.values.size());
  for (std::size_t n = 0; n < same.size(); ++n) same[n] = n;
  const auto rows = std::vector<std::size_t>(
      same.begin(), same.begin() + static_cast<std::ptrdiff_t>(
                                       std::min(same.size(), result->log_sum_exp.values.size())));
  Outcome out{{"output", as_given(loaded, nearest(result->output)),
               oracle_texts(result->output, order_as_given(loaded, result->output.shape), digits)}};
  if (o.weights) {
    out.push_back({"weights", without_missing_axes(loaded, nearest(result->weights)),
                   oracle_texts(result->weights, same, digits)});
  }
  if (o.log_sum_exp) {
    out.push_back({"log_sum_exp", without_missing_axes(loaded, nearest(result->log_sum_exp)),
                   oracle_texts(result->log_sum_exp, rows, digits)});
  }
  return out;
}

int write_file(const Outcome& outcome, const AttendOptions& o) {
  const auto dtype = dtype_from_name(o.dtype);
  if (!dtype || !is_floating(*dtype)) {
    return fail({ErrorKind::value, "bad-dtype",
                 fmt::format("[attend] --dtype is f64, f32, f16 or bf16; found '{}'", o.dtype)});
  }
  io::NamedTensors tensors;
  for (const Named& each : outcome)
    tensors.add(each.name, AnyTensor::from_f64(each.values, *dtype));
  if (const auto ok = io::write_tensors(o.out, tensors); !ok) return fail(ok.failure());
  std::string said;
  for (const Named& each : outcome) {
    said += fmt::format("{} {} {}\n", each.name, to_string(each.values.shape()), o.dtype);
  }
  return write_out(fmt::format("wrote {}\n{}", o.out, said));
}

int print_outcome(const Outcome& outcome, const AttendOptions& o) {
  std::string out;
  for (const Named& each : outcome) {
    if (!o.oracle) {
      out += table(each.name, each.values, o.style);
      continue;
    }
    out += fmt::format("{} {}  (50 digits)\n", each.name, to_string(each.values.shape()));
    const auto width = static_cast<std::size_t>(
        each.values.rank() == 0 ? 1 : std::max<std::int64_t>(each.values.shape().back(), 1));
    for (std::size_t n = 0; n < each.texts.size(); ++n) {
      out += fmt::format("{}{}", n % width == 0 ? "  " : "  ", each.texts[n]);
      if (n % width == width - 1) out += '\n';
    }
  }
  return write_out(out);
}

int attend(const AttendOptions& o) {
  const auto loaded = load_case(o.inputs);
  if (!loaded) return fail(loaded.failure());
  for (const std::string& remark : loaded->remarks) fmt::print(stderr, "note: {}\n", remark);
  const auto outcome = o.oracle ? run_oracle(*loaded, o) : run_exact(*loaded, o);
  if (!outcome) return fail(outcome.failure());
  return o.out.empty() ? print_outcome(*outcome, o) : write_file(*outcome, o);
}

constexpr const char* footer = R"(
Rank 2 is one head [T, D], rank 3 is [H, T, D], rank 4 is [B, H, T, D]; --layout says otherwise.
The result has the layout of the query. Exit 0 when done, 2 on bad input.

Examples:
  attest attend dump.safetensors
  attest attend dump.npz --causal bottom-right --window 128,0 --weights
  attest attend --query q.npy --key k.npy --value v.npy --mask mask.npy --out result.npz
  attest attend dump.safetensors --layout bthd --convention flash-attention --causal
  attest attend dump.json --oracle)";

}  // namespace

void add_attend(CLI::App& app, Action& action) {
  auto o = std::make_shared<AttendOptions>();
  auto* command = app.add_subcommand(
      "attend", "Compute attention from tensor files, exactly, and print or write the result");
  command->footer(footer);
  add_case_options(*command, o->inputs);
  add_number_options(*command, o->style);
  auto* exact = command->add_flag("--exact", o->exact, "The exact tier (default)");
  command->add_flag("--oracle", o->oracle, "To 50 decimal digits: small inputs only")
      ->excludes(exact);
  command->add_flag("--weights", o->weights, "Also the weights [B, H, T, S]");
  command->add_flag("--lse", o->log_sum_exp, "Also log_sum_exp [B, H, T], natural");
  command->add_option("--out", o->out,
                      "Write .safetensors, .npz, .npy or .json instead of printing");
  command->add_option("--dtype", o->dtype, "Of the written numbers: f64 (default), f32, f16, bf16");
  command->callback([&action, o] { action = [o] { return attend(*o); }; });
}

}  // namespace attest::cli
