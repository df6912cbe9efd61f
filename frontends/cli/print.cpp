// SPDX-License-Identifier: MIT
#include "frontends/cli/print.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "attest/base/text.h"

namespace attest::cli {
std::string NumberStyle::operator()(double value) const {
  if (value != value) return "nan";
  if (full) return shortest(value);
  if (hex) return fmt::format("{:a}", value);
  // Beyond 1e16 fixed notation would print digits that the number does not have.
  if (value >= 1e16 || value <= -1e16) return fmt::format("{:.{}e}", value, digits.value_or(6));
  return fmt::format("{:.{}f}", value, digits.value_or(6));
}

std::string one_line(std::string_view text, std::size_t limit) {
  std::string out;
  for (std::size_t n = 0; n < text.size(); ++n) {
    const auto byte = static_cast<unsigned char>(text[n]);
    // C0 and DEL; C1 as UTF-8 writes it; the line and paragraph separators U+2028 and U+2029, and
    // U+202A to U+202E and U+2066 to U+2069, which turn the direction of what follows.
    const bool c1 =
        byte == 0xC2 && n + 1 < text.size() && static_cast<unsigned char>(text[n + 1]) < 0xA0;
    const std::string_view three = text.substr(n, 3);
    const bool separator = (three >= "\xE2\x80\xA8" && three <= "\xE2\x80\xAE") ||
                           (three >= "\xE2\x81\xA6" && three <= "\xE2\x81\xA9");
    if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (c1 || separator) {
      out += '?';
      n += c1 ? 1 : 2;
    } else {
      out += text[n];
    }
    if (out.size() < limit) continue;
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0U) == 0x80U)
      out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xC0U) out.pop_back();
    return out + " ...";
  }
  return out;
}

std::string right(const std::string& text, std::size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

std::string left(const std::string& text, std::size_t width) {
  return text.size() >= width ? text : text + std::string(width - text.size(), ' ');
}

std::string table(const std::string& title, const Tensor<double>& values, const NumberStyle& style,
                  std::int64_t limit) {
  const Shape& shape = values.shape();
  std::string out = fmt::format("{} {}\n", title, to_string(shape));
  const std::int64_t columns = shape.empty() ? 1 : shape.back();
  const std::int64_t rows = columns == 0 ? 0 : static_cast<std::int64_t>(values.size()) / columns;
  const std::int64_t shown = std::min(rows, limit);
  std::vector<std::string> cells;
  std::size_t width = 0;
  for (std::int64_t n = 0; n < shown * columns; ++n) {
    cells.push_back(style(values.elements()[static_cast<std::size_t>(n)]));
    width = std::max(width, cells.back().size());
  }
  const std::int64_t plane =
      shape.size() < 2 ? 1 : std::max<std::int64_t>(shape[shape.size() - 2], 1);
  for (std::int64_t row = 0; row < shown; ++row) {
    if (shape.size() > 2 && row % plane == 0) {
      std::string place;
      std::int64_t rest = row / plane;
      for (std::size_t axis = shape.size() - 2; axis-- > 0; rest /= shape[axis]) {
        place = sentence(rest % shape[axis], place.empty() ? "" : ",", place);
      }
      out += fmt::format(" [{}]\n", place);
    }
    for (std::int64_t column = 0; column < columns; ++column) {
      out += "  " + right(cells[static_cast<std::size_t>(row * columns + column)], width);
    }
    out += '\n';
  }
  if (shown < rows)
    out += fmt::format("  … {} more rows; --out FILE writes them all\n", rows - shown);
  return out;
}

Progress::Progress(std::string what) : what_(std::move(what)) {
  if (isatty(STDERR_FILENO) == 0) return;
  ticker_ = std::jthread([this](const std::stop_token& stop) { tick(stop); });
}

Progress::~Progress() {
  if (!ticker_.joinable()) return;
  ticker_.request_stop();
  ticker_.join();
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::tick(const std::stop_token& stop) {
  using namespace std::chrono_literals;
  const auto begin = std::chrono::steady_clock::now();
  std::mutex guard;
  std::condition_variable_any wake;
  std::unique_lock lock(guard);
  auto pause = 2000ms;
  while (!wake.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
    pause = 250ms;
    shown_ = true;
    const std::int64_t total = total_;
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin);
    if (total > 0) {
      fmt::print(stderr, "\r\033[K{}: {} of {} ({} %)", what_, done_.load(), total,
                 done_ * 100 / total);
    } else {
      fmt::print(stderr, "\r\033[K{}: {} s", what_, seconds.count());
    }
    std::fflush(stderr);
  }
}

}  // namespace attest::cli
