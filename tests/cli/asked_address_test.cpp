// Whose status a command asks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/status/ask_status.h"
#include "common/base/error.h"
#include "ps/report/term_file.h"
#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

CommandLine line_of(std::vector<std::string> words, std::map<std::string, std::string> flags = {}) {
  CommandLine line;
  line.positional = std::move(words);
  line.local = std::move(flags);
  return line;
}

TEST(AskedAddress, IsAFlagOrTheOnlyWordWithOrWithoutAScheme) {
  EXPECT_EQ(asked_address(line_of({}, {{"join", "tcp://a:1"}}), "status"), "tcp://a:1");
  EXPECT_EQ(asked_address(line_of({"a:1"}), "status"), "tcp://a:1");
  EXPECT_EQ(asked_address(line_of({"tcp://a:1"}), "status"), "tcp://a:1");
  for (const CommandLine& line :
       {line_of({}), line_of({"a:1", "b:1"}), line_of({"a:1"}, {{"join", "tcp://a:1"}})}) {
    EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { asked_address(line, "status"); }),
                HasSubstr("[status] whose?"));
  }
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { asked_address(line_of({"nowhere"}), "status"); }),
              HasSubstr("nowhere"));
}

TEST(AskedAddress, OfAnOutputFolderIsThatOfItsJob) {
  const ScratchFolder folder;
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { asked_address(line_of({folder.path()}), "top"); }),
              HasSubstr("[top] no job writes to " + folder.path()));
  TermRecord record;
  record.run_id = 7;
  record.address = "tcp://10.0.0.1:5555";
  write_term(folder.path(), record);
  EXPECT_EQ(asked_address(line_of({folder.path()}), "top"), "tcp://10.0.0.1:5555");
}

TEST(CheckpointPath, OfAnOutputFolderIsItsCheckpoints) {
  const ScratchFolder folder;
  EXPECT_EQ(checkpoint_path(line_of({folder.path()}), "eval"), folder.path());
  std::filesystem::create_directories(folder / "checkpoints");
  EXPECT_EQ(checkpoint_path(line_of({folder.path()}), "eval"), folder / "checkpoints");
  EXPECT_EQ(checkpoint_path(line_of({}, {{"checkpoint", folder / "checkpoints"}}), "eval"),
            folder / "checkpoints");
  EXPECT_THAT(thrown(ErrorCode::kUsage, [&] { checkpoint_path(line_of({}), "eval"); }),
              HasSubstr("[eval] a folder is needed"));
}

}  // namespace
}  // namespace pushpull
