#include "common/device/phase_range.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "worker/member/time_split.h"

namespace pushpull {
namespace {

TEST(PhaseRange, AProfilerSeesThePhasesOfAWorker) {
  ASSERT_EQ(setenv("NVTX_INJECTION64_PATH", PUSHPULL_RANGE_LISTENER, 1), 0);
  TimeSplit split([] { return 0.0; }, device::enter_range);
  split.enter(TimeSplit::kCompute);
  split.enter(TimeSplit::kCompute);
  split.enter(TimeSplit::kPush);
  split.enter(TimeSplit::kWait);
  device::enter_range(nullptr);
  device::enter_range(nullptr);
  void* const library = dlopen(PUSHPULL_RANGE_LISTENER, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto heard = reinterpret_cast<const char* (*)()>(dlsym(library, "heard_ranges"));
  ASSERT_NE(heard, nullptr) << dlerror();
  EXPECT_STREQ(heard(), "pushpull: +compute - +push - +wait - ");
}

}  // namespace
}  // namespace pushpull
