// Bandwidth of pushpull's own kernels on a GPU, compared with a copy of as many bytes that
// alternates with them.
//   gpu_bench [--benchmark_filter=...] [--benchmark_format=json] [--rows]
// GB/s: bytes that the passes must read and write, per second of device time (events). of_copy:
// ratio to the copy's GB/s. --rows: see bench/gpu_parts.h; of_copy has a bar if the tensors are far
// larger than the caches and a launch is short compared with the pass. Exit code 77 without a
// device: nothing was measured. The device is the first in CUDA_VISIBLE_DEVICES.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/gpu_parts.h"
#include "common/base/error.h"
#include "common/device/cuda_check.h"
#include "common/device/slice_update.h"
#include "common/update/optimizer.h"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/passes.h"
#include "models/ops/losses.h"
#include "models/ops/norms.h"
#include "models/ops/pool.h"
#include "models/ops/sequence.h"

namespace pushpull::ops::cuda {
namespace {

constexpr int kRounds = 21;        // medians over rounds are reported
constexpr int kRunsPerRound = 10;  // in a row, so that the cost of a launch is hidden
constexpr int64_t kDeadlineMs = 60'000;
constexpr double kFarLargerThanCaches = 200e6;  // bytes; the H200's L2 has 50 MB
constexpr const char* kBar = ">=0.8";           // ratio to the copy

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A device with tensors on it, for one benchmark.
class Lab {
 public:
  explicit Lab(Precision precision) {
    shared.device = device::open({device::DeviceName::kCuda, 0});
    shared.precision = precision;
    device::use_device(shared.index);
    stream_ = shared.device->stream();
    shared.stream = device::native_stream(*stream_);
    begin_ = shared.device->event(true);
    end_ = shared.device->event(true);
  }

  int64_t element() const { return shared.short_activations() ? 2 : 4; }

  // Returns numbers in -1..1 in device memory, as activations or floats. Zeros would draw less
  // power.
  void* activations(int64_t count) {
    const float* values = floats(count);
    void* made = room(count * element());
    cast_weights(shared, values, count, made);
    stream_->synchronize(kDeadlineMs);
    return made;
  }
  float* floats(int64_t count) {
    std::vector<float> host(static_cast<size_t>(count));
    uint32_t random = 1;
    for (float& value : host) {
      random = random * 1664525U + 1013904223U;
      value = static_cast<float>(static_cast<int32_t>(random)) * 0x1p-31F;
    }
    void* made = room(count * 4);
    PP_CUDA(cudaMemcpy(made, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
    return static_cast<float*>(made);
  }
  int32_t* labels(int64_t count, int64_t classes) {
    std::vector<int32_t> host;
    for (int64_t n = 0; n < count; ++n) host.push_back(static_cast<int32_t>(n * 7 % classes));
    void* made = room(count * 4);
    PP_CUDA(cudaMemcpy(made, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
    return static_cast<int32_t*>(made);
  }
  template <class T>
  const T* copied(const std::vector<T>& values) {
    void* made = room(std::ssize(values) * static_cast<int64_t>(sizeof(T)));
    PP_CUDA(cudaMemcpy(made, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return static_cast<const T*>(made);
  }
  void* room(int64_t bytes) {
    memory_.push_back(shared.device->allocate(static_cast<size_t>(bytes)));
    return memory_.back().data();
  }

  // Measures `run`. bytes: read and written by one run.
  void measure(benchmark::State& state, int64_t bytes, const std::function<void()>& run) {
    const auto half = static_cast<size_t>(bytes / 2);
    void* from = room(bytes / 2);
    void* to = room(bytes / 2);
    const auto copy = [&] {
      PP_CUDA(cudaMemcpyAsync(to, from, half, cudaMemcpyDeviceToDevice, shared.stream));
    };
    seconds(run);  // loads the kernels
    seconds(copy);
    std::vector<double> ours;
    std::vector<double> copies;
    while (state.KeepRunning()) {
      copies.push_back(seconds(copy));
      ours.push_back(seconds(run));
      state.SetIterationTime(ours.back());
    }
    const double gigabytes = 1e-9 * static_cast<double>(bytes);
    state.counters["GB/s"] = gigabytes / median(ours);
    state.counters["copy_GB/s"] = gigabytes / median(copies);
    state.counters["of_copy"] = median(copies) / median(ours);
    state.counters["us"] = 1e6 * median(ours);
    state.counters["bytes"] = static_cast<double>(bytes);
  }

  device::Stream& stream() { return *stream_; }

  Shared shared;

 private:
  // Returns the seconds of one run, the mean over kRunsPerRound runs in a row.
  double seconds(const std::function<void()>& run) {
    stream_->record(*begin_);
    for (int i = 0; i < kRunsPerRound; ++i) run();
    stream_->record(*end_);
    end_->wait(kDeadlineMs);
    return end_->seconds_since(*begin_) / kRunsPerRound;
  }

  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Event> begin_, end_;
  std::vector<device::Memory> memory_;
};

Precision precision_of(const benchmark::State& state) {
  return state.range(0) == 16 ? Precision::kBf16 : Precision::kFp32;
}

// args: bits, N, C, H = W, part (0 forward, 1 inference, 2 backward)
void batch_norm(benchmark::State& state) {
  Lab lab(precision_of(state));
  const ImageShape image{state.range(1), state.range(2), state.range(3), state.range(3)};
  const auto op = make_batch_norm(lab.shared, BatchNormSpec({.image = image, .relu = true}));
  Run run;
  run.x[0].data = lab.activations(image.size());
  run.dy.data = lab.activations(image.size());
  run.y.data = run.dx[0].data = lab.room(image.size() * lab.element());
  run.kept = lab.floats(static_cast<int64_t>(op->needs().kept_bytes / sizeof(float)));
  for (size_t i = 0; i < 4; ++i) {
    run.w[i] = lab.floats(image.channels);
    run.dw[i] = lab.floats(image.channels);
  }
  run.w[2] = run.dw[2];  // the batch's own statistics
  run.w[3] = run.dw[3];
  run.training = true;
  op->forward(run);
  const int64_t bytes = image.size() * lab.element();
  if (state.range(4) == 0) {
    lab.measure(state, 3 * bytes, [&] { op->forward(run); });
  } else if (state.range(4) == 1) {
    run.training = false;
    lab.measure(state, 2 * bytes, [&] { op->forward(run); });
  } else {
    lab.measure(state, 5 * bytes, [&] { op->backward_data(run); });
  }
}

// args: bits, N, C, H = W, part (0 forward, 1 backward)
void max_pool(benchmark::State& state) {
  Lab lab(precision_of(state));
  const MaxPoolShape shape{{state.range(1), state.range(2), state.range(3), state.range(3)}};
  const auto op = make_max_pool(lab.shared, MaxPoolSpec(shape));
  const int64_t windows = shape.output().size();
  Run run;
  run.x[0].data = run.dx[0].data = lab.activations(shape.image.size());
  run.y.data = run.dy.data = lab.activations(windows);
  run.kept = lab.room(windows);
  op->forward(run);
  const int64_t bytes = (shape.image.size() + windows) * lab.element() + windows;
  if (state.range(4) == 0) lab.measure(state, bytes, [&] { op->forward(run); });
  if (state.range(4) == 1) lab.measure(state, bytes, [&] { op->backward_data(run); });
}

// args: bits, N, M, part (0 masked sum of rows, 1 sum of rows)
void bias_gradient(benchmark::State& state) {
  Lab lab(precision_of(state));
  const bool relu = state.range(3) == 0;
  const LinearShape shape{state.range(1), 1, state.range(2), relu};
  const int64_t count = shape.samples * shape.outputs;
  void* y = lab.activations(count);
  void* dy = lab.activations(count);
  float* db = lab.floats(shape.outputs);
  plan_mask_and_sum_rows(lab.shared, shape);
  lab.measure(state, (relu ? 3 : 1) * count * lab.element(),
              [&] { mask_and_sum_rows(lab.shared, shape, y, dy, db); });
}

// args: bits, N, C, H = W, part (0 sum of channels, 1 addition of a bias)
void channels(benchmark::State& state) {
  Lab lab(precision_of(state));
  const ImageShape image{state.range(1), state.range(2), state.range(3), state.range(3)};
  void* dy = lab.activations(image.size());
  float* b = lab.floats(image.channels);
  plan_sum_channels(lab.shared, image);
  const int64_t bytes = image.size() * lab.element();
  if (state.range(4) == 0) {
    lab.measure(state, bytes, [&] { sum_channels(lab.shared, image, dy, b); });
  } else {
    lab.measure(state, 2 * bytes, [&] { add_bias(lab.shared, image, b, dy); });
  }
}

// To bf16. args: elements
void cast(benchmark::State& state) {
  Lab lab(Precision::kBf16);
  const int64_t count = state.range(0);
  const float* floats = lab.floats(count);
  void* activations = lab.activations(count);
  lab.measure(state, 6 * count, [&] { cast_weights(lab.shared, floats, count, activations); });
}

// args: bits, N, M, part (0 forward, 1 backward, 2 predictions alone)
void cross_entropy(benchmark::State& state) {
  Lab lab(precision_of(state));
  const CrossEntropyShape shape{state.range(1), state.range(2)};
  const auto op = make_cross_entropy(lab.shared, CrossEntropySpec(shape, {}));
  const int64_t count = shape.samples * shape.classes;
  Run run;
  run.x[0].data = run.dx[0].data = lab.activations(count);
  run.x[1].data = lab.labels(shape.samples, shape.classes);
  run.y.data = lab.floats(shape.samples);
  run.kept = lab.floats(static_cast<int64_t>(op->needs().kept_bytes / sizeof(float)));
  run.scale = lab.floats(1);
  run.valid = shape.samples;
  run.training = true;
  op->forward(run);
  const int64_t bytes = count * lab.element();
  if (state.range(3) == 0) {
    lab.measure(state, bytes, [&] { op->forward(run); });
  } else if (state.range(3) == 1) {
    lab.measure(state, 2 * bytes, [&] { op->backward_data(run); });
  } else {
    run.predictions.data = lab.labels(shape.samples, shape.classes);
    run.y.data = nullptr;
    lab.measure(state, bytes, [&] { op->forward(run); });
  }
}

// Half of the places are of row 0, as if they were padding.
// args: bits, N, V, E, part (0 forward, 1 gradient of the table)
void embedding(benchmark::State& state) {
  Lab lab(precision_of(state));
  const EmbeddingShape shape{1, state.range(1), state.range(2), state.range(3)};
  const auto op = make_embedding(lab.shared, EmbeddingSpec(shape));
  std::vector<int32_t> ids;
  for (int64_t n = 0; n < shape.positions; ++n) {
    ids.push_back(static_cast<int32_t>(n % 2 == 0 ? 0 : n * 7 % shape.vocabulary));
  }
  const int64_t count = shape.positions * shape.width;
  const int64_t weights = shape.vocabulary * shape.width;
  Run run;
  run.x[0].data = lab.copied(ids);
  run.y.data = lab.room(count * lab.element());
  run.dy.data = lab.activations(count);
  run.w[0] = lab.floats(weights);
  run.dw[0] = lab.floats(weights);
  if (state.range(4) == 0) {
    lab.measure(state, count * (4 + lab.element()), [&] { op->forward(run); });
  } else {
    lab.measure(state, count * lab.element() + weights * 4, [&] { op->backward_weights(run); });
  }
}

// args: bits, N, M, part (0 forward, 1 gradients of the parameters, 2 dx)
void layer_norm(benchmark::State& state) {
  Lab lab(precision_of(state));
  const LayerNormShape shape{.rows = state.range(1), .width = state.range(2)};
  const auto op = make_layer_norm(lab.shared, LayerNormSpec(shape, Shape{shape.rows, shape.width}));
  const int64_t count = shape.rows * shape.width;
  Run run;
  run.x[0].data = lab.activations(count);
  run.y.data = run.dx[0].data = lab.room(count * lab.element());
  run.dy.data = lab.activations(count);
  run.kept = lab.floats(static_cast<int64_t>(op->needs().kept_bytes / sizeof(float)));
  for (size_t i = 0; i < 2; ++i) {
    run.w[i] = lab.floats(shape.width);
    run.dw[i] = lab.floats(shape.width);
  }
  run.training = true;
  op->forward(run);
  const int64_t bytes = count * lab.element();
  if (state.range(3) == 0) lab.measure(state, 2 * bytes, [&] { op->forward(run); });
  if (state.range(3) == 1) lab.measure(state, 2 * bytes, [&] { op->backward_weights(run); });
  if (state.range(3) == 2) lab.measure(state, 3 * bytes, [&] { op->backward_data(run); });
}

// A server's step: two parts of each slice of 1 MiB. args: elements, rule (0 sgd, 1 momentum, 2
// adam, 3 the squares for a norm)
void slices(benchmark::State& state) {
  Lab lab(Precision::kFp32);
  const int64_t count = state.range(0);
  const auto number = static_cast<size_t>(state.range(1));
  constexpr int64_t kSlice = 1 << 18;
  constexpr OptimizerKind kKinds[] = {OptimizerKind::kSgd, OptimizerKind::kMomentum,
                                      OptimizerKind::kAdam, OptimizerKind::kSgd};
  const bool squares = number == 3;
  const OptimizerOptions optimizer{.kind = kKinds[number]};
  const auto states = static_cast<int32_t>(state_names(optimizer.kind).size());
  std::vector<float*> v(2);  // weights before and after, then the state
  for (int s = 0; s < states; ++s) v.push_back(nullptr);
  for (float*& vector : v) vector = lab.floats(count);
  if (states == 2) PP_CUDA(cudaMemset(v[3], 0, static_cast<size_t>(count) * 4));  // no square < 0
  const float* parts_at[] = {lab.floats(count), lab.floats(count)};
  const ElementRule rule = optimizer_rule(optimizer, {.learning_rate = 1e-3, .divisor = 2.0});
  std::vector<device::SlicePart> parts;
  std::vector<device::SliceMove> moves;
  std::vector<device::SliceSegment> segments;
  std::vector<device::SliceTile> tiles;
  for (int64_t lo = 0; lo < count; lo += kSlice) {
    const auto index = static_cast<int32_t>(moves.size());
    device::SliceMove move{};
    move.first_part = 2 * index;
    move.parts = 2;
    move.states = states;
    move.aligned = 1;
    for (int64_t p = 0; p < 2; ++p) parts.push_back({parts_at[p] + lo, p});
    move.before = v[0] + lo;
    move.after = v[1] + lo;
    for (int s = 0; s < states; ++s) {
      move.state_before[s] = move.state[s] = v[static_cast<size_t>(s) + 2] + lo;
    }
    moves.push_back(move);
    segments.push_back({0, kSlice, index, 1, rule});
    const int32_t tile = squares ? device::kNormBlock : 8 * device::kNormBlock;
    for (int64_t at = 0; at < kSlice; at += tile) tiles.push_back({at, tile, index});
  }
  const device::SliceBatch batch{lab.copied(parts),
                                 lab.copied(moves),
                                 lab.copied(segments),
                                 lab.copied(tiles),
                                 std::ssize(tiles),
                                 static_cast<int32_t>(segments.size()),
                                 1};
  if (squares) {
    auto* out = static_cast<double*>(lab.room(std::ssize(tiles) * 8));
    lab.measure(state, 2 * count * 4, [&] { lab.stream().square(batch, 2.0F, out); });
  } else {
    lab.measure(state, (4 + 2 * states) * count * 4, [&] { lab.stream().update(batch); });
  }
}

// A shape larger than a cache, then the shapes of convnet with 100 and 1,000 samples.
void image_shapes(benchmark::internal::Benchmark* b, const std::vector<int64_t>& parts) {
  b->ArgNames({"bits", "N", "C", "H", "part"});
  for (const int64_t bits : {32, 16}) {
    for (const auto& s : std::vector<std::vector<int64_t>>{
             {64, 64, 112}, {100, 16, 28}, {1000, 16, 28}, {1000, 32, 14}}) {
      for (const int64_t part : parts) b->Args({bits, s[0], s[1], s[2], part});
    }
  }
}

void row_shapes(benchmark::internal::Benchmark* b, const std::vector<std::vector<int64_t>>& shapes,
                const std::vector<int64_t>& parts) {
  b->ArgNames({"bits", "N", "M", "part"});
  for (const int64_t bits : {32, 16}) {
    for (const auto& s : shapes) {
      for (const int64_t part : parts) b->Args({bits, s[0], s[1], part});
    }
  }
}

void register_all() {
  const auto add = [](const char* name, void (*function)(benchmark::State&)) {
    return benchmark::RegisterBenchmark(name, function)->UseManualTime()->Iterations(kRounds);
  };
  image_shapes(add("batch_norm", batch_norm), {0, 1, 2});
  image_shapes(add("max_pool", max_pool), {0, 1});
  image_shapes(add("channels", channels), {0, 1});
  row_shapes(add("bias_gradient", bias_gradient),
             {{8192, 8192}, {12288, 768}, {512, 4096}, {1000, 10}}, {0, 1});
  row_shapes(add("layer_norm", layer_norm), {{65536, 1024}, {12288, 768}}, {0, 1, 2});
  // the tokens of gpt, and the token types of bert
  add("embedding", embedding)
      ->ArgNames({"bits", "N", "V", "E", "part"})
      ->ArgsProduct({{32, 16}, {12288}, {50257, 2}, {768}, {0, 1}});
  // whole packs, the vocabulary of gpt, and the digits
  row_shapes(add("cross_entropy", cross_entropy), {{65536, 1000}, {2048, 50257}, {1000, 10}},
             {0, 1, 2});
  add("cast", cast)->ArgName("count")->Arg(int64_t{1} << 26)->Arg(int64_t{1} << 24);
  add("slices", slices)
      ->ArgNames({"count", "rule"})
      ->ArgsProduct({{int64_t{1} << 26, int64_t{1} << 22}, {0, 1, 2, 3}});
}

// Prints results that have of_copy as rows.
class Rows final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const std::string name = run.run_name.function_name + "/" + run.run_name.args;
      const auto value = [&](const char* counter) {
        const auto found = run.counters.find(counter);
        return found == run.counters.end() ? 0.0 : static_cast<double>(found->second);
      };
      if (run.error_occurred) {
        print_failure(name, run.error_message);
      } else if (value("of_copy") > 0.0) {
        const bool barred = value("bytes") == 0.0 || value("bytes") >= kFarLargerThanCaches;
        print({.name = name,
               .value = value("GB/s"),
               .unit = "GB/s",
               .floor = value("copy_GB/s"),
               .ratio = value("of_copy"),
               .bar = barred ? kBar : ""});
      }
    }
  }
};

int run(int argc, char** argv) {
  const bool rows = take_flag(argc, argv, "--rows");
  std::string why;
  if (device::count(&why) == 0) {
    std::printf("skipped: no CUDA device (%s); nothing was measured\n", why.c_str());
    return 77;
  }
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Rows reporter;
  if (rows) {
    benchmark::RunSpecifiedBenchmarks(&reporter);
  } else {
    benchmark::RunSpecifiedBenchmarks();
  }
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace pushpull::ops::cuda

int main(int argc, char** argv) {
  try {
    return pushpull::ops::cuda::run(argc, argv);
  } catch (const pushpull::Error& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
