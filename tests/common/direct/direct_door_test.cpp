#include "common/direct/direct_door.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

constexpr uint64_t kAnna = 11;
constexpr auto kDeadline = std::chrono::seconds(20);
const std::string kAddress = "tcp://127.0.0.1:5555";  // its host alone counts

Demand demand_of(uint8_t key) {
  Demand out;
  out.proof = Proof::kChallenge;
  out.data_key.fill(key);
  out.listener = listener_name(3);
  return out;
}

Credentials credentials_of(uint8_t key) {
  Credentials out;
  out.proof = Proof::kChallenge;
  out.data_key.fill(key);
  out.listener = listener_name(3);
  return out;
}

// A stranger that writes what it likes.
class Raw {
 public:
  explicit Raw(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  void send(const std::string& bytes) const {
    ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Returns the bytes that have arrived; closed: set if nothing will follow.
  std::string read(bool& closed) const {
    std::array<char, 1000> bytes{};
    const ssize_t got = recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    closed = got == 0 || (got < 0 && errno != EAGAIN);
    return got > 0 ? std::string(bytes.data(), static_cast<size_t>(got)) : "";
  }
  void close() { fd_.reset(); }

 private:
  UniqueFd fd_;
};

class DirectDoorTest : public testing::Test {
 protected:
  explicit DirectDoorTest(const Demand& demand = demand_of(1))
      : door_(kAddress, demand, [this](const std::string& address, const Refusal& refusal) {
          EXPECT_THAT(address, HasSubstr("127.0.0.1:"));
          refused_.push_back(refusal.text);
        }) {}

  // Turns the door until the condition holds. Returns whether it did.
  template <class Condition>
  bool turn_until(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      for (auto& one : door_.turn(now_ms() + ahead_ms_)) opened_.push_back(std::move(one));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  DirectOpening opening(const std::string& nonce, uint8_t key = 1) const {
    return {kAddress, door_.port(), nonce, credentials_of(key), now_ms()};
  }
  static std::string hello(const std::string& nonce, uint8_t key = 1) {
    return std::string("PUSHPL\0\x12", 8) + nonce +
           direct_member_proof(credentials_of(key).data_key, listener_name(3), nonce);
  }
  void expect_refused(const Raw& peer) {
    bool closed = false;
    std::string heard;
    EXPECT_TRUE(turn_until([&] {
      heard += peer.read(closed);
      return closed;
    }));
    EXPECT_EQ(heard, "") << "a stranger hears nothing";
    EXPECT_THAT(opened_, SizeIs(0));
  }

  std::vector<std::string> refused_;
  std::vector<DirectDoor::Opened> opened_;
  int64_t ahead_ms_ = 0;
  DirectDoor door_;
};

TEST_F(DirectDoorTest, BothSidesProveThemselvesAndAreConnected) {
  DirectOpening opening = this->opening(door_.offer(kAnna, now_ms()));
  std::optional<UniqueFd> socket;
  ASSERT_TRUE(turn_until([&] { return (socket = opening.turn(now_ms())).has_value(); }));
  ASSERT_THAT(opened_, SizeIs(1));
  EXPECT_EQ(opened_[0].incarnation, kAnna);
  EXPECT_EQ(::send(socket->get(), "x", 1, 0), 1);
  char got = 0;
  ASSERT_TRUE(turn_until([&] { return recv(opened_[0].socket.get(), &got, 1, 0) == 1; }));
  EXPECT_EQ(got, 'x');
  EXPECT_THAT(refused_, SizeIs(0));
}

struct InsecureDoor : DirectDoorTest {
  InsecureDoor() : DirectDoorTest(Demand{}) {}
};

TEST_F(InsecureDoor, NeedsTheNonceAlone) {
  Credentials none;
  none.listener = listener_name(3);  // as State names it
  DirectOpening opening(kAddress, door_.port(), door_.offer(kAnna, now_ms()), none, now_ms());
  ASSERT_TRUE(turn_until([&] { return opening.turn(now_ms()).has_value(); }));
  EXPECT_THAT(opened_, SizeIs(1));
  opened_.clear();
  const Raw stranger(door_.port());
  stranger.send(std::string("PUSHPL\0\x12", 8) + new_nonce() +
                direct_member_proof({}, "", new_nonce()));
  expect_refused(stranger);
}

TEST_F(DirectDoorTest, AnotherKeyIsRefused) {
  const Raw peer(door_.port());
  peer.send(hello(door_.offer(kAnna, now_ms()), 2));
  expect_refused(peer);
  EXPECT_THAT(refused_, testing::ElementsAre("it does not prove this run's key"));
}

TEST_F(DirectDoorTest, AProofIsWorthOneConnection) {
  const std::string nonce = door_.offer(kAnna, now_ms());
  const Raw first(door_.port());
  first.send(hello(nonce));
  ASSERT_TRUE(turn_until([&] { return !opened_.empty(); }));
  opened_.clear();
  const Raw replayed(door_.port());
  replayed.send(hello(nonce));
  expect_refused(replayed);
}

TEST_F(DirectDoorTest, ANonceOfItsOwnIsRefused) {
  const Raw peer(door_.port());
  peer.send(hello(new_nonce()));
  expect_refused(peer);
}

TEST_F(DirectDoorTest, ANewerOfferEndsTheEarlierOne) {
  const std::string earlier = door_.offer(kAnna, now_ms());
  door_.offer(kAnna, now_ms());
  const Raw peer(door_.port());
  peer.send(hello(earlier));
  expect_refused(peer);
}

TEST_F(DirectDoorTest, AnOfferEnds) {
  const std::string nonce = door_.offer(kAnna, now_ms());
  ahead_ms_ = DirectDoor::kOfferMs + 1000;
  const Raw peer(door_.port());
  peer.send(hello(nonce));
  expect_refused(peer);
}

TEST_F(DirectDoorTest, HalfAHelloIsRefusedAtItsEndOrInTime) {
  const std::string nonce = door_.offer(kAnna, now_ms());
  Raw ended(door_.port());
  ended.send(hello(nonce).substr(0, 50));
  ended.close();
  EXPECT_TRUE(turn_until([&] { return refused_.size() == 1; }));
  const Raw silent(door_.port());
  silent.send(hello(nonce).substr(0, kHelloBytes - 1));
  for (int i = 0; i < 20; ++i) {
    for (auto& one : door_.turn(now_ms())) opened_.push_back(std::move(one));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(refused_, SizeIs(1)) << "there is time left";
  ahead_ms_ = DirectDoor::kOfferMs + 1000;
  expect_refused(silent);
  EXPECT_THAT(refused_, AllOf(SizeIs(2), Each(HasSubstr("before it had shown a key"))));
}

TEST_F(DirectDoorTest, RandomBytesAreRefused) {
  std::mt19937 random(3);
  door_.offer(kAnna, now_ms());
  for (size_t i = 0; i < 50; ++i) {
    std::string bytes(1 + random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const Raw peer(door_.port());
    peer.send(bytes);
    expect_refused(peer);
    EXPECT_THAT(refused_, SizeIs(i + 1));
  }
}

TEST_F(DirectDoorTest, StrangersDoNotKeepAMemberOut) {
  std::vector<std::unique_ptr<Raw>> silent;
  for (size_t i = 0; i < DirectDoor::kMaxUnproven + 5; ++i) {
    silent.push_back(std::make_unique<Raw>(door_.port()));
    if (i % 16 == 0) door_.turn(now_ms() + 1000 * static_cast<int64_t>(i / 16));
  }
  EXPECT_TRUE(turn_until([&] { return refused_.size() == 5; }));
  EXPECT_THAT(refused_, Each(HasSubstr("64 connections have not finished")));
  ahead_ms_ = 2 * DirectDoor::kOfferMs + 10'000;
  EXPECT_TRUE(turn_until([&] { return refused_.size() == 5 + DirectDoor::kMaxUnproven; }));
  DirectOpening opening = this->opening(door_.offer(kAnna, now_ms() + ahead_ms_));
  EXPECT_TRUE(turn_until([&] { return opening.turn(now_ms()).has_value(); }));
}

// ---- the worker's side ----

// A process in the server's place.
class Impostor {
 public:
  Impostor() : listening_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    EXPECT_EQ(bind(listening_.get(), reinterpret_cast<sockaddr*>(&at), length), 0);
    EXPECT_EQ(listen(listening_.get(), 4), 0);
    getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&at), &length);
    port_ = ntohs(at.sin_port);
  }
  int port() const { return port_; }
  // Accepts a connection and answers its hello.
  void answer(const std::string& bytes) {
    peer_ = UniqueFd(accept(listening_.get(), nullptr, nullptr));
    std::array<char, kHelloBytes> hello{};
    recv(peer_.get(), hello.data(), hello.size(), MSG_WAITALL);
    ::send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (bytes.empty()) peer_.reset();
  }

 private:
  UniqueFd listening_;
  UniqueFd peer_;
  int port_ = 0;
};

// Turns an opening until it fails, and returns why.
std::string failure_of(DirectOpening& opening, int64_t ahead_ms = 0) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  std::string why;
  while (why.empty() && std::chrono::steady_clock::now() < end) {
    try {
      EXPECT_FALSE(opening.turn(now_ms() + ahead_ms).has_value());
    } catch (const Error& e) {
      why = e.what();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return why;
}

TEST(DirectOpening, AProcessInTheServersPlaceGetsNoMessage) {
  const std::string nonce = new_nonce();
  const Credentials known = credentials_of(1);
  const std::string mirrored = direct_member_proof(known.data_key, known.listener, nonce);
  for (const std::string& answer : {std::string(kProofDigits, 'a'), mirrored, std::string()}) {
    Impostor impostor;
    DirectOpening opening(kAddress, impostor.port(), nonce, known, now_ms());
    std::thread answering([&] { impostor.answer(answer); });
    EXPECT_THAT(failure_of(opening), answer.empty() ? HasSubstr("has closed")
                                                    : HasSubstr("does not prove this run's key"));
    answering.join();
  }
}

TEST(DirectOpening, AServerThatDoesNotAnswerIsGivenUp) {
  const Impostor silent;
  DirectOpening opening(kAddress, silent.port(), new_nonce(), credentials_of(1), now_ms());
  EXPECT_FALSE(opening.turn(now_ms()).has_value());
  EXPECT_THAT(failure_of(opening, DirectDoor::kOfferMs + 1000), HasSubstr("does not answer"));
}

TEST(DirectOpening, AClosedPortIsAnError) {
  int port = 0;
  { port = Impostor().port(); }
  std::string why;
  try {
    DirectOpening opening(kAddress, port, new_nonce(), credentials_of(1), now_ms());
    why = failure_of(opening);
  } catch (const Error& e) {
    why = e.what();
  }
  EXPECT_THAT(why, HasSubstr("[direct]"));
}

}  // namespace
}  // namespace pushpull
