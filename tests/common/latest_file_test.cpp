#include "common/io/latest_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>

#include "common/base/unique_fd.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

constexpr int64_t kLongMs = 60'000;

TEST(LatestFile, HoldsTheNewestText) {
  const ScratchFolder folder;
  LatestFile file(folder / "file");
  for (int i = 0; i <= 100; ++i) file.put(std::to_string(i));
  EXPECT_TRUE(file.flush(kLongMs));
  EXPECT_EQ(read_bytes(folder / "file"), "100");
  EXPECT_FALSE(std::filesystem::exists(folder / "file.tmp"));
}

TEST(LatestFile, ItsLastTextIsWrittenThoughNobodyWaitsForIt) {
  const ScratchFolder folder;
  { LatestFile(folder / "file").put("last"); }
  for (int i = 0; i < 6000 && !std::filesystem::exists(folder / "file"); ++i) usleep(10'000);
  EXPECT_EQ(read_bytes(folder / "file"), "last");
}

TEST(LatestFile, AReaderNeverSeesHalfOfIt) {
  const ScratchFolder folder;
  LatestFile file(folder / "file");
  const std::string one(1 << 16, 'a');
  const std::string other(1 << 15, 'b');
  file.put(one);
  ASSERT_TRUE(file.flush(kLongMs));
  for (int i = 0; i < 50; ++i) {
    file.put(i % 2 == 0 ? other : one);
    const std::string seen = read_bytes(folder / "file");
    EXPECT_TRUE(seen == one || seen == other) << seen.size();
  }
}

TEST(LatestFile, AFileThatCannotBeWrittenStaysAsItWasAndIsTriedAgain) {
  const ScratchFolder folder;
  LatestFile file(folder / "file");
  file.put("whole");
  ASSERT_TRUE(file.flush(kLongMs));
  std::filesystem::create_directory(folder / "file.tmp");
  file.put("newer");
  EXPECT_FALSE(file.flush(kLongMs));
  EXPECT_EQ(file.error(), EISDIR);
  EXPECT_EQ(read_bytes(folder / "file"), "whole");
  std::filesystem::remove(folder / "file.tmp");
  file.put("newest");
  EXPECT_TRUE(file.flush(kLongMs));
  EXPECT_EQ(file.error(), 0);
  EXPECT_EQ(read_bytes(folder / "file"), "newest");
}

// A pipe without a reader holds whoever opens it, as a stalled file system does.
TEST(LatestFile, AStalledFileSystemStopsNobody) {
  const ScratchFolder folder;
  const std::string temporary = folder / "file.tmp";
  ASSERT_EQ(mkfifo(temporary.c_str(), 0600), 0);
  auto file = std::make_unique<LatestFile>(folder / "file");
  for (int i = 0; i < 1000; ++i) file->put("text");
  EXPECT_FALSE(file->flush(1));
  EXPECT_EQ(file->error(), 0);
  file.reset();
  const UniqueFd reader(open(temporary.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4> text{};
  ASSERT_EQ(read(reader.get(), text.data(), text.size()), 4) << "its thread goes on alone";
  EXPECT_EQ(std::string(text.data(), text.size()), "text");
}

}  // namespace
}  // namespace pushpull
