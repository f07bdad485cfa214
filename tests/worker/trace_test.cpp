#include "worker/member/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/error.h"

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
    TensorTable table;
    for (const char* name : {"layers.0.weight", "layers.0.\"bias"}) {
      TensorInfo tensor;
      tensor.name = name;
      tensor.shape = {5};
      table.add(std::move(tensor));
    }
    trace.set_tensors(table);
    trace.set_slice_elements(8);
    trace.add(Trace::kForward, 7, 2, 1.5, 1.75);
    trace.add(Trace::kWait, 8, 1, 2.0, 2.25);
    trace.add(Trace::kPush, 8, 4, 2.5, 2.5, 4096);
    trace.add(Trace::kPull, 9, 4, 2.75, 2.75, 2048);
  }
  const nlohmann::json events = written();
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[0]["args"]["name"], "worker 3");
  EXPECT_EQ(events[1]["args"]["slice_elements"], 8);
  EXPECT_EQ(events[1]["args"]["tensors"][1]["name"], "layers.0.\"bias");
  EXPECT_EQ(events[1]["args"]["tensors"][1]["offset"], 5);
  EXPECT_EQ(events[1]["args"]["tensors"][1]["size"], 5);
  EXPECT_EQ(events[2]["name"], "forward 2");
  EXPECT_EQ(events[2]["cat"], "compute");
  EXPECT_EQ(events[2]["ph"], "X");
  EXPECT_EQ(events[2]["ts"], 1.5e6);
  EXPECT_EQ(events[2]["dur"], 0.25e6);
  EXPECT_EQ(events[2]["args"]["step"], 7);
  EXPECT_FALSE(events[2]["args"].contains("bytes"));
  EXPECT_EQ(events[3]["name"], "wait for layers.0.\"bias");
  EXPECT_EQ(events[4]["name"], "push slice 4");
  EXPECT_EQ(events[4]["args"]["bytes"], 4096);
  EXPECT_EQ(events[5]["name"], "slice 4 is here");
  EXPECT_EQ(events[5]["cat"], "pull");
  EXPECT_EQ(events[5]["args"]["bytes"], 2048);
}

TEST_F(Traces, HaveSeparateRowsForADevice) {
  {
    Trace trace(file_);
    trace.set_rank(1);
    trace.add(Trace::kPart, 4, 0, 1.0, 3.0);
    trace.add(Trace::kDeviceForward, 4, 0, 1.5, 1.75);
    trace.add(Trace::kDeviceSlice, 4, 2, 1.75, 2.0, 64);
  }
  const nlohmann::json events = written();
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events[1]["name"], "thread_name");
  EXPECT_EQ(events[1]["args"]["name"], "device");
  EXPECT_EQ(events[2]["args"]["name"], "device: copies out");
  EXPECT_EQ(events[3]["name"], "part from 0");
  EXPECT_EQ(events[3]["cat"], "compute");
  EXPECT_EQ(events[3]["tid"], 0);
  EXPECT_EQ(events[4]["name"], "forward 0");
  EXPECT_EQ(events[4]["cat"], "device");
  EXPECT_EQ(events[4]["tid"], events[1]["tid"]);
  EXPECT_EQ(events[5]["name"], "copy out slice 2");
  EXPECT_EQ(events[5]["args"]["bytes"], 64);
  EXPECT_EQ(events[5]["tid"], events[2]["tid"]);
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

TEST_F(Traces, AreOffWithoutAFileAndAnUnwritableFileIsAnError) {
  Trace off("");
  EXPECT_FALSE(off.on());
  off.add(Trace::kPush, 0, 0, 0.0, 1.0);
  EXPECT_EQ(nlohmann::json::parse(off.to_json()).size(), 1U) << "only the process name";
  EXPECT_THROW(Trace("/nowhere/at/all.json"), Error);
}

}  // namespace
}  // namespace pushpull
