// A node of a step, computed on a fake device and on the CPU, has the same slices, losses and data,
// in any order of execution of the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"
#include "models/graph_model.h"
#include "tests/common/thrown.h"
#include "tests/device/fake_device.h"
#include "tests/models/initial_weights.h"
#include "tests/models/queued_backend.h"
#include "tests/worker/device_compute_fixture.h"
#include "worker/compute/compute.h"

namespace pushpull {
namespace {

TEST(DeviceCompute, HasTheBitsOfTheCpu) {
  for (const char* keys : {"", "model = convnet\n"}) {
    Bench plain(small_job(keys), {});
    std::vector<Outcome> want;
    for (const Range& node : kNodes) want.push_back(plain.node(1, node));
    for (uint64_t seed = 0; seed < 24; ++seed) {
      const int devices = 1 + static_cast<int>(seed) % 3;
      Bench bench(small_job(keys), fake({.seed = seed}, devices));
      for (size_t i = 0; i < kNodes.size(); ++i) {
        EXPECT_EQ(bench.node(1, kNodes[i]), want[i]) << keys << seed << " on " << devices;
      }
    }
  }
}

TEST(DeviceCompute, EvaluatesLikeTheCpu) {
  const HeadSums want = Bench(small_job(), {}).evaluate(0);
  EXPECT_GT(want.counted, 0);
  for (int devices = 1; devices <= 3; ++devices) {
    EXPECT_EQ(Bench(small_job(), fake({.seed = 1}, devices)).evaluate(0), want) << devices;
  }
}

// Shows that the test of gradients can fail.
TEST(DeviceCompute, WithoutWaitsTheBitsDiffer) {
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

// Weights arrive during forward: a missing weight is NaN until it is requested.
TEST(DeviceCompute, BeginsBeforeAllWeightsHaveArrived) {
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
      // at least this tensor
      std::copy(all.begin(), all.end(), bench.weights.begin());
    });
    EXPECT_EQ(got, want) << seed;
    EXPECT_GE(asked, bench.tensors());
  }
}

// A step that is given up, at its beginning or while slices are sent, leaves no state behind.
TEST(DeviceCompute, StepThatIsGivenUpLeavesNoState) {
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

// Weights of a step are copied to a device once, however many nodes the device computes.
TEST(DeviceCompute, CopiesTheWeightsOfAStepOnce) {
  const Work work{1, {{1, 2}, {2, 4}, {4, 7}}};
  Bench plain(small_job(), {});
  const Outcome want = plain.work(work);
  for (uint64_t seed = 0; seed < 16; ++seed) {
    for (const int devices : {1, 2}) {
      Bench bench(small_job(), fake({.seed = seed}, devices));
      const std::vector<float> weights = bench.weights;
      bench.spoils = devices == 1;  // the second device has no share of the first node
      for (int i = 1; i <= 3; ++i) {
        bench.weights = weights;
        EXPECT_EQ(bench.work(work), want) << seed << " on " << devices;
        EXPECT_EQ(bench.asked.begins, i * devices);
      }
    }
  }
}

// Plays steps, some of which differ from their hint or are given up. Returns the number of wrong
// results.
int play_hints(uint64_t seed, Bench& plain, Bench& bench) {
  const std::array<std::vector<Range>, 4> shares = {
      {{{0, 8}}, {{0, 4}}, {{3, 4}, {4, 8}}, {{5, 6}}}};
  std::mt19937_64 random(seed);
  const auto draw = [&] {
    return Work{static_cast<int64_t>(random() % 3), shares.at(random() % shares.size())};
  };
  int wrong = 0;
  Work next = draw();
  for (int i = 0; i < 12; ++i) {
    const Work now = random() % 3 == 0 ? draw() : next;  // a third differ from their hint
    next = draw();
    const bool given_up = random() % 5 == 0;
    if (given_up) bench.refused = 2;
    const Outcome want = plain.work(now);
    try {
      const Outcome got = bench.work(now, random() % 4 == 0 ? Work{} : next);
      wrong += got == want ? 0 : 1;
    } catch (const Dropped&) {
      EXPECT_TRUE(given_up);
      bench.forget();
    } catch (const Error&) {
      return wrong + 1;
    }
    bench.refused = -1;
  }
  return wrong;
}

// Hinted inputs are on the device before the step begins, and are not computed if the step is
// another one.
TEST(DeviceCompute, HintsDoNotChangeTheStep) {
  Bench plain(small_job(), {});
  int ahead = 0;
  int unstaged = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Bench bench(small_job(), fake({.seed = seed}, 1 + static_cast<int>(seed) % 3));
    EXPECT_EQ(play_hints(seed, plain, bench), 0) << seed;
    ahead += bench.asked.ahead;
    unstaged += bench.asked.unstaged;
  }
  EXPECT_GT(ahead, 200);
  EXPECT_GT(unstaged, 40);
}

// Shows that the test above can fail.
TEST(DeviceCompute, WithoutUnstageItComputesTheHintedStep) {
  Bench plain(small_job(), {});
  int wrong = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Bench bench(small_job(), fake({.seed = seed}));
    bench.asked.keeps_what_is_staged = true;
    wrong += play_hints(seed, plain, bench);
  }
  EXPECT_GT(wrong, 5);
}

// A term ends after the first micro-batch of the next step was copied to the device.
TEST(DeviceCompute, BeginsATermWithoutInputsOfTheLastOne) {
  const std::string file = testing::TempDir() + "term-trace-" + std::to_string(getpid());
  Bench plain(small_job(), {});
  for (const int devices : {1, 2}) {
    for (const bool is_traced : {false, true}) {
      Trace trace(file);
      Bench bench(small_job(), fake({.seed = 4}, devices));
      if (is_traced) bench.trace_to(trace);
      const int before = bench.asked.ahead;
      bench.work({1, {{0, 4}}}, {2, {{4, 8}}});
      EXPECT_EQ(bench.asked.ahead - before, devices) << "nothing was staged ahead";
      bench.begin_term();
      if (is_traced) bench.trace_to(trace);
      for (const int64_t step : {1, 2, 3}) {
        const Work work{step, {{0, 2}, {2, 4}}};
        EXPECT_EQ(bench.work(work), plain.work(work)) << step;
      }
    }
  }
  std::filesystem::remove(file);
}

// A thread reads large micro-batches ahead, and may be late.
TEST(DeviceCompute, ComputesMicroBatchesThatAThreadReadsAhead) {
  const Job job = parse_job_text(
      "dataset = dummy\ninput = 3x90x90\nclasses = 2\nhidden = none\ntrain-samples = 48\n"
      "global-batch = 12\nmicro-batch = 3\nsteps = 4\nslice-bytes = 65536\n",
      "test");
  Bench plain(job, {});
  Bench bench(job, fake({.seed = 3}));
  for (int64_t step = 0; step < 6; ++step) {
    const Work now{step % 4, {{0, 2}, {2, 3}}};
    EXPECT_EQ(bench.work(now, {(step + 1) % 4, {{0, 2}, {2, 3}}}), plain.work(now)) << step;
  }
}

// The trace has all work of the device for a step, on the host's clock, and the bits do not change.
TEST(DeviceCompute, TracesTheWorkOfADevice) {
  Bench plain(small_job(), {});
  const std::string file = testing::TempDir() + "device-trace-" + std::to_string(getpid());
  const Work work{1, {{0, 3}, {3, 4}}};
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Trace trace(file);
    Bench bench(small_job(), fake({.seed = seed}));
    bench.trace_to(trace);
    const double begin_s = now_seconds();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(bench.work(work, work), plain.work(work)) << seed;
    const double end_s = now_seconds();
    std::map<std::string, int> seen;
    for (const auto& event : nlohmann::json::parse(trace.to_json())) {
      if (event["ph"] != "X") continue;
      const std::string name = event["name"];
      ++seen[name];
      EXPECT_EQ(event["args"]["step"], 1) << name;
      EXPECT_GE(event["dur"], 0.0) << name;
      EXPECT_LE(event["ts"], end_s * 1e6) << name;
      if (event["cat"] == "compute") {
        EXPECT_GE(event["ts"], begin_s * 1e6) << name;
      }
    }
    EXPECT_EQ(seen["part from 0"], 3);
    EXPECT_EQ(seen["part from 3"], 3);
    EXPECT_EQ(seen["copy in 0"], 6) << "the weights, in one piece, and a micro-batch";
    for (const int m : {0, 1, 2, 3}) {
      const std::string number = std::to_string(m);
      // the first and third micro-batch of a part run the same graph, and only the later one has a
      // border
      EXPECT_EQ(seen["forward " + number] + seen["forward and backward " + number], 3) << number;
      EXPECT_EQ(seen["forward " + number], seen["backward " + number]);
    }
    EXPECT_EQ(seen["forward 3"], 3);
    EXPECT_EQ(seen["copy out slice 0"], 6);
  }
  std::filesystem::remove(file);
}

// Holds also for a step with many micro-batches and parts, and therefore many gradient buffers.
TEST(DeviceCompute, EachMicroBatchOfASmallNetworkRunsAsAGraph) {
  Job job = small_job();
  job.global_batch = job.train_samples = 512 * job.micro_batch;
  const Work work{0, {{0, 1}, {1, 257}, {257, 385}, {385, 512}}};
  const auto devices = fake({.seed = 3});
  Bench bench(job, devices);
  int64_t launches = 0;
  // The first run at each address is no graph, and each step uses the buffers in another order.
  for (int i = 0; i < 6; ++i) {
    const int64_t before = devices.front()->launches();
    EXPECT_TRUE(bench.work(work).whole);
    launches = devices.front()->launches() - before;
  }
  EXPECT_EQ(launches, 512);
}

// Each of several devices has its own rows, with its share of the micro-batches.
TEST(DeviceCompute, TracesEachOfSeveralDevices) {
  Bench plain(small_job(), {});
  const std::string file = testing::TempDir() + "devices-trace-" + std::to_string(getpid());
  const Work work{1, {{0, 7}, {7, 8}}};  // one device computes all of the second part
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Trace trace(file);
    Bench bench(small_job(), fake({.seed = seed}, 2));
    bench.trace_to(trace);
    const double begin_s = now_seconds();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(bench.work(work, work), plain.work(work)) << seed;
    const double end_s = now_seconds();
    std::map<int, std::map<std::string, int>> seen;  // by row
    std::map<int, std::string> names;
    for (const auto& event : nlohmann::json::parse(trace.to_json())) {
      if (event["name"] == "thread_name") names[event["tid"]] = event["args"]["name"];
      if (event["ph"] != "X") continue;
      const std::string name = event["name"];
      ++seen[event["tid"]][name];
      EXPECT_EQ(event["args"]["step"], 1) << name;
      EXPECT_GE(event["dur"], 0.0) << name;
      EXPECT_LE(event["ts"], end_s * 1e6) << name;
      if (event["cat"] == "compute") {
        EXPECT_GE(event["ts"], begin_s * 1e6) << name;
      }
    }
    EXPECT_EQ(seen[0]["part from 0"], 3);
    EXPECT_EQ(seen[0]["part from 7"], 3);
    const auto count = [&](int row, int64_t m) {
      const std::string number = std::to_string(m);
      EXPECT_EQ(seen[row]["forward " + number], seen[row]["backward " + number]);
      return seen[row]["forward " + number] + seen[row]["forward and backward " + number];
    };
    const Range first = share_range(0, 2, 7);
    for (int64_t m = 0; m < 7; ++m) {
      EXPECT_EQ(count(1, m), m < first.hi ? 3 : 0) << m;
      EXPECT_EQ(count(4, m), m < first.hi ? 0 : 3) << m;
    }
    const bool last_is_second = share_range(1, 2, 1).size() == 1;
    EXPECT_EQ(count(1, 7), last_is_second ? 0 : 3);
    EXPECT_EQ(count(4, 7), last_is_second ? 3 : 0);
    // each subtree of a share is copied out separately
    const auto subtrees = [](const Range& share) {
      return static_cast<int>(maximal_subtrees(share, 7).size());
    };
    EXPECT_EQ(seen[3]["copy out slice 0"], 3 * (subtrees(first) + (last_is_second ? 0 : 1)));
    EXPECT_EQ(seen[6]["copy out slice 0"],
              3 * (subtrees({first.hi, 7}) + (last_is_second ? 1 : 0)));
    EXPECT_EQ(names.at(1), "fake:0");
    EXPECT_EQ(names.at(5), "fake:0: copies in") << "all fakes of a test have one name";
  }
  std::filesystem::remove(file);
}

TEST(DeviceCompute, ErrorNamesANonFiniteGradient) {
  Bench bench(small_job(), fake({.seed = 1}));
  bench.weights[0] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(thrown(ErrorCode::kNotFinite,
                     [&] {
                       bench.node(3, {0, 4});
                     }),
              testing::HasSubstr("at step 3 is not finite in tensor layers."));
  bench.weights[0] = 0.0F;
  EXPECT_TRUE(bench.node(3, {0, 4}).whole);
}

TEST(DeviceCompute, ErrorNamesALostDevice) {
  Bench bench(small_job(), fake({.seed = 1, .lost_after = 200}));
  EXPECT_THAT(thrown(ErrorCode::kDevice,
                     [&] {
                       for (int i = 0; i < 20; ++i) bench.node(0, {0, 8});
                     }),
              testing::HasSubstr("fake:0"));
}

}  // namespace
}  // namespace pushpull
