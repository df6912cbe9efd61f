// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/base/attention_case.h"
#include "attest/base/result.h"
#include "attest/lab/stage.h"
#include "attest/lab/visibility.h"
#include "attest/lab/workbook.h"

namespace attest::lab {

/// The address of one number: `[layerN.][batchN.][hN.]stage[i,j,…]`, counted from 0.
///
///     weights[2,0]     h1.weights[2,0]     batch1.h0.products[2,0,1]     norm1.mean[2]
///
/// `name` is everything before the bracket. A scalar stage has no index.
struct Address {
  std::string name;
  std::vector<std::int64_t> index;

  [[nodiscard]] std::string text() const;
};

/// Fails (bad-address) with the place in the text where it stops making sense.
[[nodiscard]] Result<Address> parse_address(std::string_view text);

/// One number and where it stands.
struct Operand {
  Address address;
  double value = 0;
};

/// Why a number is what it is: `weights[0,1] = exp[0,1] / sum[0]`.
struct Explanation {
  Operand result;
  std::string formula;            ///< "{0} / {1}": the operands, in the order of `operands`
  std::vector<Operand> operands;  ///< none for an input
  std::string note;               ///< "an input", "hidden by causal", …; may be empty

  /// The formula with each operand's address, or with its value as `print` writes it.
  [[nodiscard]] std::string with_addresses() const;
  [[nodiscard]] std::string with_values(const std::function<std::string(double)>& print) const;
};

/// Every intermediate value of a calculation, in order of computation, under its name.
///
/// Stage names are those of docs/notation.md. A leading part of a name is left out where there is
/// only one head or batch. Values of inputs stand first.
class Trace {
 public:
  /// A whole attention call. Rows are computed one by one with attention_row, so that a trace of
  /// chosen rows (`only`, query numbers) of a large call costs those rows alone; the tables then hold
  /// these rows only, and addresses keep the original row numbers.
  [[nodiscard]] static Result<Trace> of(const AttentionCase& call,
                                        std::optional<std::int64_t> only = std::nullopt);

  /// The workbook's block with every stage, both heads' attention included.
  [[nodiscard]] static Result<Trace> of(const Tensor<double>& rows,
                                        const workbook::BlockParameters& parameters,
                                        const workbook::BlockOptions& options = {});

  [[nodiscard]] const std::vector<Stage>& stages() const noexcept { return stages_; }
  [[nodiscard]] const Stage* find(std::string_view name) const noexcept;

  /// The number at an address. Fails (no-such-stage, no-such-index), saying what there is.
  [[nodiscard]] Result<double> at(const Address& address) const;

  /// Why the number at an address is what it is. Fails as `at` does.
  [[nodiscard]] Result<Explanation> why(const Address& address) const;

  /// The first row that the tables hold: 0, or the one row that was asked for.
  [[nodiscard]] std::int64_t first_row() const noexcept { return first_row_; }

  /// The first index of a stage's first axis: `first_row` if that axis counts queries, else 0.
  [[nodiscard]] std::int64_t first_index(const Stage& stage) const;

  /// What hides key j from query i in the head with this prefix ("h1.", or "").
  [[nodiscard]] HiddenBy hidden_by(std::string_view prefix, std::int64_t i, std::int64_t j) const;

  /// Whether dropout leaves out what query i gives key j; false for a hidden key.
  [[nodiscard]] bool dropped(std::string_view prefix, std::int64_t i, std::int64_t j) const;

  /// The prefixes of the heads, in order: {""} for one head, {"h0.", "h1."}, {"batch0.h0.", …}.
  [[nodiscard]] std::vector<std::string> heads() const;

 private:
  /// What the formulas need to know of a head beyond its tables.
  struct Head {
    std::string prefix;
    std::vector<HiddenBy> hidden;  // [rows, S]
    std::vector<bool> dropped;     // [rows, S]
    std::int64_t keys = 0;
    std::int64_t head_dim = 0;
    std::optional<double> scale;
    std::optional<double> softcap;
    double dropout_rate = 0;
    bool self_projected = false;  // query, key and value are the head's projection
  };
  [[nodiscard]] const Head* head_of(std::string_view name, std::string& stage) const;
  [[nodiscard]] Result<std::size_t> place(const Stage& stage, const Address& address) const;
  Result<void> add_heads(const AttentionCase& call, const std::string& outer,
                         std::optional<std::int64_t> only);
  Result<void> add_head(const AttentionCase& call, Head head, RowPlace first, std::int64_t rows);

  friend class Explainer;
  std::vector<Stage> stages_;
  std::vector<Head> heads_;
  std::int64_t first_row_ = 0;
  double epsilon_ = 0;
};

/// Changes one input number of a case before it is calculated: `query[0,1]`, `h1.key[2,0]`,
/// `batch1.h0.value[2,0]`, `bias[0,1]`, or a mask cell `mask[0,1]` (0 hides, 1 shows). A key or
/// value named through a query head changes the key/value head that it reads. A mask or bias that
/// was absent is made, all visible or all zero. Fails (no-such-input, no-such-index, bad-value).
[[nodiscard]] Result<void> set_input(AttentionCase& call, const Address& address, double value);

/// The same for the block: `rows[0,1]`, `P1[0,0]`, `P2`, `WO`, `W1`, `W2`.
[[nodiscard]] Result<void> set_input(Tensor<double>& rows, workbook::BlockParameters& parameters,
                                     const Address& address, double value);

}  // namespace attest::lab
