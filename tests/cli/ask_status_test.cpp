#include "cli/status/ask_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "common/base/error.h"
#include "common/net/endpoint.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// A coordinator that answers a question with the test's function.
class AskStatus : public ::testing::Test {
 protected:
  using Answer = std::function<void(const PeerId&, const Message&)>;

  ErrorCode fails(const Answer& answer, double seconds = 60.0) {
    std::jthread coordinator([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        zmq::pollitem_t item{router_.socket().handle(), 0, ZMQ_POLLIN, 0};
        poll_sockets({&item, 1}, 20);
        while (const auto question = router_.receive()) answer(question->first, question->second);
      }
    });
    try {
      answer_ = ask_status(context_, router_.address(), Keys(), seconds);
    } catch (const Error& e) {
      text_ = e.what();
      return e.code();
    }
    return ErrorCode{0};
  }
  Answer reply(const std::string& json, int64_t number_off = 0) {
    return [=, this](const PeerId& peer, const Message& question) {
      Message message;
      wire::StatusReply* out = message.header.mutable_status_reply();
      out->set_number(question.header.status_request().number() + number_off);
      out->set_json(json);
      out->set_utc_ms(12345);
      router_.send(peer, message);
    };
  }

  zmq::context_t context_;
  Router router_{context_, "tcp://127.0.0.1:*", EndpointLimits{}};
  StatusAnswer answer_;
  std::string text_;
};

TEST_F(AskStatus, ReturnsTheDocumentAndTheTimes) {
  EXPECT_EQ(fails(reply(R"({"phase": "training"})")), ErrorCode{0});
  EXPECT_EQ(answer_.document.at("phase"), "training");
  EXPECT_EQ(answer_.utc_ms, 12345);
  EXPECT_GT(answer_.round_trip_ms, 0.0);
}

TEST_F(AskStatus, AProgramOfAnotherReleaseIsNamed) {
  const auto answer = [this](const PeerId& peer, const Message& /*question*/) {
    router_.socket().send(zmq::buffer(peer), zmq::send_flags::sndmore);
    router_.socket().send(zmq::buffer(std::string("PUSHPL\0\x63", 8)), zmq::send_flags::none);
  };
  EXPECT_EQ(fails(answer), ErrorCode::kProtocol);
  EXPECT_THAT(text_, HasSubstr("speaks protocol version 99"));
  EXPECT_THAT(text_, HasSubstr(router_.address()));
}

TEST_F(AskStatus, AnInvalidAnswerIsRefused) {
  EXPECT_EQ(fails(reply("[1, 2]")), ErrorCode::kProtocol);
  EXPECT_THAT(text_, HasSubstr("is not a JSON object"));
  EXPECT_EQ(fails(reply("{")), ErrorCode::kProtocol);
}

TEST_F(AskStatus, AnAnswerToAnotherQuestionIsIgnored) {
  EXPECT_EQ(fails(reply("{}", 100), 0.3), ErrorCode::kUnreachable);
  EXPECT_THAT(text_, HasSubstr(router_.address()));
}

TEST_F(AskStatus, ARefusalIsRethrown) {
  const auto answer = [this](const PeerId& peer, const Message& /*question*/) {
    Message message;
    message.header.mutable_refused()->set_code(static_cast<int>(ErrorCode::kUsage));
    message.header.mutable_refused()->set_text("[join] not you");
    router_.send(peer, message);
  };
  EXPECT_EQ(fails(answer), ErrorCode::kUsage);
  EXPECT_EQ(text_, "[join] not you");
}

}  // namespace
}  // namespace pushpull
