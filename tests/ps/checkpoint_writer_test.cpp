#include "ps/report/checkpoint_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "tests/common/scratch_folder.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {
namespace {

class Writer : public testing::Test {
 protected:
  // 300 weights in two slices.
  static GatheredState snapshot(float value) {
    GatheredState out;
    for (const int64_t n : {200, 100}) {
      out.slices.push_back({constant_payload(n, value), constant_payload(n, -value)});
    }
    return out;
  }
  static CheckpointState state(int64_t step) {
    CheckpointState out;
    out.step = step;
    out.updates = step;
    out.total_steps = 10;
    out.job_ini = to_ini(job_of());
    return out;
  }
  CheckpointWriter::Result result() {
    pollfd item{writer_.done_fd(), POLLIN, 0};
    EXPECT_EQ(poll(&item, 1, 20'000), 1) << "not written in time";
    auto taken = writer_.take();
    EXPECT_TRUE(taken);
    return taken.value_or(CheckpointWriter::Result{});
  }
  ScratchFolder folder_;
  CheckpointWriter writer_{CheckpointStore(folder_ / "c", 2), table_of(300), {"momentum_buffer"}};
};

TEST_F(Writer, WritesASnapshotAndReturnsItsHash) {
  EXPECT_FALSE(writer_.take());
  const std::vector<float> weights(300, 2.0F);
  GatheredState gathered = snapshot(2.0F);
  gathered.step = 5;
  writer_.write(std::move(gathered), state(5), CheckpointKind::kLast);
  const auto done = result();
  EXPECT_EQ(done.step, 5);
  EXPECT_EQ(done.error, nullptr);
  EXPECT_EQ(done.weights_sha256, sha256_hex(std::as_bytes(std::span<const float>(weights))));
  EXPECT_FALSE(writer_.take()) << "each result is returned once";
  const Checkpoint read = read_checkpoint(folder_ / "c");
  EXPECT_EQ(read.state.step, 5);
  EXPECT_EQ(read.weights, weights);
  // running statistics have no optimizer state
  EXPECT_EQ(read.slots.at(0).front(), -2.0F);
  EXPECT_EQ(read.slots.at(0).back(), -2.0F);
}

TEST_F(Writer, HashesWithoutWriting) {
  GatheredState start = snapshot(2.0F);
  for (auto& slice : start.slices) slice.resize(1);
  writer_.hash(std::move(start));
  const auto hashed = result();
  EXPECT_EQ(hashed.step, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c/step-00000000"));
  writer_.write(snapshot(2.0F), state(1), CheckpointKind::kLast);
  EXPECT_EQ(result().weights_sha256, hashed.weights_sha256);
  writer_.write(snapshot(2.0F), state(2), CheckpointKind::kRolling);
  EXPECT_EQ(result().weights_sha256, "") << "no hash was requested";
}

TEST_F(Writer, WritesInOrder) {
  for (int64_t step = 1; step <= 4; ++step) {
    GatheredState gathered = snapshot(static_cast<float>(step));
    gathered.step = step;
    writer_.write(std::move(gathered), state(step), CheckpointKind::kRolling);
    EXPECT_EQ(result().step, step);
  }
  EXPECT_EQ(CheckpointStore(folder_ / "c", 2).steps(), (std::vector<int64_t>{3, 4}));
}

TEST_F(Writer, WriteErrorIsReturnedAsAResult) {
  std::filesystem::remove_all(folder_ / "c");
  write_bytes(folder_ / "c", "in the way");
  writer_.write(snapshot(1.0F), state(1), CheckpointKind::kRolling);
  const auto failed = result();
  ASSERT_NE(failed.error, nullptr);
  try {
    std::rethrow_exception(failed.error);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kIo);
    EXPECT_THAT(e.what(), testing::HasSubstr(folder_ / "c"));
  }
}

TEST(CheckpointWriter, DestructorWaitsForTheCurrentWrite) {
  const ScratchFolder folder;
  {
    CheckpointWriter writer(CheckpointStore(folder / "c", 2), table_of(300), {});
    GatheredState snapshot;
    snapshot.slices = {{constant_payload(300, 1.0F)}};
    CheckpointState state;
    state.step = 3;
    state.job_ini = to_ini(job_of());
    writer.write(std::move(snapshot), state, CheckpointKind::kRolling);
  }
  EXPECT_EQ(CheckpointStore(folder / "c", 2).steps(), (std::vector<int64_t>{3}));
}

}  // namespace
}  // namespace pushpull
