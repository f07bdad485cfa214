// pushpull-worker whose devices are fakes: the processor's operations in an order drawn from
// PUSHPULL_TEST_SEED. For tests of whole jobs.
#include <cstdlib>
#include <memory>
#include <string>

#include "models/sequential.h"
#include "tests/device/fake_device.h"
#include "tests/models/queued_backend.h"
#include "worker/worker_program.h"

namespace pushpull {
namespace {

int64_t number(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoll(text);
}

std::unique_ptr<Model> fake_model(const Job& job, const InputShape& input, int64_t classes,
                                  const device::DeviceName& device) {
  const auto index = static_cast<uint64_t>(device.index);
  device::FakeOptions options;
  options.seed = static_cast<uint64_t>(number("PUSHPULL_TEST_SEED", 1)) * 100 + index;
  options.lost_after = number("PUSHPULL_TEST_LOST_AFTER", -1);
  static const auto pages = std::make_shared<device::RegisteredPages>();
  options.pages = pages;
  options.most_pageable = static_cast<size_t>(number("PUSHPULL_TEST_MOST_PAGEABLE", INT64_MAX));
  return make_model_on(make_queued_backend(std::make_shared<device::FakeDevice>(options)), job,
                       input, classes);
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  pushpull::WorkerParts parts;
  parts.choose_devices = [](const std::string& text, const auto&) {
    return pushpull::device::parse_devices(text.empty() ? "cuda" : text, 0);
  };
  parts.make_model = pushpull::fake_model;
  return pushpull::worker_program(argc, argv, parts);
}
