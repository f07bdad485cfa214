// The cost of one micro-batch: every operation alone, and whole training steps of both models.
//   ops_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "common/job/job.h"
#include "models/model.h"
#include "models/ops/ops.h"

namespace pushpull {
namespace {

std::vector<float> numbers(size_t count, float bound = 1.0F) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {  // no denormals, no zeros, both signs
    values[i] = bound * (static_cast<float>((i * 7919) % 2001) - 1000.5F) / 1000.0F;
  }
  return values;
}

struct Arena {
  explicit Arena(ops::Backend& owner) : backend(owner) {}
  float* image(const ops::ImageShape& shape, ops::Layout layout) {
    return floats(backend.image_floats(shape, layout));
  }
  float* floats(size_t count) {
    buffers.push_back(backend.allocate(count));
    const std::vector<float> values = numbers(count);
    std::copy(values.begin(), values.end(), buffers.back().data());
    return buffers.back().data();
  }
  float* floats(int64_t count) { return floats(static_cast<size_t>(count)); }
  ops::Backend& backend;
  std::vector<ops::Buffer> buffers;
};

void finish(benchmark::State& state, double operations) {
  state.counters["flop/s"] = benchmark::Counter(
      operations * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// args: N, K, M, part (0 forward, 1 backward weights, 2 backward data)
void linear(benchmark::State& state) {
  const ops::LinearShape shape{state.range(0), state.range(1), state.range(2), true};
  const auto backend = ops::make_cpu_backend(1);
  const auto op = ops::make_linear(*backend, shape);
  Arena arena(*backend);
  float* x = arena.floats(shape.samples * shape.inputs);
  float* w = arena.floats(shape.outputs * shape.inputs);
  float* b = arena.floats(shape.outputs);
  float* y = arena.floats(shape.samples * shape.outputs);
  const ops::Backend::Scope scope(*backend);
  while (state.KeepRunning()) {
    if (state.range(3) == 0) op->forward(x, w, b, y);
    if (state.range(3) == 1) op->backward_weights(x, y, y, w, b);
    if (state.range(3) == 2) op->backward_data(y, w, x);
  }
  finish(state, 2.0 * static_cast<double>(shape.samples * shape.inputs * shape.outputs));
}

// args: N, C, H = W, O, part
void convolution(benchmark::State& state) {
  const bool first = state.range(1) <= 3;
  const ops::ConvolutionShape shape{
      .input = {state.range(0), state.range(1), state.range(2), state.range(2)},
      .outputs = state.range(3),
      .kernel = 5,
      .padding = 2,
      .input_layout = first ? ops::Layout::kPlain : ops::Layout::kNative,
      .input_gradient = !first};
  const auto backend = ops::make_cpu_backend(1);
  const auto op = ops::make_convolution(*backend, shape);
  Arena arena(*backend);
  float* x = arena.image(shape.input, shape.input_layout);
  float* w = arena.floats(shape.outputs * shape.input.channels * 25);
  float* b = arena.floats(shape.outputs);
  float* y = arena.image(shape.output(), ops::Layout::kNative);
  const ops::Backend::Scope scope(*backend);
  op->forward(x, w, b, y);
  while (state.KeepRunning()) {
    if (state.range(4) == 0) op->forward(x, w, b, y);
    if (state.range(4) == 1) op->backward_weights(x, y, w, b);
    if (state.range(4) == 2) op->backward_data(y, w, x);
  }
  finish(state, 2.0 * 25.0 * static_cast<double>(shape.input.size() * shape.outputs));
}

// args: N, C, H = W, part (0 forward, 1 inference, 2 backward)
void batch_norm(benchmark::State& state) {
  const ops::ImageShape image{state.range(0), state.range(1), state.range(2), state.range(2)};
  const auto backend = ops::make_cpu_backend(1);
  const auto op = ops::make_batch_norm(*backend, {.image = image, .relu = true});
  Arena arena(*backend);
  float* x = arena.image(image, ops::Layout::kNative);
  float* y = arena.image(image, ops::Layout::kNative);
  float* dx = arena.image(image, ops::Layout::kNative);
  std::vector<float*> v(6);
  for (float*& vector : v) vector = arena.floats(image.channels);
  const ops::Backend::Scope scope(*backend);
  op->forward(x, v[0], v[1], v[2], v[3], y);
  while (state.KeepRunning()) {
    if (state.range(3) == 0) op->forward(x, v[0], v[1], v[2], v[3], y);
    if (state.range(3) == 1) op->infer(x, v[0], v[1], v[2], v[3], y);
    if (state.range(3) == 2) op->backward(x, y, v[0], v[1], dx, v[4], v[5]);
  }
}

// args: N, C, H = W, part (0 pool forward, 1 pool backward, 2 to plain, 3 to native)
void pool_and_relayout(benchmark::State& state) {
  const ops::ImageShape image{state.range(0), state.range(1), state.range(2), state.range(2)};
  const ops::MaxPoolShape shape{image};
  const auto backend = ops::make_cpu_backend(1);
  const auto pool = ops::make_max_pool(*backend, shape);
  const auto relayout = ops::make_relayout(*backend, image);
  Arena arena(*backend);
  float* x = arena.image(image, ops::Layout::kNative);
  float* y = arena.image(shape.output(), ops::Layout::kNative);
  float* plain = arena.image(image, ops::Layout::kPlain);
  const ops::Backend::Scope scope(*backend);
  pool->forward(x, y);
  while (state.KeepRunning()) {
    if (state.range(3) == 0) pool->forward(x, y);
    if (state.range(3) == 1) pool->backward(y, x);
    if (state.range(3) == 2) relayout->to_plain(x, plain);
    if (state.range(3) == 3) relayout->to_native(plain, x);
  }
}

// args: N, M, part (0 forward, 1 backward, 2 predict)
void cross_entropy(benchmark::State& state) {
  const int64_t n = state.range(0);
  const auto backend = ops::make_cpu_backend(1);
  const auto op = ops::make_cross_entropy(*backend, {n, state.range(1)});
  Arena arena(*backend);
  float* logits = arena.floats(n * state.range(1));
  float* dlogits = arena.floats(n * state.range(1));
  const std::vector<int32_t> labels(static_cast<size_t>(n), 1);
  std::vector<float> losses(labels.size());
  std::vector<int32_t> predictions(labels.size());
  const ops::Backend::Scope scope(*backend);
  op->forward(logits, labels.data(), n, losses.data());
  while (state.KeepRunning()) {
    if (state.range(2) == 0) op->forward(logits, labels.data(), n, losses.data());
    if (state.range(2) == 1) op->backward(labels.data(), dlogits);
    if (state.range(2) == 2) op->predict(logits, n, predictions.data());
  }
}

void run_model(benchmark::State& state, const Job& job, const InputShape& input, bool training) {
  const FieldTable fields = image_fields({input.channels, input.height, input.width}, 10);
  const auto model = make_model(job, fields);
  const auto total = static_cast<size_t>(model->table().total);
  std::vector<float> weights = numbers(total, 0.05F);
  for (const TensorInfo& tensor : model->table().tensors) {  // variances must not be negative
    if (tensor.init != InitKind::kConstant) continue;
    std::fill_n(weights.begin() + tensor.offset, tensor.size, tensor.value);
  }
  std::vector<float> gradients(total);
  const BatchLayout layout(fields, job.micro_batch);
  std::vector<float> block = numbers(layout.words());
  for (size_t i = 0; i < layout.size(1); ++i) {
    as_ints(block.data() + layout.offset(1))[i] = static_cast<int32_t>(i % 10);
  }
  const std::vector<int64_t> indices(static_cast<size_t>(job.micro_batch));
  const Samples samples{0, 0, indices, block};
  const GradientReady ready = [](size_t) {};
  std::vector<HeadSums> sums(model->heads().size());
  while (state.KeepRunning()) {
    if (training) {
      model->train(weights, samples, gradients, ready);
    } else {
      model->evaluate(weights, samples, sums);
    }
  }
  state.SetItemsProcessed(state.iterations() * job.micro_batch);  // samples
}

// args: micro-batch, threads, training
void convnet(benchmark::State& state) {
  Job job;
  job.model = "convnet";
  job.micro_batch = state.range(0);
  job.threads = state.range(1);
  run_model(state, job, {1, 28, 28}, state.range(2) != 0);
}

// args: inputs, hidden, hidden, micro-batch
void mlp_step(benchmark::State& state) {
  Job job;
  job.model = "mlp";
  job.hidden = {state.range(1), state.range(2)};
  job.micro_batch = state.range(3);
  run_model(state, job, {state.range(0), 1, 1}, true);
}

void linear_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"N", "K", "M", "part"});
  for (const int64_t part : {0, 1, 2}) {
    for (const auto& s : std::vector<std::vector<int64_t>>{
             {8, 64, 64}, {100, 1568, 10}, {128, 1024, 1024}, {64, 4096, 4096}, {768, 3072, 768}}) {
      b->Args({s[0], s[1], s[2], part});
    }
  }
}

void convolution_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"N", "C", "H", "O", "part"});
  for (const int64_t part : {0, 1, 2}) {
    if (part < 2) b->Args({100, 1, 28, 16, part});
    b->Args({100, 16, 14, 32, part});
  }
}

BENCHMARK(convnet)
    ->ArgNames({"batch", "threads", "train"})
    ->UseRealTime()
    ->Args({100, 1, 1})
    ->Args({8, 1, 1})
    ->Args({100, 2, 1})
    ->Args({100, 1, 0});
BENCHMARK(mlp_step)
    ->ArgNames({"in", "h1", "h2", "batch"})
    ->UseRealTime()
    ->Args({64, 64, 32, 8})
    ->Args({784, 1024, 1024, 128})
    ->Args({4096, 4096, 4096, 64});
BENCHMARK(linear)->Apply(linear_shapes);
BENCHMARK(convolution)->Apply(convolution_shapes);
BENCHMARK(batch_norm)
    ->ArgNames({"N", "C", "H", "part"})
    ->ArgsProduct({{100}, {16}, {28}, {0, 1, 2}});
BENCHMARK(pool_and_relayout)
    ->ArgNames({"N", "C", "H", "part"})
    ->ArgsProduct({{100}, {32}, {14}, {0, 1, 2, 3}});
BENCHMARK(cross_entropy)->ArgNames({"N", "M", "part"})->ArgsProduct({{8, 128}, {10}, {0, 1, 2}});

}  // namespace
}  // namespace pushpull

BENCHMARK_MAIN();
