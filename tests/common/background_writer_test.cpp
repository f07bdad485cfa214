#include "common/base/background_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>

#include "common/base/console.h"
#include "common/base/unique_fd.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

constexpr int64_t kLongMs = 60'000;

// A pipe that holds one page.
struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
    fcntl(write_end.get(), F_SETPIPE_SZ, 4096);
  }
  // Waits for the next bytes and returns them.
  std::string some() const {
    std::string text(65536, 0);
    const ssize_t n = read(read_end.get(), text.data(), text.size());
    return text.substr(0, n < 0 ? 0 : static_cast<size_t>(n));
  }
  std::string take(size_t bytes) const {
    std::string text(bytes, 0);
    for (size_t done = 0; done < bytes;) {
      const ssize_t n = read(read_end.get(), text.data() + done, bytes - done);
      if (n <= 0) return text.substr(0, done);
      done += static_cast<size_t>(n);
    }
    return text;
  }

  UniqueFd read_end;
  UniqueFd write_end;
};

TEST(BackgroundWriter, WritesInOrder) {
  const ScratchFolder folder;
  const UniqueFd file(open((folder / "file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  BackgroundWriter writer(file.get());
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    all += std::to_string(i) + "\n";
    EXPECT_TRUE(writer.write(std::to_string(i) + "\n"));
  }
  EXPECT_TRUE(writer.flush(kLongMs));
  EXPECT_EQ(read_bytes(folder / "file"), all);
}

TEST(BackgroundWriter, AnUnreadPipeDoesNotBlockAndLosesNoQueuedText) {
  const Pipe pipe;
  std::string all;
  {
    BackgroundWriter writer(pipe.write_end.get(), 10'000);
    for (char c = 'a'; c < 'k'; ++c) {
      all += std::string(1000, c);
      EXPECT_TRUE(writer.write(std::string(1000, c)));
    }
    // ten thousand bytes are queued, and the pipe holds four thousand
    while (writer.write(std::string(1000, 'z'))) all += std::string(1000, 'z');
    EXPECT_LE(all.size(), 15'000U);
    EXPECT_FALSE(writer.flush(1));
    EXPECT_EQ(writer.error(), 0);
  }
  EXPECT_EQ(pipe.take(all.size()), all) << "the thread continues without its owner";
}

TEST(BackgroundWriter, AFailureEndsTheWriterAndIsKept) {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  BackgroundWriter writer(full.get());
  EXPECT_TRUE(writer.write("x"));
  EXPECT_FALSE(writer.flush(kLongMs));
  EXPECT_EQ(writer.error(), ENOSPC);
  EXPECT_FALSE(writer.write("x"));
}

TEST(BackgroundWriter, NoFileIsAFailureToo) {
  BackgroundWriter writer(-1);
  EXPECT_FALSE(writer.write("x"));
  EXPECT_EQ(writer.error(), EBADF);
}

TEST(BackgroundWriter, ANonBlockingDescriptorIsAwaited) {
  const Pipe pipe;
  fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK);
  BackgroundWriter writer(pipe.write_end.get());
  const std::string all(100'000, 'x');
  EXPECT_TRUE(writer.write(all));
  EXPECT_EQ(pipe.take(all.size()), all);
  EXPECT_TRUE(writer.flush(kLongMs));
}

TEST(BackgroundWriter, OpensAFileBeforeTheFirstText) {
  const ScratchFolder folder;
  BackgroundWriter writer([path = folder / "file"] {
    return UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  });
  EXPECT_FALSE(std::filesystem::exists(folder / "file"));
  EXPECT_TRUE(writer.write("a"));
  EXPECT_TRUE(writer.write("b"));
  EXPECT_TRUE(writer.flush(kLongMs));
  EXPECT_EQ(read_bytes(folder / "file"), "ab");
}

TEST(BackgroundWriter, AFileThatCannotBeOpenedFailsEveryWrite) {
  BackgroundWriter writer([] {
    errno = EROFS;
    return UniqueFd();
  });
  EXPECT_TRUE(writer.write("a"));
  EXPECT_FALSE(writer.flush(kLongMs));
  EXPECT_EQ(writer.error(), EROFS);
  EXPECT_FALSE(writer.write("b"));
}

TEST(BackgroundWriter, AFileThatDoesNotOpenBlocksNobody) {
  const ScratchFolder folder;
  const std::string fifo = folder / "fifo";  // a FIFO without a reader stands for a disk that hangs
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  {
    BackgroundWriter writer([fifo] { return UniqueFd(open(fifo.c_str(), O_WRONLY | O_CLOEXEC)); });
    EXPECT_TRUE(writer.write("a"));
    EXPECT_FALSE(writer.flush(1));
    EXPECT_EQ(writer.error(), 0);
    while (writer.write(std::string(100'000, 'x'))) continue;  // until its memory is full
  }
  const UniqueFd reader(open(fifo.c_str(), O_RDONLY | O_CLOEXEC));  // ends the thread
}

TEST(BackgroundWriter, AFileHoldsTheNewestText) {
  const ScratchFolder folder;
  BackgroundWriter file(folder / "file");
  for (int i = 0; i <= 100; ++i) file.write(std::to_string(i));
  EXPECT_TRUE(file.flush(kLongMs));
  EXPECT_EQ(read_bytes(folder / "file"), "100");
  EXPECT_FALSE(std::filesystem::exists(folder / "file.tmp"));
}

TEST(BackgroundWriter, AFileGetsItsLastTextWithoutAFlush) {
  const ScratchFolder folder;
  { BackgroundWriter(folder / "file").write("last"); }
  for (int i = 0; i < 6000 && !std::filesystem::exists(folder / "file"); ++i) usleep(10'000);
  EXPECT_EQ(read_bytes(folder / "file"), "last");
}

TEST(BackgroundWriter, AReaderNeverSeesHalfAFile) {
  const ScratchFolder folder;
  BackgroundWriter file(folder / "file");
  const std::string one(1 << 16, 'a');
  const std::string other(1 << 15, 'b');
  file.write(one);
  ASSERT_TRUE(file.flush(kLongMs));
  for (int i = 0; i < 50; ++i) {
    file.write(i % 2 == 0 ? other : one);
    const std::string seen = read_bytes(folder / "file");
    EXPECT_TRUE(seen == one || seen == other) << seen.size();
  }
}

TEST(BackgroundWriter, AFailedWriteKeepsTheOldFileAndIsRetried) {
  const ScratchFolder folder;
  BackgroundWriter file(folder / "file");
  file.write("whole");
  ASSERT_TRUE(file.flush(kLongMs));
  std::filesystem::create_directory(folder / "file.tmp");
  file.write("newer");
  EXPECT_FALSE(file.flush(kLongMs));
  EXPECT_EQ(file.error(), EISDIR);
  EXPECT_EQ(read_bytes(folder / "file"), "whole");
  std::filesystem::remove(folder / "file.tmp");
  file.write("newest");
  EXPECT_TRUE(file.flush(kLongMs));
  EXPECT_EQ(file.error(), 0);
  EXPECT_EQ(read_bytes(folder / "file"), "newest");
}

// Opening a pipe without a reader blocks, as a stalled file system does.
TEST(BackgroundWriter, AStalledFileSystemBlocksNoCaller) {
  const ScratchFolder folder;
  const std::string temporary = folder / "file.tmp";
  ASSERT_EQ(mkfifo(temporary.c_str(), 0600), 0);
  auto file = std::make_unique<BackgroundWriter>(folder / "file");
  for (int i = 0; i < 1000; ++i) file->write("text");
  EXPECT_FALSE(file->flush(1));
  EXPECT_EQ(file->error(), 0);
  file.reset();
  const UniqueFd reader(open(temporary.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4> text{};
  ASSERT_EQ(read(reader.get(), text.data(), text.size()), 4)
      << "the thread continues without its owner";
  EXPECT_EQ(std::string(text.data(), text.size()), "text");
}

TEST(Console, ReportsLinesThatItLeftOut) {
  const Pipe out;
  const Pipe err;
  Console console(out.write_end.get(), err.write_end.get());
  const std::string line(999, 'x');
  const auto most = static_cast<int>(BackgroundWriter::kMaxWaitingBytes / 1000) + 100;
  for (int i = 0; i < most; ++i) console.out(line + "\n");
  console.err("the other stream goes on\n");
  EXPECT_EQ(err.take(25), "the other stream goes on\n");
  std::string text = out.take(500'000);
  console.out("after\n");
  while (text.find("after\n") == std::string::npos) text += out.some();
  EXPECT_NE(text.find("[output] "), std::string::npos);
  EXPECT_NE(text.find(" lines left out here"), std::string::npos);
}

TEST(Console, OneFileKeepsItsOrder) {
  const Pipe pipe;
  Console console(pipe.write_end.get(), pipe.write_end.get());
  console.out("1");
  console.err("2");
  console.out("3");
  EXPECT_EQ(pipe.take(3), "123");
}

}  // namespace
}  // namespace pushpull
