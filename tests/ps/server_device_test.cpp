#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "common/job/job.h"
#include "ps/engine/device_engine.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

std::string why_not(const std::string& keys) {
  return why_not_on_device(parse_job_text("dataset = dummy\n" + keys, "test"));
}

TEST(ServerDevice, JobWithWeightsOnTheHostHasAReason) {
  EXPECT_EQ(why_not("strategy = allreduce:tree\n"),
            "strategy = allreduce:tree updates them in the workers");
  EXPECT_EQ(why_not("codec = int8\n"), "codec = int8 is decoded there");
  EXPECT_EQ(why_not("codec-tensors = *.weight=bf16\n"),
            "codec-tensors = *.weight=bf16 is decoded there");
  EXPECT_EQ(why_not("pull-codec = bf16\n"), "pull-codec = bf16 is encoded there");
}

TEST(ServerDevice, OtherJobsMayUseADevice) {
  for (const char* strategy : {"sync", "async", "ssp:2", "backup:1", "local:4"}) {
    EXPECT_EQ(why_not(std::string("strategy = ") + strategy + "\nclip-norm = 1\n"), "");
  }
}

TEST(ServerDevice, CpuIsNoDevice) {
  EXPECT_EQ(open_server_device("cpu", {}, [](const std::string& text) { FAIL() << text; }),
            nullptr);
}

TEST(ServerDevice, ServerMayUseADevice) {
  const auto refusal = [](const std::string& text) -> std::string {
    return thrown(ErrorCode::kUsage,
                  [&] { open_server_device(text, {}, [](const std::string&) {}); });
  };
  EXPECT_THAT(refusal("cuda:0,cuda:1"), HasSubstr("a server uses one"));
  EXPECT_THAT(refusal("gpu"), HasSubstr("gpu is unknown"));
}

TEST(ServerDevice, NamedDeviceMustExist) {
  EXPECT_THAT(thrown(ErrorCode::kDevice,
                     [&] {
                       open_server_device("cuda:63", {},
                                          [](const std::string& text) { FAIL() << text; });
                     }),
              HasSubstr("cuda:63 cannot be used"));
}

TEST(ServerDevice, AutoReportsWhyItTakesNone) {
  std::string notice;
  const auto device =
      open_server_device("auto", {}, [&](const std::string& text) { notice = text; });
  const std::string why = "keeps weights in host memory: [device] cuda:0";
  EXPECT_TRUE(device ? notice.empty() : notice.starts_with(why)) << notice;
}

}  // namespace
}  // namespace pushpull
