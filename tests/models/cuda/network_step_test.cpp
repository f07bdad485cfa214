// Trains one micro-batch of resnet18 on CUDA and compares its loss and gradients with the CPU's: the
// operations together, in the memory that the graph plans for them.
#include <gtest/gtest.h>

#include <cmath>

#include "common/job/job.h"
#include "models/graph_model.h"
#include "tests/device/need_device.h"
#include "tests/models/fixture.h"
#include "tests/models/initial_weights.h"

namespace pushpull::network_step_test {
namespace {

using ops::Precision;

class CudaNetworks : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override { PP_NEED_DEVICE(); }
  std::unique_ptr<ops::Backend> backend() const {
    return ops::make_backend({.device = {device::DeviceName::kCuda, 0},
                              .precision = GetParam(),
                              .loss_scale = GetParam() == Precision::kFp16 ? 128.0F : 1.0F});
  }
  // Returns the allowed distance of the gradients, relative to their length. With CUDA on the host
  // the distances are 5e-6 and 0.13: in short activations ReLUs and maxima switch sides. A wrong
  // gradient is about 1 away.
  double allowed() const { return GetParam() == Precision::kFp32 ? 1e-3 : 0.4; }
};

double length(const std::vector<double>& values) {
  double sum = 0.0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

TEST_P(CudaNetworks, TrainResnetLikeTheCpu) {
  const Case c{.model = "resnet18", .input = {3, 16, 16}, .micro_batch = 4};
  Job job = c.job();
  job.stem = "cifar";
  const auto on_cpu = make_model(job, c.fields());
  const auto on_cuda = make_model_on(backend(), job, c.fields());
  const std::vector<float> weights = initial_weights(on_cpu->table(), 1);
  const Inputs inputs(c, 5);
  const Result want = train(*on_cpu, weights, inputs);
  const Result got = train(*on_cuda, weights, inputs);
  EXPECT_NEAR(got.loss, want.loss, allowed() * static_cast<double>(want.loss));
  std::vector<double> all, apart;
  for (const TensorInfo& tensor : on_cpu->table().tensors) {
    if (tensor.rule != UpdateRule::kOptimizer) continue;
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      const auto at = static_cast<size_t>(i);
      all.push_back(want.gradients[at]);
      apart.push_back(static_cast<double>(got.gradients[at]) - all.back());
    }
  }
  EXPECT_LT(length(apart) / length(all), allowed());
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaNetworks, testing::Values(Precision::kFp32, Precision::kFp16),
                         [](const auto& of) { return std::string(to_string(of.param)); });

}  // namespace
}  // namespace pushpull::network_step_test
