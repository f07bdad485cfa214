#include "common/net/frames.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/common/net/wire_samples.h"

namespace pushpull {
namespace {

// Copies the frames, as a socket delivers them to the receiver.
std::vector<zmq::message_t> received(const std::vector<zmq::message_t>& sent) {
  std::vector<zmq::message_t> out;
  for (const zmq::message_t& frame : sent) out.emplace_back(frame.data(), frame.size());
  return out;
}

bool same_bytes(const Payload& a, const Payload& b) {
  return a.bytes.size() == b.bytes.size() &&
         std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % alignof(float) == 0; }

TEST(Frames, EveryKindOfMessageSurvivesTheWire) {
  const std::vector<Message> messages = every_kind_of_message();
  ASSERT_EQ(messages.size(), 45U);
  for (const Message& message : messages) {
    SCOPED_TRACE(message.header.ShortDebugString());
    const Decoded decoded = decode(received(encode(message)));
    ASSERT_TRUE(decoded.message) << decoded.why;
    EXPECT_EQ(decoded.version, kProtocolVersion);
    EXPECT_EQ(decoded.message->header.body_case(), message.header.body_case());
    EXPECT_EQ(decoded.message->header.DebugString(), message.header.DebugString());
    ASSERT_EQ(decoded.message->payloads.size(), message.payloads.size());
    for (size_t i = 0; i < message.payloads.size(); ++i) {
      EXPECT_TRUE(same_bytes(decoded.message->payloads[i], message.payloads[i]));
    }
  }
}

TEST(Frames, BeginWithMagicAndVersion) {
  Message message;
  message.header.mutable_leave();
  const auto frames = encode(message);
  ASSERT_EQ(frames.size(), 1U);
  ASSERT_GE(frames[0].size(), 8U);
  EXPECT_EQ(std::string(frames[0].data<char>(), 8), std::string("PUSHPL\0\22", 8));
}

TEST(Frames, AnEmptyPayloadStaysEmpty) {
  Message message;
  message.header.mutable_load();
  message.payloads.emplace_back();
  const Decoded decoded = decode(received(encode(message)));
  ASSERT_TRUE(decoded.message) << decoded.why;
  ASSERT_EQ(decoded.message->payloads.size(), 1U);
  EXPECT_EQ(decoded.message->payloads[0].float_count(), 0U);
}

Message load_of(size_t floats) {
  Message message;
  message.header.mutable_load();
  message.payloads.push_back(payload_of_floats(floats));
  return message;
}

TEST(Frames, ALargePayloadIsSentInPlaceAndHeldUntilSent) {
  Message message = load_of(100000);
  const std::weak_ptr<const void> owner = message.payloads[0].owner;
  const void* data = message.payloads[0].bytes.data();
  auto frames = encode(message);
  EXPECT_EQ(frames[1].data(), data);
  message = {};
  EXPECT_FALSE(owner.expired()) << "freed before the socket has sent it";
  zmq::message_t in_flight = std::move(frames[1]);
  frames.clear();
  EXPECT_FALSE(owner.expired());
  EXPECT_EQ(static_cast<const float*>(in_flight.data())[99999], 99999.0F);
  in_flight.rebuild();
  EXPECT_TRUE(owner.expired()) << "leaked";
}

TEST(Frames, ASmallPayloadIsCopied) {
  Message message = load_of(10);
  const std::weak_ptr<const void> owner = message.payloads[0].owner;
  const auto frames = encode(message);
  message = {};
  EXPECT_TRUE(owner.expired());
  EXPECT_EQ(static_cast<const float*>(frames[1].data())[9], 9.0F);
}

TEST(Frames, AReceivedPayloadKeepsItsFrameAlive) {
  bool freed = false;
  alignas(float) std::vector<float> memory(2000, 7.0F);
  zmq::message_t frame(
      memory.data(), memory.size() * sizeof(float),
      [](void*, void* hint) { *static_cast<bool*>(hint) = true; }, &freed);
  Payload payload = payload_of(std::move(frame));
  EXPECT_EQ(static_cast<const void*>(payload.floats()), memory.data()) << "copied without need";
  const std::shared_ptr<const void> second_holder = payload.owner;
  payload = {};
  EXPECT_FALSE(freed);
  const_cast<std::shared_ptr<const void>&>(second_holder).reset();
  EXPECT_TRUE(freed);
}

TEST(Frames, AMisalignedPayloadIsReadThroughAnAlignedCopy) {
  const Payload original = payload_of_floats(500, 3.0F);
  for (size_t offset = 0; offset < 9; ++offset) {
    std::vector<char> memory(original.bytes.size() + 16);
    char* at = memory.data() + offset;
    std::memcpy(at, original.bytes.data(), original.bytes.size());
    const Payload payload = payload_of(zmq::message_t(
        at, original.bytes.size(), [](void*, void*) {}, nullptr));
    EXPECT_TRUE(aligned(payload.floats())) << "offset " << offset;
    EXPECT_EQ(aligned(at), static_cast<const void*>(payload.floats()) == at);
    EXPECT_TRUE(same_bytes(payload, original));
    float sum = 0.0F;  // under UBSan a misaligned load ends the test here
    for (size_t i = 0; i < payload.float_count(); ++i) sum += payload.floats()[i];
    EXPECT_EQ(sum, 500 * 3.0F + 499 * 250.0F);
  }
}

TEST(Frames, AnOversizedHeaderIsAnInternalError) {
  Message message;
  message.header.mutable_leave()->set_text(std::string(kMaxHeaderBytes, 'x'));
  EXPECT_THROW(encode(message), Error);
}

}  // namespace
}  // namespace pushpull
