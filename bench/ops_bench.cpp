// The cost of one micro-batch: the operations of mlp and convnet alone, and whole training steps of
// both.
//   ops_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/job/job.h"
#include "models/model.h"
#include "models/ops/convolution.h"
#include "models/ops/linear.h"
#include "models/ops/losses.h"
#include "models/ops/norms.h"
#include "models/ops/pointwise.h"
#include "models/ops/pool.h"

namespace pushpull {
namespace {

std::vector<float> numbers(size_t count, float bound = 1.0F) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {  // no denormals, no zeros, both signs
    values[i] = bound * (static_cast<float>((i * 7919) % 2001) - 1000.5F) / 1000.0F;
  }
  return values;
}

// The plan of an operation on the CPU, with memory for one run.
class Planned {
 public:
  Planned(const ops::Spec& spec, const std::vector<ops::ValueType>& inputs)
      : backend_(ops::make_cpu_backend(1)) {
    spec.check("operation", inputs);
    op_ = backend_->plan(spec);
    run.training = true;
    for (size_t i = 0; i < inputs.size(); ++i) {
      run.x[i].data = value(inputs[i]);
      run.dx[i].data = value(inputs[i]);
    }
    run.y.data = value(spec.output());
    run.dy.data = value(spec.output());
    const std::vector<ops::Shape> params = spec.params();
    for (size_t i = 0; i < params.size(); ++i) {
      run.w[i] = floats(static_cast<size_t>(params[i].size()));
      run.dw[i] = floats(static_cast<size_t>(params[i].size()));
    }
    run.kept = floats(op_->needs().kept_bytes / sizeof(float) + 1);
  }

  // Measures a part: 0 forward, 1 backward to the weights, 2 backward to the data. Forward runs once
  // before it.
  void measure(benchmark::State& state, int64_t part) {
    const ops::Backend::Scope scope(*backend_);
    const bool training = run.training;
    run.training = true;
    op_->forward(run);
    run.training = training;
    while (state.KeepRunning()) {
      if (part == 0) op_->forward(run);
      if (part == 1) op_->backward_weights(run);
      if (part == 2) op_->backward_data(run);
    }
  }

  ops::Run run;

 private:
  void* value(const ops::ValueType& type) { return floats(ops::floats_of(*backend_, type)); }
  float* floats(size_t count) {
    buffers_.push_back(backend_->allocate(count));
    std::ranges::copy(numbers(count), buffers_.back().data());
    return buffers_.back().data();
  }

  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<ops::Operation> op_;
  std::vector<ops::Buffer> buffers_;
};

void finish(benchmark::State& state, double operations) {
  state.counters["flop/s"] = benchmark::Counter(
      operations * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

// args: N, K, M, part (0 forward, 1 backward weights, 2 backward data)
void linear(benchmark::State& state) {
  const ops::LinearShape shape{state.range(0), state.range(1), state.range(2), true};
  Planned(ops::LinearSpec(shape), {ops::activation({shape.samples, shape.inputs})})
      .measure(state, state.range(3));
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
  ops::ValueType input = ops::native_image(shape.input);
  input.layout = shape.input_layout;
  Planned(ops::ConvolutionSpec(shape), {input}).measure(state, state.range(4));
  finish(state, 2.0 * 25.0 * static_cast<double>(shape.input.size() * shape.outputs));
}

// args: N, C, H = W, part (0 forward, 1 inference, 2 backward)
void batch_norm(benchmark::State& state) {
  const ops::ImageShape image{state.range(0), state.range(1), state.range(2), state.range(2)};
  const ops::BatchNormSpec spec({.image = image, .relu = true});
  Planned planned(spec, {ops::native_image(image)});
  const std::vector<float> variance(static_cast<size_t>(image.channels), 1.0F);
  planned.run.w[3] = variance.data();
  planned.run.training = state.range(3) != 1;
  planned.measure(state, state.range(3) == 2 ? 2 : 0);
}

// args: N, C, H = W, part (0 pool forward, 1 pool backward, 2 to plain, 3 to native)
void pool_and_relayout(benchmark::State& state) {
  const ops::ImageShape image{state.range(0), state.range(1), state.range(2), state.range(2)};
  const std::vector inputs{ops::native_image(image)};
  const int64_t part = state.range(3) % 2 == 0 ? 0 : 2;
  if (state.range(3) < 2) {
    Planned(ops::MaxPoolSpec({image}), inputs).measure(state, part);
  } else {
    Planned(ops::FlattenSpec(image), inputs).measure(state, part);
  }
}

// args: N, M, part (0 forward, 1 backward, 2 evaluation with predictions)
void cross_entropy(benchmark::State& state) {
  const int64_t n = state.range(0);
  const ops::CrossEntropySpec spec({n, state.range(1)}, {});
  Planned planned(
      spec, {ops::activation({n, state.range(1)}), {ops::Element::kInt, ops::Layout::kPlain, {n}}});
  const std::vector<int32_t> labels(static_cast<size_t>(n), 1);
  std::vector<int32_t> predictions(labels.size());
  const float scale = 1.0F / static_cast<float>(n);
  planned.run.x[1].data = labels.data();
  planned.run.scale = &scale;
  planned.run.valid = n;
  if (state.range(2) == 2) {
    planned.run.training = false;
    planned.run.predictions.data = predictions.data();
  }
  planned.measure(state, state.range(2) == 1 ? 2 : 0);
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
