#include "worker/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"

namespace pushpull {
namespace {

class Traces : public testing::Test {
 protected:
  Traces() : file_(testing::TempDir() + "trace-" + std::to_string(getpid()) + ".json") {}
  ~Traces() override { std::filesystem::remove(file_); }
  nlohmann::json written() const { return nlohmann::json::parse(std::ifstream(file_)); }
  const std::string file_;
};

TEST_F(Traces, AreAnArrayOfCompleteEventsInMicroseconds) {
  {
    Trace trace(file_);
    trace.set_rank(3);
    trace.set_tensors({"layers.0.weight", "layers.0.\"bias"});
    trace.add(Trace::kForward, 7, 2, 1.5, 1.75);
    trace.add(Trace::kWait, 8, 1, 2.0, 2.25);
  }
  const nlohmann::json events = written();
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0]["args"]["name"], "worker 3");
  EXPECT_EQ(events[1]["name"], "forward 2");
  EXPECT_EQ(events[1]["cat"], "compute");
  EXPECT_EQ(events[1]["ph"], "X");
  EXPECT_EQ(events[1]["ts"], 1.5e6);
  EXPECT_EQ(events[1]["dur"], 0.25e6);
  EXPECT_EQ(events[1]["args"]["step"], 7);
  EXPECT_EQ(events[2]["name"], "wait for layers.0.\"bias");
}

TEST_F(Traces, KeepTheNewestEvents) {
  {
    Trace trace(file_, 3);
    for (int64_t i = 0; i < 5; ++i) {
      const auto begin = static_cast<double>(i);
      trace.add(Trace::kPush, i, i, begin, begin + 1);
    }
  }
  const nlohmann::json events = written();
  ASSERT_EQ(events.size(), 4U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(events[i + 1]["args"]["step"], i + 2);
}

TEST_F(Traces, AreOffWithoutAFileAndAnErrorWhereItCannotBeWritten) {
  Trace off("");
  EXPECT_FALSE(off.on());
  off.add(Trace::kPush, 0, 0, 0.0, 1.0);
  EXPECT_EQ(nlohmann::json::parse(off.to_json()).size(), 1U) << "its name only";
  EXPECT_THROW(Trace("/nowhere/at/all.json"), Error);
}

}  // namespace
}  // namespace pushpull
