#include "bench/gpu_parts.h"

#include <algorithm>
#include <cstdio>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/layout/slice_map.h"
#include "worker/compute/device_memory.h"
#include "worker/compute/device_sum.h"

namespace pushpull {

namespace {

std::string number(double value) {
  if (value == 0.0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

}  // namespace

std::string to_line(const GpuRow& row) {
  std::string line = "row";
  for (const std::string& field :
       {row.name, number(row.value), row.unit, number(row.floor), number(row.ratio), row.bar}) {
    line += "\t" + (field.empty() ? "-" : field);
  }
  return line;
}

void print(const GpuRow& row) {
  std::printf("%s\n", to_line(row).c_str());
  std::fflush(stdout);
}

void print_failure(const std::string& name, const std::string& reason) {
  std::printf("fail\t%s\t%s\n", name.c_str(), reason.c_str());
  std::fflush(stdout);
}

bool take_flag(int& argc, char** argv, const std::string& flag) {
  char** const end = argv + argc;
  char** const found = std::find(argv + 1, end, flag);
  if (found == end) return false;
  std::copy(found + 1, end, found);
  --argc;
  return true;
}

namespace {

DeviceStep& step_of(Model& model) {
  DeviceStep* const step = model.device_step();
  PP_ASSERT(step != nullptr);
  return *step;
}

}  // namespace

Pipeline::Pipeline(Model& model, const BatchLayout& layout, int64_t slice_bytes)
    : model_(model),
      step_(step_of(model)),
      weights_(weights_memory(model)(static_cast<size_t>(model.table().total))),
      block_(layout.words(), 0.0F),
      indices_(static_cast<size_t>(layout.samples())) {
  std::fill_n(block_.begin(), layout.size(0), 0.5F);
  // Small numbers of both signs: zeros would draw less power.
  const int64_t total = model.table().total;
  uint32_t random = 1;
  for (int64_t i = 0; i < total; ++i) {
    random = random * 1664525U + 1013904223U;
    weights_[i] = static_cast<float>(static_cast<int32_t>(random)) * 0x1p-37F;
  }
  step_.keep_times();
  sum_ = make_device_sum(step_, model.table(), {model.table().total, slice_bytes, 1});
}

PipelineTimes Pipeline::run() {
  PipelineTimes times;
  const GradientSum::SliceReady ready = [&](int /*slice*/, const Payload& part) {
    times.bytes_out += part.bytes.size();
  };
  step_.stage({0, 0, indices_, block_});
  sum_->begin(1);
  const double begin_s = now_seconds();
  step_.begin(weights());
  step_.run(sum_->leaf().data(), [&](size_t tensor) { sum_->tensor_ready(tensor, ready); });
  sum_->end_leaf();
  sum_->finish(ready);
  const double all_s = now_seconds() - begin_s;
  step_.wait();
  for (const DeviceSpan& span : step_.spans()) {
    if (span.kind == DeviceSpan::kForward) times.in_s = span.end_s - span.begin_s;
  }
  times.out_s = all_s - times.in_s;
  return times;
}

}  // namespace pushpull
