#include "ps/engine/shard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/thread_pool.h"
#include "common/update/norm.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull::shard_test {
namespace {

constexpr int64_t kElements = 9610;  // slices end inside tensors; the last block is partial
constexpr int64_t kLeaves = 8;

// Returns leaf `index` of a gradient over the whole vector.
const std::vector<float>& leaf(int64_t index) {
  static const std::vector<std::vector<float>> all = [] {
    std::vector<std::vector<float>> out;
    for (uint64_t i = 0; i < kLeaves; ++i)
      out.push_back(floats_of(random_payload(kElements, 40 + i)));
    return out;
  }();
  return all[static_cast<size_t>(index)];
}

std::vector<float> tree_sum(Range node) {
  if (node.size() == 1) return leaf(node.lo);
  const int64_t middle = split_point(node);
  std::vector<float> sum = tree_sum({node.lo, middle});
  const std::vector<float> right = tree_sum({middle, node.hi});
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

std::vector<PartialSum> parts_of(Range elements, int workers) {
  std::vector<PartialSum> out;
  for (int w = 0; w < workers; ++w) {
    for (const Range& node : maximal_subtrees(share_range(w, workers, kLeaves), kLeaves)) {
      const auto owner = std::make_shared<std::vector<float>>(tree_sum(node));
      const std::span<const float> slice(owner->data() + elements.lo,
                                         static_cast<size_t>(elements.size()));
      out.push_back({node, {owner, std::as_bytes(slice)}});
    }
  }
  return out;
}

UpdateInfo whole_step(double lr) {
  UpdateInfo info;
  info.learning_rate = lr;
  info.divisor = kLeaves;
  return info;
}

// Weights and optimizer state of a cluster after `steps` equal updates.
struct Outcome {
  std::vector<float> weights;
  std::vector<std::vector<float>> state;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Returns the trust ratios of the next update; empty if the optimizer does not scale by tensor.
std::vector<double> trust_of(std::vector<Shard>& shards, const OptimizerOptions& options,
                             int workers, const UpdateInfo& info) {
  if (!scales_by_tensor(options.kind)) return {};
  std::vector<TrustPart> parts;
  Serial serial;
  for (Shard& shard : shards) {
    std::vector<std::vector<PartialSum>> sums;
    std::vector<SliceUpdate> updates;
    for (const int slice : shard.slices()) {
      sums.push_back(parts_of(shard.map().elements(slice), workers));
    }
    for (const int slice : shard.slices()) updates.push_back({slice, sums[shard.place(slice)]});
    const auto some = shard.trust_parts(updates, kLeaves, info, serial);
    parts.insert(parts.end(), some.begin(), some.end());
  }
  return trust_ratios(table_of(kElements), options, parts);
}

Outcome train(OptimizerKind kind, int64_t slice_bytes, int servers, int workers, int steps = 3) {
  OptimizerOptions options;
  options.kind = kind;
  options.weight_decay = 0.01;
  const SliceMap map(kElements, slice_bytes, servers);
  Outcome out;
  out.weights.resize(kElements);
  out.state.assign(state_names(kind).size(), std::vector<float>(kElements));
  std::vector<Shard> shards;
  for (int server = 0; server < servers; ++server) {
    shards.emplace_back(map, server, table_of(kElements), options).initialise(7);
  }
  for (int s = 0; s < steps; ++s) {
    UpdateInfo info = whole_step(0.1);
    const std::vector<double> trust = trust_of(shards, options, workers, info);
    info.trust = trust;
    for (Shard& shard : shards) {
      for (const int slice : shard.slices()) {
        shard.apply(slice, parts_of(map.elements(slice), workers), kLeaves, info);
      }
    }
  }
  for (const Shard& shard : shards) {
    for (const int slice : shard.slices()) {
      const Range e = map.elements(slice);
      const auto weights = floats_of(shard.weights(slice));
      std::copy(weights.begin(), weights.end(), out.weights.begin() + e.lo);
      const auto state = shard.state(slice);
      for (size_t i = 0; i < state.size(); ++i) {
        const auto floats = floats_of(state[i]);
        std::copy(floats.begin(), floats.end(), out.state[i].begin() + e.lo);
      }
    }
  }
  return out;
}

std::vector<float> initial_weights(int64_t slice_bytes, int servers) {
  return train(OptimizerKind::kSgd, slice_bytes, servers, 1, 0).weights;
}

TEST(Shard, InitialWeightsFollowTheInitRulesOfTheTensors) {
  const std::vector<float> w = initial_weights(4096, 1);
  float least = 0;
  float most = 0;
  for (int64_t i = 0; i < kElements - 101; ++i) {
    const float value = w[static_cast<size_t>(i)];
    ASSERT_LE(std::abs(value), 0.5F);
    least = std::min(least, value);
    most = std::max(most, value);
  }
  EXPECT_LT(least, -0.49F);
  EXPECT_GT(most, 0.49F);
  for (int64_t i = kElements - 101; i < kElements; ++i) {
    EXPECT_EQ(w[static_cast<size_t>(i)], 0.25F);
  }
}

TEST(Shard, InitialWeightsDoNotDependOnSlicesAndServers) {
  const std::vector<float> want = initial_weights(1 << 20, 1);
  for (const int64_t bytes : {2048, 4096, 8192, 16384}) {
    for (const int servers : {1, 2, 3, 5}) {
      EXPECT_EQ(initial_weights(bytes, servers), want) << bytes << ", " << servers;
    }
  }
}

TEST(Shard, UpdateEqualsAPlainLoop) {
  const std::vector<float> before = initial_weights(1 << 20, 1);
  const std::vector<float> sum = tree_sum({0, kLeaves});
  const Outcome after = train(OptimizerKind::kSgd, 4096, 2, 3, 1);
  for (size_t i = 0; i < before.size(); ++i) {
    const double g = static_cast<double>(sum[i]) / kLeaves;
    const bool averages = i >= kElements - 101 && i < kElements - 1;
    const double want =
        averages ? 0.9 * before[i] + 0.1 * g : before[i] - 0.1 * (g + 0.01 * before[i]);
    // a few float roundings of numbers around 1
    ASSERT_NEAR(after.weights[i], want, 1e-6) << i;
  }
}

TEST(Shard, BitsDoNotDependOnSlicesServersOrWorkers) {
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kNesterov, OptimizerKind::kAdam, OptimizerKind::kAdamW,
        OptimizerKind::kLamb}) {
    const Outcome want = train(kind, 1 << 20, 1, 1);
    for (const int workers : {2, 3, 5, 8}) {
      EXPECT_TRUE(train(kind, 2048 * workers, 1 + workers / 2, workers) == want)
          << to_string(kind) << ", " << workers << " workers";
    }
  }
}

TEST(Shard, TrustRatiosChangeTheUpdate) {
  EXPECT_FALSE(train(OptimizerKind::kLamb, 4096, 2, 1, 1).weights ==
               train(OptimizerKind::kAdamW, 4096, 2, 1, 1).weights);
  OptimizerOptions options;
  options.kind = OptimizerKind::kLamb;
  std::vector<Shard> shards;
  shards.emplace_back(SliceMap(kElements, 4096, 1), 0, table_of(kElements), options).initialise(7);
  const std::vector<float> before = floats_of(shards[0].weights(0));
  const std::vector<double> first = trust_of(shards, options, 1, whole_step(0.1));
  shards[0].hold_state();
  EXPECT_EQ(trust_of(shards, options, 1, whole_step(0.1)), first) << "the state is only held";
  EXPECT_EQ(floats_of(shards[0].weights(0)), before);
  EXPECT_GT(std::abs(first[0] - 1.0), 0.01);
}

class OneSlice : public testing::Test {
 protected:
  OneSlice() { shard_.initialise(7); }
  std::vector<PartialSum> whole(float value) {
    return {{{0, kLeaves}, constant_payload(kElements, value)}};
  }
  static OptimizerOptions momentum() {
    OptimizerOptions options;
    options.kind = OptimizerKind::kMomentum;
    return options;
  }
  SliceMap map_{kElements, 1 << 20, 1};
  Shard shard_{map_, 0, table_of(kElements), momentum()};
};

TEST_F(OneSlice, PreviousVersionStaysReadable) {
  EXPECT_FALSE(shard_.previous(0).owner);
  const std::vector<float> v0 = floats_of(shard_.weights(0));
  shard_.apply(0, whole(1), kLeaves, whole_step(0.1));
  const std::vector<float> v1 = floats_of(shard_.weights(0));
  EXPECT_EQ(floats_of(shard_.previous(0)), v0);
  EXPECT_NE(v1, v0);
  shard_.apply(0, whole(1), kLeaves, whole_step(0.1));
  EXPECT_EQ(floats_of(shard_.previous(0)), v1);
  EXPECT_EQ(shard_.version(0), 2);
  EXPECT_EQ(shard_.updates(0), 2);
}

TEST_F(OneSlice, PayloadBeingSentDoesNotChange) {
  const Payload sent = shard_.weights(0);
  const std::vector<float> then = floats_of(sent);
  for (int i = 0; i < 5; ++i) shard_.apply(0, whole(1), kLeaves, whole_step(0.1));
  EXPECT_EQ(floats_of(sent), then);
}

TEST_F(OneSlice, LoadedStateGivesTheSameBits) {
  for (int i = 0; i < 3; ++i) shard_.apply(0, whole(1), kLeaves, whole_step(0.1));
  std::vector<Payload> saved{shard_.weights(0)};
  for (Payload& p : shard_.state(0)) saved.push_back(std::move(p));
  ASSERT_EQ(saved.size(), 2U);
  Shard other(map_, 0, table_of(kElements), momentum());
  other.load(0, saved);
  other.set_start(3, 3);
  EXPECT_EQ(other.version(0), 3);
  EXPECT_EQ(other.updates(0), 3);
  EXPECT_EQ(floats_of(other.weights(0)), floats_of(shard_.weights(0)));
  for (Shard* s : {&shard_, &other}) s->apply(0, whole(0.5F), kLeaves, whole_step(0.1));
  EXPECT_EQ(floats_of(other.weights(0)), floats_of(shard_.weights(0)));
  EXPECT_EQ(floats_of(other.state(0)[0]), floats_of(shard_.state(0)[0]));
}

TEST_F(OneSlice, HeldStateDoesNotChange) {
  shard_.apply(0, whole(1), kLeaves, whole_step(0.1));
  shard_.hold_state();
  const std::vector<Payload> held = shard_.state(0);
  const std::vector<float> then = floats_of(held[0]);
  shard_.apply(0, whole(1), kLeaves, whole_step(0.1));
  EXPECT_EQ(floats_of(held[0]), then);
  EXPECT_NE(floats_of(shard_.state(0)[0]), then);
}

TEST_F(OneSlice, StateThatIsNotHeldChangesInPlace) {
  const float* where = shard_.state(0)[0].floats();
  for (int i = 0; i < 3; ++i) shard_.apply(0, whole(1), kLeaves, whole_step(0.1));
  EXPECT_EQ(shard_.state(0)[0].floats(), where);
}

TEST_F(OneSlice, ReleasedMemoryIsReused) {
  const float* first = shard_.state(0)[0].floats();
  shard_.hold_state();
  shard_.apply(0, whole(1), kLeaves, whole_step(0.1));
  const float* second = shard_.state(0)[0].floats();
  EXPECT_NE(first, second);
  shard_.hold_state();
  shard_.apply(0, whole(1), kLeaves, whole_step(0.1));
  EXPECT_EQ(shard_.state(0)[0].floats(), first) << "its memory was no longer in use";
}

TEST_F(OneSlice, RunningStatisticsDoNotCountInTheNorm) {
  Serial serial;
  const auto gradient = whole(2);
  const SliceUpdate slice{0, gradient};
  const auto parts = shard_.norms(std::span(&slice, 1), kLeaves, kLeaves, serial);
  // Each gradient is 2 / 8. The 100 statistics between weights and bias do not count.
  EXPECT_DOUBLE_EQ(total_squares(parts, map_.blocks()),
                   static_cast<double>(kElements - 100) / 16.0);
}

TEST(Shard, PartOfABatchMovesTheWeightsByItsShare) {
  const SliceMap map(kElements, 1 << 20, 1);
  Shard shard(map, 0, table_of(kElements), {});
  shard.initialise(7);
  const std::vector<float> before = floats_of(shard.weights(0));
  UpdateInfo info;
  info.learning_rate = 1.0;
  info.divisor = 2;
  info.share = 0.25;  // two of eight micro-batches
  shard.apply(0, {{{2, 4}, constant_payload(kElements, 1.0F)}}, kLeaves, info);
  const std::vector<float> after = floats_of(shard.weights(0));
  EXPECT_NEAR(after[5], before[5] - 0.25 * 0.5, 1e-6);
  const double keep = std::pow(0.9, 0.25);
  EXPECT_NEAR(after[kElements - 50], keep * 0.25 + (1 - keep) * 0.5, 1e-6);
}

// ---- generations ----

class ThreeSlices : public testing::Test {
 protected:
  ThreeSlices() { shard_.initialise(7); }
  void move(int slice) {
    shard_.apply(slice, {{{0, kLeaves}, constant_payload(shard_.elements(slice), 1.0F)}}, kLeaves,
                 whole_step(0.1));
  }
  void move_all() {
    for (const int slice : shard_.slices()) move(slice);
  }
  SliceMap map_{kElements, 1 << 14, 1};
  int allocated_ = 0;
  Shard shard_{map_, 0, table_of(kElements), {}, host_engine([this](size_t floats) {
                 EXPECT_EQ(floats, static_cast<size_t>(kElements));
                 ++allocated_;
                 return heap_floats(floats);
               })};
};

TEST_F(ThreeSlices, AVersionOfAllSlicesIsOneContiguousBuffer) {
  ASSERT_EQ(shard_.slices().size(), 3U);
  for (int step = 0; step < 3; ++step) {
    const Payload first = shard_.weights(0);
    for (const int slice : shard_.slices()) {
      EXPECT_EQ(shard_.weights(slice).owner, first.owner);
      EXPECT_EQ(shard_.offset(slice), map_.elements(slice).lo);
      EXPECT_EQ(shard_.weights(slice).floats(), first.floats() + map_.elements(slice).lo);
    }
    move_all();
  }
}

TEST_F(ThreeSlices, TwoBuffersSufficeIfNoneIsHeld) {
  for (int step = 0; step < 10; ++step) move_all();
  EXPECT_EQ(allocated_, 2);
  const Payload sent = shard_.weights(1);
  const std::vector<float> then = floats_of(sent);
  for (int step = 0; step < 10; ++step) move_all();
  EXPECT_EQ(allocated_, 3) << "a socket holds one buffer";
  EXPECT_EQ(floats_of(sent), then);
}

TEST_F(ThreeSlices, WhileSlicesAdvanceEachIsReadAtItsOwnVersion) {
  move_all();
  const std::vector<float> v1 = floats_of(shard_.weights(0));
  move(1);
  EXPECT_EQ(shard_.version(0), 1);
  EXPECT_EQ(floats_of(shard_.weights(0)), v1);
  EXPECT_EQ(shard_.previous_version(0), -1) << "its buffer holds the next version";
  EXPECT_FALSE(shard_.previous(0).owner);
  EXPECT_EQ(shard_.version(1), 2);
  EXPECT_EQ(shard_.previous_version(1), 1);
  EXPECT_EQ(shard_.previous(1).owner, shard_.weights(0).owner);
  EXPECT_THROW(move(1), Error) << "the other slices have not advanced yet";
  move(0);
  move(2);
  for (const int slice : shard_.slices()) {
    EXPECT_EQ(shard_.version(slice), 2);
    EXPECT_EQ(shard_.previous_version(slice), 1);
  }
  EXPECT_EQ(floats_of(shard_.previous(0)), v1);
}

// ---- batches ----

// Returns weights, state and norms after three steps of large batches, which exceed the cache and
// are split.
//   hold: holds the state before each step until the end and checks it then.
std::pair<std::vector<float>, std::vector<double>> train_in_batches(Parallel& parallel,
                                                                    int64_t slice_bytes,
                                                                    bool hold = false) {
  constexpr int64_t kMany = (2 << 20) + 5 * kBlockElements + 77;
  OptimizerOptions options;
  options.kind = OptimizerKind::kMomentum;
  const SliceMap map(kMany, slice_bytes, 1);
  Shard shard(map, 0, table_of(kMany), options);
  shard.initialise(7);
  std::vector<std::vector<PartialSum>> parts;
  for (const int slice : shard.slices()) {
    const Range e = map.elements(slice);
    parts.emplace_back();
    for (int64_t leaf = 0; leaf < 3; ++leaf) {
      std::vector<float> values(static_cast<size_t>(e.size()));
      for (int64_t i = e.lo; i < e.hi; ++i) {
        values[static_cast<size_t>(i - e.lo)] = static_cast<float>((i * (leaf + 3)) % 101) * 0.01F;
      }
      auto owner = std::make_shared<std::vector<float>>(std::move(values));
      const auto bytes = std::as_bytes(std::span<const float>(*owner));
      parts.back().push_back({{leaf, leaf + 1}, {std::move(owner), bytes}});
    }
  }
  std::vector<SliceUpdate> updates;
  for (const int slice : shard.slices()) {
    updates.push_back({slice, parts[static_cast<size_t>(slice)]});
  }
  std::pair<std::vector<float>, std::vector<double>> out;
  std::vector<std::pair<Payload, std::vector<float>>> held;  // each with a copy of its values
  for (int step = 0; step < 3; ++step) {
    if (hold) shard.hold_state();
    for (const int slice : shard.slices()) {
      if (!hold) break;
      const Payload state = shard.state(slice)[0];
      held.emplace_back(state, floats_of(state));
    }
    const auto norms = shard.norms(updates, 3, 3.0, parallel);
    out.second.push_back(total_squares(norms, map.blocks()));
    shard.apply(updates, 3, whole_step(0.1), 1, parallel);
  }
  for (const int slice : shard.slices()) {
    const auto weights = floats_of(shard.weights(slice));
    out.first.insert(out.first.end(), weights.begin(), weights.end());
  }
  for (const int slice : shard.slices()) {
    const auto state = floats_of(shard.state(slice)[0]);
    out.first.insert(out.first.end(), state.begin(), state.end());
  }
  for (const auto& [payload, then] : held) EXPECT_TRUE(floats_of(payload) == then);
  return out;
}

TEST(Shard, BitsDoNotDependOnThreads) {
  Serial serial;
  const auto want = train_in_batches(serial, 1 << 20);
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(train_in_batches(pool, 1 << 20) == want) << threads;
    EXPECT_TRUE(train_in_batches(pool, 1 << 30) == want) << threads << ", one slice";
  }
}

TEST(Shard, BitsDoNotDependOnAHeldState) {
  Serial serial;
  const auto want = train_in_batches(serial, 1 << 20);
  ThreadPool pool(3);
  for (const int64_t slice_bytes : {1 << 20, 1 << 30}) {
    EXPECT_TRUE(train_in_batches(pool, slice_bytes, true) == want) << slice_bytes;
  }
}

TEST(Shard, SlicesLeaveAHeldStateOneByOne) {
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  const SliceMap map(kElements, 1 << 14, 1);
  Shard plain(map, 0, table_of(kElements), adam);
  Shard holding(map, 0, table_of(kElements), adam);
  const auto move = [&](Shard& shard, int slice) {
    shard.apply(slice, parts_of(map.elements(slice), 1), kLeaves, whole_step(0.1));
  };
  for (Shard* shard : {&plain, &holding}) {
    shard->initialise(7);
    for (const int slice : shard->slices()) move(*shard, slice);
  }
  holding.hold_state();
  holding.hold_state();  // nothing has changed since the first call
  std::vector<std::vector<Payload>> held;
  for (const int slice : holding.slices()) held.push_back(holding.state(slice));
  for (const int slice : {2, 0, 1}) {
    const float* before = holding.state(slice)[1].floats();
    EXPECT_EQ(before, held[static_cast<size_t>(slice)][1].floats());
    for (size_t s = 0; s < 2; ++s) {
      EXPECT_EQ(floats_of(held[static_cast<size_t>(slice)][s]), floats_of(plain.state(slice)[s]));
    }
    move(holding, slice);
    move(plain, slice);
    EXPECT_NE(holding.state(slice)[1].floats(), before);
    for (size_t s = 0; s < 2; ++s) {
      EXPECT_EQ(floats_of(holding.state(slice)[s]), floats_of(plain.state(slice)[s])) << slice;
    }
    EXPECT_EQ(floats_of(holding.weights(slice)), floats_of(plain.weights(slice))) << slice;
  }
}

TEST(Shard, OwnsOnlyItsSlices) {
  const SliceMap map(kElements, 4096, 3);
  Shard shard(map, 1, table_of(kElements), {});
  EXPECT_EQ(shard.slices(), (std::vector<int>{1, 4, 7}));
  for (int slice = -3; slice < map.slices() + 3; ++slice) {
    EXPECT_EQ(shard.owns(slice), slice == 1 || slice == 4 || slice == 7) << slice;
    if (!shard.owns(slice)) {
      EXPECT_THROW(shard.weights(slice), Error);
    }
  }
}

TEST(Shard, MayBeEmpty) {
  const SliceMap map(200, 4096, 3);
  Shard shard(map, 2, table_of(200), {});
  shard.initialise(1);
  EXPECT_TRUE(shard.slices().empty());
}

}  // namespace
}  // namespace pushpull::shard_test
