// Stages on fake devices: in any order of the devices' work, and of the stages' passes, each micro-batch has
// the bits of the undivided model. Host memory is overwritten as soon as it may change.
#include "models/device_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/graph_model.h"
#include "models/models.h"
#include "models/staged_model.h"
#include "tests/models/fixture.h"
#include "tests/models/host_weights.h"
#include "tests/models/queued_backend.h"
#include "tests/models/random_block.h"

namespace pushpull {
namespace {

using device::FakeDevice;
using device::FakeOptions;
using device::Fault;

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kVersions = 2;  // of weights
constexpr int64_t kBatches = 4;  // micro-batches of a step

// gpt: tied weights and dropout; convnet: statistics.
Job job_of(const std::string& model) {
  Job job;
  job.model = model;
  job.micro_batch = 2;
  job.global_batch = 2 * kBatches;
  job.hidden = {7, 6, 5};
  job.embed = 8;
  job.layers = 2;
  job.heads = 2;
  job.dropout = 0.25;
  job.attention_dropout = 0.25;
  job.tie_embeddings = true;
  return job;
}

FieldTable fields_of(const std::string& model) {
  return model == "gpt" ? token_fields(4, 11) : image_fields({1, 4, 4}, 3);
}

// What the undivided model gives on the processor, for each version of the weights and each micro-batch.
struct Expected {
  explicit Expected(const std::string& model) {
    const Job job = job_of(model);
    const FieldTable fields = fields_of(model);
    const Graph graph = model == "gpt"   ? gpt_graph(job, fields)
                        : model == "mlp" ? mlp_graph(job, fields)
                                         : convnet_graph(job, fields);
    const auto whole = make_model(job, fields);
    table = whole->table();
    std::mt19937 random(7);
    for (size_t v = 0; v < kVersions; ++v) {
      weights.emplace_back(static_cast<size_t>(table.total));
      for (size_t i = 0; i < weights[v].size(); ++i) {
        weights[v][i] = 0.05F + 0.2F * std::abs(std::sin(static_cast<float>(i + v)));
      }
    }
    for (int64_t m = 0; m < kBatches; ++m) blocks.push_back(random_block(graph, random));
    for (size_t v = 0; v < kVersions; ++v) {
      for (int64_t m = 0; m < kBatches; ++m) {
        Result& result = of[{v, m}];
        result.gradients.assign(weights[v].size(), kNotANumber);
        result.loss = whole->train(weights[v], samples(m), result.gradients, [](size_t) {});
        sums[{v, m}].resize(whole->heads().size());
        whole->evaluate(weights[v], samples(m), sums[{v, m}]);
      }
    }
  }
  Samples samples(int64_t m) const { return {3, m, indices, blocks[static_cast<size_t>(m)]}; }

  TensorTable table;
  std::vector<int64_t> indices = std::vector<int64_t>(2);
  std::vector<std::vector<float>> weights;
  std::vector<std::vector<float>> blocks;
  std::map<std::pair<size_t, int64_t>, Result> of;
  std::map<std::pair<size_t, int64_t>, std::vector<HeadSums>> sums;
};

const Expected& expected(const std::string& model) {
  static std::map<std::string, Expected> all;
  return all.try_emplace(model, model).first->second;
}

struct Dropped {};

// Where stages run.
struct Setting {
  std::string model = "mlp";
  int64_t stages = 2;
  size_t devices = 1;
  std::string schedule = "1f1b";
};

// Some steps, in an order of passes that is drawn from the seed.
class Play {
 public:
  Play(const Setting& setting, const FakeOptions& options)
      : setting_(setting), expected_(expected(setting.model)), random_(options.seed) {
    is_broken_ = options.fault != Fault::kNone || options.unheard >= 0;
    is_registered_ = options.registers && draw(3) != 0;
    const auto pages = std::make_shared<device::RegisteredPages>();
    for (size_t d = 0; d < setting.devices; ++d) {
      FakeOptions own = options;
      own.seed += d;
      own.index = static_cast<int>(d);
      own.pages = pages;
      if (d > 0) own.unheard = -1;
      devices_.push_back(std::make_shared<FakeDevice>(own));
    }
    Job job = job_of(setting.model);
    job.stage_schedule = setting.schedule;
    model_ = make_staged_model_on(
        [&](int64_t stage) {
          return make_queued_backend(devices_[static_cast<size_t>(stage) % setting.devices]);
        },
        job, fields_of(setting.model), setting.stages);
  }

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      if (draw(4) == 0) evaluate(draw(kVersions));
      while (!step(draw(kVersions))) ++dropped;
    }
  }

  FakeDevice& device() { return *devices_.front(); }
  std::vector<std::string> mistakes;
  int dropped = 0;

 private:
  struct Flight {
    std::unique_ptr<PipelineStage::Batch> batch;
    std::vector<float> gradients;
    float loss = 0.0F;
  };

  size_t draw(size_t below) { return random_() % below; }
  PipelineStage& stage(size_t index) { return model_->pipeline()->stage(index); }

  // Computes a step in parts, in which the weights stay. Returns false if it was dropped.
  bool step(size_t version) {
    const auto& source = expected_.weights[version];
    HostWeights& weights = weights_.emplace_back(*devices_.front(), source.size(), is_registered_);
    const bool arrive = draw(2) == 0;
    const size_t breaks_at = draw(6) == 0 ? draw(expected_.table.tensors.size()) : SIZE_MAX;
    if (!arrive) std::ranges::copy(source, weights.span().begin());
    const WeightsNeeded needed = [&](size_t tensor) {
      if (tensor == breaks_at) throw Dropped();
      const TensorInfo& info = expected_.table.tensors[tensor];
      std::copy_n(source.begin() + info.offset, info.size, weights.span().begin() + info.offset);
    };
    for (int64_t s = 0; s < setting_.stages; ++s) stage(static_cast<size_t>(s)).new_weights();
    try {
      part(version, weights.span(), arrive ? needed : WeightsNeeded{});
      if (draw(2) == 0) {
        if (draw(3) == 0) evaluate(1 - version);  // the weights are copied again
        part(version, weights.span(), {});
      }
    } catch (const Dropped&) {
      weights.release(is_broken_);
      return false;
    }
    weights.release(is_broken_);
    return true;
  }

  void part(size_t version, std::span<const float> weights, const WeightsNeeded& needed) {
    const auto leaves = static_cast<int64_t>(1 + draw(kBatches));
    std::vector<Flight>& flights = flights_.emplace_back(static_cast<size_t>(leaves));
    for (int64_t m = 0; m < leaves; ++m) {
      Flight& flight = flights[static_cast<size_t>(m)];
      flight.gradients.assign(weights.size(), kNotANumber);
      flight.batch = stage(static_cast<size_t>(setting_.stages) - 1).prepare(expected_.samples(m));
    }
    const auto count = static_cast<size_t>(setting_.stages);
    std::vector<std::deque<StageAction>> todo(count);
    std::vector<std::deque<std::vector<float>*>> outputs(count);
    std::vector<std::deque<std::vector<float>*>> input_gradients(count);
    for (size_t s = 0; s < count; ++s) {
      for (const StageAction& action : stage(s).actions(leaves)) todo[s].push_back(action);
    }
    size_t left = 2 * count * static_cast<size_t>(leaves);
    while (left > 0) {
      const size_t s = draw(count);
      if (todo[s].empty()) continue;
      const StageAction action = todo[s].front();
      auto& from = action.forward ? outputs : input_gradients;
      const bool is_end = action.forward ? s == 0 : s + 1 == count;
      const size_t source = action.forward ? s - 1 : s + 1;
      if (!is_end && from[source].empty()) continue;
      todo[s].pop_front();
      --left;
      Flight& flight = flights[static_cast<size_t>(action.micro_batch)];
      const PipelineStage::Pass pass{weights, flight.gradients, flight.batch.get(),
                                     static_cast<size_t>(action.micro_batch) % stage(s).slots()};
      std::vector<float>* in = nullptr;
      if (!is_end) {
        in = from[source].front();
        from[source].pop_front();
      }
      std::vector<float>& out = kept_.emplace_back(
          action.forward ? stage(s).output_floats() : stage(s).input_floats(), kNotANumber);
      const float* const in_or_null = in == nullptr || in->empty() ? nullptr : in->data();
      float* const out_or_null = out.empty() ? nullptr : out.data();
      if (action.forward) {
        stage(s).forward(pass, in_or_null, out_or_null, needed);
        if (s + 1 == count) flight.loss = stage(s).loss(pass);
        outputs[s].push_back(&out);
      } else {
        stage(s).backward(pass, in_or_null, out_or_null, [](size_t) {});
        input_gradients[s].push_back(&out);
        if (s == 0 && !is_broken_) flight.batch.reset();
      }
      if (in != nullptr) std::ranges::fill(*in, kNotANumber);
    }
    for (int64_t m = 0; m < leaves; ++m) {
      Flight& flight = flights[static_cast<size_t>(m)];
      const Result got{flight.loss, flight.gradients};
      if (!(got == expected_.of.at({version, m}))) mistakes.emplace_back("bits");
    }
  }

  void evaluate(size_t version) {
    const auto& source = expected_.weights[version];
    HostWeights& weights = weights_.emplace_back(*devices_.front(), source.size(), is_registered_);
    std::ranges::copy(source, weights.span().begin());
    const auto m = static_cast<int64_t>(draw(kBatches));
    const Samples samples = expected_.samples(m);
    std::vector<HeadSums> sums(model_->heads().size());
    model_->evaluate(weights.span(), samples, sums);
    weights.release(is_broken_);
    if (sums != expected_.sums.at({version, m})) mistakes.emplace_back("sums");
  }

  const Setting setting_;
  const Expected& expected_;
  std::mt19937_64 random_;
  bool is_registered_ = false;
  bool is_broken_ = false;
  std::deque<HostWeights> weights_;  // of all steps
  // to the end: without a wait, the device reads and writes them later
  std::deque<std::vector<float>> kept_;
  std::deque<std::vector<Flight>> flights_;
  std::vector<std::shared_ptr<FakeDevice>> devices_;
  std::unique_ptr<Model> model_;
};

FakeOptions options_of(uint64_t seed, Fault fault = Fault::kNone, int unheard = -1) {
  return {.seed = seed,
          .fault = fault,
          .memory_bytes = size_t{4} << 20,
          .registers = seed % 8 != 2,
          .unheard = unheard};
}

TEST(DeviceStage, HasTheBitsOfTheUndividedModelInAnyOrder) {
  int dropped = 0;
  uint64_t seed = 0;
  for (const char* model : {"mlp", "convnet", "gpt"}) {
    for (const char* schedule : {"1f1b", "gpipe"}) {
      for (const int64_t stages : {1, 2, 3}) {
        for (const size_t devices : {1, 2}) {
          for (int i = 0; i < 8; ++i, ++seed) {
            Play play({model, stages, devices, schedule}, options_of(seed));
            play.steps(4);
            ASSERT_THAT(play.mistakes, testing::IsEmpty())
                << model << ", " << stages << " stages, " << devices << " devices, " << schedule
                << ", seed " << seed;
            dropped += play.dropped;
          }
        }
      }
    }
  }
  EXPECT_GT(dropped, 30);
}

// Returns whether some seed shows a fault.
bool shows(const Setting& setting, Fault fault, int unheard) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    try {
      Play play(setting, options_of(seed, fault, unheard));
      play.steps(4);
      if (!play.mistakes.empty()) return true;
    } catch (const Error&) {
      return true;
    }
  }
  return false;
}

// Shows that the test above can fail: each wait of each stage is needed.
TEST(DeviceStage, WithoutOneOfItsWaitsTheBitsAreWrong) {
  EXPECT_TRUE(shows({}, Fault::kHostDoesNotWait, -1));
  for (const char* model : {"mlp", "gpt", "convnet"}) {
    const Setting setting{.model = model};
    const int events = Play(setting, options_of(0)).device().events();
    ASSERT_GE(events, 9);
    for (int event = 0; event < events; ++event) {
      EXPECT_TRUE(shows(setting, Fault::kNone, event)) << model << ", event " << event;
    }
  }
}

}  // namespace
}  // namespace pushpull
