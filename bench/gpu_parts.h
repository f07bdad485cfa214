// Parts of the GPU benchmarks: the lines of their output, and the transfers of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/device_step.h"
#include "models/model.h"
#include "worker/compute/gradient_sum.h"

namespace pushpull {

// Output of the GPU benchmarks for scripts/gpu-check.sh: one line per result, with fields between
// tabs and - for an absent field.
//   row NAME VALUE UNIT FLOOR RATIO BAR
//   fail NAME REASON
// FLOOR: value of the alternating reference, in the same unit. BAR: condition on RATIO, such as
// >=0.8; a row without a bar is information only.
struct GpuRow {
  std::string name;
  double value = 0.0;
  std::string unit = {};
  double floor = 0.0;  // 0 = none
  double ratio = 0.0;  // 0 = none
  std::string bar = {};
};

std::string to_line(const GpuRow& row);
// Writes to stdout and flushes, since a later measurement may not end.
void print(const GpuRow& row);
void print_failure(const std::string& name, const std::string& reason);

// Removes `flag` from the arguments. Returns true if it was among them.
bool take_flag(int& argc, char** argv, const std::string& flag);

// The transfer of a step's weights to a device and of its gradients back, as a worker does it:
// weights go in tensor by tensor, gradients come out slice by slice during backward.
struct PipelineTimes {
  double in_s = 0.0;   // until forward ends, which starts before all weights have arrived
  double out_s = 0.0;  // from then until the host has the last slice
  size_t bytes_out = 0;
};

class Pipeline {
 public:
  // model: on a device, outlives the pipeline; its micro-batch is so small that copies take longer
  // than computing. block: words of a micro-batch's block, samples: its samples.
  Pipeline(Model& model, const BatchLayout& layout, int64_t slice_bytes);

  // Runs one step on the same weights and images.
  PipelineTimes run();
  size_t bytes() const { return static_cast<size_t>(model_.table().total) * sizeof(float); }
  std::span<const float> weights() const {
    return {weights_.get(), static_cast<size_t>(model_.table().total)};
  }
  // Returns the gradient sum of the latest step.
  std::span<const float> sum() const { return sum_->sum(); }

 private:
  Model& model_;
  DeviceStep& step_;
  std::shared_ptr<float[]> weights_;
  std::vector<float> block_;
  std::vector<int64_t> indices_;
  std::unique_ptr<GradientSum> sum_;
};

}  // namespace pushpull
