#include "tests/models/backend_case.h"

#include "tests/device/fake_device.h"
#include "tests/models/queued_backend.h"

namespace pushpull {

std::vector<BackendCase> all_backends() {
  const auto queued = [](int threads) {
    return make_queued_backend(std::make_shared<device::FakeDevice>(), threads);
  };
  const auto cpu = [](ops::Precision precision) {
    return [precision](int threads) { return ops::make_cpu_backend(threads, precision); };
  };
  std::vector<BackendCase> cases{
      {.name = "Cpu", .make = cpu(ops::Precision::kFp32)},
      {.name = "CpuBf16", .make = cpu(ops::Precision::kBf16), .precision = ops::Precision::kBf16},
      {.name = "Queued", .make = queued}};
  if (!device::compiled()) return cases;
  for (const ops::Precision precision : {ops::Precision::kFp32, ops::Precision::kTf32,
                                         ops::Precision::kBf16, ops::Precision::kFp16}) {
    const auto make = [precision](int threads) {
      return ops::make_backend(
          {.device = {device::DeviceName::kCuda, 0}, .threads = threads, .precision = precision});
    };
    std::string name = to_string(precision);
    name.front() = static_cast<char>(std::toupper(name.front()));
    cases.push_back({"Cuda" + name, make, precision, true});
  }
  return cases;
}

}  // namespace pushpull
