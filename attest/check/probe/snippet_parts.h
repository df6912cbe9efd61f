// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attest/base/text.h"
#include "attest/check/probe/snippet.h"

namespace attest::check {

/// Text of a program, line by line.
class Lines {
 public:
  template <class... Parts>
  Lines& operator()(const Parts&... parts) {
    const std::string line = sentence(parts...);
    text_ += line.empty() ? "" : std::string(static_cast<std::size_t>(indent_), ' ') + line;
    text_ += '\n';
    return *this;
  }
  void indent(int by) { indent_ += by; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  int indent_ = 0;
};

/// How the arrays of a framework are spelled where they are not all alike.
struct Spelling {
  std::string_view module;       ///< "np"
  std::string_view concatenate;  ///< "np.concatenate"
  std::string_view largest;      ///< "np.amax(scores, -1, keepdims=True)" without its arguments
  std::string_view keep;         ///< "keepdims=True"
  std::string_view to_float;     ///< ".astype(np.float32)"
  std::string_view repeat_open;  ///< "np.repeat({}, {}, 1)" in two parts
  bool method_repeat = false;    ///< "x.repeat_interleave(n, 1)" instead
};
[[nodiscard]] const Spelling& numpy_spelling();
[[nodiscard]] const Spelling& jax_spelling();
[[nodiscard]] const Spelling& torch_spelling();

/// The tensors of the probe's file, in its order, without those that only a backward pass takes.
[[nodiscard]] std::vector<std::string> arguments_of(const Probe& probe);
/// "scale = 0.37", or "1 / D ** 0.5".
[[nodiscard]] std::string scale_text(const Probe& probe);

/// The body of `attention`, written out. Its arguments are those of `arguments_of`.
void write_plain_body(Lines& out, const Probe& probe, const Spelling& spelling);
/// `position`, [1 or B, T], and `visible`, which broadcasts to [B, H, T, S]. B, T and S are defined.
void write_visibility(Lines& out, const Probe& probe, const Spelling& spelling);
/// Whether anything hides keys.
[[nodiscard]] bool hides_keys(const Probe& probe);
/// Brings query, key and value from the layout of the file to [B, H, T, D], and names B, H, T, D, S.
void write_to_our_order(Lines& out, const Probe& probe, const Spelling& spelling);
/// `x` [B, H, T, E] as the layout of the file has it, or that of outputs if it is "output".
[[nodiscard]] std::string from_our_order(const Probe& probe, const std::string& x);

// The framework's own attention, if it offers what the probe asks for.
[[nodiscard]] bool sdpa_offers(const Probe& probe);
void write_sdpa_body(Lines& out, const Probe& probe);
[[nodiscard]] bool jax_offers(const Probe& probe);
void write_jax_body(Lines& out, const Probe& probe);
[[nodiscard]] Result<void> write_onnxruntime_body(Lines& out, const Probe& probe);

[[nodiscard]] Result<std::string> cpp_snippet(const Probe& probe, const ProbePlace& place);

}  // namespace attest::check
