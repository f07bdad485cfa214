// Workers whose stages compute on fake devices, each on a thread of its own: the bits of the undivided model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/graph_model.h"
#include "models/group_model.h"
#include "models/staged_model.h"
#include "tests/models/queued_backend.h"
#include "tests/worker/stage_group.h"

namespace pushpull {
namespace {

using device::FakeDevice;
using testing::HasSubstr;
using Devices = std::vector<std::shared_ptr<device::Device>>;

struct Tried {
  std::string keys;
  FieldTable fields;
};

std::vector<Tried> models() {
  return {{"model = mlp\nhidden = 40,30,20\n", image_fields({1, 8, 8}, 5)},
          {"model = convnet\n", image_fields({1, 8, 8}, 5)},
          {"model = gpt\nlayers = 3\nheads = 2\nembed = 16\ndropout = 0.25\n"
           "attention-dropout = 0.25\ntie-embeddings = true\n",
           token_fields(6, 101)}};
}

Job job_of(const std::string& keys, const char* schedule) {
  Job job = parse_job_text(
      "dataset = dummy\nglobal-batch = 24\nmicro-batch = 3\nsteps = 10\n" + keys, "test");
  job.slice_bytes = 4096;
  job.stage_schedule = schedule;
  return job;
}

Devices fakes(size_t count, uint64_t seed) {
  const auto pages = std::make_shared<device::RegisteredPages>();
  Devices out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(std::make_shared<FakeDevice>(
        device::FakeOptions{.seed = seed + i, .index = static_cast<int>(i), .pages = pages}));
  }
  return out;
}

const std::vector<std::vector<Range>> kDivisions{{{0, 8}}, {{0, 4}, {4, 8}}, {{3, 4}, {4, 6}}};

TEST(DeviceStages, OfOneWorkerHaveTheBitsOfTheUndividedModel) {
  uint64_t seed = 0;
  for (const Tried& tried : models()) {
    for (const char* schedule : {"1f1b", "gpipe"}) {
      const Job job = job_of(tried.keys, schedule);
      const DrawnSamples dataset(tried.fields);
      // the undivided model on a device
      Computing whole;
      whole.model = make_model_on(make_queued_backend(fakes(1, 9).front()), job, tried.fields);
      const SliceMap map(whole.model->table().total, job.slice_bytes, 2);
      whole.weights = drawn_weights(map.total());
      whole.compute =
          std::make_unique<Compute>(job, dataset, *whole.model, map, [] { return false; });
      for (const std::vector<Range>& nodes : kDivisions) {
        const PushedSums want = whole.push(nodes);
        for (const int64_t stages : {2, 3}) {
          for (const size_t count : {1, 2, 3}) {
            const Devices devices = fakes(count, ++seed);
            Computing divided;
            divided.model = make_staged_model_on(
                [&](int64_t stage) {
                  return make_queued_backend(devices[static_cast<size_t>(stage) % count]);
                },
                job, tried.fields, stages);
            divided.weights = whole.weights;
            divided.compute =
                std::make_unique<Compute>(job, dataset, *divided.model, map, [] { return false; });
            EXPECT_EQ(divided.push(nodes), want)
                << tried.keys << schedule << ", " << stages << " stages, " << count << " devices";
          }
        }
      }
    }
  }
}

// Weights change from step to step, and arrive while stages compute.
TEST(DeviceStages, CopyTheWeightsOfEachStep) {
  const Tried tried = models().front();
  const Job job = job_of(tried.keys, "1f1b");
  const DrawnSamples dataset(tried.fields);
  const auto run = [&](std::unique_ptr<Model> model) {
    const SliceMap map(model->table().total, job.slice_bytes, 2);
    Compute compute(job, dataset, *model, map, [] { return false; });
    std::vector<std::vector<float>> sums;
    std::vector<float> losses;
    for (int64_t step = 0; step < 4; ++step) {
      const std::vector<float> all(static_cast<size_t>(map.total()),
                                   0.01F * static_cast<float>(step + 1));
      std::vector<float> weights(all.size(), poison());
      const WeightsNeeded needed = [&](size_t tensor) {
        const TensorInfo& info = model->table().tensors[tensor];
        std::copy_n(all.begin() + info.offset, info.size, weights.begin() + info.offset);
      };
      const auto ready = [&](int, const Payload& part) {
        sums.emplace_back(part.floats(), part.floats() + part.float_count());
      };
      compute.begin(step, {{0, 4}, {4, 8}}, weights);
      for (int node = 0; node < 2; ++node) EXPECT_TRUE(compute.node(ready, losses, needed));
    }
    std::ranges::sort(sums);
    return std::pair(sums, losses);
  };
  const auto want = run(make_model(job, tried.fields));
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const Devices devices = fakes(2, seed);
    EXPECT_EQ(
        run(make_staged_model_on(
            [&](int64_t stage) { return make_queued_backend(devices[static_cast<size_t>(stage)]); },
            job, tried.fields, 2)),
        want)
        << seed;
  }
}

// The first worker of each group may compute on the processor.
TEST(DeviceStages, OfAGroupHaveTheBitsOfTheUndividedModel) {
  uint64_t seed = 0;
  for (const Tried& tried : models()) {
    for (const char* schedule : {"1f1b", "gpipe"}) {
      for (const int64_t stages : {2, 3}) {
        for (const bool mixed : {false, true}) {
          Job job = job_of(tried.keys, schedule);
          job.stages = stages;
          const Devices devices = fakes(2, ++seed);
          size_t made = 0;
          StageGroup group(job, tried.fields, StageGroup::whole_model,
                           [&](const Job& of, const FieldTable& fields) {
                             const size_t worker = made++;
                             return make_group_model_on(
                                 [&devices, worker, mixed](int64_t) {
                                   return mixed && worker == 0
                                              ? ops::make_cpu_backend(1)
                                              : make_queued_backend(devices[worker % 2]);
                                 },
                                 of, fields);
                           });
          for (const std::vector<Range>& nodes : kDivisions) {
            EXPECT_EQ(group.push(nodes), group.whole().push(nodes))
                << tried.keys << schedule << ", " << stages << " stages, mixed " << mixed;
          }
        }
      }
    }
  }
}

// Each worker has a device for each of its two local stages, or one for both.
TEST(DeviceStages, LocalOnesHaveTheBitsOfTheUndividedModel) {
  uint64_t seed = 0;
  for (Tried tried : {models().front(), models().back()}) {
    tried.keys += tried.keys.starts_with("model = mlp") ? "balance = 2,2\n" : "";
    for (const size_t count : {1, 2}) {
      Job job = job_of(tried.keys, count == 1 ? "gpipe" : "1f1b");
      job.stages = 2;
      const Devices devices = fakes(2 * count, ++seed);
      size_t made = 0;
      StageGroup group(
          job, tried.fields, StageGroup::whole_model, [&](const Job& of, const FieldTable& fields) {
            const size_t first = count * made++;
            return make_group_model_on(
                [&devices, first, count](int64_t local) {
                  return make_queued_backend(devices[first + static_cast<size_t>(local) % count]);
                },
                of, fields, 2);
          });
      for (const std::vector<Range>& nodes : kDivisions) {
        EXPECT_EQ(group.push(nodes), group.whole().push(nodes)) << tried.keys << count;
      }
    }
  }
}

// The thread of a local stage fails.
TEST(DeviceStages, ALocalOneWhoseDeviceIsLostEndsTheNode) {
  const Tried tried = models().back();
  Job job = job_of(tried.keys, "1f1b");
  job.stages = 2;
  for (const int64_t after : {60, 200, 400}) {
    for (const int64_t lost : {0, 1}) {
      StageGroup group(job, tried.fields, StageGroup::whole_model,
                       [&](const Job& of, const FieldTable& fields) {
                         return make_group_model_on(
                             [&, lost](int64_t local) {
                               return make_queued_backend(std::make_shared<FakeDevice>(
                                   device::FakeOptions{.seed = 7,
                                                       .lost_after = local == lost ? after : -1,
                                                       .index = static_cast<int>(local)}));
                             },
                             of, fields, 2);
                       });
      std::atomic<int> failed = 0;
      EXPECT_ANY_THROW(group.run([&](int worker) {
        try {
          group.of(worker).push({{0, 8}}, 4);
        } catch (const Error& e) {
          EXPECT_EQ(e.code(), ErrorCode::kDevice);
          ++failed;
          group.parts().end();
          throw;
        }
      }));
      EXPECT_GE(failed, 1) << after;
    }
  }
}

std::string refusal(const std::string& keys, const FieldTable& fields) {
  Job job = job_of(keys, "1f1b");
  job.stages = 2;
  const auto device = fakes(1, 1).front();
  try {
    make_group_model_on([&](int64_t) { return make_queued_backend(device); }, job, fields);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "none";
}

TEST(DeviceStages, WhatAGroupCannotAgreeOnIsRefused) {
  const FieldTable images = image_fields({1, 8, 8}, 5);
  EXPECT_THAT(refusal("model = mlp\nalgorithms = timed\n", images),
              HasSubstr("[usage] algorithms = timed: with stages = 2"));
  EXPECT_THAT(refusal("model = convnet\nstrategy = async\n", images),
              HasSubstr("stages of model = convnet pass images in the layout of their device"));
  EXPECT_THAT(refusal("model = convnet\nnumerics = any\n", images), HasSubstr("pass images"));
  EXPECT_EQ(refusal("model = convnet\n", images), "none");
  EXPECT_EQ(refusal("model = mlp\nstrategy = async\n", images), "none");
}

}  // namespace
}  // namespace pushpull
