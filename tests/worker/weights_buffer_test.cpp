#include "worker/weights_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "common/block_codec.h"

namespace pushpull {
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

TEST(WeightsBuffer, NarrowSlicesBecomeWide) {
  WeightsBuffer buffer(kMap, true);
  for (int slice = 0; slice < 3; ++slice) {
    const Payload payload = slice_of(slice, true);
    ASSERT_TRUE(buffer.fits(slice, payload));
    buffer.place(slice, 5, payload);
  }
  buffer.take_over();
  // of one element both are one float: it is never narrow
  std::vector<float> got = floats(buffer.current());
  got.pop_back();
  std::vector<float> want = rounded();
  want.pop_back();
  EXPECT_EQ(got, want);
}

TEST(WeightsBuffer, WhatComesWholeIsRoundedForGradientsAndKeptForEvaluations) {
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

TEST(WeightsBuffer, WithoutACodecNarrowSlicesDoNotFit) {
  WeightsBuffer buffer(kMap);
  EXPECT_FALSE(buffer.fits(0, slice_of(0, true)));
  for (int slice = 0; slice < 3; ++slice) buffer.place(slice, 5, slice_of(slice, false));
  buffer.take_over();
  EXPECT_EQ(floats(buffer.current()), weights());
  EXPECT_EQ(floats(buffer.whole()), weights());
}

// Memory that the host must not read.
Payload on_device(int slice) {
  const auto owner = std::shared_ptr<const void>(std::shared_ptr<void>(), &kMap);
  const Range e = kMap.elements(slice);
  const auto* first = reinterpret_cast<const std::byte*>(uintptr_t{4096}) + 4 * e.lo;
  return {owner, {first, static_cast<size_t>(e.size()) * sizeof(float)}, true};
}

TEST(WeightsBuffer, WhatLiesOnADeviceIsUsedInPlace) {
  WeightsBuffer buffer(kMap);
  for (int slice = 0; slice < 3; ++slice) {
    ASSERT_TRUE(buffer.place(slice, 5, on_device(slice), true));
  }
  buffer.take_over();
  EXPECT_EQ(buffer.current().data(), on_device(0).address());
  EXPECT_TRUE(buffer.current_in_place());
}

TEST(WeightsBuffer, WhatLiesOnADeviceIsNeverCopiedByTheHost) {
  WeightsBuffer buffer(kMap);
  EXPECT_FALSE(buffer.place(0, 5, on_device(0), false));
  EXPECT_FALSE(buffer.has(0));
  buffer.expect();
  ASSERT_TRUE(buffer.place(0, 5, slice_of(0, false)));
  EXPECT_FALSE(buffer.place(1, 5, on_device(1), true));
  EXPECT_FALSE(buffer.has(1));
}

}  // namespace
}  // namespace pushpull
