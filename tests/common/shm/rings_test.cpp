#include "common/shm/rings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/unique_fd.h"
#include "tests/common/numbered_messages.h"
#include "tests/common/thrown.h"

namespace pushpull::rings_test {
namespace {

// Two threads or two processes in one.
struct RingsTest : testing::Test {
  explicit RingsTest(std::chrono::milliseconds look = std::chrono::milliseconds(1),
                     Wait wait = Wait::kSleep)
      : rings_a_(wait, look), rings_b_(wait, look) {
    a_->open(b_->description());
    b_->open(a_->description());
  }
  // A wait that takes 20 ms on a busy machine has the sockets read (Rings::kRead).
  void wait_until_idle(std::vector<zmq::pollitem_t>& items) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    do {
      rings_b_.wait(items, 1);
    } while (!rings_b_.sockets_are_idle() && std::chrono::steady_clock::now() < end);
    EXPECT_TRUE(rings_b_.sockets_are_idle());
  }

  Rings rings_a_;
  Rings rings_b_;
  std::unique_ptr<RingPair> a_ = std::make_unique<RingPair>(rings_a_);
  std::unique_ptr<RingPair> b_ = std::make_unique<RingPair>(rings_b_);
};

TEST_F(RingsTest, MessagesArriveInOrderWithTheirConnections) {
  EXPECT_FALSE(b_->receive());
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(a_->send(i, message_of(i, static_cast<size_t>(i))));
  EXPECT_TRUE(rings_b_.has_message());
  for (int i = 0; i < 5; ++i) {
    const auto received = b_->receive();
    ASSERT_TRUE(received);
    EXPECT_EQ(received->connection, i);
    expect_equal(received->message, message_of(i, static_cast<size_t>(i)));
  }
  EXPECT_FALSE(b_->receive());
  EXPECT_FALSE(rings_b_.has_message());
  EXPECT_FALSE(a_->receive()) << "the two ways are apart";
}

// Messages of all sizes lie across the ring's end at some time.
TEST_F(RingsTest, ARingIsUsedAgainAndAgain) {
  std::mt19937 random(1);
  int64_t sent = 0;
  int64_t got = 0;
  size_t bytes = 0;
  std::vector<size_t> floats;
  while (bytes < 20 * RingPair::kRingBytes) {
    const size_t size = random() % (RingPair::kMaxMessageBytes / sizeof(float) - 64);
    if (floats.size() - static_cast<size_t>(got) < 3) {
      ASSERT_TRUE(a_->send(7, message_of(sent++, size)));
      floats.push_back(size);
      bytes += size * sizeof(float);
      continue;
    }
    const auto received = b_->receive();
    ASSERT_TRUE(received);
    expect_equal(received->message, message_of(got, floats[static_cast<size_t>(got)]));
    ++got;
  }
  EXPECT_GT(got, 100);
}

TEST_F(RingsTest, AMessageThatIsTooLargeAndAllAfterItAreTheSockets) {
  EXPECT_TRUE(a_->send(0, message_of(1)));
  EXPECT_FALSE(a_->send(0, message_of(2, RingPair::kMaxMessageBytes / sizeof(float))));
  EXPECT_FALSE(a_->send(0, message_of(3))) << "it would overtake the one before";
  EXPECT_EQ(number_of(b_->receive()->message), 1);
  EXPECT_FALSE(b_->receive());
  EXPECT_FALSE(b_->send(0, message_of(4))) << "answers take the way of their questions";
}

TEST_F(RingsTest, AFullRingTakesNoMore) {
  int64_t sent = 0;
  while (a_->send(0, message_of(sent, 1000))) ++sent;
  EXPECT_GT(sent, 50);
  int64_t got = 0;
  while (const auto received = b_->receive()) EXPECT_EQ(number_of(received->message), got++);
  EXPECT_EQ(got, sent);
  EXPECT_FALSE(a_->send(0, message_of(sent)));
}

TEST_F(RingsTest, MarkedMessagesAreThoseThatWereThere) {
  EXPECT_TRUE(a_->send(0, message_of(1)));
  EXPECT_FALSE(b_->has_marked());
  rings_b_.mark();
  EXPECT_TRUE(a_->send(0, message_of(2)));
  EXPECT_TRUE(b_->has_marked());
  b_->receive();
  EXPECT_FALSE(b_->has_marked());
  EXPECT_EQ(number_of(b_->receive()->message), 2);
}

// A socket that is read may notice more than its events show.
TEST_F(RingsTest, SocketsWithoutEventsAreReadNowAndThen) {
  std::vector<zmq::pollitem_t> items;
  int read = 0;
  const auto began = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - began < std::chrono::milliseconds(200)) {
    EXPECT_TRUE(a_->send(0, message_of(1)));  // rings are busy
    rings_b_.wait(items, 20);
    while (b_->receive()) continue;
    rings_b_.wait(items, 1);
    if (!rings_b_.sockets_are_idle()) ++read;
  }
  EXPECT_GE(read, 3);
}

TEST_F(RingsTest, NobodyReadsARingWhosePairIsGone) {
  EXPECT_TRUE(a_->send(0, message_of(1)));
  b_.reset();
  EXPECT_FALSE(a_->send(0, message_of(2)));
}

TEST_F(RingsTest, ATokenTellsWhetherAPairIsOpenToASegment) {
  EXPECT_TRUE(a_->is_open(b_->description()));
  EXPECT_FALSE(a_->is_open(a_->description()));
  EXPECT_FALSE(RingPair(rings_a_).is_open());
}

// Without brief waits, which end by themselves.
struct SleepingRings : RingsTest, testing::WithParamInterface<Wait> {
  SleepingRings() : RingsTest(std::chrono::milliseconds(0), GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Each, SleepingRings,
                         testing::Values(Wait::kSleep, Wait::kAuto, Wait::kSpin));

// Each answer wakes the other thread, which sleeps most of the time, or in some rounds if it may spin: a
// wait whose wake-up is lost lasts as long as it may.
TEST_P(SleepingRings, AMessageWakesItsReader) {
  constexpr int64_t kRounds = 3000;
  constexpr int kWaitMs = 10'000;
  constexpr std::chrono::milliseconds kWhole(kWaitMs);
  std::atomic<int> lost = 0;
  const auto next = [&](Rings& rings, RingPair& pair) {
    for (;;) {
      if (auto received = pair.receive()) return number_of(received->message);
      std::vector<zmq::pollitem_t> none;
      const auto began = std::chrono::steady_clock::now();
      rings.wait(none, kWaitMs);
      const auto waited = std::chrono::steady_clock::now() - began;
      if (waited >= kWhole) ++lost;
    }
  };
  std::thread other([&] {
    for (int64_t i = 0; i < kRounds; ++i) {
      const int64_t number = next(rings_b_, *b_);
      if (i % 100 == 0) std::this_thread::sleep_for(2 * Spinning::kSpinLimit);
      EXPECT_TRUE(b_->send(0, message_of(number + 1)));
    }
  });
  int64_t wrong = 0;
  for (int64_t i = 0; i < kRounds; ++i) {
    EXPECT_TRUE(a_->send(0, message_of(2 * i)));
    if (next(rings_a_, *a_) != 2 * i + 1) ++wrong;
  }
  other.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(lost, 0);
}

struct SpinningRings : RingsTest {
  SpinningRings() : RingsTest(std::chrono::milliseconds(10), Wait::kSpin) {}
};

TEST_F(SpinningRings, AMessageInTimeEndsTheWaitWithoutALook) {
  std::vector<zmq::pollitem_t> items{{nullptr, 0, 0, 0}};
  wait_until_idle(items);
  EXPECT_TRUE(a_->send(0, message_of(1)));
  items.front().revents = ZMQ_POLLIN;
  rings_b_.wait(items, 1000);
  EXPECT_EQ(items.front().revents, 0);
  EXPECT_TRUE(b_->receive());
}

TEST_F(SpinningRings, AnItemThatIsReadyIsSeenBeforeItSpins) {
  zmq::context_t context(1);
  zmq::socket_t in(context, ZMQ_PAIR);
  zmq::socket_t out(context, ZMQ_PAIR);
  in.bind("inproc://item");
  out.connect("inproc://item");
  std::vector<zmq::pollitem_t> items{{in.handle(), 0, ZMQ_POLLIN, 0}};
  wait_until_idle(items);
  out.send(zmq::str_buffer("a"), zmq::send_flags::none);
  rings_b_.socket_used();
  EXPECT_FALSE(rings_b_.sockets_are_idle());
  rings_b_.wait(items, 10'000);
  EXPECT_EQ(items.front().revents, ZMQ_POLLIN);
}

TEST_F(SpinningRings, AnItemThatBecomesReadyEndsTheSpinning) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd out(ends[0]);
  const UniqueFd in(ends[1]);
  std::vector<zmq::pollitem_t> items{{nullptr, out.get(), ZMQ_POLLIN, 0}};
  wait_until_idle(items);
  EXPECT_EQ(write(in.get(), "a", 1), 1);
  rings_b_.wait(items, 10'000);
  EXPECT_EQ(items.front().revents, ZMQ_POLLIN);
}

// ---- another process that writes what it likes ----

// A segment with the fields of a pair's, which the test sets.
struct Forged {
  explicit Forged(RingPair& model) : model_bell_(model.description(), int64_t{1} << 20) {
    std::memcpy(segment.data(), model_bell_.bytes().data(), 256);
  }
  void set_written(uint64_t value) { std::memcpy(segment.data(), &value, sizeof value); }
  void set_taken(uint64_t value) { std::memcpy(segment.data() + 64, &value, sizeof value); }
  void set_bell(int32_t value) { std::memcpy(segment.data() + 132, &value, sizeof value); }
  std::byte* ring() { return segment.data() + 256; }
  Segment segment{256 + RingPair::kRingBytes};
  Mapping model_bell_;
};

struct HostileRings : RingsTest {
  // Returns why a pair refuses to read the forged ring, or "".
  std::string refusal(Forged& forged) {
    RingPair pair(rings_b_);
    pair.open(forged.segment.description());
    return thrown(ErrorCode::kProtocol, [&] { pair.receive(); });
  }
};

TEST_F(HostileRings, ImpossibleNumbersAreRefused) {
  Forged forged(*a_);
  EXPECT_EQ(refusal(forged), "");
  forged.set_written(RingPair::kRingBytes + 1);
  EXPECT_THAT(refusal(forged), testing::HasSubstr("beyond its end"));
  forged.set_written(7);
  EXPECT_THAT(refusal(forged), testing::HasSubstr("ends within a message"));
  forged.set_written(8);
  EXPECT_THAT(refusal(forged), testing::HasSubstr("of 0 frames"));
  const uint32_t frames = 2000;
  std::memcpy(forged.ring(), &frames, sizeof frames);
  EXPECT_THAT(refusal(forged), testing::HasSubstr("ends within a message"));
}

TEST_F(HostileRings, ASenderWritesNothingForImpossibleReaders) {
  Forged forged(*a_);
  RingPair pair(rings_b_);
  pair.open(forged.segment.description());
  forged.set_taken(1);
  EXPECT_FALSE(pair.send(0, message_of(1)));
}

TEST_F(HostileRings, ABellThatIsNoneIsRefused) {
  Forged forged(*a_);
  forged.set_bell(0);
  RingPair pair(rings_b_);
  EXPECT_THAT(thrown(ErrorCode::kProtocol, [&] { pair.open(forged.segment.description()); }),
              testing::HasSubstr("names a bell"));
  EXPECT_FALSE(pair.is_open());
  const Segment small(4096);
  EXPECT_THAT(thrown(ErrorCode::kProtocol, [&] { pair.open(small.description()); }),
              testing::HasSubstr("too short"));
}

TEST_F(HostileRings, RandomBytesAreRefused) {
  std::mt19937 random(5);
  Forged forged(*a_);
  for (int round = 0; round < 300; ++round) {
    const uint32_t bytes = random() % 4096 + 1;
    for (uint32_t i = 0; i < bytes; ++i) forged.ring()[i] = static_cast<std::byte>(random());
    const uint32_t frames = random() % 3 + 1;
    if (round % 2 == 0) std::memcpy(forged.ring(), &frames, sizeof frames);
    forged.set_written(bytes);
    EXPECT_THAT(refusal(forged), testing::HasSubstr("[shm] a ring of messages"));
  }
}

}  // namespace
}  // namespace pushpull::rings_test
