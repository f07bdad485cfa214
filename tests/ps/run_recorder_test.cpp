// The record, coordinator's side: which members may add to it, when the job may end, and the file.
#include "ps/report/run_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/common/scratch_folder.h"
#include "tests/common/thrown.h"
#include "tests/ps/coordinator_fixture.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

constexpr uint64_t kServer = 77;

class RecordTest : public CoordinatorTest {
 protected:
  void record(const std::string& keys = "") {
    keys_ = "strategy = ssp:1\nrecord = " + (folder_ / "run.rec") + "\n" + keys;
    make(keys_, 2, 2);
    ASSERT_TRUE(hello(kServer, wire::ROLE_SERVER));
    join(kAnna);
    join(kBert);
    recorder_.emplace(job_of(keys_));
    begin();
    recorder_->start(coordinator_->declaration(), 2, nullptr, false);
    tick();
  }
  bool tell(uint64_t who, int64_t first, std::vector<int64_t> reads, int64_t step = 0) {
    Message message;
    wire::RecordPart* part = message.header.mutable_record_part();
    part->set_incarnation(who);
    part->set_first(first);
    wire::Applied* applied = part->add_applied();
    applied->set_rank(0);
    applied->set_step(step);
    applied->set_hi(2);
    for (const int64_t read : reads) applied->add_read_versions(read);
    return send(who, message);
  }
  void stats(int64_t recorded) {
    Message message;
    wire::Heartbeat* beat = message.header.mutable_heartbeat();
    beat->set_incarnation(kServer);
    beat->set_state_version(1000);
    beat->mutable_stats()->set_recorded(recorded);
    EXPECT_TRUE(send(kServer, message));
  }

  // Writes the whole record. Returns false if that was done before.
  bool finish(const std::string& weights_sha256, const std::string& ended) {
    const auto record =
        recorder_->complete(run_->logs(), coordinator_->members(),
                            coordinator_->departures().failed_push(), weights_sha256, ended);
    if (record) write_record(folder_ / "run.rec", *record);
    return record.has_value();
  }

  ScratchFolder folder_;
  std::string keys_;
  std::optional<RunRecorder> recorder_;
};

TEST_F(RecordTest, OnlyServersReportAppliedPushes) {
  record();
  EXPECT_TRUE(tell(kServer, 0, {0, 0}));
  const auto out = coordinator_->take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].message.header.record_taken().through(), 1);
  EXPECT_TRUE(tell(kServer, 0, {0, 0})) << "a repeat";
  EXPECT_EQ(run_->logs()->have(1), 1);
  EXPECT_FALSE(tell(kAnna, 0, {0, 0}));
  EXPECT_FALSE(tell(999, 0, {0, 0}));
  EXPECT_FALSE(tell(kServer, 1, {0}));
  make("strategy = async\n");
  EXPECT_FALSE(tell(kSelf, 0, {0})) << "the job has no record";
}

TEST_F(RecordTest, JobEndsWhenAllEntriesAreReported) {
  record("steps = 1\n");
  commit_all(1);
  run_->on_barrier_open(1);
  evaluate(1);
  EXPECT_EQ(write_snapshots(), 1);
  tick();
  ASSERT_EQ(coordinator_->phase(), wire::PHASE_FINISHING);
  heartbeat(kAnna, 1000);
  heartbeat(kBert, 1000);
  stats(1);
  tick();
  EXPECT_FALSE(coordinator_->wants_summary()) << "an entry of server 1 is missing";
  tell(kServer, 0, {0, 0});
  tick();
  EXPECT_TRUE(coordinator_->wants_summary());
  EXPECT_TRUE(tell(kSelf, 0, {0, 0}));
  finish("abc", "");
  const RunRecord got = read_record(folder_ / "run.rec");
  EXPECT_EQ(got.weights_sha256, "abc");
  EXPECT_EQ(got.incomplete, "");
  EXPECT_EQ(got.updates.size(), 2U);
  EXPECT_EQ(got.pushes.size(), 1U);
  EXPECT_EQ(got.numerics, "cpu avx2");
  EXPECT_EQ(parse_job_text(got.job_ini, "record"), job_of(keys_));
  EXPECT_EQ(got.start, recorded_start(job_of(keys_), table_of(3000), nullptr, false));
}

TEST_F(RecordTest, MissingEntriesMakeItIncomplete) {
  record();
  stats(5);
  tell(kSelf, 0, {0, 0});
  tell(kServer, 0, {0, 0});
  finish("abc", "");
  EXPECT_THAT(read_record(folder_ / "run.rec").incomplete,
              HasSubstr("the last 4 updates of server 1"));
}

TEST_F(RecordTest, RecordOfAFailureHasTheFailedPush) {
  record();
  tell(kSelf, 0, {0, 0});
  Message message;
  wire::Leave* leave = message.header.mutable_leave();
  leave->set_incarnation(kBert);
  leave->set_code(static_cast<int>(ErrorCode::kNotFinite));
  leave->set_text("[train] nan");
  leave->mutable_failed()->set_step(4);
  leave->mutable_failed()->set_lo(2);
  leave->mutable_failed()->set_hi(4);
  leave->mutable_failed()->add_read_versions(1);
  leave->mutable_failed()->add_read_versions(0);
  EXPECT_TRUE(send(kBert, message));
  EXPECT_EQ(coordinator_->phase(), wire::PHASE_FAILED);
  EXPECT_TRUE(finish("", coordinator_->failure_text()));
  EXPECT_FALSE(finish("", coordinator_->failure_text()));
  const RunRecord got = read_record(folder_ / "run.rec");
  EXPECT_THAT(got.incomplete, HasSubstr("[train] nan"));
  EXPECT_EQ(got.failed, (RecordedPush{1, 4, {2, 4}, {1, 0}}));
  EXPECT_EQ(got.weights_sha256, "");
}

TEST_F(RecordTest, WorkersWithOtherNumericsAreRefused) {
  keys_ = "strategy = async\nrecord = r\n";
  make(keys_);
  join(kAnna);
  hello(kBert);
  Message other = declaration(kBert);
  other.header.mutable_declare()->set_numerics("cpu sse");
  send(kBert, other);
  EXPECT_THAT(refusal_of(kBert), HasSubstr("numerics differ"));
}

TEST(RunRecorder, UnwritableRecordIsAnErrorAtOnce) {
  const ScratchFolder folder;
  const std::string keys = "strategy = async\nrecord = ";
  EXPECT_THAT(
      thrown(ErrorCode::kIo,
             [&] { RunRecorder recorder(job_of(keys + folder.path() + "/none/run.rec\n")); }),
      HasSubstr("none/run.rec"));
  std::filesystem::create_directory(folder / "run.rec");
  EXPECT_THROW(RunRecorder(job_of(keys + folder.path() + "/run.rec\n")), Error);
  EXPECT_TRUE(std::filesystem::remove(folder / "run.rec"));
}

TEST_F(RecordTest, EarlierRecordStaysUntilTrainingStarts) {
  write_bytes(folder_ / "run.rec", "old");
  {
    const RunRecorder recorder(
        job_of("strategy = async\nrecord = " + (folder_ / "run.rec") + "\n"));
    EXPECT_EQ(read_bytes(folder_ / "run.rec"), "old");
  }
  record();
  const RunRecord got = read_record(folder_ / "run.rec");
  EXPECT_THAT(got.incomplete, HasSubstr("server 0 has not written the updates"));
  EXPECT_TRUE(got.updates.empty());
  EXPECT_EQ(got.numerics, "cpu avx2");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1)
      << "no file is left beside it";
}

TEST(RunRecorder, DigestDiffersIfTheTableDiffers) {
  TensorTable other = table_of(3000);
  EXPECT_EQ(table_sha256(other), table_sha256(table_of(3000)));
  other.tensors[0].value += 1.0F;
  EXPECT_NE(table_sha256(other), table_sha256(table_of(3000)));
  EXPECT_NE(table_sha256(table_of(3001)), table_sha256(table_of(3000)));
  other = table_of(3000);
  other.tensors[0].lr_scale = 0.5;
  EXPECT_NE(table_sha256(other), table_sha256(table_of(3000)));
  other = table_of(3000);
  other.tensors[0].weight_decay = 0.0;
  EXPECT_NE(table_sha256(other), table_sha256(table_of(3000)));
}

}  // namespace
}  // namespace pushpull
