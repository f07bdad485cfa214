#include "common/net/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "common/net/frames.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

JoinOptions worker_options() {
  JoinOptions options;
  options.role = wire::ROLE_WORKER;
  options.incarnation = 77;
  options.host = "node";
  options.pid = 12;
  options.coordinator = "tcp://head:5555";
  options.timeout_s = 3.2;
  return options;
}

Message job_text() {
  Message message;
  message.header.mutable_job_text()->set_term_id(5);
  return message;
}

Message state() {
  Message message;
  message.header.mutable_state()->set_version(3);
  return message;
}

TEST(Join, TheHelloDescribesTheProcess) {
  Joining joining(worker_options(), "tcp://node:1");
  const auto message = joining.on_tick(100);
  ASSERT_TRUE(message);
  const wire::Hello& hello = message->header.hello();
  EXPECT_EQ(hello.role(), wire::ROLE_WORKER);
  EXPECT_EQ(hello.incarnation(), 77U);
  EXPECT_EQ(hello.host(), "node");
  EXPECT_EQ(hello.pid(), 12);
  EXPECT_EQ(hello.version(), program_version());
  EXPECT_EQ(hello.data_endpoint(), "tcp://node:1");
}

TEST(Join, TheHelloIsRepeatedUntilTheDeadline) {
  Joining joining(worker_options(), "");
  int hellos = 0;
  int64_t last_ms = -1;
  for (int64_t now = 0; now <= 3200; now += 10) {
    if (!joining.on_tick(now)) continue;
    ++hellos;
    last_ms = now;
  }
  EXPECT_EQ(hellos, 7);
  EXPECT_EQ(last_ms, 3000);
  EXPECT_THROW(joining.on_tick(3210), Error);
}

TEST(Join, TheDeadlineErrorNamesTheCoordinatorsAddress) {
  Joining joining(worker_options(), "");
  joining.on_tick(1000);
  const std::string text = thrown(ErrorCode::kUnreachable, [&] { joining.on_tick(4201); });
  EXPECT_THAT(text, HasSubstr("tcp://head:5555"));
  EXPECT_THAT(text, HasSubstr("--join-timeout"));
}

TEST(Join, ARefusalThrowsItsCodeAndText) {
  Joining joining(worker_options(), "");
  Message refused;
  refused.header.mutable_refused()->set_code(static_cast<int>(ErrorCode::kUsage));
  refused.header.mutable_refused()->set_text("[join] no place");
  EXPECT_EQ(thrown(ErrorCode::kUsage, [&] { joining.on_message(refused); }), "[join] no place");
}

TEST(Join, OtherMessagesThanTheAnswerAreIgnored) {
  Joining worker(worker_options(), "");
  EXPECT_FALSE(worker.on_message(state()));
  EXPECT_TRUE(worker.on_message(job_text()));
}

// The answer to the first Hello, which had no address, may arrive twice.
TEST(Join, AServerWithAnAddressIsAMemberAfterTheFirstState) {
  Joining server(worker_options(), "tcp://node:1");
  EXPECT_FALSE(server.on_message(job_text()));
  EXPECT_TRUE(server.on_message(state()));
}

TEST(Join, AWaitIsExplainedAfterASecond) {
  Joining joining(worker_options(), "");
  EXPECT_EQ(joining.waiting(0), "");
  joining.on_tick(0);
  EXPECT_EQ(joining.waiting(900), "");
  EXPECT_THAT(joining.waiting(1000), HasSubstr("waiting for the server at tcp://head:5555"));
  EXPECT_EQ(joining.waiting(5900), "");
  EXPECT_NE(joining.waiting(6000), "");
}

TEST(Join, AServerWithoutAPlaceRetriesAndSaysWhyItWaits) {
  Message no_place;
  no_place.header.mutable_no_place_yet()->set_text("the job has all its 2 servers");
  Joining joining(worker_options(), "");  // a timeout of 3.2 s
  for (int64_t now_ms = 0; now_ms <= 200'000; now_ms += 1000) {
    EXPECT_TRUE(joining.on_tick(now_ms)) << now_ms;
    EXPECT_FALSE(joining.on_message(no_place));
  }
  EXPECT_EQ(joining.waiting(200'000), "waiting for a place: the job has all its 2 servers");
  EXPECT_TRUE(joining.on_tick(201'000));
  EXPECT_TRUE(joining.on_tick(204'200));
  EXPECT_THROW(joining.on_tick(204'201), Error) << "the coordinator is gone";
}

TEST(Join, AnotherReleaseIsNamedWithBothVersions) {
  const std::string text = foreign_version_text("tcp://head:5555", 10);
  EXPECT_THAT(text, HasSubstr("tcp://head:5555"));
  EXPECT_THAT(text, HasSubstr("version 10"));
  EXPECT_THAT(text, HasSubstr("version " + std::to_string(kProtocolVersion) + ";"));
}

}  // namespace
}  // namespace pushpull
