#include "common/base/background_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>

#include "common/base/console.h"
#include "common/base/unique_fd.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

constexpr int64_t kLongMs = 60'000;

// A pipe of one page.
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

TEST(BackgroundWriter, APipeThatNobodyReadsStopsNobodyAndLosesNothingThatHasRoom) {
  const Pipe pipe;
  std::string all;
  {
    BackgroundWriter writer(pipe.write_end.get(), 10'000);
    for (char c = 'a'; c < 'k'; ++c) {
      all += std::string(1000, c);
      EXPECT_TRUE(writer.write(std::string(1000, c)));
    }
    // ten thousand bytes wait or are in the pipe, which takes four
    while (writer.write(std::string(1000, 'z'))) all += std::string(1000, 'z');
    EXPECT_LE(all.size(), 15'000U);
    EXPECT_FALSE(writer.flush(1));
    EXPECT_EQ(writer.error(), 0);
  }
  EXPECT_EQ(pipe.take(all.size()), all) << "the thread goes on without its owner";
}

TEST(BackgroundWriter, AFailureIsKeptAndEndsIt) {
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

TEST(BackgroundWriter, ADescriptorThatDoesNotBlockIsWaitedFor) {
  const Pipe pipe;
  fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK);
  BackgroundWriter writer(pipe.write_end.get());
  const std::string all(100'000, 'x');
  EXPECT_TRUE(writer.write(all));
  EXPECT_EQ(pipe.take(all.size()), all);
  EXPECT_TRUE(writer.flush(kLongMs));
}

TEST(Console, SaysWhatItHasLeftOut) {
  const Pipe out;
  const Pipe err;
  Console console(out.write_end.get(), err.write_end.get());
  const std::string line(999, 'x');
  const auto most = static_cast<int>(BackgroundWriter::kMostWaitingBytes / 1000) + 100;
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
