// The sum of gradients on a device has the bits of the tree, in any order of its streams.
#include "worker/compute/device_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/shm/segment.h"
#include "tests/common/thrown.h"
#include "tests/device/fake_device.h"
#include "tests/worker/leaf_gradients.h"

namespace pushpull {
namespace {

constexpr int64_t kDeadlineMs = 1000;
constexpr int64_t kSpoilt = 6000;  // in the middle of a run of slices that are checked together

using device::FakeDevice;
using device::FakeOptions;
using device::Fault;

// Writes `leaf(0)`, `leaf(1)`, ... as gradients, on its own stream.
class LeafStep : public DeviceStep {
 public:
  LeafStep(std::shared_ptr<FakeDevice> device, const TensorTable& table)
      : device_(std::move(device)), table_(table), compute_(device_->stream()) {
    for (size_t t = 0; t < table.tensors.size(); ++t) ready_.push_back(device_->event());
  }

  std::shared_ptr<device::Device> device() const override { return device_; }
  void begin(std::span<const float> /*weights*/) override { next_ = 0; }
  void stage(const Samples& /*samples*/) override {}
  void unstage() override {}
  void run(float* gradients, const GradientReady& enqueued, const WeightsNeeded&) override {
    if (clock_) compute_->record(*clock_);
    const auto values = std::make_shared<std::vector<float>>(leaf(next_, table_.total));
    if (next_++ == spoilt_) (*values)[kSpoilt] = std::numeric_limits<float>::quiet_NaN();
    // an element that is not overwritten stays infinite
    device::enqueue(*compute_, [gradients, n = table_.total] {
      std::fill_n(gradients, n, std::numeric_limits<float>::infinity());
    });
    for (size_t t = table_.tensors.size(); t-- > 0;) {
      const TensorInfo& tensor = table_.tensors[t];
      device::enqueue(*compute_, [values, gradients, tensor] {
        std::copy_n(values->begin() + tensor.offset, tensor.size, gradients + tensor.offset);
      });
      compute_->record(*ready_[t]);
      enqueued(t);
    }
  }
  const device::Event& gradient(size_t tensor) const override { return *ready_[tensor]; }
  void write_after(const device::Event& event) override { compute_->wait(event); }
  std::span<const float> wait() override {
    compute_->synchronize(kDeadlineMs);
    return {};
  }
  void keep_times() override { clock_ = device_->event(true); }
  std::span<const DeviceSpan> spans() const override { return {}; }
  const device::Event& clock() const override { return *clock_; }

  // Puts a NaN into element kSpoilt of this leaf.
  void spoil(int64_t index) { spoilt_ = index; }

 private:
  std::shared_ptr<FakeDevice> device_;
  const TensorTable& table_;
  std::vector<std::unique_ptr<device::Event>> ready_;
  std::unique_ptr<device::Event> clock_;
  std::unique_ptr<device::Stream> compute_;
  int64_t next_ = 0;
  int64_t spoilt_ = -1;
};

// Memory in which sums are delivered.
enum class Stay { kHost, kDevice };

// A device with its pool, step and sum. Another device reads sums on the device, as in a server.
struct Rig {
  explicit Rig(FakeOptions options, Stay stay = Stay::kHost)
      : device(std::make_shared<FakeDevice>(options)),
        pool(device, [](const std::string& why) { ADD_FAILURE() << why; }),
        step(device, table),
        sum(make_device_sum(step, table, map, {heap_floats, [this, stay]() -> FloatAllocator {
                                                 if (stay == Stay::kHost) return nullptr;
                                                 return [this](size_t n) { return pool.get(n); };
                                               }})) {}

  std::vector<Given> run(int64_t leaves) {
    std::vector<Given> given;
    finite.assign(static_cast<size_t>(map.slices()), false);
    delivered.assign(static_cast<size_t>(table.total), 0.0F);
    const auto keep = [&](int slice, Payload part) {
      finite[static_cast<size_t>(slice)] = sum->finite(slice, part);
      std::ranges::copy(read(part), delivered.begin() + map.elements(slice).lo);
      given.push_back({slice, std::move(part)});
    };
    step.begin({});
    sum->begin(leaves);
    for (int64_t i = 0; i < leaves; ++i) {
      step.run(sum->leaf().data(),
               [&](size_t tensor) {
                 if (sum->in_last_leaf()) sum->tensor_ready(tensor, keep);
               },
               {});
      sum->end_leaf();
    }
    EXPECT_TRUE(given.empty()) << "a slice was delivered before the wait";
    sum->finish(keep);
    return given;
  }

  // Runs a node with a NaN in this leaf, or with none (-1). Returns the number of slices that are
  // reported wrongly when they are delivered.
  int wrong_marks(int64_t spoilt) {
    step.spoil(spoilt);
    run(3);
    step.spoil(-1);
    int wrong = 0;
    for (int slice = 0; slice < map.slices(); ++slice) {
      const Range e = map.elements(slice);
      const bool is_finite = spoilt < 0 || e.lo > kSpoilt || e.hi <= kSpoilt;
      wrong += finite[static_cast<size_t>(slice)] == is_finite ? 0 : 1;
    }
    return wrong;
  }

  std::vector<float> read(const Payload& part) const {
    if (!part.on_device) return {part.floats(), part.floats() + part.float_count()};
    const DevicePool::Place place = pool.find(part.bytes);
    FakeDevice server({.seed = 1});
    const auto opened =
        server.open_shared(place.segment->description().handle(), place.segment->bytes());
    const device::Memory copy = server.allocate(part.bytes.size());
    std::vector<float> out(part.float_count());
    const auto stream = server.stream();
    stream->copy_in(static_cast<const std::byte*>(opened.get()) + place.offset, part.bytes.size(),
                    copy.data());
    stream->copy_out(copy.data(), part.bytes.size(), out.data());
    return out;
  }

  // Returns true if each slice of the latest node was complete when it was delivered.
  bool delivered_sum(int64_t leaves) const {
    return std::memcmp(delivered.data(), recursive_sum({0, leaves}, table.total).data(),
                       delivered.size() * sizeof(float)) == 0;
  }
  bool has_sum(const std::vector<Given>& given, int64_t leaves) const {
    const std::vector<float> want = recursive_sum({0, leaves}, table.total);
    std::vector<int> times(static_cast<size_t>(map.slices()));
    bool same = true;
    for (const Given& g : given) {
      const Range e = map.elements(g.slice);
      ++times[static_cast<size_t>(g.slice)];
      const std::vector<float> got = read(g.part);
      same &= std::equal(want.begin() + e.lo, want.begin() + e.hi, got.begin(), got.end(),
                         [](float a, float b) {
                           return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
                         });
    }
    return same && std::count(times.begin(), times.end(), 1) == map.slices();
  }

  TensorTable table = some_table();
  SliceMap map{table.total, 4096, 2};
  std::shared_ptr<FakeDevice> device;
  DevicePool pool;
  LeafStep step;
  std::unique_ptr<GradientSum> sum;
  // of the latest node, when each slice was delivered
  std::vector<bool> finite;  // by slice
  std::vector<float> delivered;
};

TEST(DeviceSum, HasTheBitsOfThePlainTreeInAnyOrderOfTheStreams) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Rig rig({.seed = seed});
    for (const int64_t leaves : {1, 2, 3, 4, 7, 9, 1}) {
      EXPECT_TRUE(rig.has_sum(rig.run(leaves), leaves)) << seed << " " << leaves;
      EXPECT_TRUE(rig.delivered_sum(leaves)) << seed << " " << leaves;
      EXPECT_EQ(
          std::memcmp(rig.sum->sum().data(), recursive_sum({0, leaves}, rig.table.total).data(),
                      rig.sum->sum().size_bytes()),
          0);
    }
  }
}

TEST(DeviceSum, SumsOnTheDeviceAreCompleteWhenTheyAreDelivered) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Rig rig({.seed = seed}, Stay::kDevice);
    for (const int64_t leaves : {1, 2, 3, 4, 7, 9, 1}) {
      const std::vector<Given> given = rig.run(leaves);
      for (const Given& g : given) EXPECT_TRUE(g.part.on_device);
      EXPECT_TRUE(rig.has_sum(given, leaves)) << seed << " " << leaves;
      EXPECT_TRUE(rig.delivered_sum(leaves)) << seed << " " << leaves;
    }
  }
}

TEST(DeviceSum, SumsOnTheDeviceCanBeCopiedToTheHost) {
  Rig rig({.seed = 4}, Stay::kDevice);
  for (const Given& g : rig.run(3)) {
    const Payload here = rig.sum->on_host(g.part);
    EXPECT_EQ(rig.read(here), rig.read(g.part));
    EXPECT_FALSE(here.on_device);
  }
}

TEST(DeviceSum, WithoutRegisteredMemoryItHasTheSameBits) {
  Rig rig({.seed = 5, .registers = false});
  EXPECT_TRUE(rig.has_sum(rig.run(5), 5));
}

// Shows that the tests of bits and of finite values can fail: each wait is needed.
TEST(DeviceSum, WithoutItsWaitsItIsWrong) {
  // the streams of the step, of sums and of copies out; and the host
  const auto without = [](uint64_t seed, int wait) {
    FakeOptions options{.seed = seed};
    if (wait == 3) options.fault = Fault::kHostDoesNotWait;
    if (wait < 3) options.deaf = wait;
    return options;
  };
  for (const Stay stay : {Stay::kHost, Stay::kDevice}) {
    for (int wait = 0; wait < 4; ++wait) {
      int wrong_sums = 0;
      int wrong_marks = 0;
      for (uint64_t seed = 0; seed < 8; ++seed) {
        Rig rig(without(seed, wait), stay);
        for (const int64_t leaves : {3, 4}) {
          rig.run(leaves);
          wrong_sums += rig.delivered_sum(leaves) ? 0 : 1;
        }
        for (const int64_t spoilt : {-1, 1}) wrong_marks += rig.wrong_marks(spoilt);
      }
      // only marks are copied out of a sum that stays
      if (wait != 2 || stay == Stay::kHost) {
        EXPECT_GT(wrong_sums, 0) << wait;
      }
      EXPECT_GT(wrong_marks, 0) << wait;
    }
  }
}

// The copies of a device follow one another.
TEST(DeviceSum, KnowsWhenEachSliceWasCopied) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rig rig({.seed = seed});
    rig.step.keep_times();
    rig.sum->keep_times();
    const std::vector<Given> given = rig.run(1);
    EXPECT_TRUE(rig.has_sum(given, 1)) << seed;
    double last_s = 0.0;
    for (const Given& g : given) {
      const GradientSum::Copied copied = rig.sum->copied(g.slice, rig.step.clock());
      EXPECT_GT(copied.begin_s, last_s) << seed;
      EXPECT_GT(copied.end_s, copied.begin_s) << seed;
      last_s = copied.end_s;
    }
  }
}

// Slices that stay and that one tensor completes have the times of their marks.
TEST(DeviceSum, KnowsWhenSlicesThatStayWereChecked) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rig rig({.seed = seed}, Stay::kDevice);
    rig.step.keep_times();
    rig.sum->keep_times();
    std::vector<double> ends;
    for (const Given& g : rig.run(1)) {
      const GradientSum::Copied copied = rig.sum->copied(g.slice, rig.step.clock());
      EXPECT_GT(copied.end_s, copied.begin_s) << seed;
      ends.push_back(copied.end_s);
    }
    EXPECT_TRUE(std::ranges::is_sorted(ends)) << seed;
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    EXPECT_EQ(std::ssize(ends), 4) << "tensors that complete a slice";
  }
}

TEST(DeviceSum, HeldPartIsNotOverwritten) {
  for (const Stay stay : {Stay::kHost, Stay::kDevice}) {
    Rig rig({.seed = 3}, stay);
    const std::vector<Given> held = rig.run(4);
    for (int i = 0; i < 3; ++i) rig.run(5);
    EXPECT_TRUE(rig.has_sum(held, 4));
  }
}

TEST(DeviceSum, ReportsForEachSliceIfItIsFinite) {
  for (uint64_t seed = 0; seed < 48; ++seed) {
    Rig rig({.seed = seed}, seed % 8 < 4 ? Stay::kHost : Stay::kDevice);
    for (const int64_t spoilt : {1, -1, 2, 0, -1}) EXPECT_EQ(rig.wrong_marks(spoilt), 0) << seed;
  }
}

// A node that is given up leaves nothing that the next node would deliver.
TEST(DeviceSum, NodeThatIsGivenUpIsDropped) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rig rig({.seed = seed});
    rig.step.begin({});
    rig.sum->begin(2);
    for (int i = 0; i < 2; ++i) {
      rig.step.run(rig.sum->leaf().data(),
                   [&](size_t tensor) {
                     if (rig.sum->in_last_leaf())
                       rig.sum->tensor_ready(tensor, [](int, const Payload&) {});
                   },
                   {});
      rig.sum->end_leaf();
    }
    rig.step.wait();
    EXPECT_TRUE(rig.has_sum(rig.run(3), 3)) << seed;
  }
}

TEST(DeviceSum, ErrorNamesALostDevice) {
  Rig rig({.seed = 1, .lost_after = 40});
  EXPECT_THAT(thrown(ErrorCode::kDevice,
                     [&] {
                       for (int i = 0; i < 20; ++i) rig.run(2);
                     }),
              testing::HasSubstr("fake:0"));
}

}  // namespace
}  // namespace pushpull
