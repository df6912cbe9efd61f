// SPDX-License-Identifier: MIT
#include "frontends/cli/print.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "attest/base/text.h"

namespace attest::cli {
namespace {

std::int64_t now() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
}

}  // namespace

std::string NumberStyle::operator()(double value) const {
  if (value != value) return "nan";
  if (full) return shortest(value);
  if (hex) return fmt::format("{:a}", value);
  // Beyond 1e16 fixed notation would print digits that the number does not have.
  if (value >= 1e16 || value <= -1e16) return fmt::format("{:.{}e}", value, digits);
  return fmt::format("{:.{}f}", value, digits);
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

Progress::Progress(std::string what)
    : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) != 0), begin_(now()) {}

Progress::~Progress() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(std::int64_t done, std::int64_t total) {
  if (!terminal_ || total <= 0) return;
  const std::int64_t time = now();
  if (time - begin_ < 2000 || time - last_ < 100) return;
  last_ = time;
  shown_ = true;
  fmt::print(stderr, "\r\033[K{}: {} of {} ({} %)", what_, done, total, done * 100 / total);
  std::fflush(stderr);
}

}  // namespace attest::cli
