#include "common/shm/segment.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull::segment_test {
namespace {

constexpr int64_t kMax = int64_t{1} << 24;

// Returns why the mapping is refused, or "".
std::string refusal(const wire::Segment& segment, int64_t most = kMax) {
  return thrown(ErrorCode::kProtocol, [&] { const Mapping mapping(segment, most); });
}

// Shared memory as a stranger could make it: with the right name, and `token` at its end.
struct Forged {
  explicit Forged(int64_t bytes, int seals, const std::string& token = std::string(16, 't'))
      : fd(memfd_create("pushpull", MFD_ALLOW_SEALING)) {
    EXPECT_EQ(ftruncate(fd.get(), bytes), 0);
    EXPECT_EQ(pwrite(fd.get(), token.data(), token.size(), bytes - 16), 16);
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
    segment.set_pid(getpid());
    segment.set_fd(fd.get());
    segment.set_bytes(bytes);
    segment.set_token(token);
  }
  UniqueFd fd;
  wire::Segment segment;
};

constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

TEST(Segment, AMappingReadsTheBytesWritten) {
  const Segment segment(100'000);
  const Mapping mapping(segment.description(), kMax);
  ASSERT_GE(segment.bytes(), 100'000U);
  ASSERT_EQ(mapping.bytes().size(), segment.bytes());
  EXPECT_TRUE(std::all_of(segment.data(), segment.data() + 100'000,
                          [](std::byte b) { return b == std::byte{0}; }));
  std::memset(segment.data(), 7, segment.bytes());
  EXPECT_TRUE(std::all_of(mapping.bytes().begin(), mapping.bytes().end(),
                          [](std::byte b) { return b == std::byte{7}; }));
  EXPECT_EQ(refusal(segment.description()), "");  // the token is beyond the writable bytes
}

// Returns the pages of shared memory that are mapped into this process.
int64_t shared_pages() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  int64_t shared = 0;
  statm >> size >> resident >> shared;
  return shared;
}

// A worker that needs a part of the weights has that part alone in its memory.
TEST(Segment, AMappingTakesMemoryWhereItIsRead) {
  constexpr size_t kBytes = size_t{64} << 20;
  const Segment segment(kBytes);
  const int64_t before = shared_pages();
  const Mapping mapping(segment.description(), int64_t{1} << 30);
  EXPECT_LT(shared_pages() - before, 1024);
  const auto half = mapping.bytes().first(kBytes / 2);
  EXPECT_TRUE(std::ranges::all_of(half, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_GE(shared_pages() - before, 8000);
  EXPECT_LT(shared_pages() - before, 9216);
}

TEST(Segment, IsPrivateAndHasNoName) {
  const Segment segment(4096);
  struct stat file {};
  ASSERT_EQ(fstat(segment.description().fd(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777U, 0600U);
  EXPECT_EQ(file.st_nlink, 0U);
  EXPECT_NE(fcntl(segment.description().fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Segment, CanNeitherBeResizedNorMappedForWritingByOthers) {
  const Segment segment(4096);
  const std::string path = "/proc/self/fd/" + std::to_string(segment.description().fd());
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_GE(fd.get(), 0);
  EXPECT_NE(ftruncate(fd.get(), 0), 0);
  EXPECT_NE(ftruncate(fd.get(), 1 << 20), 0);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED);
  const char byte = 1;
  EXPECT_LT(pwrite(fd.get(), &byte, 1, 0), 0);
}

TEST(Segment, TokensDiffer) {
  const Segment a(10);
  const Segment b(10);
  EXPECT_EQ(a.description().token().size(), 16U);
  EXPECT_NE(a.description().token(), b.description().token());
}

TEST(Segment, ATooLargeSegmentIsAnErrorWithTheSize) {
  const std::string text =
      thrown(ErrorCode::kFailed, [&] { const Segment segment(size_t{1} << 62); });
  EXPECT_THAT(text, testing::HasSubstr("bytes of shared memory cannot be allocated"));
  EXPECT_THAT(text, testing::HasSubstr("transport = tcp"));
}

TEST(Segment, ALimitOnFilesIsAnErrorAndNoSignal) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    try {
      const Segment segment(size_t{2} << 20);
      _exit(3);
    } catch (const Error&) {
      _exit(0);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Segment, AMappingOutlivesTheProcessThatMadeTheSegment) {
  int to_parent[2];
  int to_child[2];
  ASSERT_EQ(pipe(to_parent), 0);
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Segment segment(1 << 20);
    std::memset(segment.data(), 42, 1 << 20);
    const std::string text = segment.description().SerializeAsString();
    if (write(to_parent[1], text.data(), text.size()) < 0) _exit(1);
    char wait = 0;
    _exit(read(to_child[0], &wait, 1) < 0 ? 1 : 0);
  }
  std::string text(200, '\0');
  const ssize_t got = read(to_parent[0], text.data(), text.size());
  ASSERT_GT(got, 0);
  wire::Segment description;
  ASSERT_TRUE(description.ParseFromArray(text.data(), static_cast<int>(got)));
  const Mapping mapping(description, kMax);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(std::all_of(mapping.bytes().begin(), mapping.bytes().begin() + (1 << 20),
                          [](std::byte b) { return b == std::byte{42}; }));
  EXPECT_THAT(refusal(description), testing::HasSubstr("cannot be inspected"));
  for (const int fd : {to_parent[0], to_parent[1], to_child[0], to_child[1]}) close(fd);
}

TEST(Mapping, AcceptsAForgedSegmentWithRightDetails) {
  EXPECT_EQ(refusal(Forged(8192, kSealed).segment), "");
}

TEST(Mapping, RefusesAnUnsealedFile) {
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW}) {
    EXPECT_THAT(refusal(Forged(8192, seals).segment), testing::HasSubstr("not sealed"));
  }
}

TEST(Mapping, RefusesAnUnexpectedSize) {
  Forged forged(8192, kSealed);
  for (const int64_t bytes : {8191, 8193, 16384, 17}) {
    forged.segment.set_bytes(bytes);
    EXPECT_THAT(refusal(forged.segment), testing::HasSubstr("has 8192 bytes")) << bytes;
  }
  for (const int64_t bytes : {int64_t{0}, int64_t{16}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
    forged.segment.set_bytes(bytes);
    EXPECT_THAT(refusal(forged.segment), testing::HasSubstr("are expected")) << bytes;
  }
}

TEST(Mapping, RefusesMoreBytesThanExpected) {
  EXPECT_EQ(refusal(Forged(8192, kSealed).segment, 8192), "");
  EXPECT_THAT(refusal(Forged(8192, kSealed).segment, 8191), testing::HasSubstr("at most 8191"));
}

TEST(Mapping, RefusesAnotherToken) {
  Forged forged(8192, kSealed);
  forged.segment.set_token(std::string(16, 'u'));
  EXPECT_THAT(refusal(forged.segment), testing::HasSubstr("not the memory"));
  for (const size_t size : {0, 15, 17}) {
    forged.segment.set_token(std::string(size, 't'));
    EXPECT_THAT(refusal(forged.segment), testing::HasSubstr("without its token"));
  }
}

TEST(Mapping, RefusesOtherFiles) {
  const UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const UniqueFd device(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  const UniqueFd foreign(memfd_create("someone", MFD_ALLOW_SEALING));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  wire::Segment segment = Forged(8192, kSealed).segment;
  for (const int fd : {file.get(), device.get(), foreign.get(), ends[0]}) {
    segment.set_fd(fd);
    EXPECT_THAT(refusal(segment), testing::HasSubstr("not shared memory"));
  }
  close(ends[0]);
  close(ends[1]);
}

TEST(Mapping, RefusesAClosedFileAndAnAbsentProcess) {
  const wire::Segment closed = Forged(8192, kSealed).segment;
  EXPECT_THAT(refusal(closed), testing::HasSubstr("cannot be inspected"));
  Forged forged(8192, kSealed);
  forged.segment.set_pid(INT32_MAX);
  EXPECT_THAT(refusal(forged.segment), testing::HasSubstr("cannot be inspected"));
  for (const int64_t pid : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    forged.segment.set_pid(pid);
    EXPECT_THAT(refusal(forged.segment), testing::HasSubstr("names no file"));
  }
  forged.segment.set_pid(getpid());
  forged.segment.set_fd(-1);
  EXPECT_THAT(refusal(forged.segment), testing::HasSubstr("names no file"));
}

TEST(HostIdentity, NamesTheDifference) {
  const std::string ours = host_identity();
  ASSERT_FALSE(ours.empty());
  EXPECT_EQ(host_difference(ours, host_identity()), "");
  EXPECT_EQ(host_difference("a 1 0", "b 1 0"), "it is on another host");
  EXPECT_THAT(host_difference("a 1 0", "a 2 0"), testing::HasSubstr("another container"));
  EXPECT_EQ(host_difference("a 1 0", "a 1 5"), "it runs as another user");
  EXPECT_THAT(host_difference("a 1 0 7", "a 1 0 8"), testing::HasSubstr("another network"));
  EXPECT_THAT(host_difference("", ours), testing::HasSubstr("does not say"));
  EXPECT_THAT(host_difference("garbage", ours), testing::HasSubstr("another host"));
}

}  // namespace
}  // namespace pushpull::segment_test
