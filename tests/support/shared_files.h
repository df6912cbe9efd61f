// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>

namespace attest::test {

/// What a test says that is skipped for want of them.
inline constexpr auto not_shared = "not in the shared folder; ATTEST_SHARED_DIR says where that is";

/// A file or folder of those that lie beside the source tree and are no part of it: models, recordings,
/// published tests. ATTEST_SHARED_DIR names their folder where it is elsewhere. Nothing if this machine
/// lacks it.
inline std::optional<std::filesystem::path> shared_path(const std::filesystem::path& below) {
  std::filesystem::path folder = std::filesystem::path(ATTEST_SOURCE_DIR) / ".." / "shared";
  if (const char* named = std::getenv("ATTEST_SHARED_DIR")) folder = named;
  const std::filesystem::path path = (folder / below).lexically_normal();
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return std::nullopt;
  return path;
}

}  // namespace attest::test
