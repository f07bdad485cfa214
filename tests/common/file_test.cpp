#include "common/io/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "common/base/error.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull::write_file_test {
namespace {

using testing::HasSubstr;

TEST(WriteFile, NamesTheFileAndTheReason) {
  const ScratchFolder folder;
  EXPECT_THAT(thrown(ErrorCode::kIo, [&] { write_file(folder / "no/such", "x"); }),
              testing::AllOf(HasSubstr(folder / "no/such"), HasSubstr("No such file")));
  std::filesystem::create_directory(folder / "taken");
  EXPECT_THAT(thrown(ErrorCode::kIo, [&] { write_file(folder / "taken", "x"); }),
              testing::AllOf(HasSubstr(folder / "taken"), HasSubstr("directory")));
  EXPECT_FALSE(std::filesystem::exists(folder / "taken.tmp"));
}

TEST(WriteFile, AFullDiskLeavesTheOldFile) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const ScratchFolder folder;
  write_bytes(folder / "a", "old");
  std::filesystem::create_symlink("/dev/full", folder / "a.tmp");
  EXPECT_THAT(thrown(ErrorCode::kIo, [&] { write_file(folder / "a", "new"); }),
              HasSubstr("No space"));
  EXPECT_EQ(read_bytes(folder / "a"), "old");
}

}  // namespace
}  // namespace pushpull::write_file_test
