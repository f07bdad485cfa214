// Tests how a fresh run treats the checkpoints of an earlier run in its folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "common/io/checkpoint.h"
#include "tests/common/scratch_folder.h"

namespace pushpull::earlier_checkpoints_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

void write(CheckpointStore& store, int64_t step) {
  TensorTable table;
  table.add({.name = "weight", .shape = {3}});
  CheckpointState state;
  state.step = step;
  store.write(state, table, std::vector<float>(3, 1.0F), {}, {});
}

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(EarlierCheckpoints, CheckpointsOfAnEarlierRunStayAsideUntilTheFirstNewOne) {
  const ScratchFolder folder;
  const std::string dir = folder / "checkpoints";
  {
    CheckpointStore earlier(dir, 3);
    write(earlier, 7);
  }
  fs::create_directories(dir + ".1");
  CheckpointStore store(dir, 3);
  EXPECT_EQ(store.set_earlier_aside(), dir + ".1");
  EXPECT_THAT(store.steps(), IsEmpty());
  EXPECT_EQ(read_checkpoint(dir + ".1").state.step, 7);
  EXPECT_TRUE(fs::exists(dir + ".2"));
  write(store, 1);
  EXPECT_THAT(names_in(folder.path()), UnorderedElementsAre("checkpoints"));
  EXPECT_THAT(store.steps(), ElementsAre(1));
}

TEST(EarlierCheckpoints, OfTheLastRunsStay) {
  const ScratchFolder folder;
  const std::string dir = folder / "checkpoints";
  for (int64_t run = 1; run <= 4; ++run) {
    CheckpointStore store(dir, 3, 2);
    store.set_earlier_aside();
    write(store, run);
  }
  EXPECT_THAT(names_in(folder.path()),
              UnorderedElementsAre("checkpoints", "checkpoints.1", "checkpoints.2"));
  EXPECT_EQ(read_checkpoint(dir + ".1").state.step, 3);
  EXPECT_EQ(read_checkpoint(dir + ".2").state.step, 2);
  write_bytes(dir + ".3", "a file");
  CheckpointStore store(dir, 3, 2);
  EXPECT_EQ(store.set_earlier_aside(), dir + ".4") << "the file stays where it is";
}

TEST(EarlierCheckpoints, CheckpointsAsideFromAnEarlierStartAreRemovedToo) {
  const ScratchFolder folder;
  const std::string dir = folder / "checkpoints";
  {
    CheckpointStore earlier(dir, 3);
    write(earlier, 7);
    EXPECT_EQ(earlier.set_earlier_aside(), dir + ".1");
  }
  CheckpointStore store(dir, 3);
  EXPECT_EQ(store.set_earlier_aside(), "");
  EXPECT_TRUE(fs::exists(dir + ".1/step-00000007"));
  write(store, 1);
  EXPECT_FALSE(fs::exists(dir + ".1"));
}

TEST(EarlierCheckpoints, OtherFilesInAFolderAsideStay) {
  const ScratchFolder folder;
  const std::string dir = folder / "checkpoints";
  for (const std::string name : {".1", ".best", ".1x"}) fs::create_directories(dir + name);
  write_bytes(dir + ".1/notes.txt", "mine");
  write_bytes(dir + ".2", "a file");
  CheckpointStore store(dir, 3);
  EXPECT_EQ(store.set_earlier_aside(), "");
  write(store, 1);
  EXPECT_THAT(names_in(folder.path()),
              UnorderedElementsAre("checkpoints", "checkpoints.1", "checkpoints.2",
                                   "checkpoints.best", "checkpoints.1x"));
  EXPECT_TRUE(fs::exists(dir + ".1/notes.txt"));
}

}  // namespace
}  // namespace pushpull::earlier_checkpoints_test
