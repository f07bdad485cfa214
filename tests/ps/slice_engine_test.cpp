// A shard on a device has the bits of a shard on the host: every rule, tree and placement of the
// parts, with several orders of execution of a fake device, and on CUDA.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/update/norm.h"
#include "ps/engine/shard.h"
#include "tests/common/thrown.h"
#include "tests/device/fake_device.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/device_lab.h"

namespace pushpull {
namespace {

using device::FakeDevice;
using device::FakeOptions;
using device::Fault;

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t upto(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool heads() { return upto(2) == 1; }
  std::vector<float> floats(int64_t n) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) {
      x = std::ldexp(static_cast<float>(upto(1 << 24)) - 8388608.0F,
                     static_cast<int>(upto(6)) - 27);
    }
    return out;
  }

 private:
  std::mt19937_64 random_;
};

// Returns tensors of random lengths, so that tiles and loads end anywhere. Some are running
// averages.
TensorTable any_table(Dice& dice) {
  TensorTable table;
  const int64_t tensors = 1 + dice.upto(7);
  for (int64_t t = 0; t < tensors; ++t) {
    TensorInfo info;
    info.name = "t" + std::to_string(t);
    info.shape = {1 + dice.upto(dice.heads() ? 5 : 4000)};
    if (t > 0 && dice.upto(3) == 0) info.rule = UpdateRule::kAverage;
    info.init = t % 2 == 0 ? InitKind::kUniform : InitKind::kNormal;
    info.value = 0.5F;
    info.decay = t % 3 != 1;
    if (t % 4 == 2) info.lr_scale = 0.25;
    if (t % 5 == 3) info.weight_decay = t == 3 ? 0.02 : 0.0;
    table.add(info);
  }
  return table;
}

// Splits the tree into random nodes.
void cut(Dice& dice, Range node, std::vector<Range>& out) {
  if (node.size() == 1 || dice.upto(3) == 0) {
    out.push_back(node);
    return;
  }
  const int64_t middle = split_point(node);
  cut(dice, {node.lo, middle}, out);
  cut(dice, {middle, node.hi}, out);
}

// The same random run on the host and on a device.
class Pair {
 public:
  Pair(const Lab& lab, uint64_t seed, const OptimizerOptions& optimizer)
      : lab_(lab),
        dice_(seed),
        optimizer_(optimizer),
        table_(any_table(dice_)),
        map_(table_.total, 4096 << dice_.upto(4), 1),
        host_(map_, 0, table_, optimizer),
        device_(map_, 0, table_, optimizer, lab.engine(size_t{1} << (12 + dice_.upto(8)))) {
    if (dice_.heads()) {
      for (Shard* shard : {&host_, &device_}) shard->initialise(seed);
    } else {
      load();
    }
  }

  // Runs a step. Returns false if the bits differ.
  bool step() {
    const int64_t leaves = 1 + dice_.upto(9);
    UpdateInfo info;
    info.learning_rate = 0.1;
    info.divisor = static_cast<double>(leaves);
    if (dice_.heads()) info.clip = 0.37;
    info.changes = dice_.upto(4) == 0;
    if (dice_.heads()) info.share = 0.75;
    const bool delayed = dice_.heads();
    if (delayed) info.delay_compensation = 0.04;
    if (dice_.upto(3) == 0) {
      for (Shard* shard : {&host_, &device_}) shard->hold_state();
      for (const int slice : host_.slices()) hold(slice);
    }
    reads_.clear();
    std::vector<Range> nodes;
    cut(dice_, {0, leaves}, nodes);
    if (nodes.size() == 1)
      nodes[0] = {0, std::max<int64_t>(1, leaves - 1)};  // a single part of a part of the step
    std::vector<SliceUpdate> here;
    std::vector<SliceUpdate> there;
    for (const int slice : host_.slices()) {
      make_parts(slice, nodes);
      const bool read = delayed && dice_.upto(4) != 0;
      here.push_back({slice, host_parts_.back(), read ? read_of(host_, slice) : nullptr});
      there.push_back({slice, device_parts_.back(), read ? read_of(device_, slice) : nullptr});
    }
    Serial serial;
    bool same = true;
    if (!info.changes) {
      const auto want = host_.norms(here, leaves, info.divisor, serial);
      const auto got = device_.norms(there, leaves, info.divisor, serial);
      same &= total_squares(want, map_.blocks()) == total_squares(got, map_.blocks());
    }
    std::vector<double> trust;
    if (scales_by_tensor(optimizer_.kind) && !delayed) {
      trust = trust_ratios(table_, optimizer_, host_.trust_parts(here, leaves, info, serial));
      same &= trust ==
              trust_ratios(table_, optimizer_, device_.trust_parts(there, leaves, info, serial));
      info.trust = trust;
    }
    // in one batch or in two
    const auto first = static_cast<size_t>(dice_.upto(std::ssize(here)));
    for (const auto& [lo, n] :
         {std::pair(size_t{0}, first), std::pair(first, here.size() - first)}) {
      host_.apply(std::span(here).subspan(lo, n), leaves, info, 1, serial);
      device_.apply(std::span(there).subspan(lo, n), leaves, info, 1, serial);
    }
    return same && equal();
  }

  bool equal() {
    bool same = true;
    for (const int slice : host_.slices()) {
      EXPECT_EQ(device_.version(slice), host_.version(slice));
      EXPECT_TRUE(device_.weights(slice).on_device);
      same &= is_same(host_.weights(slice), device_.weights(slice));
      same &= is_same(host_.previous(slice), device_.previous(slice));
      const auto want = host_.state(slice);
      const auto got = device_.state(slice);
      EXPECT_EQ(got.size(), want.size());
      for (size_t s = 0; s < want.size(); ++s) same &= is_same(want[s], got[s]);
    }
    for (const auto& [payload, then] : held_) same &= same_bits(lab_.read(payload), then);
    return same;
  }

 private:
  bool is_same(const Payload& want, const Payload& got) const {
    return same_bits(lab_.read(want), lab_.read(got));
  }

  // Also loads state for running averages, which no update changes.
  void load() {
    for (const int slice : host_.slices()) {
      std::vector<Payload> vectors;
      for (size_t v = 0; v < 1 + host_.state_vectors(); ++v) {
        std::vector<float> values = dice_.floats(host_.elements(slice));
        for (float& x : values) x = std::abs(x);
        vectors.push_back(lab_.put(values, Lab::kHeap));
      }
      for (Shard* shard : {&host_, &device_}) shard->load(slice, vectors);
    }
  }

  void hold(int slice) {
    for (const Payload& payload : device_.state(slice)) {
      held_.emplace_back(payload, lab_.read(payload));
    }
  }

  // Returns the previous version, as an asynchronous push reads it, or the newest one at first.
  // Holds it, as a server does.
  const float* read_of(const Shard& shard, int slice) {
    const Payload before = shard.previous(slice);
    reads_.push_back(before.owner ? before : shard.weights(slice));
    return reads_.back().address();
  }

  void make_parts(int slice, const std::vector<Range>& nodes) {
    host_parts_.emplace_back();
    device_parts_.emplace_back();
    const bool all_aligned = dice_.heads();
    for (const Range& node : nodes) {
      const std::vector<float> values = dice_.floats(host_.elements(slice));
      const auto place =
          static_cast<Lab::Place>(dice_.upto(all_aligned ? Lab::kOnDeviceUnaligned : Lab::kPlaces));
      host_parts_.back().push_back({node, lab_.put(values, Lab::kHeap)});
      device_parts_.back().push_back({node, lab_.put(values, place)});
    }
  }

  const Lab& lab_;
  Dice dice_;
  const OptimizerOptions optimizer_;
  TensorTable table_;
  SliceMap map_;
  // of all steps: late work of the device may still read them, so they outlive the shards
  std::vector<std::vector<PartialSum>> host_parts_;
  std::vector<std::vector<PartialSum>> device_parts_;
  std::vector<std::pair<Payload, std::vector<float>>> held_;
  std::vector<Payload> reads_;
  Shard host_;
  Shard device_;
};

struct Rule {
  OptimizerKind kind;
  double weight_decay;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = [] {
    std::vector<Rule> out;
    for (const OptimizerKind kind :
         {OptimizerKind::kSgd, OptimizerKind::kMomentum, OptimizerKind::kNesterov,
          OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kRmsprop,
          OptimizerKind::kAdagrad, OptimizerKind::kLion, OptimizerKind::kLamb}) {
      for (const double decay : {0.0, 0.01}) out.push_back({kind, decay});
    }
    return out;
  }();
  return all;
}

OptimizerOptions options_of(const Rule& rule) {
  OptimizerOptions options;
  options.kind = rule.kind;
  options.weight_decay = rule.weight_decay;
  return options;
}

INSTANTIATE_TEST_SUITE_P(, AnyEngine, testing::ValuesIn(device_cases()),
                         [](const auto& of) { return std::string(of.param.name); });

TEST_P(AnyEngine, EveryRuleAndTreeHasTheHostsBits) {
  for (const Rule& rule : rules()) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
      const Lab lab(GetParam().make(seed));
      Pair pair(lab, seed, options_of(rule));
      for (int step = 0; step < 5; ++step) {
        ASSERT_TRUE(pair.step()) << to_string(rule.kind) << " " << rule.weight_decay << ", seed "
                                 << seed << ", step " << step;
      }
    }
  }
}

// Returns the weights of a shard with one slice after one update.
std::vector<float> after_one(const Lab& lab, Shard& shard, const std::vector<PartialSum>& parts,
                             int64_t leaves) {
  shard.initialise(5);
  UpdateInfo info;
  info.learning_rate = 0.1;
  info.divisor = static_cast<double>(leaves);
  shard.apply(0, parts, leaves, info);
  return lab.read(shard.weights(0));
}

// More pending sums than fit in a kernel's memory, even four at a time.
TEST_P(AnyEngine, DeepTreeHasTheHostsBits) {
  const Lab lab(GetParam().make(1));
  Dice dice(1);
  constexpr int64_t kElements = 3001;
  constexpr int64_t kLeaves = 1 << 17;
  const SliceMap map(kElements, 1 << 20, 1);
  std::vector<PartialSum> parts;
  for (Range rest{0, kLeaves}; rest.size() > 1;) {
    const int64_t middle = split_point(rest);
    parts.push_back({{rest.lo, middle}, lab.put(dice.floats(kElements), Lab::kHeap)});
    rest.lo = middle;
    if (rest.size() == 1) parts.push_back({rest, lab.put(dice.floats(kElements), Lab::kHeap)});
  }
  ASSERT_EQ(parts.size(), 18U);
  const TensorTable table = table_of(kElements);
  Shard host(map, 0, table, {});
  Shard device(map, 0, table, {}, lab.engine());
  EXPECT_TRUE(
      same_bits(after_one(lab, host, parts, kLeaves), after_one(lab, device, parts, kLeaves)));
  Serial serial;
  const SliceUpdate slice{0, parts};
  const auto want = host.norms(std::span(&slice, 1), kLeaves, 3.0, serial);
  const auto got = device.norms(std::span(&slice, 1), kLeaves, 3.0, serial);
  EXPECT_EQ(total_squares(got, map.blocks()), total_squares(want, map.blocks()));
}

TEST_P(AnyEngine, LargeBatchHasTheHostsBits) {
  const Lab lab(GetParam().make(2));
  constexpr int64_t kElements = (int64_t{8} << 20) + 77;
  std::vector<float> values(kElements);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1013) * 0.01F;
  const SliceMap map(kElements, int64_t{1} << 30, 1);
  const TensorTable table = table_of(kElements);
  Shard host(map, 0, table, {});
  Shard device(map, 0, table, {}, lab.engine());
  const auto want = after_one(lab, host, {{{0, 2}, lab.put(values, Lab::kHeap)}}, 2);
  const auto got = after_one(lab, device, {{{0, 2}, lab.put(values, Lab::kOnDevice)}}, 2);
  EXPECT_TRUE(same_bits(want, got));
}

// Loads from a checkpoint, in host memory, and from the device.
TEST_P(AnyEngine, LoadedAndStoredStateGivesTheSameBits) {
  const Lab lab(GetParam().make(3));
  constexpr int64_t kElements = 2500;
  const SliceMap map(kElements, 1 << 20, 1);
  const TensorTable table = table_of(kElements);
  const OptimizerOptions adam = options_of({OptimizerKind::kAdam, 0.0});
  Shard first(map, 0, table, adam, lab.engine());
  Dice dice(3);
  const std::vector<PartialSum> parts = {{{0, 2}, lab.put(dice.floats(kElements), Lab::kHeap)}};
  after_one(lab, first, parts, 2);
  std::vector<Payload> on_device{first.weights(0)};
  for (Payload& vector : first.state(0)) on_device.push_back(std::move(vector));
  std::vector<Payload> on_host;
  for (const Payload& vector : on_device) on_host.push_back(lab.put(lab.read(vector), Lab::kHeap));
  Shard loaded(map, 0, table, adam, lab.engine());
  loaded.load(0, on_host);
  loaded.set_start(1, 1);
  Shard stored(map, 0, table, adam, lab.engine());
  stored.initialise(9);
  stored.store(0, on_device, 1, 1);
  UpdateInfo info;
  info.learning_rate = 0.1;
  info.divisor = 2.0;
  for (Shard* shard : {&first, &loaded, &stored}) shard->apply(0, parts, 2, info);
  for (Shard* shard : {&loaded, &stored}) {
    EXPECT_TRUE(same_bits(lab.read(shard->weights(0)), lab.read(first.weights(0))));
    for (size_t s = 0; s < 2; ++s) {
      EXPECT_TRUE(same_bits(lab.read(shard->state(0)[s]), lab.read(first.state(0)[s])));
    }
  }
}

// ---- injected faults are detected ----

// Returns the number of seeds, out of 40, for which one step differs.
int wrong_under(Fault fault) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    FakeOptions options{seed};
    options.fault = fault;
    const Lab lab(std::make_shared<FakeDevice>(options));
    Pair pair(lab, seed, options_of({OptimizerKind::kAdam, 0.01}));
    wrong += pair.step() ? 0 : 1;
  }
  return wrong;
}

TEST(BrokenEngine, WrongTreeOrderIsDetected) { EXPECT_GT(wrong_under(Fault::kSumsLeftToRight), 5); }

TEST(BrokenEngine, StateThatIsNotCarriedOverIsDetected) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    FakeOptions options{seed};
    options.fault = Fault::kHeldStateIsForgotten;
    const Lab lab(std::make_shared<FakeDevice>(options));
    Pair pair(lab, seed, options_of({OptimizerKind::kMomentum, 0.0}));
    for (int step = 0; step < 5; ++step) wrong += pair.step() ? 0 : 1;
  }
  EXPECT_GT(wrong, 5);
}

// The update is read on another stream, as by a worker on the same device.
TEST(BrokenEngine, MissingWaitForTheUpdateIsDetected) {
  const auto wrong_with = [](Fault fault) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      FakeOptions options{seed};
      options.fault = fault;
      const Lab lab(std::make_shared<FakeDevice>(options));
      constexpr int64_t kElements = 2500;
      const SliceMap map(kElements, 1 << 20, 1);
      const TensorTable table = table_of(kElements);
      Dice dice(seed);
      const auto values = dice.floats(kElements);
      const std::vector<PartialSum> parts = {{{0, 1}, lab.put(values, Lab::kPinned)}};
      Shard host(map, 0, table, {});
      Shard device(map, 0, table, {}, lab.engine());
      const auto want = after_one(lab, host, parts, 1);
      wrong += same_bits(want, after_one(lab, device, parts, 1)) ? 0 : 1;
    }
    return wrong;
  };
  EXPECT_EQ(wrong_with(Fault::kNone), 0);
  EXPECT_GT(wrong_with(Fault::kHostDoesNotWait), 3);
}

TEST(BrokenEngine, LostDeviceIsAnErrorThatNamesIt) {
  FakeOptions options;
  options.lost_after = 6;
  const Lab lab(std::make_shared<FakeDevice>(options));
  const SliceMap map(5000, 4096, 1);
  const std::string text = thrown(ErrorCode::kDevice, [&] {
    Shard shard(map, 0, table_of(5000), {}, lab.engine());
    shard.initialise(1);
    std::vector<PartialSum> parts = {{{0, 1}, constant_payload(shard.elements(0), 1.0F)}};
    for (int i = 0; i < 10; ++i) {
      for (const int slice : shard.slices()) {
        parts[0].payload = constant_payload(shard.elements(slice), 1.0F);
        shard.apply(slice, parts, 1, {});
      }
    }
  });
  EXPECT_NE(text.find("fake:0"), std::string::npos) << text;
}

TEST(BrokenEngine, EncodedPartsAreRefused) {
  const Lab lab(std::make_shared<FakeDevice>());
  const Job job = job_of("codec = bf16\n");
  const TensorTable table = table_of(4000);
  const SliceMap map(4000, 4096, 1);
  Shard shard(map, 0, table, {}, lab.engine(), CodecMap(table, job.codec, job.codec_tensors));
  shard.initialise(1);
  ASSERT_FALSE(shard.codec(0).plain());
  EXPECT_THROW(shard.apply(0, {{{0, 1}, constant_payload(shard.elements(0), 1.0F)}}, 1, {}), Error);
}

}  // namespace
}  // namespace pushpull
