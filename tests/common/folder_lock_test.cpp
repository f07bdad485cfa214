#include "common/io/folder_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "common/base/error.h"
#include "common/base/process.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull::folder_lock_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal_of(const std::string& folder) {
  return thrown(ErrorCode::kUsage, [&] { const FolderLock lock(folder, "out", "--out"); });
}

TEST(FolderLock, ASecondLockIsRefusedAndNamesTheHolder) {
  const ScratchFolder folder;
  const FolderLock lock(folder / "out", "out", "--out");
  EXPECT_EQ(lock.notice(), "");
  EXPECT_THAT(refusal_of(folder / "out"),
              AllOf(HasSubstr("[out] " + (folder / "out") + " is in use by process " +
                              std::to_string(getpid())),
                    HasSubstr(host_name()), HasSubstr("another folder with --out")));
  EXPECT_EQ(refusal_of(folder / "other"), "");
}

TEST(FolderLock, FileIsLockedBesideIt) {
  const ScratchFolder folder;
  {
    const FolderLock lock = FolderLock::beside(folder / "run.rec", "record", "--record");
    EXPECT_EQ(refusal_of(folder.path()), "") << "its folder is not locked";
    EXPECT_EQ(FolderLock::beside(folder / "other.rec", "record", "--record").notice(), "");
    EXPECT_THAT(thrown(ErrorCode::kUsage,
                       [&] { FolderLock::beside(folder / "run.rec", "record", "--record"); }),
                AllOf(HasSubstr("[record] " + (folder / "run.rec") + " is in use by"),
                      HasSubstr("another file with --record")));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THROW(FolderLock::beside(folder / "none/run.rec", "record", "--record"), Error);
}

TEST(FolderLock, ReleaseLeavesNoFile) {
  const ScratchFolder folder;
  { const FolderLock lock(folder.path(), "out", "--out"); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(refusal_of(folder.path()), "");
}

TEST(FolderLock, AFolderThatItMadeGoesWithItIfNothingIsInIt) {
  const ScratchFolder folder;
  { const FolderLock lock(folder / "out", "out", "--out"); }
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  {
    const FolderLock lock(folder / "out", "out", "--out");
    std::filesystem::create_directory(folder / "out/checkpoints");
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "out/checkpoints"));
}

TEST(FolderLock, ADeadProcessHoldsNoLockEvenIfItsFileRemains) {
  const ScratchFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    const FolderLock lock(folder.path(), "out", "--out");
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(std::filesystem::exists(folder / ".lock"));
  const FolderLock lock(folder.path(), "out", "--out");
  EXPECT_THAT(refusal_of(folder.path()), HasSubstr("process " + std::to_string(getpid()) + " "));
}

TEST(FolderLock, AForeignLineIsPrintedWithoutControlCharacters) {
  const ScratchFolder folder;
  const FolderLock lock(folder.path(), "out", "--out");
  write_bytes(folder / ".lock", std::string("\033[31mred\nmore ") + std::string(5000, 'x'));
  const std::string refusal = refusal_of(folder.path());
  EXPECT_EQ(refusal.find('\033'), std::string::npos);
  EXPECT_EQ(refusal.find("more"), std::string::npos);
  EXPECT_LT(refusal.size(), 500U);
}

TEST(FolderLock, AFolderThatCannotBeCreatedIsAFileError) {
  const ScratchFolder folder;
  write_bytes(folder / "file", "");
  EXPECT_THAT(
      thrown(ErrorCode::kIo, [&] { const FolderLock lock(folder / "file/out", "out", "--out"); }),
      HasSubstr(folder / "file/out"));
}

}  // namespace
}  // namespace pushpull::folder_lock_test
