// SPDX-License-Identifier: MIT
#include "attest/io/bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "attest/io/origin.h"

namespace attest::io {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

/// A file descriptor that is closed when it goes; standard input and output stay open.
class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { static_cast<void>(close()); }

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] bool is_open() const noexcept { return number_ >= 0; }

  /// Closing can be the moment when a network file system reports that a write failed.
  [[nodiscard]] bool close() noexcept {
    const int number = std::exchange(number_, -1);
    return number <= STDERR_FILENO || ::close(number) == 0;
  }

 private:
  int number_;
};

std::optional<Failure> refuse_path(const std::string& path) {
  const Origin origin{"file", path};
  if (path.empty()) return origin.refuse("bad-path", "the path is empty");
  if (path.find('\0') != std::string::npos) {
    return origin.refuse("bad-path", "the path has a NUL byte in it");
  }
  return std::nullopt;
}

/// Reads on until the end; one byte more than `expected` is asked for, to see that it is the end.
Result<Bytes> read_all(int file, std::uint64_t expected, const ReadLimits& limits,
                       const Origin& origin) {
  constexpr std::size_t smallest = 64 * 1024;
  // One call may be given at most this much, whatever the file's size.
  constexpr std::size_t largest_call = std::size_t{1} << 30U;
  Bytes bytes(std::max<std::size_t>(smallest, expected + 1));
  std::size_t used = 0;
  bool looked = !limits.look;
  for (;;) {
    if (!looked && used >= smallest) {
      if (auto ok = limits.look(ByteSpan(bytes).first(used)); !ok) return ok.failure();
      looked = true;
    }
    if (used == bytes.size()) bytes.resize(bytes.size() * 2);
    const std::size_t room = std::min(bytes.size() - used, largest_call);
    const ssize_t got = ::read(file, bytes.data() + used, room);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return origin.refuse("cannot-read", "cannot be read: ", reason(errno));
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
    if (used > limits.max_stream_bytes) {
      return origin.refuse("over-limit", "gives more than the ", limits.max_stream_bytes,
                           " bytes that may be read from a pipe or device");
    }
  }
  bytes.resize(used);
  return bytes;
}

Result<void> write_all(int file, ByteSpan bytes, const Origin& origin) {
  constexpr std::size_t largest_call = std::size_t{1} << 30U;
  while (!bytes.empty()) {
    const ssize_t put = ::write(file, bytes.data(), std::min(bytes.size(), largest_call));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return origin.refuse("cannot-write", "cannot be written: ", reason(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

/// The path with symbolic links followed, so that renaming replaces the file and not the link. A
/// path that does not exist yet is returned as it is.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : path;
}

/// A name in the same folder that no other writer, in this process or another, uses.
std::string name_beside(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return sentence(path, ".", ::getpid(), "-", counter.fetch_add(1), ".part");
}

/// Makes the rename itself last. A file system that cannot flush a folder is no reason to fail.
void flush_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.is_open()) static_cast<void>(::fsync(opened.number()));
}

/// A mode is given when an old file had one, and is then set outright: the umask has had its say.
using KeptMode = std::optional<mode_t>;

Result<void> fill(const std::string& path, KeptMode mode, ByteSpan bytes, const Origin& origin) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.is_open() || (mode && ::fchmod(file.number(), *mode) != 0)) {
    return origin.refuse("cannot-write", "cannot be written: ", reason(errno));
  }
  if (auto written = write_all(file.number(), bytes, origin); !written) return written;
  if (::fsync(file.number()) != 0 || !file.close()) {
    return origin.refuse("cannot-write", "cannot be written: ", reason(errno));
  }
  return {};
}

Result<void> replace(const std::string& path, KeptMode mode, ByteSpan bytes, const Origin& origin) {
  const std::string part = name_beside(path);
  auto filled = fill(part, mode, bytes, origin);
  if (filled && std::rename(part.c_str(), path.c_str()) != 0) {
    filled = origin.refuse("cannot-write", "cannot be put in place: ", reason(errno));
  }
  if (!filled) {
    static_cast<void>(::unlink(part.c_str()));
    return filled;
  }
  flush_folder_of(path);
  return {};
}

}  // namespace

Result<Bytes> read_file(const std::string& path, const ReadLimits& limits) {
  if (auto bad = refuse_path(path)) return *std::move(bad);
  const bool standard_input = path == "-";
  const Origin origin{"file", standard_input ? std::string_view("standard input") : path};
  const Descriptor file(standard_input ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) {
    const std::string_view id = errno == ENOENT ? "no-such-file" : "cannot-read";
    return origin.refuse(id, "cannot be opened: ", reason(errno));
  }
  struct stat about {};
  if (::fstat(file.number(), &about) != 0) {
    return origin.refuse("cannot-read", "cannot be read: ", reason(errno));
  }
  if (S_ISDIR(about.st_mode)) {
    return origin.refuse("is-a-directory", "is a directory; name a file in it");
  }
  const bool regular = S_ISREG(about.st_mode);
  const auto size = regular ? static_cast<std::uint64_t>(about.st_size) : 0;
  return read_all(file.number(), size, regular ? ReadLimits{UINT64_MAX} : limits, origin);
}

Result<void> write_file(const std::string& path, ByteSpan bytes) {
  if (auto bad = refuse_path(path)) return *std::move(bad);
  if (path == "-") return write_all(STDOUT_FILENO, bytes, {"file", "standard output"});

  const Origin origin{"file", path};
  struct stat about {};
  const bool exists = ::stat(path.c_str(), &about) == 0;
  if (exists && S_ISDIR(about.st_mode)) {
    return origin.refuse("is-a-directory", "is a directory; name a file in it");
  }
  if (exists && !S_ISREG(about.st_mode)) {
    Descriptor device(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!device.is_open()) {
      return origin.refuse("cannot-write", "cannot be written: ", reason(errno));
    }
    return write_all(device.number(), bytes, origin);
  }
  if (!exists) return replace(path, std::nullopt, bytes, origin);
  // Renaming would also replace a file that may not be written to.
  if (::access(path.c_str(), W_OK) != 0) {
    return origin.refuse("cannot-write", "cannot be written: ", reason(errno));
  }
  return replace(resolved(path), about.st_mode & 07777U, bytes, origin);
}

}  // namespace attest::io
