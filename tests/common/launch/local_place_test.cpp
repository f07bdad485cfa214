#include "common/launch/local_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

std::string place_text(const Environment& environment) {
  const auto place = local_place(environment);
  if (!place) return "none";
  return std::to_string(place->rank.value) + " of " +
         (place->size ? std::to_string(place->size->value) : "?") + " by " + place->rank.from;
}

std::string refusal_of(const Environment& environment) {
  return thrown(ErrorCode::kUsage, [&] { local_place(environment); });
}

TEST(LocalPlace, EachLauncherHasItsVariables) {
  EXPECT_EQ(place_text({}), "none");
  EXPECT_EQ(place_text({{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}, {"RANK", "5"}}),
            "1 of 4 by LOCAL_RANK");
  EXPECT_EQ(place_text({{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}),
            "2 of 3 by OMPI_COMM_WORLD_LOCAL_RANK");
  EXPECT_EQ(place_text({{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}}),
            "0 of 2 by MPI_LOCALRANKID");
  EXPECT_EQ(place_text({{"PUSHPULL_LOCAL_RANK", "0"}, {"PUSHPULL_LOCAL_WORLD_SIZE", "1"}}),
            "0 of 1 by PUSHPULL_LOCAL_RANK");
  EXPECT_EQ(place_text({{"LOCAL_RANK", "3"}}), "3 of ? by LOCAL_RANK");
}

TEST(LocalPlace, SlurmCountsTheTasksOfEachNode) {
  Environment step = {{"SLURM_STEP_ID", "0"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NODEID", "0"},
                      {"SLURM_STEP_TASKS_PER_NODE", "2(x2),5"}};
  EXPECT_EQ(place_text(step), "1 of 2 by SLURM_LOCALID");
  step["SLURM_NODEID"] = "1";
  EXPECT_EQ(place_text(step), "1 of 2 by SLURM_LOCALID");
  step["SLURM_NODEID"] = "2";
  EXPECT_EQ(place_text(step), "1 of 5 by SLURM_LOCALID");
  step["SLURM_NODEID"] = "3";
  EXPECT_EQ(place_text(step), "1 of ? by SLURM_LOCALID");
  step.erase("SLURM_STEP_ID");
  EXPECT_EQ(place_text(step), "none") << "the batch script is no task";
}

TEST(LocalPlace, PushpullsOwnVariablesComeFirstThenTheInnerLauncher) {
  Environment nested = {{"SLURM_STEP_ID", "0"}, {"SLURM_LOCALID", "1"}, {"LOCAL_RANK", "2"}};
  EXPECT_EQ(place_text(nested), "2 of ? by LOCAL_RANK");
  nested["PUSHPULL_LOCAL_RANK"] = "3";
  EXPECT_EQ(place_text(nested), "3 of ? by PUSHPULL_LOCAL_RANK");
}

TEST(LocalPlace, ValuesWithoutAMeaningAreRefusedByName) {
  EXPECT_THAT(refusal_of({{"LOCAL_RANK", "one"}}), HasSubstr("LOCAL_RANK"));
  EXPECT_THAT(refusal_of({{"LOCAL_RANK", "4"}, {"LOCAL_WORLD_SIZE", "4"}}),
              HasSubstr("LOCAL_RANK=4 contradicts LOCAL_WORLD_SIZE=4"));
  for (const char* tasks : {"2(x", "2(x2", "(x2)", "2x2", "0", "2(x0)", "2(x-1)"}) {
    EXPECT_THAT(refusal_of({{"SLURM_STEP_ID", "0"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_NODEID", "0"},
                            {"SLURM_STEP_TASKS_PER_NODE", tasks}}),
                HasSubstr("SLURM_STEP_TASKS_PER_NODE"))
        << tasks;
  }
}

}  // namespace
}  // namespace pushpull
