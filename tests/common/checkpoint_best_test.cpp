// The checkpoint of the best evaluation, and the record of evaluations in each checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/io/checkpoint.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

struct Model {
  Model() { table.add({.name = "w", .shape = {3}}); }
  TensorTable table;
  std::vector<float> weights = {1.0F, 2.0F, 3.0F};
};

CheckpointState state_of(int64_t step) {
  CheckpointState state;
  state.step = step;
  state.updates = step;
  state.total_steps = 100;
  state.job_ini = "model = mlp\n";
  state.evaluation = {"label/loss", step, step - 1, 0.1, 1};
  return state;
}

TEST(BestCheckpoint, IsAStoreOfItsOwnWithOneCheckpoint) {
  const ScratchFolder folder;
  const std::string dir = folder.path() + "/checkpoints";
  const Model model;
  CheckpointStore store(dir, 1);
  store.write(state_of(4), model.table, model.weights, {}, {});
  store.write_best(state_of(4), model.table, model.weights, {}, {});
  store.write_best(state_of(8), model.table, model.weights, {}, {});
  store.write(state_of(12), model.table, model.weights, {}, {});
  EXPECT_THAT(store.steps(), ElementsAre(12)) << "the newest are apart from the best";
  EXPECT_EQ(read_checkpoint(dir).state.step, 12);
  EXPECT_EQ(read_checkpoint(dir + "/best").state.step, 8);
  // a run that went back to step 4 has a best one of an earlier step
  store.write_best(state_of(6), model.table, model.weights, {}, {});
  EXPECT_EQ(read_checkpoint(dir + "/best").state.step, 6);
}

TEST(BestCheckpoint, RecordOfEvaluationsComesBack) {
  const ScratchFolder folder;
  const Model model;
  CheckpointStore store(folder.path(), 1);
  store.write(state_of(4), model.table, model.weights, {}, {});
  EXPECT_EQ(read_checkpoint(folder.path()).state.evaluation, state_of(4).evaluation);
  CheckpointState without = state_of(5);
  without.evaluation = {};
  store.write(without, model.table, model.weights, {}, {});
  EXPECT_EQ(read_checkpoint(folder.path()).state.evaluation, EvaluationRecord());
}

TEST(BestCheckpoint, GoesWithTheStoreThatAFreshRunMovesAside) {
  const ScratchFolder folder;
  const std::string dir = folder.path() + "/checkpoints";
  const Model model;
  {
    CheckpointStore earlier(dir, 3);
    earlier.write(state_of(4), model.table, model.weights, {}, {});
    earlier.write_best(state_of(4), model.table, model.weights, {}, {});
  }
  CheckpointStore store(dir, 3);
  EXPECT_EQ(store.set_earlier_aside(), dir + ".1");
  EXPECT_TRUE(fs::exists(dir + ".1/best/step-00000004"));
  EXPECT_FALSE(fs::exists(dir + "/best"));
  store.write(state_of(1), model.table, model.weights, {}, {});
  EXPECT_FALSE(fs::exists(dir + ".1"));
}

}  // namespace
}  // namespace pushpull
