// DeviceStep on a fake device: in any order that the events allow, losses and gradients have the
// bits of the same operations on the CPU, one after the other. Host memory is overwritten as soon
// as it may change, device memory as soon as it is free.
#include "models/device_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <limits>
#include <map>
#include <random>

#include "common/base/error.h"
#include "models/graph_model.h"
#include "models/models.h"
#include "tests/models/fixture.h"
#include "tests/models/host_weights.h"
#include "tests/models/queued_backend.h"

namespace pushpull {
namespace {

using device::FakeDevice;
using device::FakeOptions;
using device::Fault;

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kVersions = 3;

const Case kMlp{.input = {1, 4, 4}, .classes = 5, .micro_batch = 3, .hidden = {7, 6}};
const Case kConvnet{.model = "convnet", .input = {1, 4, 4}, .classes = 3, .micro_batch = 2};

// The results of the CPU, one operation after the other, for each version of the weights and of the
// inputs.
class Expected {
 public:
  explicit Expected(const Case& c) {
    const auto model = c.make();
    table = model->table();
    for (size_t v = 0; v < kVersions; ++v) {
      weights.push_back(initial_weights(table, 10 + v));
      inputs.emplace_back(c, 20 + v);
    }
    for (size_t w = 0; w < kVersions; ++w) {
      for (size_t i = 0; i < kVersions; ++i) of[{w, i}] = train(*model, weights[w], inputs[i]);
    }
  }
  TensorTable table;
  std::vector<std::vector<float>> weights;
  std::vector<Inputs> inputs;
  std::map<std::pair<size_t, size_t>, Result> of;
};

const Expected& expected(const Case& c) {
  static std::map<std::string, Expected> all;
  return all.try_emplace(describe(c), c).first->second;
}

struct Dropped {};

// Some steps of some micro-batches each, in the order of a worker, drawn from the seed.
class Play {
 public:
  Play(const Case& c, const FakeOptions& options, const DeviceStepLimits& limits)
      : expected_(expected(c)),
        random_(options.seed),
        device_(std::make_shared<FakeDevice>(options)),
        network_(make_queued_backend(device_), c.model == "mlp"
                                                   ? mlp_graph(c.job(), c.fields())
                                                   : convnet_graph(c.job(), c.fields())) {
    losses_ = limits.losses;
    is_broken_ = options.fault != Fault::kNone;
    is_registered_ = draw(3) != 0;
    allocate_ = is_registered_ ? device::registered(device_, heap_floats, [](const auto&) {})
                               : FloatAllocator(heap_floats);
    for (auto& buffer : buffers_) {
      buffer.memory = device_->allocate(total() * sizeof(float));
      buffer.free = device_->event();
    }
    out_ = device_->stream();
    step_ = make_device_step(network_, 1, limits);
    keeps_times_ = draw(2) == 0 && !is_broken_;  // an injected fault must change only bits
    if (keeps_times_) step_->keep_times();
  }

  // Waits until no queued work uses this object's memory, even with an injected fault.
  ~Play() {
    try {
      const auto end = device_->event();
      network_.backend().stream().record(*end);
      device_->stream()->wait(*end);
    } catch (const Error&) {
      return;  // the device is lost
    }
  }
  Play(const Play&) = delete;
  Play& operator=(const Play&) = delete;

  // Runs steps and adds errors to `mistakes`.
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      const size_t version = draw(kVersions);
      while (!one_step(version, 1 + draw(draw(4) == 0 ? 9 : 3))) ++dropped;
    }
  }

  FakeDevice& device() { return *device_; }
  std::vector<std::string> mistakes;
  int dropped = 0;

 private:
  struct Gradients {
    device::Memory memory;
    std::unique_ptr<device::Event> free;
  };

  size_t draw(size_t below) { return random_() % below; }
  size_t total() const { return static_cast<size_t>(expected_.table.total); }

  // Runs a step. Returns false if the source of the weights dropped it.
  bool one_step(size_t version, size_t leaves) {
    const bool is_early = draw(2) == 0;
    const size_t breaks_at = draw(6) == 0 ? draw(expected_.table.tensors.size()) : SIZE_MAX;
    HostWeights& weights = weights_.emplace_back(*device_, total(), is_registered_);
    const auto& source = expected_.weights[version];
    if (!is_early) std::ranges::copy(source, weights.span().begin());
    const WeightsNeeded needed = [&](size_t tensor) {
      if (tensor == breaks_at) throw Dropped();
      const TensorInfo& info = expected_.table.tensors[tensor];
      std::copy_n(source.begin() + info.offset, info.size, weights.span().begin() + info.offset);
    };
    step_->begin(weights.span());
    if (weights_.size() > 1 && !is_released_) weights_[weights_.size() - 2].release(is_broken_);
    is_released_ = false;
    std::vector<size_t> inputs;
    std::vector<std::shared_ptr<float[]>> sums;
    std::vector<float> losses;
    try {
      for (size_t leaf = 0; leaf < leaves; ++leaf) {
        // the weights are on the device and stay there
        if (leaf > 0 && draw(5) == 0) {
          end_part(losses, leaf);
          if (!is_released_) weights.release(is_broken_);
          is_released_ = true;
        }
        if (draw(8) == 0) unstage();
        if (staged_.empty()) stage();
        inputs.push_back(staged_.front());
        staged_.pop_front();
        if (draw(2) == 0) stage();  // staged before the run that overtakes it
        sums.push_back(run(is_early ? needed : WeightsNeeded()));
        if (staged_.empty() && draw(2) == 0) stage();
      }
    } catch (const Dropped&) {
      staged_.clear();
      weights.release(is_broken_);
      is_released_ = true;
      return false;
    }
    if (draw(10) == 0) return true;  // without wait(), the next step begins
    end_part(losses, leaves);
    if (!is_released_) weights.release(is_broken_);
    is_released_ = true;
    out_->synchronize(1000);
    check(version, inputs, losses, sums);
    return true;
  }

  // runs: number of runs of the step so far
  void end_part(std::vector<float>& losses, size_t runs) {
    const bool has_weights = losses.empty();
    const std::span<const float> more = step_->wait();
    losses.insert(losses.end(), more.begin(), more.end());
    if (losses.size() == runs) check_times(more.size(), has_weights);
  }

  // Checks that each run follows the copy of its inputs and the previous run, and that weights are
  // copied once.
  void check_times(size_t runs, bool has_weights) {
    std::map<int64_t, std::map<int, DeviceSpan>> of_run;
    int64_t bytes = 0;
    for (const DeviceSpan& span : step_->spans()) {
      if (span.end_s < span.begin_s) mistakes.emplace_back("a time ends before it begins");
      if (span.kind == DeviceSpan::kWeights) {
        bytes += span.bytes;
      } else {
        of_run[span.number][span.kind] = span;
      }
    }
    const auto want = static_cast<int64_t>(has_weights ? total() * sizeof(float) : 0);
    if (bytes != (keeps_times_ ? want : 0)) mistakes.emplace_back("copies of weights");
    if (!keeps_times_) return;
    if (runs <= losses_ && of_run.size() != runs) mistakes.emplace_back("times of runs");
    double last_s = 0.0;
    for (auto& [number, spans] : of_run) {
      const bool has_border = spans.contains(DeviceSpan::kForward);
      DeviceSpan whole = spans[has_border ? DeviceSpan::kForward : DeviceSpan::kBoth];
      if (has_border) {
        if (spans[DeviceSpan::kBackward].begin_s != whole.end_s) mistakes.emplace_back("border");
        whole.end_s = spans[DeviceSpan::kBackward].end_s;
      }
      const bool is_last = number + 1 == static_cast<int64_t>(runs);
      if (is_last && !has_border) mistakes.emplace_back("no border of the last run");
      if (whole.begin_s < spans[DeviceSpan::kInputs].end_s) mistakes.emplace_back("too early");
      if (whole.begin_s < last_s || whole.end_s <= whole.begin_s) mistakes.emplace_back("no row");
      last_s = whole.end_s;
    }
  }

  void unstage() {
    step_->unstage();
    staged_.clear();
  }

  void stage() {
    const size_t version = draw(kVersions);
    Inputs inputs = expected_.inputs[version];
    step_->stage(inputs.view());
    std::ranges::fill(inputs.block, kNotANumber);
    staged_.push_back(version);
  }

  // Runs a micro-batch. Returns the host copy of the gradients, written tensor by tensor as each is
  // ready.
  std::shared_ptr<float[]> run(const WeightsNeeded& needed) {
    Gradients& buffer = buffers_.at(draw(buffers_.size()));
    auto host = allocate_(total());
    std::fill_n(host.get(), total(), -77.0F);
    kept_.push_back(host);
    step_->write_after(*buffer.free);
    size_t last = expected_.table.tensors.size();
    step_->run(
        buffer.memory.floats(),
        [&](size_t tensor) {
          if (tensor + 1 != last) mistakes.emplace_back("order of tensors");
          last = tensor;
          const TensorInfo& info = expected_.table.tensors[tensor];
          out_->wait(step_->gradient(tensor));
          out_->copy_out(buffer.memory.floats() + info.offset,
                         static_cast<size_t>(info.size) * sizeof(float), host.get() + info.offset);
        },
        needed);
    if (last != 0) mistakes.emplace_back("a tensor is missing");
    device::enqueue(
        *out_, [data = buffer.memory.floats(), n = total()] { std::fill_n(data, n, kNotANumber); });
    out_->record(*buffer.free);
    return host;
  }

  void check(size_t version, const std::vector<size_t>& inputs, std::span<const float> losses,
             const std::vector<std::shared_ptr<float[]>>& sums) {
    if (losses.size() != inputs.size()) {
      mistakes.emplace_back("number of losses");
      return;
    }
    for (size_t leaf = 0; leaf < inputs.size(); ++leaf) {
      const Result got{losses[leaf], {sums[leaf].get(), sums[leaf].get() + total()}};
      if (!(got == expected_.of.at({version, inputs[leaf]}))) mistakes.emplace_back("bits");
    }
  }

  const Expected& expected_;
  std::mt19937_64 random_;
  std::shared_ptr<FakeDevice> device_;
  FloatAllocator allocate_;
  bool is_registered_ = false;
  bool is_broken_ = false;
  bool keeps_times_ = false;
  size_t losses_ = 0;                // runs with recorded times
  std::deque<HostWeights> weights_;  // of all steps
  bool is_released_ = false;         // true if the weights of the newest step have gone
  std::vector<std::shared_ptr<float[]>> kept_;
  std::array<Gradients, 3> buffers_;
  PlannedGraph network_;
  std::unique_ptr<device::Stream> out_;
  std::unique_ptr<DeviceStep> step_;
  std::deque<size_t> staged_;  // versions of inputs
};

// Returns one of four devices: with or without graphs, with or without registered memory.
FakeOptions options_of(uint64_t seed, Fault fault = Fault::kNone) {
  return {.seed = seed,
          .fault = fault,
          .memory_bytes = size_t{4} << 20,
          .captures = seed % 4 != 1,
          .registers = seed % 8 != 2};
}

// A small network runs as one graph, or as several as if it were large.
DeviceStepLimits limits_of(uint64_t seed) {
  DeviceStepLimits limits;
  limits.losses = 1 + seed % 5;
  limits.graphs = 1 + seed % 7;
  if (seed % 2 == 0) limits.graph_parameters = seed % 4 == 0 ? 0 : 60;
  limits.upload_floats = seed % 3 == 0 ? 1 : 100;
  return limits;
}

TEST(DeviceStep, GivesTheCpusBitsInAnyOrderThatEventsAllow) {
  int dropped = 0;
  int64_t launches = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Play play(seed % 10 == 0 ? kConvnet : kMlp, options_of(seed), limits_of(seed));
    play.steps(4);
    ASSERT_THAT(play.mistakes, testing::IsEmpty()) << "seed " << seed;
    dropped += play.dropped;
    launches += play.device().launches();
  }
  EXPECT_GT(dropped, 50);
  EXPECT_GT(launches, 500);
}

// Shows that the test above can fail: each kind of wait is needed.
TEST(DeviceStep, WithoutItsWaitsTheBitsAreWrong) {
  for (const Fault fault :
       {Fault::kStreamsDoNotWait, Fault::kHostDoesNotWait, Fault::kRecordsAreIgnored}) {
    int seen = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
      Play play(kMlp, options_of(seed, fault), limits_of(seed));
      try {
        play.steps(4);
        seen += play.mistakes.empty() ? 0 : 1;
      } catch (const Error&) {
        ++seen;
      }
    }
    EXPECT_GT(seen, 10) << static_cast<int>(fault);
  }
}

// Weights arrive during forward. The weights of a layer are copied before those of the next layer
// are requested, unless the network is small.
TEST(DeviceStep, LargeNetworkStartsBeforeAllWeightsHaveArrived) {
  for (const bool is_large : {false, true}) {
    const auto device = std::make_shared<FakeDevice>(FakeOptions{.seed = 1});
    PlannedGraph network(make_queued_backend(device), mlp_graph(kMlp.job(), kMlp.fields()));
    DeviceStepLimits limits;
    if (is_large) limits.graph_parameters = 0;
    const auto step = make_device_step(network, 1, limits);
    const auto& weights = expected(kMlp).weights[0];
    const auto& inputs = expected(kMlp).inputs[0];
    const device::Memory gradients = device->allocate(weights.size() * sizeof(float));
    step->begin(weights);
    step->stage(inputs.view());
    std::vector<int64_t> runs;  // work done when each tensor was requested
    step->run(
        gradients.floats(), [](size_t) {}, [&](size_t) { runs.push_back(device->runs()); });
    ASSERT_EQ(runs.size(), 6U);
    EXPECT_EQ(runs.back() > runs.front(), is_large);
    step->wait();
  }
}

// Also in the first run of a step: its weights arrive while it computes. Each of the three layers is
// a graph, or two of them are.
TEST(DeviceStep, RunsOfALargeNetworkAreGraphs) {
  const auto device = std::make_shared<FakeDevice>(FakeOptions{.seed = 1});
  const auto& weights = expected(kMlp).weights[0];
  const device::Memory gradients = device->allocate(weights.size() * sizeof(float));
  for (const auto& [parameters, graphs] : {std::pair(0, 3), std::pair(120, 2)}) {
    PlannedGraph network(make_queued_backend(device), mlp_graph(kMlp.job(), kMlp.fields()));
    DeviceStepLimits limits;
    limits.graph_parameters = parameters;
    const auto step = make_device_step(network, 1, limits);
    for (int i = 0; i < 12; ++i) {
      const auto at = static_cast<size_t>(i) % 4;
      if (at == 0) step->begin(weights);
      step->stage(expected(kMlp).inputs[at % kVersions].view());
      const int64_t before = device->launches();
      step->run(
          gradients.floats(), [](size_t) {}, [](size_t) {});
      // two slots of inputs: each has its first run without a graph
      EXPECT_EQ(device->launches() - before, i < 2 ? 0 : graphs) << i;
      if (at < 3) continue;
      const std::span<const float> losses = step->wait();
      ASSERT_EQ(losses.size(), 4U);
      for (size_t run = 0; run < 4; ++run) {
        EXPECT_EQ(losses[run], expected(kMlp).of.at({0, run % kVersions}).loss);
      }
    }
  }
}

TEST(DeviceStep, LostDeviceIsReportedAndEndsQuietly) {
  int lost = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    FakeOptions options = options_of(seed);
    options.lost_after = static_cast<int64_t>(20 * seed);
    try {
      Play play(kMlp, options, limits_of(seed));
      play.steps(4);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDevice) << error.what();
      ++lost;
    }
  }
  EXPECT_GT(lost, 20);
}

TEST(DeviceStep, RefusesInvalidCalls) {
  const auto device = std::make_shared<FakeDevice>();
  PlannedGraph network(make_queued_backend(device), mlp_graph(kMlp.job(), kMlp.fields()));
  const auto step = make_device_step(network, 1);
  const auto& weights = expected(kMlp).weights[0];
  const Inputs& inputs = expected(kMlp).inputs[0];
  const auto run = [&] { step->run(nullptr, [](size_t) {}); };
  EXPECT_THROW(step->begin(std::span(weights).first(3)), Error);
  EXPECT_THROW(run(), Error);  // no inputs are staged
  Samples few = inputs.view();
  few.block = few.block.first(3);
  EXPECT_THROW(step->stage(few), Error);
  Inputs wrong = inputs;
  wrong.labels[2] = 5;
  EXPECT_THROW(step->stage(wrong.view()), Error);
  step->stage(inputs.view());
  EXPECT_THROW(run(), Error);  // no weights
  step->stage(inputs.view());
  EXPECT_THROW(step->stage(inputs.view()), Error);
}

// A CPU model has nothing to overlap and nothing to choose. Models on a device accept the choices
// of another worker, with new plans and the same bits.
TEST(DeviceStep, ModelsOnADeviceHaveOneAndAcceptChoices) {
  EXPECT_EQ(kMlp.make()->device_step(), nullptr);
  EXPECT_EQ(kMlp.make()->choices(), "");
  for (const Case& c : {kMlp, kConvnet}) {
    const auto model =
        make_model_on(make_queued_backend(std::make_shared<FakeDevice>()), c.job(), c.fields());
    EXPECT_THAT(model->numerics(), testing::StartsWith("queued cpu "));
    const auto& weights = expected(c).weights[1];
    const Result& want = expected(c).of.at({1, 2});
    EXPECT_EQ(train(*model, weights, expected(c).inputs[2]), want);
    DeviceStep* const first = model->device_step();
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(model->choices(), "queued first\n");
    model->choose("queued first\n");
    model->choose("");
    EXPECT_EQ(model->device_step(), first);
    model->choose("queued second\n");
    EXPECT_EQ(model->choices(), "queued second\n");
    EXPECT_EQ(train(*model, weights, expected(c).inputs[2]), want);
    EXPECT_EQ(model->table().total, expected(c).table.total);
  }
}

}  // namespace
}  // namespace pushpull
