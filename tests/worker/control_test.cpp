// The control thread over real sockets. The test plays the coordinator.
#include "worker/member/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <string>

#include "tests/worker/fake_coordinator.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

// Hands out signals, and keeps the codes with which the worker was to end.
class Owner final : public WorkerOwner {
 public:
  int take_signal() override { return signal_; }
  void end_now(int code) override { code_ = code; }

  std::atomic<int> signal_ = 0;  // in every turn
  std::atomic<int> code_ = -1;   // the newest
};

class ControlTest : public testing::Test {
 protected:
  std::unique_ptr<Control> join(const std::string& address, double timeout_s = 20.0) {
    JoinOptions options;
    options.incarnation = 77;
    options.coordinator = address;
    options.timeout_s = timeout_s;
    return std::make_unique<Control>(std::make_unique<Dealer>(context_, address, EndpointLimits{}),
                                     options, owner_);
  }

  zmq::context_t context_{1};
  Owner owner_;
};

TEST_F(ControlTest, JoinsReadsStatesAndLeaves) {
  std::atomic<int> leave_code = -1;
  FakeCoordinator coordinator([&](Router& router, const PeerId& peer, const Message& message) {
    if (message.header.has_hello()) give_job(router, peer);
    if (message.header.has_leave()) leave_code = message.header.leave().code();
    Message state;
    state.header.set_term_id(5);
    state.header.mutable_state()->set_version(3);
    state.header.mutable_state()->set_phase(wire::PHASE_TRAINING);
    if (message.header.has_declare()) router.send(peer, state);
  });
  {
    const auto control = join(coordinator.address());
    ASSERT_TRUE(control->wait_joined());
    EXPECT_EQ(control->enter_term(), 5U);
    EXPECT_EQ(control->incarnation(), 77U);
    EXPECT_EQ(control->job().steps, 10);
    EXPECT_FALSE(control->state());
    control->declare({});
    for (int i = 0; i < 200 && !control->state(); ++i) {
      zmq::pollitem_t item{nullptr, control->news().fd(), ZMQ_POLLIN, 0};
      poll_sockets({&item, 1}, 100);
      control->news().clear();
    }
    ASSERT_TRUE(control->state());
    EXPECT_EQ(control->state()->version(), 3);
    EXPECT_FALSE(control->over());
    control->leave(7, "NaN");
  }
  for (int i = 0; i < 200 && leave_code < 0; ++i) poll_sockets({}, 10);
  EXPECT_EQ(leave_code, 7);
}

TEST_F(ControlTest, RefusalEndsIt) {
  FakeCoordinator coordinator([](Router& router, const PeerId& peer, const Message&) {
    Message answer;
    answer.header.mutable_refused()->set_code(static_cast<int>(ErrorCode::kUsage));
    answer.header.mutable_refused()->set_text("[join] no place");
    router.send(peer, answer);
  });
  const auto control = join(coordinator.address());
  EXPECT_FALSE(control->wait_joined());
  EXPECT_EQ(control->end()->code, ErrorCode::kUsage);
  EXPECT_EQ(control->end()->text, "[join] no place");
}

TEST_F(ControlTest, MissingCoordinatorEndsItAtTheDeadline) {
  const auto control = join("tcp://127.0.0.1:9", 0.2);
  EXPECT_FALSE(control->wait_joined());
  EXPECT_EQ(control->end()->code, ErrorCode::kUnreachable);
  EXPECT_THAT(control->end()->text, HasSubstr("tcp://127.0.0.1:9"));
}

TEST_F(ControlTest, ASecondInterruptAsksTheOwnerToEndAtOnce) {
  FakeCoordinator coordinator([](Router&, const PeerId&, const Message&) {});
  owner_.signal_ = SIGINT;
  const auto control = join(coordinator.address());
  EXPECT_FALSE(control->wait_joined());
  EXPECT_EQ(control->end()->signal, SIGINT);
  for (int i = 0; i < 2000 && owner_.code_ < 0; ++i) poll_sockets({}, 10);
  EXPECT_EQ(owner_.code_, 130);
}

TEST_F(ControlTest, ServerOfAnotherReleaseIsRecognised) {
  FakeCoordinator coordinator([](Router& router, const PeerId& peer, const Message&) {
    router.socket().send(zmq::buffer(peer), zmq::send_flags::sndmore);
    router.socket().send(zmq::buffer(std::string("PUSHPL\0\x63 new", 12)), zmq::send_flags::none);
  });
  const auto control = join(coordinator.address());
  EXPECT_FALSE(control->wait_joined());
  EXPECT_EQ(control->end()->code, ErrorCode::kProtocol);
  EXPECT_THAT(control->end()->text, HasSubstr("version 99"));
}

}  // namespace
}  // namespace pushpull
