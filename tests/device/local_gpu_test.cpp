#include "common/device/local_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pushpull::device {
namespace {

using ::testing::HasSubstr;

TEST(LocalGpu, IsTheLocalRankModuloTheGpus) {
  EXPECT_EQ(gpu_of_task({.rank = 0, .size = 4}, 4), 0);
  EXPECT_EQ(gpu_of_task({.rank = 3, .size = 4}, 4), 3);
  EXPECT_EQ(gpu_of_task({.rank = 5, .size = 8}, 4), 1);
  EXPECT_EQ(gpu_of_task({.rank = 7}, 1), 0) << "the launcher shows each task one GPU";
  EXPECT_EQ(gpu_of_task({}, 8), 0);
}

// Returns how many tasks of a host say that they share GPUs.
int lines_of_host(int64_t size, int gpus) {
  int lines = 0;
  for (int64_t rank = 0; rank < size; ++rank) {
    if (!sharing_text({.rank = rank, .size = size}, gpus, false).empty()) ++lines;
  }
  return lines;
}

TEST(LocalGpu, OneTaskOfAHostSaysThatGpusAreShared) {
  EXPECT_EQ(lines_of_host(4, 4), 0);
  EXPECT_EQ(lines_of_host(2, 8), 0);
  EXPECT_EQ(lines_of_host(5, 4), 1);
  EXPECT_EQ(lines_of_host(8, 1), 1);
  EXPECT_EQ(sharing_text({.rank = 0, .size = 8}, 4, false),
            "8 tasks on this host and 4 GPUs: they share them round robin");
  EXPECT_EQ(sharing_text({.rank = 0, .size = 2}, 1, false),
            "2 tasks on this host and 1 GPU: they share it");
}

TEST(LocalGpu, WithOneVisibleGpuEachTaskMayHaveAnotherOne) {
  EXPECT_THAT(sharing_text({.rank = 0, .size = 4}, 1, true),
              HasSubstr("1 GPU in CUDA_VISIBLE_DEVICES: they share it, unless"));
}

TEST(LocalGpu, WithoutASizeTheFirstTaskBeyondTheGpusSaysIt) {
  int lines = 0;
  for (int64_t rank = 0; rank < 8; ++rank) {
    if (!sharing_text({.rank = rank}, 4, false).empty()) ++lines;
  }
  EXPECT_EQ(lines, 1);
  EXPECT_EQ(sharing_text({}, 1, false), "") << "a process that was started alone";
}

TEST(LocalGpu, CudaShowsAProcessOneMigInstanceSoEachTaskNamesItsOwn) {
  const std::string three = "MIG-aa, MIG-bb,MIG-GPU-cc/1/0";
  EXPECT_EQ(mig_of_task(three, {.rank = 0}), "MIG-aa");
  EXPECT_EQ(mig_of_task(three, {.rank = 1}), "MIG-bb");
  EXPECT_EQ(mig_of_task(three, {.rank = 2}), "MIG-GPU-cc/1/0");
  EXPECT_EQ(mig_of_task(three, {.rank = 4}), "MIG-bb");
}

TEST(LocalGpu, OtherNamesStayAsTheyAre) {
  for (const char* visible : {"", "0,1", "MIG-aa", "GPU-aa,GPU-bb", "MIG-aa,1", "NoDevFiles"}) {
    EXPECT_EQ(mig_of_task(visible, {.rank = 1}), std::nullopt) << visible;
  }
}

}  // namespace
}  // namespace pushpull::device
