// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "attest/base/tensor.h"

namespace attest::cli {

/// How numbers are written: six decimals unless said otherwise. The numbers themselves are never
/// rounded before they are printed.
struct NumberStyle {
  std::optional<std::int64_t> digits{};  ///< decimals; six if not given
  bool full = false;                     ///< shortest text that reads back to the same bits
  bool hex = false;                      ///< hexadecimal: the bits themselves

  [[nodiscard]] std::string operator()(double value) const;
};

/// "[2, 3]" and then the numbers, row by row, in aligned columns; outer axes become headings.
/// `limit` rows at most; a line then says how many were left out.
[[nodiscard]] std::string table(const std::string& title, const Tensor<double>& values,
                                const NumberStyle& style, std::int64_t limit = 64);

/// A text from outside (a file, an argument) fit for one line of a terminal: control characters are
/// written as \xNN or ?, and more than `limit` bytes are cut.
[[nodiscard]] std::string one_line(std::string_view text, std::size_t limit = 400);

/// Pads on the left to a width counted in characters (all texts here are ASCII).
[[nodiscard]] std::string right(const std::string& text, std::size_t width);
[[nodiscard]] std::string left(const std::string& text, std::size_t width);

/// A line on standard error that tells how far a long calculation is: nothing for the first two
/// seconds, and nothing at all unless standard error is a terminal. Where nobody reports a count, it
/// tells the seconds.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(std::int64_t done, std::int64_t total) {
    done_ = done;
    total_ = total;
  }

 private:
  void tick(const std::stop_token& stop);

  std::string what_;
  std::atomic<std::int64_t> done_ = 0;
  std::atomic<std::int64_t> total_ = 0;
  bool shown_ = false;
  std::jthread ticker_;  // last: joined before anything above goes away
};

}  // namespace attest::cli
