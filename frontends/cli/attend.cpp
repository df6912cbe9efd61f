// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <memory>

#include "attest/io/tensor_file.h"
#include "attest/lab/attention.h"
#include "attest/lab/oracle.h"
#include "frontends/cli/case_options.h"
#include "frontends/cli/command.h"
#include "frontends/cli/options.h"

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
  std::string dtype;  ///< of the written numbers; "": f64
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

std::vector<std::string> oracle_texts(const lab::oracle::OracleTensor& from, int digits) {
  std::vector<std::string> out;
  for (const auto& value : from.values) out.push_back(lab::oracle::digits(value, digits));
  return out;
}

/// The output's texts, moved to where its numbers are given out.
std::vector<std::string> output_texts(const LoadedCase& loaded,
                                      const lab::oracle::OracleTensor& output, int digits) {
  const std::vector<std::string> texts = oracle_texts(output, digits);
  std::vector<std::string> out;
  for (const std::size_t n : order_as_given(loaded, output.shape)) out.push_back(texts[n]);
  return out;
}

Result<Outcome> run_oracle(const LoadedCase& loaded, const AttendOptions& o) {
  const Progress progress("attend --oracle");
  const auto result = lab::oracle::attention(loaded.call.inputs(), loaded.call.options());
  if (!result) return result.failure();
  const int digits = static_cast<int>(std::max<std::int64_t>(o.style.digits.value_or(50), 2));
  Outcome out{{"output", as_given(loaded, nearest(result->output)),
               output_texts(loaded, result->output, digits)}};
  if (o.weights) {
    out.push_back({"weights", without_missing_axes(loaded, nearest(result->weights)),
                   oracle_texts(result->weights, digits)});
  }
  if (o.log_sum_exp) {
    out.push_back({"log_sum_exp", without_missing_axes(loaded, nearest(result->log_sum_exp)),
                   oracle_texts(result->log_sum_exp, digits)});
  }
  return out;
}

int write_file(const Outcome& outcome, const AttendOptions& o) {
  const DType dtype = dtype_from_name(o.dtype).value_or(DType::f64);
  io::NamedTensors tensors;
  for (const Named& each : outcome) tensors.add(each.name, AnyTensor::from_f64(each.values, dtype));
  if (const auto ok = io::write_tensors(o.out, tensors); !ok) return fail(ok.failure());
  std::string said;
  for (const Named& each : outcome) {
    said += fmt::format("{} {} {}\n", each.name, to_string(each.values.shape()), name_of(dtype));
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
  if (*format == io::TensorFormat::npy && (o.weights || o.log_sum_exp)) {
    return bad("not-one-tensor", "an npy file holds one tensor; write .npz or .safetensors");
  }
  return {};
}

int attend(const AttendOptions& o) {
  if (const auto ok = check_output(o); !ok) return fail(ok.failure());
  const auto loaded = load_case(o.inputs);
  if (!loaded) return fail(loaded.failure());
  for (const std::string& remark : loaded->remarks) note(remark);
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
  const auto styles = add_number_options(*command, o->style);
  auto* exact = command->add_flag("--exact", o->exact, "The exact tier (default)");
  auto* oracle = command->add_flag("--oracle", o->oracle,
                                   "To 50 significant digits (or --digits N): small inputs only");
  oracle->excludes(exact)->excludes(styles[1])->excludes(styles[2]);
  command->add_flag("--weights", o->weights, "Also the weights [B, H, T, S]");
  command->add_flag("--lse", o->log_sum_exp, "Also log_sum_exp [B, H, T], natural");
  auto* out = add_word(*command, "--out", o->out,
                       "Write .safetensors, .npz, .npy or .json instead of printing");
  for (auto* style : styles) out->excludes(style);
  add_word(*command, "--dtype", o->dtype, "Of the written numbers: f64 (default), f32, f16, bf16");
  command->callback([&action, o] { action = [o] { return attend(*o); }; });
}

}  // namespace attest::cli
