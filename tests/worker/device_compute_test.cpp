// A node of a step, computed on a fake device and on the processor: the same slices, losses and
// data, in whatever order the device runs what it is given.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "models/sequential.h"
#include "tests/device/fake_device.h"
#include "tests/models/initial_weights.h"
#include "tests/models/queued_backend.h"
#include "worker/compute.h"

namespace pushpull {
namespace {

using device::FakeDevice;
using device::FakeOptions;
using device::Fault;

struct Dropped {};

Job small_job(const std::string& keys = "") {
  return parse_job_text(
      "dataset = dummy\ninput = 1x4x4\nclasses = 5\nhidden = 40,30\ntrain-samples = "
      "96\nglobal-batch = 24\n"
      "micro-batch = 3\nsteps = 4\nslice-bytes = 4096\n" +
          keys,
      "test");
}

struct Outcome {
  bool whole = false;
  std::map<int, std::vector<float>> slices;
  std::vector<float> sum;
  std::vector<float> losses;
  std::string data;
  friend bool operator==(const Outcome&, const Outcome&) = default;
  // short, where a test fails
  friend std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
    return out << outcome.slices.size() << " slices, " << outcome.losses.size() << " losses";
  }
};

// A worker's computing part.
class Bench {
 public:
  // devices: none for the processor
  Bench(const Job& job, const std::vector<std::shared_ptr<FakeDevice>>& devices)
      : job_(job), dataset_(open_dataset(job_)) {
    std::vector<std::unique_ptr<Model>> models;
    for (const auto& device : devices) {
      models.push_back(
          make_model_on(make_queued_backend(device), job_, dataset_->input(), dataset_->classes()));
    }
    if (models.empty()) {
      model_ = make_model(job_, dataset_->input(), dataset_->classes());
    } else if (models.size() == 1) {
      model_ = std::move(models.front());
    } else {
      model_ = std::make_unique<TeamModel>(std::move(models));
    }
    map_ = std::make_unique<SliceMap>(model_->table().total, job_.slice_bytes, 2);
    compute_ = std::make_unique<Compute>(job_, *dataset_, *model_, *map_, [this] { return over; });
    weights = initial_weights(model_->table(), 5);
  }

  Outcome node(int64_t step, Range range, const WeightsNeeded& needed = {}) {
    Outcome out;
    const auto ready = [&](int slice, const Payload& part) {
      if (slice == refused) throw Dropped{};
      const auto [place, is_new] = out.slices.emplace(
          slice, std::vector<float>(part.floats(), part.floats() + part.float_count()));
      EXPECT_TRUE(is_new);
    };
    out.whole = compute_->node(step, range, weights, ready, out.losses, needed);
    if (out.whole) out.sum.assign(compute_->sum().begin(), compute_->sum().end());
    const HashSum hash = compute_->take_data_hash();
    out.data = hash.bytes();
    return out;
  }
  // As a worker does that gives a step up.
  void forget() { compute_->take_data_hash(); }
  size_t tensors() const { return model_->table().tensors.size(); }

  bool over = false;
  int refused = -1;  // a slice that is given out, and then the step is given up
  std::vector<float> weights;

 private:
  Job job_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<SliceMap> map_;
  std::unique_ptr<Compute> compute_;
};

std::vector<std::shared_ptr<FakeDevice>> fake(FakeOptions options, int devices = 1) {
  std::vector<std::shared_ptr<FakeDevice>> out;
  for (; std::ssize(out) < devices; ++options.seed) {
    out.push_back(std::make_shared<FakeDevice>(options));
  }
  return out;
}

constexpr std::array kNodes = {Range{0, 8}, Range{0, 1}, Range{4, 6}, Range{0, 3}, Range{0, 7}};

TEST(DeviceCompute, HasTheBitsOfTheProcessor) {
  for (const char* keys : {"", "model = convnet\n"}) {
    Bench plain(small_job(keys), {});
    std::vector<Outcome> want;
    for (const Range& node : kNodes) want.push_back(plain.node(1, node));
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const int devices = 1 + static_cast<int>(seed) % 3;
      Bench bench(small_job(keys), fake({.seed = seed}, devices));
      for (size_t i = 0; i < kNodes.size(); ++i) {
        EXPECT_EQ(bench.node(1, kNodes[i]), want[i]) << keys << seed << " on " << devices;
      }
    }
  }
}

// The test above can fail.
TEST(DeviceCompute, HasOtherBitsWhereNobodyWaits) {
  Bench plain(small_job(), {});
  const Outcome want = plain.node(1, {0, 8});
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Bench bench(small_job(), fake({.seed = seed, .fault = Fault::kStreamsDoNotWait}));
    try {
      wrong += bench.node(1, {0, 8}) == want ? 0 : 1;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kNotFinite) << e.what();
      ++wrong;
    }
  }
  EXPECT_GT(wrong, 0);
}

// Weights come while forward goes on: what is not here yet is NaN until it is asked for.
TEST(DeviceCompute, BeginsBeforeAllWeightsAreHere) {
  Bench plain(small_job(), {});
  const Outcome want = plain.node(2, {0, 2});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Bench bench(small_job(), fake({.seed = seed}, 1 + static_cast<int>(seed) % 3));
    const std::vector<float> all =
        std::exchange(bench.weights, std::vector<float>(bench.weights.size(), std::nanf("")));
    size_t asked = 0;
    const Outcome got = bench.node(2, {0, 2}, [&](size_t tensor) {
      ++asked;
      EXPECT_LT(tensor, bench.tensors());
      // of this tensor, and maybe of more
      std::copy(all.begin(), all.end(), bench.weights.begin());
    });
    EXPECT_EQ(got, want) << seed;
    EXPECT_GE(asked, bench.tensors());
  }
}

// A step that is given up, at its beginning or while slices go out, leaves nothing behind.
TEST(DeviceCompute, AStepThatIsGivenUpHasNotHappened) {
  Bench plain(small_job(), {});
  const Outcome want = plain.node(2, {0, 5});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Bench bench(small_job(), fake({.seed = seed}, 1 + static_cast<int>(seed) % 3));
    const auto drop = [](size_t tensor) {
      if (tensor == 2) throw Dropped{};
    };
    EXPECT_THROW(bench.node(0, {0, 3}, drop), Dropped);
    bench.forget();
    EXPECT_EQ(bench.node(2, {0, 5}), want) << seed;
    bench.refused = 1;
    EXPECT_THROW(bench.node(0, {0, 3}), Dropped);
    bench.refused = -1;
    bench.forget();
    EXPECT_EQ(bench.node(2, {0, 5}), want) << seed;
    Bench other(small_job(), fake({.seed = seed}, 1 + static_cast<int>(seed) % 3));
    other.over = true;
    EXPECT_FALSE(other.node(0, {0, 3}).whole);
    other.over = false;
    EXPECT_EQ(other.node(2, {0, 5}), want) << seed;
  }
}

TEST(DeviceCompute, AGradientThatIsNotFiniteIsNamed) {
  Bench bench(small_job(), fake({.seed = 1}));
  bench.weights[0] = std::numeric_limits<float>::infinity();
  try {
    bench.node(3, {0, 4});
    FAIL() << "nothing was found";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kNotFinite);
    EXPECT_NE(std::string(e.what()).find("at step 3 is not finite in tensor layers."),
              std::string::npos)
        << e.what();
  }
  bench.weights[0] = 0.0F;
  EXPECT_TRUE(bench.node(3, {0, 4}).whole);
}

TEST(DeviceCompute, ALostDeviceIsNamed) {
  Bench bench(small_job(), fake({.seed = 1, .lost_after = 200}));
  try {
    for (int i = 0; i < 20; ++i) bench.node(0, {0, 8});
    FAIL() << "nothing was lost";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kDevice);
    EXPECT_NE(std::string(e.what()).find("fake:0"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace pushpull
