// The backends that the same tests run on: the CPU in f32 and bf16, the CPU's operations in the
// order of a device, and CUDA with each precision if the build has it. Tests of CUDA without a
// device, and of bf16 on a processor without it, are skipped and counted.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/ops/ops.h"
#include "tests/device/need_device.h"
#include "tests/models/fixture.h"

namespace pushpull {

struct BackendCase {
  std::string name;
  std::function<std::unique_ptr<ops::Backend>(int threads)> make;
  ops::Precision precision = ops::Precision::kFp32;
  bool needs_device = false;

  // Returns the significant bits of an activation and of a product's factors.
  int bits() const {
    if (precision == ops::Precision::kBf16) return 8;
    return precision == ops::Precision::kFp32 ? 24 : 11;
  }
  // Returns true if activations are rounded when they are written.
  bool is_short() const {
    return precision == ops::Precision::kBf16 || precision == ops::Precision::kFp16;
  }
  friend std::ostream& operator<<(std::ostream& out, const BackendCase& value) {
    return out << value.name;
  }
};

std::vector<BackendCase> all_backends();

inline std::string case_name(const testing::TestParamInfo<BackendCase>& info) {
  return info.param.name;
}

// Runs a test on a backend, which SetUp() makes.
class OnBackend : public testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override {
    if (GetParam().needs_device) {
      PP_NEED_DEVICE();
    } else if (GetParam().is_short() && !ops::cpu_has_bf16()) {
      GTEST_SKIP() << "this processor has neither AVX512_BF16 nor AMX-BF16";
    }
  }

  // Returns the case with models on this backend.
  Case on(Case c) const {
    c.backend = GetParam().make;
    return c;
  }
  std::vector<Case> on(std::vector<Case> cases) const {
    for (Case& c : cases) c = on(c);
    return cases;
  }
  // Returns the tolerance relative to the largest value of a tensor, after the few layers of our
  // models.
  double tolerance(double of_fp32) const {
    return GetParam().precision == ops::Precision::kFp32 ? of_fp32
                                                         : std::ldexp(16.0, -GetParam().bits());
  }
};

}  // namespace pushpull
