// Any bytes may arrive from a peer: none crash the receiver, and invalid ones are refused with a
// reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/net/frames.h"
#include "common/net/model_wire.h"
#include "tests/common/net/decode_check.h"
#include "tests/common/net/wire_samples.h"

namespace pushpull {
namespace {

using Bytes = std::vector<std::string>;

Bytes bytes_of(const Message& message) {
  Bytes out;
  for (const zmq::message_t& frame : encode(message)) out.push_back(frame.to_string());
  return out;
}

std::vector<zmq::message_t> frames_of(const Bytes& bytes) {
  std::vector<zmq::message_t> out;
  for (const std::string& b : bytes) out.emplace_back(b.data(), b.size());
  return out;
}

std::string refusal(const Bytes& bytes) {
  const Decoded decoded = decode(frames_of(bytes));
  EXPECT_FALSE(decoded.message.has_value());
  return decoded.message ? "accepted" : decoded.why;
}

Bytes push_of_two_parts() {
  Message message;
  wire::Push* push = message.header.mutable_exchange()->mutable_push();
  push->add_parts();
  push->add_parts()->set_slice(1);
  message.payloads = {payload_of_floats(4), payload_of_floats(4)};
  return bytes_of(message);
}

TEST(HostileFrames, EmptyMessagesAreRefused) {
  EXPECT_EQ(refusal({}), "no frame");
  EXPECT_EQ(refusal({""}), "not a pushpull message");
  EXPECT_EQ(refusal(Bytes(50)), "not a pushpull message");
}

TEST(HostileFrames, ForeignMagicIsRefused) {
  Bytes bytes = push_of_two_parts();
  for (size_t i = 0; i < 6; ++i) {
    Bytes changed = bytes;
    changed[0][i] ^= 0x20;
    EXPECT_EQ(refusal(changed), "not a pushpull message");
  }
  EXPECT_EQ(refusal({"GET / HTTP/1.1\r\nHost: x\r\n\r\n"}), "not a pushpull message");
  EXPECT_EQ(refusal({std::string("PUSHPL\0", 7)}), "not a pushpull message");
}

TEST(HostileFrames, AnotherVersionIsNamedWithOurs) {
  Bytes bytes = push_of_two_parts();
  bytes[0][6] = 0x01;
  bytes[0][7] = 0x02;
  const Decoded decoded = decode(frames_of(bytes));
  EXPECT_FALSE(decoded.message);
  EXPECT_EQ(decoded.version, 258);
  EXPECT_EQ(decoded.why,
            "protocol version 258, this program speaks " + std::to_string(kProtocolVersion));
}

TEST(HostileFrames, ATruncatedHeaderIsRefusedOrIsAnotherHeader) {
  for (const Message& message : every_kind_of_message()) {
    const Bytes whole = bytes_of(message);
    for (size_t length = 0; length < whole[0].size(); ++length) {
      Bytes cut = whole;
      cut[0].resize(length);
      check_decoding(frames_of(cut));
      if (length < 9) {
        EXPECT_NE(refusal(cut), "");
      }
    }
  }
}

TEST(HostileFrames, AHeaderBeyondTheLimitIsRefused) {
  std::string head("PUSHPL\0\22", 8);
  head.resize(kMaxHeaderBytes + 1, 'x');
  EXPECT_EQ(refusal({head}), "header too large");
}

TEST(HostileFrames, AHeaderWithoutABodyIsRefused) {
  EXPECT_EQ(refusal({std::string("PUSHPL\0\22", 8)}), "header without a body");
  // field 999, which this version does not know
  EXPECT_EQ(refusal({std::string("PUSHPL\0\22\xba\x3e\x00", 11)}), "header without a body");
}

TEST(HostileFrames, TextNeedNotBeUtf8) {
  // Hello.host = "\xff\xfe"
  const Bytes hello{std::string("PUSHPL\0\22\x0a\x04\x12\x02\xff\xfe", 14)};
  EXPECT_TRUE(decode(frames_of(hello)).message.has_value());
}

TEST(HostileFrames, TheNumberOfPayloadsMustMatchTheHeader) {
  const std::string why = "number of payloads does not fit the header";
  const Bytes good = push_of_two_parts();
  ASSERT_TRUE(decode(frames_of(good)).message);
  Bytes fewer = good;
  fewer.pop_back();
  EXPECT_EQ(refusal(fewer), why);
  Bytes more = good;
  more.push_back(good.back());
  EXPECT_EQ(refusal(more), why);
  Bytes flood = good;
  flood.resize(kMaxParts + 2);
  EXPECT_EQ(refusal(flood), why);
  for (const Message& message : every_kind_of_message()) {
    Bytes bytes = bytes_of(message);
    for (int i = 0; i < 3; ++i) bytes.emplace_back("abcd");
    EXPECT_EQ(refusal(bytes), why) << message.header.body_case();
  }
  Message part;  // a START: it has no floats
  part.header.mutable_stage_part()->set_number(1);
  Bytes start = bytes_of(part);
  EXPECT_TRUE(decode(frames_of(start)).message);
  start.emplace_back("abcd");
  EXPECT_EQ(refusal(start), why);
  part.header.mutable_stage_part()->set_kind(wire::StagePart::KIND_SQUARES);
  EXPECT_EQ(refusal(bytes_of(part)), why);
  part.header.mutable_stage_part()->mutable_segment()->set_pid(1);
  EXPECT_TRUE(decode(frames_of(bytes_of(part))).message);
}

TEST(HostileFrames, APayloadWithPartOfAFloatIsRefused) {
  for (const size_t size : {1U, 2U, 3U, 5U, 17U}) {
    Bytes bytes = push_of_two_parts();
    bytes[2].resize(size);
    EXPECT_EQ(refusal(bytes), "payload is not a whole number of floats") << size;
  }
}

TEST(HostileFrames, ForgedPartCountsAllocateNothing) {
  // parts { } repeated 100000 times in the header, without payloads
  std::string push;
  for (int i = 0; i < 50000; ++i) push += std::string("\x2a\x00", 2);
  Message message;
  ASSERT_TRUE(message.header.mutable_exchange()->mutable_push()->ParseFromString(push));
  EXPECT_EQ(refusal({bytes_of(message)[0]}), "number of payloads does not fit the header");
}

TEST(HostileFrames, RandomBytesAreRefused) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    Bytes bytes(random() % 6);
    for (std::string& b : bytes) {
      b.resize(random() % 300);
      for (char& c : b) c = static_cast<char>(random());
    }
    EXPECT_NE(refusal(bytes), "accepted");
  }
}

TEST(HostileFrames, RandomHeadersBehindAGoodPreambleDoNoHarm) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 20000; ++i) {
    Bytes bytes(1 + random() % 3);
    bytes[0].resize(random() % 80);
    for (char& c : bytes[0]) c = static_cast<char>(random());
    bytes[0].insert(0, "PUSHPL\0\22", 8);
    for (size_t f = 1; f < bytes.size(); ++f) bytes[f].resize(random() % 12);
    check_decoding(frames_of(bytes));
  }
}

void mutate(std::mt19937_64& random, Bytes& bytes) {
  std::string& frame = bytes[random() % bytes.size()];
  const size_t at = frame.empty() ? 0 : random() % frame.size();
  switch (random() % 9) {
    case 0:
      if (!frame.empty()) frame[at] = static_cast<char>(random());
      break;
    case 1:
      if (!frame.empty())
        frame[at] = static_cast<char>(frame[at] ^ static_cast<char>(1U << random() % 8));
      break;
    case 2:
      frame.resize(at);
      break;
    case 3:
      frame.insert(at, random() % 16, static_cast<char>(random()));
      break;
    case 4:
      frame.erase(at, random() % 16);
      break;
    case 5:
      if (!frame.empty()) frame[at] = static_cast<char>(0xff);  // long varints
      break;
    case 6: {
      const std::string copy = frame;
      bytes.insert(bytes.begin() + static_cast<int64_t>(random() % (bytes.size() + 1)), copy);
      break;
    }
    case 7:
      if (bytes.size() > 1)
        bytes.erase(bytes.begin() + static_cast<int64_t>(random() % bytes.size()));
      break;
    default:
      std::swap(bytes[random() % bytes.size()], bytes[random() % bytes.size()]);
      break;
  }
}

TEST(HostileFrames, AHundredThousandMutationsDoNoHarm) {
  std::vector<Bytes> seeds;
  for (const Message& message : every_kind_of_message()) seeds.push_back(bytes_of(message));
  std::mt19937_64 random(3);
  int accepted = 0;
  for (int i = 0; i < 100000; ++i) {
    Bytes bytes = seeds[static_cast<size_t>(i) % seeds.size()];
    for (auto times = 1 + random() % 4; times > 0; --times) mutate(random, bytes);
    accepted += check_decoding(frames_of(bytes)) ? 1 : 0;
  }
  // a changed number is often valid; most other changes are refused
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 90000);
}

}  // namespace
}  // namespace pushpull
