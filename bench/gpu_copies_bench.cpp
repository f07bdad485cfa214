// The cost of copies and launches on a GPU.
//   gpu_copies_bench floors     limits of the device: copies within it and from and to pinned
//                               memory, launches of a nearly empty kernel
//   gpu_copies_bench pipeline   a worker's transfer of 50 million weights to the device and of as
//                               many gradients back, alternating with pinned copies of that size
// Prints rows (bench/gpu_parts.h): medians over rounds. Exit code 77 without a device: nothing was
// measured. The device is the first in CUDA_VISIBLE_DEVICES.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu_parts.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/device/cuda_check.h"
#include "common/job/job.h"

namespace pushpull {
namespace {

constexpr size_t kBytes = size_t{256} << 20;  // larger than the caches
constexpr int kRounds = 15;
constexpr int kLaunches = 1000;
constexpr int64_t kDeadlineMs = 60'000;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct FreePinned {
  void operator()(std::byte* memory) const { cudaFreeHost(memory); }
};
using Pinned = std::unique_ptr<std::byte[], FreePinned>;

// Allocates pinned memory and writes it once, so that its pages are present.
Pinned pinned(size_t bytes) {
  void* made = nullptr;
  PP_CUDA(cudaMallocHost(&made, bytes));
  Pinned memory(static_cast<std::byte*>(made));
  std::fill_n(memory.get(), bytes, std::byte{1});
  return memory;
}

// A device with a stream. `seconds` returns the host's time from enqueuing work until it is done.
class Lab {
 public:
  Lab() : device(device::open({device::DeviceName::kCuda, 0})), stream(device->stream()) {
    device::use_device(0);
  }

  double seconds(const std::function<void()>& enqueue) {
    const double begin_s = now_seconds();
    enqueue();
    stream->synchronize(kDeadlineMs);
    return now_seconds() - begin_s;
  }
  double copy_seconds(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return seconds(
        [&] { PP_CUDA(cudaMemcpyAsync(to, from, bytes, kind, device::native_stream(*stream))); });
  }
  // Returns the median over kRounds rounds, after one warm-up round.
  double median_seconds(const std::function<double()>& measure) {
    measure();
    std::vector<double> values;
    values.reserve(kRounds);
    for (int round = 0; round < kRounds; ++round) values.push_back(measure());
    return median(std::move(values));
  }

  std::shared_ptr<device::Device> device;
  std::unique_ptr<device::Stream> stream;
};

void floors() {
  Lab lab;
  const device::Memory first = lab.device->allocate(kBytes);
  const device::Memory second = lab.device->allocate(kBytes);
  const Pinned host = pinned(kBytes);
  const auto gigabytes = 1e-9 * static_cast<double>(kBytes);
  const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
    return lab.median_seconds([&] { return lab.copy_seconds(to, from, kBytes, kind); });
  };
  const double within_s = copy(second.data(), first.data(), cudaMemcpyDeviceToDevice);
  print({.name = "copy within the device, read and written",
         .value = 2 * gigabytes / within_s,
         .unit = "GB/s"});
  const double in_s = copy(first.data(), host.get(), cudaMemcpyHostToDevice);
  print({.name = "pinned host to device", .value = gigabytes / in_s, .unit = "GB/s"});
  const double out_s = copy(host.get(), first.data(), cudaMemcpyDeviceToHost);
  print({.name = "device to pinned host", .value = gigabytes / out_s, .unit = "GB/s"});

  const auto add = [&] { lab.stream->add(first.floats(), second.floats(), 1); };
  const double one_s = lab.median_seconds([&] { return lab.seconds(add); });
  print({.name = "a kernel, launched and waited for", .value = 1e6 * one_s, .unit = "us"});
  const auto many = [&] {
    for (int i = 0; i < kLaunches; ++i) add();
  };
  const double many_s = lab.median_seconds([&] { return lab.seconds(many); }) / kLaunches;
  print({.name = "a kernel among many in a row", .value = 1e6 * many_s, .unit = "us"});
  const auto graph = lab.stream->capture(many);
  if (graph == nullptr) throw Error(ErrorCode::kDevice, "[bench] launches cannot be recorded");
  const double in_graph_s =
      lab.median_seconds([&] { return lab.seconds([&] { lab.stream->launch(*graph); }); });
  print(
      {.name = "a kernel in a graph of many", .value = 1e6 * in_graph_s / kLaunches, .unit = "us"});
}

void pipeline() {
  constexpr int64_t kWidth = 4096;
  constexpr int64_t kSamples = 8;
  Job job;
  job.hidden = {kWidth, kWidth, kWidth};
  job.micro_batch = kSamples;
  job.global_batch = kSamples;
  const FieldTable fields = image_fields({1, 1, kWidth}, 10);
  const auto model = make_model(job, fields, {device::DeviceName::kCuda, 0});
  Pipeline ours(*model, BatchLayout(fields, kSamples), job.slice_bytes);
  Lab lab;
  const device::Memory memory = lab.device->allocate(ours.bytes());
  const Pinned host = pinned(ours.bytes());
  std::vector<double> in, out, bare_in, bare_out;
  for (int round = -2; round < kRounds; ++round) {  // two rounds of warm-up
    const double there =
        lab.copy_seconds(memory.data(), host.get(), ours.bytes(), cudaMemcpyHostToDevice);
    const double back =
        lab.copy_seconds(host.get(), memory.data(), ours.bytes(), cudaMemcpyDeviceToHost);
    const PipelineTimes times = ours.run();
    if (round < 0) continue;
    bare_in.push_back(there);
    bare_out.push_back(back);
    in.push_back(times.in_s);
    out.push_back(times.out_s);
  }
  const auto row = [&](const char* name, double our_s, double bare_s) {
    const double gigabytes = 1e-9 * static_cast<double>(ours.bytes());
    print({.name = name,
           .value = gigabytes / our_s,
           .unit = "GB/s",
           .floor = gigabytes / bare_s,
           .ratio = our_s / bare_s,
           .bar = "<=1.1"});
  };
  row("weights to the device, time over a pinned copy's", median(in), median(bare_in));
  row("gradients to the host, time over a pinned copy's", median(out), median(bare_out));
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (what != "floors" && what != "pipeline") {
    std::fprintf(stderr, "usage: gpu_copies_bench floors|pipeline\n");
    return 2;
  }
  if (std::string why; pushpull::device::count(&why) == 0) {
    std::printf("skipped: no CUDA device (%s); nothing was measured\n", why.c_str());
    return 77;
  }
  try {
    what == "floors" ? pushpull::floors() : pushpull::pipeline();
  } catch (const pushpull::Error& error) {
    std::fprintf(stderr, "gpu_copies_bench: %s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
