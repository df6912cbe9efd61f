// SPDX-License-Identifier: MIT
#include "attest/io/bytes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "attest/io/origin.h"
#include "tests/support/file_assertions.h"
#include "tests/support/file_builders.h"
#include "tests/support/scratch_folder.h"

namespace attest::io {
namespace {

using test::accepted;
using test::bytes_of;
using test::refused;
using test::ScratchFolder;

mode_t mode_of(const std::string& path) {
  struct stat about {};
  return ::stat(path.c_str(), &about) == 0 ? about.st_mode & 0777U : 0;
}

TEST(Bytes, ReadBackWhatWasWritten) {
  const ScratchFolder folder;
  for (const std::size_t size : {0U, 1U, 65535U, 65536U, 65537U, 1000003U}) {
    Bytes bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7);
    ASSERT_TRUE(accepted(write_file(folder.file("x"), bytes)));
    const auto back = read_file(folder.file("x"));
    ASSERT_TRUE(accepted(back));
    EXPECT_TRUE(*back == bytes) << size;
  }
  EXPECT_EQ(folder.count(), 1U);
}

TEST(Bytes, ReadFromAPipe) {
  const ScratchFolder folder;
  const std::string pipe = folder.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Bytes bytes(300000, std::byte{5});
  std::thread writer([&] { EXPECT_TRUE(accepted(write_file(pipe, bytes))); });
  const auto back = read_file(pipe);
  writer.join();
  ASSERT_TRUE(accepted(back));
  EXPECT_TRUE(*back == bytes);
}

TEST(Bytes, StopReadingAnEndlessDeviceAtTheLimit) {
  EXPECT_TRUE(refused(read_file("/dev/zero", {.max_stream_bytes = 1000000}), "over-limit",
                      "1000000 bytes"));
  EXPECT_TRUE(accepted(read_file("/dev/null")));
}

TEST(Bytes, RefuseDirectoriesAndWhatIsNotThere) {
  const ScratchFolder folder;
  EXPECT_TRUE(refused(read_file(folder.file(".")), "is-a-directory"));
  EXPECT_TRUE(refused(write_file(folder.file("."), {}), "is-a-directory"));
  EXPECT_TRUE(refused(read_file(folder.file("none")), "no-such-file", "none: cannot be opened"));
  EXPECT_TRUE(refused(write_file(folder.file("none/x"), {}), "cannot-write"));
  EXPECT_TRUE(refused(read_file(""), "bad-path"));
  // The system would stop at the NUL and open another file.
  EXPECT_TRUE(refused(read_file(folder.file(".") + std::string("\0x", 2)), "bad-path"));
  EXPECT_TRUE(refused(write_file(std::string("\0", 1), {}), "bad-path"));
}

/// Lets no file grow past a size while it lives: a full disk, as far as a writer can tell.
class FullDisk {
 public:
  explicit FullDisk(rlim_t size) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{size, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST(Bytes, KeepTheOldFileWholeWhenWritingFails) {
  const ScratchFolder folder;
  const Bytes old = bytes_of("the old bytes");
  ASSERT_TRUE(accepted(write_file(folder.file("x"), old)));
  {
    const FullDisk full(1000);
    EXPECT_TRUE(refused(write_file(folder.file("x"), Bytes(100000)), "cannot-write"));
    EXPECT_TRUE(refused(write_file(folder.file("y"), Bytes(100000)), "cannot-write"));
  }
  EXPECT_EQ(folder.count(), 1U) << "the temporary file was left behind";
  EXPECT_TRUE(*read_file(folder.file("x")) == old);
}

TEST(Bytes, KeepTheModeOfTheOldFile) {
  const ScratchFolder folder;
  ASSERT_TRUE(accepted(write_file(folder.file("x"), {})));
  ASSERT_EQ(::chmod(folder.file("x").c_str(), 0662), 0);
  ASSERT_TRUE(accepted(write_file(folder.file("x"), bytes_of("new"))));
  EXPECT_EQ(mode_of(folder.file("x")), 0662U);
}

TEST(Bytes, ReplaceTheFileBehindALinkAndNotTheLink) {
  const ScratchFolder folder;
  ASSERT_TRUE(accepted(write_file(folder.file("x"), bytes_of("old"))));
  ASSERT_EQ(::symlink("x", folder.file("link").c_str()), 0);
  ASSERT_TRUE(accepted(write_file(folder.file("link"), bytes_of("new"))));
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_TRUE(*read_file(folder.file("x")) == bytes_of("new"));
}

TEST(Bytes, LoadAndAppendAreInverse) {
  Bytes bytes;
  append_little(bytes, std::uint8_t{0xAB});
  append_little(bytes, std::uint16_t{0x1234});
  append_little(bytes, std::uint32_t{0xDEADBEEF});
  append_little(bytes, std::uint64_t{0x0123456789ABCDEF});
  EXPECT_EQ(bytes[1], std::byte{0x34});
  EXPECT_EQ(load_little<std::uint8_t>(bytes, 0), 0xAB);
  EXPECT_EQ(load_little<std::uint16_t>(bytes, 1), 0x1234);
  EXPECT_EQ(load_little<std::uint32_t>(bytes, 3), 0xDEADBEEF);
  EXPECT_EQ(load_little<std::uint64_t>(bytes, 7), 0x0123456789ABCDEF);
}

TEST(Origin, MessagesStayOneLineOfUtf8) {
  const Failure failure = Origin{"npy", "a\nb\xff.npy"}.refuse("x", "is ", in_quotes("\x1b[0m"));
  EXPECT_EQ(failure.message, R"([npy] a\x0ab\xff.npy: is '\x1b[0m')");
  EXPECT_LT(printable(std::string(10000, 'a')).size(), 200U);
  EXPECT_EQ(printable("é\xf0\x9f\x8e\x89"), "é\xf0\x9f\x8e\x89");
}

}  // namespace
}  // namespace attest::io
