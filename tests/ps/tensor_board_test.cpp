// The values of single events. tests/e2e/watching_test.py reads whole files with a reader of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ps/report/event.pb.h"
#include "ps/report/metrics_sink.h"
#include "tests/common/scratch_folder.h"

namespace pushpull {
namespace {

// Undoes the rotation and the constant of TFRecord.
uint32_t crc_of(std::string_view bytes) {
  const uint32_t masked = masked_crc32c(bytes) - 0xa282ead8U;
  return masked >> 17U | masked << 15U;
}

// The examples of RFC 3720, B.4, and the check value of the algorithm.
TEST(EventRecord, ChecksumIsThatOfTheExamples) {
  EXPECT_EQ(crc_of("123456789"), 0xe3069283U);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62a8ab43U);
  std::string up;
  for (char c = 0; c < 32; ++c) up += c;
  EXPECT_EQ(crc_of(up), 0x46dd794eU);
}

TEST(EventRecord, LengthAndChecksumsSurroundTheData) {
  const std::string data = "abc";
  const std::string record = event_record(data);
  ASSERT_EQ(record.size(), 8U + 4U + 3U + 4U);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  const auto number_at = [&](size_t at) {
    uint32_t out = 0;
    for (size_t i = 4; i-- > 0;) out = out << 8U | static_cast<unsigned char>(record[at + i]);
    return out;
  };
  EXPECT_EQ(number_at(8), masked_crc32c(record.substr(0, 8)));
  EXPECT_EQ(record.substr(12, 3), data);
  EXPECT_EQ(number_at(15), masked_crc32c(data));
}

TEST(EventRecord, HoldsNoDataToo) { EXPECT_EQ(event_record("").size(), 16U); }

}  // namespace

namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kLongMs = 60'000;

class TensorBoardTest : public testing::Test {
 protected:
  std::vector<events::Event> events() {
    board_.flush(kLongMs);
    std::vector<events::Event> out;
    for (const auto& entry : std::filesystem::directory_iterator(dir_)) {
      const std::string bytes = read_bytes(entry.path());
      for (size_t at = 0; at < bytes.size();) {
        uint64_t length = 0;
        std::memcpy(&length, bytes.data() + at, sizeof length);
        out.emplace_back();
        EXPECT_TRUE(out.back().ParseFromString(bytes.substr(at + 12, length)));
        at += length + 16;
      }
    }
    return out;
  }
  static double value(const events::Event& event, const std::string& tag) {
    for (const auto& value : event.summary().value()) {
      if (value.tag() == tag) return value.simple_value();
    }
    return -1;
  }
  static events::Histogram histogram(const events::Event& event) {
    for (const auto& value : event.summary().value()) {
      if (value.has_histo()) return value.histo();
    }
    return {};
  }

  ScratchFolder folder_;
  std::string dir_ = folder_ / "new/events";
  TensorBoard board_{dir_};
};

TEST_F(TensorBoardTest, NothingIsWrittenBeforeTrainingBegins) {
  board_.flush(kLongMs);
  EXPECT_FALSE(std::filesystem::exists(dir_));
}

TEST_F(TensorBoardTest, EachStartIsMarkedAndTheVersionWrittenOnce) {
  board_.begin(0);
  board_.begin(50);
  const auto all = events();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].file_version(), "brain.Event:2");
  EXPECT_EQ(all[1].session_log().status(), events::SessionLog::START);
  EXPECT_EQ(all[1].step(), 0);
  EXPECT_EQ(all[2].step(), 50);
}

TEST_F(TensorBoardTest, TasksAndStalenessAreThoseSinceThePreviousMoment) {
  board_.begin(0);
  RunFigures moment;
  moment.totals.tasks = 2;
  moment.totals.split.compute = 0.5;
  moment.staleness = {{0, 3}, {7, 1}};
  board_.moment(moment);
  board_.moment(moment);  // no report since
  moment.totals.tasks = 6;
  moment.totals.split.compute = 0.9;
  moment.staleness = {{0, 3}, {1, 2}, {2, 1}, {7, 5}};
  board_.moment(moment);
  const auto all = events();
  ASSERT_EQ(all.size(), 5U);
  EXPECT_FLOAT_EQ(value(all[2], "task_ms/compute"), 250);
  EXPECT_EQ(value(all[3], "task_ms/compute"), -1);
  EXPECT_FLOAT_EQ(value(all[4], "task_ms/compute"), 100);
  EXPECT_EQ(histogram(all[3]).num(), 0);
  const events::Histogram last = histogram(all[4]);
  EXPECT_THAT(last.bucket_limit(), ElementsAre(1.5, 2.5, 6.5, 7.5)) << "no bucket for 0";
  EXPECT_THAT(last.bucket(), ElementsAre(2, 1, 0, 4));
  EXPECT_THAT(last.sum(), DoubleEq(2 + 2 + 28));
  EXPECT_THAT(last.sum_squares(), DoubleEq(2 + 4 + 4 * 49));
  EXPECT_EQ(last.min(), 1);
  EXPECT_EQ(last.max(), 7);
}

TEST_F(TensorBoardTest, EachHeadOfAnEvaluationHasItsCurvesAtItsStep) {
  board_.begin(0);
  RunFigures moment;
  moment.step = 30;
  moment.evaluation = Evaluation{20,
                                 {{{"start", Metric::kAccuracy, 1}, {5.0, 10, 8.0}},
                                  {{"span", Metric::kExactMatch, 2}, {20.0, 10, 1.0}}}};
  board_.moment(moment);
  const auto all = events();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[3].step(), 20);
  EXPECT_FLOAT_EQ(value(all[3], "test/start/loss"), 0.5);
  EXPECT_FLOAT_EQ(value(all[3], "test/span/loss"), 2);
  EXPECT_FLOAT_EQ(value(all[3], "test/start/accuracy"), 0.8);
  EXPECT_FLOAT_EQ(value(all[3], "test/span/exact_match"), 0.1);
}

TEST_F(TensorBoardTest, AFolderThatCannotBeMadeIsNamedOnce) {
  std::ofstream(folder_ / "new").put('x');
  board_.begin(0);
  board_.flush(kLongMs);
  board_.moment({});
  EXPECT_THAT(board_.take_warning(), HasSubstr(dir_ + "/events.out.tfevents."));
  board_.moment({});
  EXPECT_EQ(board_.take_warning(), "");
}

}  // namespace

}  // namespace pushpull
