#include "common/net/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "common/base/error.h"
#include "common/net/frames.h"
#include "tests/common/net/loopback.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

JoinOptions worker_options(double timeout_s) {
  JoinOptions options;
  options.role = wire::ROLE_WORKER;
  options.incarnation = 77;
  options.timeout_s = timeout_s;
  return options;
}

// A coordinator that answers each message by `answer`, on a thread of its own.
class FakeCoordinator {
 public:
  using Answer = std::function<void(Router&, const PeerId&, const Message&)>;

  FakeCoordinator(zmq::context_t& context, Answer answer)
      : router_(context, "tcp://127.0.0.1:*", EndpointLimits{}),
        address_(router_.address()),
        thread_([this, answer = std::move(answer)](const std::stop_token& stop) {
          while (!stop.stop_requested()) {
            zmq::pollitem_t item{router_.socket().handle(), 0, ZMQ_POLLIN, 0};
            zmq::poll(&item, 1, std::chrono::milliseconds(10));
            while (auto m = router_.receive()) answer(router_, m->first, m->second);
          }
        }) {}

  const std::string& address() const { return address_; }

 private:
  Router router_;
  std::string address_;
  std::jthread thread_;
};

ErrorCode code_of(
    Dealer& control, double timeout_s, std::string* text,
    const std::function<bool()>& stop = [] { return false; }) {
  try {
    join(control, worker_options(timeout_s), Log("test"), stop);
  } catch (const Error& e) {
    *text = e.what();
    return e.code();
  }
  *text = "joined";
  return ErrorCode::kInternal;
}

TEST(Join, SaysWhoItIsAndGetsTheJob) {
  zmq::context_t context(1);
  wire::Hello seen;
  wire::JobText job;
  {
    const auto answer = [&](Router& router, const PeerId& peer, const Message& m) {
      seen = m.header.hello();
      Message text;
      text.header.mutable_job_text()->set_run(5);
      text.header.mutable_job_text()->set_ini("model = mlp\n");
      router.send(peer, text);
    };
    const FakeCoordinator coordinator(context, answer);
    Dealer control(context, coordinator.address(), EndpointLimits{});
    job = join(control, worker_options(20), Log("test"), [] { return false; });
  }
  EXPECT_EQ(job.run(), 5U);
  EXPECT_EQ(job.ini(), "model = mlp\n");
  EXPECT_EQ(seen.role(), wire::ROLE_WORKER);
  EXPECT_EQ(seen.incarnation(), 77U);
  EXPECT_EQ(seen.pid(), getpid());
  EXPECT_EQ(seen.version(), program_version());
  EXPECT_FALSE(seen.host().empty());
}

TEST(Join, NobodyThereIsNamedByItsAddressAtTheDeadline) {
  zmq::context_t context(1);
  std::string address;
  {
    const Router router(context, "tcp://127.0.0.1:*", EndpointLimits{});
    address = router.address();
  }
  Dealer control(context, address, EndpointLimits{});
  std::string text;
  EXPECT_EQ(code_of(control, 0.2, &text), ErrorCode::kUnreachable);
  EXPECT_THAT(text, HasSubstr(address));
  EXPECT_THAT(text, HasSubstr("--join-timeout"));
}

TEST(Join, ARefusalComesWithItsCodeAndText) {
  zmq::context_t context(1);
  FakeCoordinator coordinator(context, [](Router& router, const PeerId& peer, const Message&) {
    Message answer;
    answer.header.mutable_refused()->set_code(static_cast<int>(ErrorCode::kUsage));
    answer.header.mutable_refused()->set_text("[join] no place");
    router.send(peer, answer);
  });
  Dealer control(context, coordinator.address(), EndpointLimits{});
  std::string text;
  EXPECT_EQ(code_of(control, 20, &text), ErrorCode::kUsage);
  EXPECT_EQ(text, "[join] no place");
}

TEST(Join, AServerOfAnotherReleaseIsToldApart) {
  zmq::context_t context(1);
  FakeCoordinator coordinator(context, [](Router& router, const PeerId& peer, const Message&) {
    router.socket().send(zmq::buffer(peer), zmq::send_flags::sndmore);
    router.socket().send(zmq::buffer(std::string("PUSHPL\0\x09 new", 12)), zmq::send_flags::none);
  });
  Dealer control(context, coordinator.address(), EndpointLimits{});
  std::string text;
  EXPECT_EQ(code_of(control, 20, &text), ErrorCode::kProtocol);
  EXPECT_THAT(text, HasSubstr("version 9"));
  EXPECT_THAT(text, HasSubstr("version " + std::to_string(kProtocolVersion) + ";"));
}

TEST(Join, WhatDoesNotAnswerTheHelloIsPassedOver) {
  zmq::context_t context(1);
  FakeCoordinator coordinator(context, [](Router& router, const PeerId& peer, const Message&) {
    Message state;
    state.header.mutable_state()->set_version(3);
    router.send(peer, state);
    Message answer;
    answer.header.mutable_job_text()->set_run(6);
    router.send(peer, answer);
  });
  Dealer control(context, coordinator.address(), EndpointLimits{});
  EXPECT_EQ(join(control, worker_options(20), Log("test"), [] { return false; }).run(), 6U);
}

TEST(Join, AHelloThatWasLostIsSaidAgain) {
  zmq::context_t context(1);
  int hellos = 0;
  FakeCoordinator coordinator(context, [&](Router& router, const PeerId& peer, const Message&) {
    if (++hellos < 2) return;  // the first one gets no answer
    Message answer;
    answer.header.mutable_job_text()->set_run(8);
    router.send(peer, answer);
  });
  Dealer control(context, coordinator.address(), EndpointLimits{});
  EXPECT_EQ(join(control, worker_options(20), Log("test"), [] { return false; }).run(), 8U);
}

TEST(Join, CanBeStopped) {
  zmq::context_t context(1);
  Dealer control(context, "tcp://127.0.0.1:9", EndpointLimits{});
  std::string text;
  int asked = 0;
  EXPECT_EQ(code_of(control, 60, &text, [&] { return ++asked > 2; }), ErrorCode::kFailed);
}

}  // namespace
}  // namespace pushpull
