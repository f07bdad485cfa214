#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "bench/gpu_parts.h"
#include "common/job/job.h"
#include "models/graph_model.h"
#include "tests/device/fake_device.h"
#include "tests/models/queued_backend.h"

namespace pushpull {
namespace {

constexpr int64_t kSamples = 4;
constexpr InputShape kInput{1, 1, 24};
constexpr int64_t kSliceBytes = 4096;

Job small_job() {
  Job job;
  job.hidden = {64, 48};
  job.micro_batch = kSamples;
  job.global_batch = kSamples;
  return job;
}

// The benchmark times whole steps of a worker: all gradients arrive, with the processor's bits.
TEST(GpuPipeline, EveryStepCopiesTheWholeGradientToTheHost) {
  const Job job = small_job();
  const FieldTable fields = image_fields({kInput.channels, kInput.height, kInput.width}, 10);
  const BatchLayout layout(fields, kSamples);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    device::FakeOptions options;
    options.seed = seed;
    const auto model = make_model_on(
        make_queued_backend(std::make_shared<device::FakeDevice>(options)), job, fields);
    Pipeline pipeline(*model, layout, kSliceBytes);
    const auto total = static_cast<size_t>(model->table().total);
    ASSERT_EQ(pipeline.bytes(), total * sizeof(float));

    const auto cpu = make_model(job, fields);
    std::vector<float> gradient(total);
    std::vector<float> half(layout.words(), 0.0F);
    std::fill_n(half.begin(), layout.size(0), 0.5F);
    cpu->train(pipeline.weights(), {0, 0, {}, half}, gradient, [](size_t) {});
    for (int step = 0; step < 3; ++step) {
      const PipelineTimes times = pipeline.run();
      EXPECT_EQ(times.bytes_out, pipeline.bytes());
      EXPECT_GT(times.in_s, 0.0);
      EXPECT_EQ(std::memcmp(pipeline.sum().data(), gradient.data(), pipeline.bytes()), 0);
    }
  }
}

TEST(GpuRows, MissingFieldsAreDashes) {
  GpuRow row;
  row.name = "pinned host to device";
  row.value = 54.321098;
  row.unit = "GB/s";
  EXPECT_EQ(to_line(row), "row\tpinned host to device\t54.32\tGB/s\t-\t-\t-");
  row.floor = 4096;
  row.ratio = 0.8125;
  row.bar = ">=0.8";
  EXPECT_EQ(to_line(row), "row\tpinned host to device\t54.32\tGB/s\t4096\t0.8125\t>=0.8");
}

TEST(GpuRows, AFlagIsRemovedFromTheCommandLine) {
  std::vector<char> program{'p', '\0'}, first{'1', '\0'}, second{'2', '\0'};
  std::vector<char> flag{'-', '-', 'r', '\0'};
  std::vector<char*> words{program.data(), first.data(), flag.data(), second.data()};
  int argc = 4;
  EXPECT_FALSE(take_flag(argc, words.data(), "--rows"));
  EXPECT_EQ(argc, 4);
  EXPECT_TRUE(take_flag(argc, words.data(), "--r"));
  EXPECT_EQ(argc, 3);
  EXPECT_EQ(words[1], first.data());
  EXPECT_EQ(words[2], second.data());
}

}  // namespace
}  // namespace pushpull
