#include "common/shm/references.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/layout/slice_map.h"
#include "tests/common/thrown.h"

namespace pushpull::references_test {
namespace {

constexpr int64_t kElements = 3000;  // slices of 1,024, 1,024 and 952

class References : public testing::Test {
 protected:
  References() : flat_(pool_.get(kElements)) {
    for (int64_t i = 0; i < kElements; ++i) flat_[i] = static_cast<float>(i);
  }
  Payload slice(int index) const {
    const Range elements = map_.elements(index);
    const std::span<const float> part(flat_.get() + elements.lo,
                                      static_cast<size_t>(elements.size()));
    return {flat_, std::as_bytes(part)};
  }
  static Payload heap(int64_t n) {
    auto owner = std::make_shared<std::vector<float>>(static_cast<size_t>(n), 5.0F);
    const auto bytes = std::as_bytes(std::span<const float>(*owner));
    return {std::move(owner), bytes};
  }
  static void add(Message& message, int index, Payload payload) {
    if (message.header.has_weights()) {
      message.header.mutable_weights()->add_slices()->set_slice(index);
    } else {
      message.header.mutable_exchange()->mutable_push()->add_parts()->set_slice(index);
    }
    message.payloads.push_back(std::move(payload));
  }
  static Message push() {
    Message message;
    message.header.mutable_exchange()->mutable_push()->set_number(1);
    return message;
  }
  static Message weights() {
    Message message;
    message.header.mutable_weights()->set_pull(1);
    return message;
  }
  // Returns a push with slice 1 as a reference, for a test to damage.
  Message referred() const {
    Message message = push();
    add(message, 1, slice(1));
    refer(message, pool_, map_);
    return message;
  }
  std::string refusal(Message message) {
    return thrown(ErrorCode::kProtocol, [&] { resolve(message, memory_, map_); });
  }

  SegmentPool pool_{[](const std::string& why) { FAIL() << why; }};
  SliceMap map_{kElements, 4096, 1};
  std::shared_ptr<float[]> flat_;
  PeerMemory memory_{max_segment_bytes(map_)};
};

TEST_F(References, SlicesInASegmentTravelAsReferences) {
  for (Message message : {push(), weights()}) {
    for (const int index : {2, 0, 1}) add(message, index, slice(index));
    refer(message, pool_, map_);
    EXPECT_TRUE(message.payloads.empty());
    EXPECT_TRUE(has_references(message.header));
    resolve(message, memory_, map_);
    EXPECT_FALSE(has_references(message.header));
    ASSERT_EQ(message.payloads.size(), 3U);
    EXPECT_EQ(message.payloads[0].floats()[0], 2048.0F);
    EXPECT_EQ(message.payloads[0].float_count(), 952U);
    EXPECT_EQ(message.payloads[1].floats()[1023], 1023.0F);
    EXPECT_EQ(message.payloads[2].floats()[0], 1024.0F);
    // both from one mapping: as far apart as in the sender
    EXPECT_EQ(message.payloads[2].floats(), message.payloads[1].floats() + 1024);
    EXPECT_EQ(message.payloads[2].owner, message.payloads[1].owner);
  }
  EXPECT_EQ(memory_.mappings(), 1U);
}

TEST_F(References, SlicesOutsideASegmentAreSentAsBytes) {
  Message message = push();
  add(message, 0, heap(1024));
  add(message, 1, slice(1));
  add(message, 2, heap(952));
  refer(message, pool_, map_);
  EXPECT_EQ(message.payloads.size(), 2U);
  resolve(message, memory_, map_);
  ASSERT_EQ(message.payloads.size(), 3U);
  EXPECT_EQ(message.payloads[0].floats()[0], 5.0F);
  EXPECT_EQ(message.payloads[1].floats()[0], 1024.0F);
  EXPECT_EQ(message.payloads[2].float_count(), 952U);
}

TEST_F(References, APartOfASliceIsSentAsBytes) {
  Message message = push();
  Payload part = slice(0);
  part.bytes = part.bytes.subspan(64, 512);
  add(message, 0, part);
  Payload odd = slice(0);  // not aligned as a reference must be
  odd.bytes = std::as_bytes(std::span<const float>(flat_.get() + 1, 1024));
  add(message, 0, odd);
  refer(message, pool_, map_);
  EXPECT_EQ(message.payloads.size(), 2U);
}

TEST_F(References, SeveralSegmentsAreNamedOnceEach) {
  const auto other = pool_.get(kElements);
  Message message = weights();
  for (const int index : {0, 1}) add(message, index, slice(index));
  add(message, 0, {other, std::as_bytes(std::span<const float>(other.get(), 1024))});
  refer(message, pool_, map_);
  EXPECT_EQ(message.header.weights().segments_size(), 2);
  resolve(message, memory_, map_);
  EXPECT_EQ(memory_.mappings(), 2U);
  EXPECT_NE(message.payloads[2].owner, message.payloads[0].owner);
}

TEST_F(References, AResolvedPayloadOutlivesTheSendersBuffer) {
  Message message = referred();
  resolve(message, memory_, map_);
  flat_.reset();
  EXPECT_EQ(message.payloads[0].floats()[1], 1025.0F);
}

TEST_F(References, MessagesWithoutPayloadsAreUnchanged) {
  Message pull;
  pull.header.mutable_exchange()->mutable_pull()->set_number(3);
  refer(pull, pool_, map_);
  EXPECT_EQ(refusal(pull), "");
  Message status;
  status.header.mutable_status()->set_pull(3);
  refer(status, pool_, map_);
  EXPECT_EQ(refusal(status), "");
}

TEST_F(References, HostileOffsetsAreRefused) {
  const auto whole = static_cast<int64_t>(
      pool_.find(std::as_bytes(std::span<const float>(flat_.get(), 1))).segment->bytes());
  const int64_t last = whole - 4096;
  ASSERT_NE(last % 64, 0);  // the token lies behind the slices
  for (const int64_t offset : {int64_t{-64}, int64_t{1}, int64_t{4}, int64_t{63}, last + 64, whole,
                               whole + 64, INT64_MAX - 63, INT64_MIN, INT64_MAX}) {
    Message message = referred();
    message.header.mutable_exchange()->mutable_push()->mutable_parts(0)->set_offset(offset);
    EXPECT_THAT(refusal(message), testing::HasSubstr("does not lie")) << offset;
  }
  Message message = referred();
  message.header.mutable_exchange()->mutable_push()->mutable_parts(0)->set_offset(last / 64 * 64);
  EXPECT_EQ(refusal(message), "");
}

TEST_F(References, HostileIndicesAreRefused) {
  for (const int32_t segment : {-1, 2, INT32_MIN, INT32_MAX}) {
    Message message = referred();
    message.header.mutable_exchange()->mutable_push()->mutable_parts(0)->set_segment(segment);
    EXPECT_THAT(refusal(message), testing::HasSubstr("no segment")) << segment;
  }
  for (const int32_t index : {-1, 3, INT32_MIN, INT32_MAX}) {
    Message message = referred();
    message.header.mutable_exchange()->mutable_push()->mutable_parts(0)->set_slice(index);
    EXPECT_THAT(refusal(message), testing::HasSubstr("no slice")) << index;
  }
}

TEST_F(References, PayloadsMustMatchThePartsWithoutASegment) {
  Message more = referred();
  more.payloads.push_back(heap(1024));
  EXPECT_THAT(refusal(more), testing::HasSubstr("more payloads"));
  Message fewer = push();
  add(fewer, 0, heap(1024));
  fewer.payloads.clear();
  EXPECT_THAT(refusal(fewer), testing::HasSubstr("missing"));
}

TEST_F(References, ASegmentThatIsTooLargeForTheJobIsNotMapped) {
  const auto huge = pool_.get(static_cast<size_t>(max_segment_bytes(map_)));
  Message message = push();
  add(message, 0, {huge, std::as_bytes(std::span<const float>(huge.get(), 1024))});
  refer(message, pool_, map_);
  EXPECT_THAT(refusal(message), testing::HasSubstr("at most"));
  EXPECT_EQ(memory_.mappings(), 0U);
}

TEST_F(References, ThePeersMappingsAreLimited) {
  std::vector<std::shared_ptr<float[]>> buffers;
  for (size_t i = 0; i < PeerMemory::kMaxMappings + 10; ++i) {
    buffers.push_back(pool_.get(1024));
    Message message = push();
    add(message, 0, {buffers.back(), std::as_bytes(std::span(buffers.back().get(), 1024))});
    refer(message, pool_, map_);
    ASSERT_EQ(refusal(message), "");
  }
  EXPECT_EQ(memory_.mappings(), PeerMemory::kMaxMappings);
}

// Random numbers in all fields: the reference is refused, or resolves to memory that can be read.
TEST_F(References, NoReferenceLeadsOutOfItsSegment) {
  std::mt19937_64 random(7);
  const auto pick = [&](std::vector<int64_t> values) {
    return random() % 4 == 0 ? static_cast<int64_t>(random()) : values[random() % values.size()];
  };
  int resolved = 0;
  double sum = 0;
  for (int i = 0; i < 20'000; ++i) {
    Message message = referred();
    wire::Exchange* exchange = message.header.mutable_exchange();
    wire::Part* part = exchange->mutable_push()->mutable_parts(0);
    part->set_offset(pick({0, 64, 4096, 8192, 12288, 16384, -64}));
    part->set_slice(static_cast<int32_t>(pick({0, 1, 2, 3, -1})));
    part->set_segment(static_cast<int32_t>(pick({0, 1, 1, 1, 2})));
    if (random() % 8 == 0) exchange->mutable_segments(0)->set_bytes(pick({16, 4096, 16384}));
    if (random() % 8 == 0) exchange->mutable_segments(0)->set_fd(static_cast<int>(pick({0, 1, 2})));
    try {
      resolve(message, memory_, map_);
    } catch (const Error&) {
      continue;
    }
    ++resolved;
    for (const Payload& payload : message.payloads) {
      for (size_t f = 0; f < payload.float_count(); ++f) sum += payload.floats()[f];
    }
  }
  EXPECT_GT(resolved, 100);
  EXPECT_GT(sum, 0);
}

}  // namespace
}  // namespace pushpull::references_test
