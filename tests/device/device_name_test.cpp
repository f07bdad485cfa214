#include "common/device/device_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull::device {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr DeviceName kCpu{};
constexpr DeviceName cuda(int index) { return {DeviceName::kCuda, index}; }

std::string refusal(const std::string& text) {
  return thrown(ErrorCode::kUsage, [&] { parse_devices(text, 4); });
}

TEST(DeviceName, AcceptsTheUsualSpellings) {
  EXPECT_THAT(parse_devices("cpu", 2), ElementsAre(kCpu));
  EXPECT_THAT(parse_devices("cuda", 2), ElementsAre(cuda(0)));
  EXPECT_THAT(parse_devices("cuda:0", 2), ElementsAre(cuda(0)));
  EXPECT_THAT(parse_devices("cuda:12", 2), ElementsAre(cuda(12)));
  EXPECT_THAT(parse_devices("cuda:1,cuda:0", 2), ElementsAre(cuda(1), cuda(0)));
  EXPECT_THAT(parse_devices("cuda,cuda:3", 2), ElementsAre(cuda(0), cuda(3)));
}

TEST(DeviceName, AutoIsTheFirstPresentDevice) {
  EXPECT_THAT(parse_devices("auto", 0), ElementsAre(kCpu));
  EXPECT_THAT(parse_devices("auto", 1), ElementsAre(cuda(0)));
  EXPECT_THAT(parse_devices("auto", 8), ElementsAre(cuda(0)));
}

TEST(DeviceName, ANamedDeviceNeedNotBePresent) {
  EXPECT_THAT(parse_devices("cuda:7", 0), ElementsAre(cuda(7)));
}

TEST(DeviceName, PrintsTheTextThatItParses) {
  for (const std::string text : {"cpu", "cuda:0", "cuda:63"}) {
    EXPECT_EQ(parse_devices(text, 0).at(0).to_string(), text);
  }
}

TEST(DeviceName, MistakesAreNamedWithTheValidForms) {
  const auto is_help = HasSubstr("it is cpu, auto, cuda, cuda:N, or several like cuda:0,cuda:1");
  EXPECT_THAT(refusal("gpu"), AllOf(HasSubstr("--device gpu: gpu is unknown"), is_help));
  EXPECT_THAT(refusal(""), HasSubstr("a name is empty"));
  EXPECT_THAT(refusal("cuda:0,"), HasSubstr("a name is empty"));
  EXPECT_THAT(refusal(",cuda:0"), HasSubstr("a name is empty"));
  EXPECT_THAT(refusal("cuda:0,cuda"), HasSubstr("cuda:0 is named twice"));
  EXPECT_THAT(refusal("cuda:0,cpu"), HasSubstr("cpu stands alone"));
  EXPECT_THAT(refusal("cpu,cuda:0"), HasSubstr("cpu stands alone"));
  EXPECT_THAT(refusal("auto,cuda:1"), HasSubstr("auto stands alone"));
  EXPECT_THAT(refusal("CUDA"), HasSubstr("CUDA is unknown"));
  EXPECT_THAT(refusal("cuda0"), HasSubstr("cuda0 is unknown"));
  EXPECT_THAT(refusal("cuda:"), HasSubstr("cuda: has no index"));
  for (const char* index : {"-1", "+1", " 1", "1x", "0x1", "00", "01", "64", "999999999999"}) {
    EXPECT_THAT(refusal(std::string("cuda:") + index),
                HasSubstr(std::string(index) + " is not an index from 0 to 63"));
  }
  const std::string hostile = refusal(std::string(1000, 'x') + "\n\x1b[31m");
  EXPECT_THAT(hostile, AllOf(Not(HasSubstr("\n")), Not(HasSubstr("\x1b"))));
  EXPECT_LT(hostile.size(), 400U);
}

}  // namespace
}  // namespace pushpull::device
