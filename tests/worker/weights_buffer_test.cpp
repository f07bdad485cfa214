#include "worker/exchange/weights_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/shm/segment.h"
#include "common/update/block_codec.h"

namespace pushpull::weights_buffer_test {
namespace {

constexpr int64_t kElements = 2049;  // slices of 1024, 1024 and 1 elements
const SliceMap kMap(kElements, 4096, 1);

std::vector<float> weights() {
  std::vector<float> out;
  for (int i = 0; i < kElements; ++i) out.push_back(1.0F / static_cast<float>(i + 3));
  return out;
}

std::vector<float> rounded() {
  std::vector<float> out = weights();
  round_to_bf16(out.data(), kElements, out.data());
  return out;
}

Payload slice_of(int slice, bool narrow) {
  const Range e = kMap.elements(slice);
  const std::vector<float> whole = weights();
  const size_t floats =
      narrow ? static_cast<size_t>(e.size() + 1) / 2 : static_cast<size_t>(e.size());
  const auto owner = std::make_shared<std::vector<float>>(floats);
  if (narrow) {
    to_bf16(whole.data() + e.lo, e.size(), reinterpret_cast<uint16_t*>(owner->data()));
  } else {
    std::memcpy(owner->data(), whole.data() + e.lo, floats * sizeof(float));
  }
  return {owner, std::as_bytes(std::span<const float>(*owner))};
}

std::vector<float> floats(std::span<const float> x) { return {x.begin(), x.end()}; }

TEST(WeightsBuffer, Bf16SlicesAreDecoded) {
  WeightsBuffer buffer(kMap, true);
  for (int slice = 0; slice < 3; ++slice) {
    const Payload payload = slice_of(slice, true);
    ASSERT_TRUE(buffer.fits(slice, payload));
    buffer.place(slice, 5, payload);
  }
  buffer.take_over();
  // the slice of one element has the size of a float either way, so it is never bf16
  std::vector<float> got = floats(buffer.current());
  got.pop_back();
  std::vector<float> want = rounded();
  want.pop_back();
  EXPECT_EQ(got, want);
}

TEST(WeightsBuffer, Fp32SlicesAreRoundedForGradientsAndKeptForEvaluations) {
  WeightsBuffer buffer(kMap, true);
  for (int slice = 0; slice < 3; ++slice) {
    const Payload payload = slice_of(slice, false);
    ASSERT_TRUE(buffer.fits(slice, payload));
    buffer.place(slice, 5, payload);
  }
  buffer.take_over();
  EXPECT_EQ(floats(buffer.current()), rounded());
  EXPECT_EQ(floats(buffer.whole()), weights());
}

TEST(WeightsBuffer, Bf16SlicesAreRefusedWithoutACodec) {
  WeightsBuffer buffer(kMap);
  EXPECT_FALSE(buffer.fits(0, slice_of(0, true)));
  for (int slice = 0; slice < 3; ++slice) buffer.place(slice, 5, slice_of(slice, false));
  buffer.take_over();
  EXPECT_EQ(floats(buffer.current()), weights());
  EXPECT_EQ(floats(buffer.whole()), weights());
}

// Two servers: the first has slices 0 and 2 one after the other, the second slice 1.
const SliceMap kTwoServers(kElements, 4096, 2);

// A server's generation of weights in a segment, as another process maps it.
std::vector<Payload> generation(int server, float value) {
  static SegmentPool pool([](const std::string& why) { FAIL() << why; });
  int64_t total = 0;
  for (const int slice : kTwoServers.slices_of(server)) total += kTwoServers.elements(slice).size();
  const std::shared_ptr<float[]> made = pool.get(static_cast<size_t>(total));
  std::fill_n(made.get(), total, value);
  const auto place = pool.find(std::as_bytes(std::span(made.get(), static_cast<size_t>(total))));
  const auto mapping =
      std::make_shared<const Mapping>(place.segment->description(), int64_t{1} << 30);
  std::vector<Payload> out;
  size_t first = 0;
  for (const int slice : kTwoServers.slices_of(server)) {
    const size_t bytes = static_cast<size_t>(kTwoServers.elements(slice).size()) * sizeof(float);
    out.push_back({mapping, mapping->bytes().subspan(first, bytes)});
    first += bytes;
  }
  return out;
}

const SliceMap kOneSlice(1024, 4096, 1);

// Returns a slice as a message brings it. Counts in `alive` how many of them are held.
Payload message_with(float value, int& alive) {
  const auto release = [&alive](const std::vector<float>* floats) {
    --alive;
    delete floats;
  };
  ++alive;
  const std::shared_ptr<const std::vector<float>> owner(new std::vector<float>(1024, value),
                                                        release);
  return {owner, std::as_bytes(std::span<const float>(*owner))};
}

TEST(WeightsBuffer, SliceThatIsTheWholeVectorStaysInItsMessage) {
  int alive = 0;
  WeightsBuffer buffer(kOneSlice, false, heap_floats, true);
  for (int step = 0; step < 4; ++step) {
    const auto value = static_cast<float>(step);
    const std::vector<float> in_use = floats(buffer.current().first(step > 0 ? 1024 : 0));
    buffer.expect();
    const float* address = nullptr;
    {
      const Payload message = message_with(value, alive);
      address = message.floats();
      ASSERT_TRUE(buffer.place(0, step, message));
    }
    EXPECT_EQ(floats(buffer.current().first(step > 0 ? 1024 : 0)), in_use);
    buffer.take_over();
    EXPECT_EQ(buffer.current().data(), address);
    EXPECT_EQ(floats(buffer.current()), std::vector<float>(1024, value));
    EXPECT_FALSE(buffer.current_in_place());
    EXPECT_EQ(alive, std::min(step + 1, 2));  // in use, and before that
  }
}

TEST(WeightsBuffer, SliceThatArrivesAgainTakesThePlaceOfTheFirst) {
  int alive = 0;
  WeightsBuffer buffer(kOneSlice, false, heap_floats, true);
  buffer.expect();
  ASSERT_TRUE(buffer.place(0, 5, message_with(1.0F, alive)));
  buffer.forget(0);
  ASSERT_TRUE(buffer.place(0, 6, message_with(2.0F, alive)));
  buffer.take_over();
  EXPECT_EQ(floats(buffer.current()), std::vector<float>(1024, 2.0F));
  EXPECT_EQ(alive, 1);
}

TEST(WeightsBuffer, WeightsThatADeviceReadsLeaveTheirMessage) {
  int alive = 0;
  WeightsBuffer buffer(kOneSlice, false, heap_floats, false);
  buffer.expect();
  ASSERT_TRUE(buffer.place(0, 5, message_with(1.0F, alive)));
  buffer.take_over();
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(floats(buffer.current()), std::vector<float>(1024, 1.0F));
}

// Slices 0 and 2 are `even`, slice 1 is `odd`.
std::vector<float> mixed(float even, float odd) {
  std::vector<float> out(kElements, even);
  std::fill_n(out.begin() + 1024, 1024, odd);
  return out;
}

void place_all(WeightsBuffer& buffer, const std::vector<Payload>& even, const Payload& odd,
               bool odd_in_place = true) {
  buffer.expect();
  ASSERT_TRUE(buffer.place(0, 5, even[0], true));
  ASSERT_TRUE(buffer.place(1, 5, odd, odd_in_place));
  ASSERT_TRUE(buffer.place(2, 5, even[1], true));
  buffer.take_over();
}

TEST(WeightsBuffer, WeightsOfSeveralServersAreMappedSideBySide) {
  WeightsBuffer buffer(kTwoServers, false, heap_floats, true);
  for (int step = 0; step < 4; ++step) {
    const auto value = static_cast<float>(step);
    place_all(buffer, generation(0, value), generation(1, -value)[0]);
    EXPECT_EQ(floats(buffer.current()), mixed(value, -value));
    EXPECT_TRUE(buffer.current_in_place());
  }
}

TEST(WeightsBuffer, ArrivingSlicesDoNotMoveTheMappedWeightsInUse) {
  WeightsBuffer buffer(kTwoServers, false, heap_floats, true);
  place_all(buffer, generation(0, 1.0F), generation(1, 2.0F)[0]);
  const float* in_use = buffer.current().data();
  buffer.expect();
  ASSERT_TRUE(buffer.place(1, 6, generation(1, 4.0F)[0], true));
  EXPECT_NE(buffer.arriving().data(), in_use);
  EXPECT_EQ(buffer.arriving()[1024], 4.0F);
  EXPECT_EQ(buffer.current().data(), in_use);
  EXPECT_EQ(floats(buffer.current()), mixed(1.0F, 2.0F));
}

TEST(WeightsBuffer, PrivateSlicesAreCopiedBetweenMappedOnes) {
  WeightsBuffer buffer(kTwoServers, false, heap_floats, true);
  // a server on a socket, then one with memory on the heap, then shared memory again
  const std::vector<float> odd(1024, 8.0F);
  const Payload copied{std::make_shared<int>(), std::as_bytes(std::span(odd))};
  for (const bool in_place : {false, true}) {
    place_all(buffer, generation(0, 7.0F), copied, in_place);
    EXPECT_EQ(floats(buffer.current()), mixed(7.0F, 8.0F));
    EXPECT_TRUE(buffer.current_in_place());
  }
  for (int i = 0; i < 2; ++i) {
    place_all(buffer, generation(0, 9.0F), generation(1, 10.0F)[0]);
    EXPECT_EQ(floats(buffer.current()), mixed(9.0F, 10.0F));
  }
  place_all(buffer, generation(0, 7.0F), copied, false);
  EXPECT_EQ(floats(buffer.current()), mixed(7.0F, 8.0F));
}

TEST(WeightsBuffer, WeightsOfSeveralServersAreCopiedIfMappingIsOff) {
  int asked = 0;
  const auto memory = [&asked](size_t count) {
    ++asked;
    return heap_floats(count);
  };
  WeightsBuffer buffer(kTwoServers, false, memory, false);
  place_all(buffer, generation(0, 1.0F), generation(1, 2.0F)[0]);
  EXPECT_EQ(floats(buffer.current()), mixed(1.0F, 2.0F));
  EXPECT_FALSE(buffer.current_in_place());
  EXPECT_EQ(asked, 1);
}

// Memory that the host must not read.
Payload on_device(int slice) {
  const auto owner = std::shared_ptr<const void>(std::shared_ptr<void>(), &kMap);
  const Range e = kMap.elements(slice);
  const auto* first = reinterpret_cast<const std::byte*>(uintptr_t{4096}) + 4 * e.lo;
  return {owner, {first, static_cast<size_t>(e.size()) * sizeof(float)}, true};
}

TEST(WeightsBuffer, DeviceWeightsAreUsedInPlace) {
  WeightsBuffer buffer(kMap);
  for (int slice = 0; slice < 3; ++slice) {
    ASSERT_TRUE(buffer.place(slice, 5, on_device(slice), true));
  }
  buffer.take_over();
  EXPECT_EQ(buffer.current().data(), on_device(0).address());
  EXPECT_TRUE(buffer.current_in_place());
}

TEST(WeightsBuffer, DeviceWeightsAreNeverCopiedByTheHost) {
  WeightsBuffer buffer(kMap);
  EXPECT_FALSE(buffer.place(0, 5, on_device(0), false));
  EXPECT_FALSE(buffer.has(0));
  buffer.expect();
  ASSERT_TRUE(buffer.place(0, 5, slice_of(0, false)));
  EXPECT_FALSE(buffer.place(1, 5, on_device(1), true));
  EXPECT_FALSE(buffer.has(1));
}

}  // namespace
}  // namespace pushpull::weights_buffer_test
