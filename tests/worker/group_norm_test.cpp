// The norm over the stages of a group: the bits of the undivided gradient, in all of them.
#include "worker/compute/group_norm.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/worker/stage_group.h"

namespace pushpull {
namespace {

Job norm_job(const std::string& keys, int64_t stages) {
  Job job = parse_job_text(
      "dataset = dummy\nglobal-batch = 24\nmicro-batch = 3\nsteps = 10\nclip-norm = 1\n" + keys,
      "test");
  job.stages = stages;
  return job;
}

double squares_of(Computing& one, Range range) {
  return one.compute->squares(one.compute->sum(), 1, range);
}

void expect_same_norm(const std::string& keys, const FieldTable& fields, int64_t stages) {
  const Range range{2, 6};
  StageGroup group(norm_job(keys, stages), fields);
  group.whole().push({range});
  const double want = squares_of(group.whole(), range);
  EXPECT_GT(want, 0.0);
  group.push({range});
  std::vector<double> found(static_cast<size_t>(group.stages()));
  group.run([&](int worker) {
    found[static_cast<size_t>(worker)] = squares_of(group.of(worker), range);
  });
  EXPECT_EQ(found, std::vector<double>(found.size(), want)) << keys << stages << " stages";
  EXPECT_EQ(group.parts().left(), 0U);
}

TEST(GroupNorm, HasTheBitsOfTheUndividedGradient) {
  for (const int64_t stages : {2, 3, 4}) {
    expect_same_norm("model = mlp\nhidden = 70,60,50\n", image_fields({1, 8, 8}, 5), stages);
  }
  // running statistics do not count
  expect_same_norm("model = resnet18\nstem = cifar\n", image_fields({3, 8, 8}, 5), 2);
}

TEST(GroupNorm, AStageWithoutElementsSendsNothing) {
  expect_same_norm("model = mlp\nhidden = 5,4\n", image_fields({1, 4, 4}, 3), 3);
}

TEST(GroupNorm, TheLargestPartIsThatOfTheStageWithMostNodes) {
  const SliceMap map(7 * kBlockElements, kBlockElements, 1, {kBlockElements});
  EXPECT_EQ(GroupNorm::largest_part(map), 2 * 3U) << "[1, 2), [2, 4) and [4, 7)";
}

}  // namespace
}  // namespace pushpull
