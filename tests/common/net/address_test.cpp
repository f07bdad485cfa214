#include "common/net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

std::string usage_error(const std::string& text) {
  return thrown(ErrorCode::kUsage, [&] { parse_address(text, "join"); });
}

TEST(Address, ReadsHostAndPort) {
  const Address a = parse_address("tcp://node17.cluster:5555", "join");
  EXPECT_EQ(a.host, "node17.cluster");
  EXPECT_EQ(a.port, "5555");
  EXPECT_EQ(a.to_string(), "tcp://node17.cluster:5555");
  EXPECT_EQ(parse_address("tcp://*:*", "listen").to_string(), "tcp://*:*");
  EXPECT_EQ(parse_address("tcp://127.0.0.1:65535", "listen").port, "65535");
}

TEST(Address, ARangeOfPortsIsForListeningOnly) {
  const Address range = parse_address("tcp://10.0.0.1:5600-5602", "listen");
  EXPECT_THAT(range.ports(), testing::ElementsAre("5600", "5601", "5602"));
  EXPECT_THAT(parse_address(with_port("tcp://[::1]:*", "7-7"), "listen").ports(),
              testing::ElementsAre("7"));
  for (const char* text : {"tcp://h:7-6", "tcp://h:-7", "tcp://h:7-", "tcp://h:0-7",
                           "tcp://h:1-65536", "tcp://h:1-2-3"}) {
    EXPECT_THROW(parse_address(text, "listen"), Error) << text;
  }
  EXPECT_THROW(parse_address("tcp://h:5600-5602", "join"), Error);
}

TEST(Address, KeepsIpV6InBrackets) {
  const Address a = parse_address("tcp://[::1]:80", "join");
  EXPECT_EQ(a.host, "::1");
  EXPECT_EQ(a.to_string(), "tcp://[::1]:80");
}

TEST(Address, RecognisesLoopbackAndEverywhere) {
  for (const char* text :
       {"tcp://127.0.0.1:1", "tcp://127.1.2.3:1", "tcp://localhost:1", "tcp://[::1]:1"}) {
    EXPECT_TRUE(parse_address(text, "listen").is_loopback()) << text;
    EXPECT_FALSE(parse_address(text, "listen").is_everywhere()) << text;
  }
  for (const char* text : {"tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1"}) {
    EXPECT_TRUE(parse_address(text, "listen").is_everywhere()) << text;
    EXPECT_FALSE(parse_address(text, "listen").is_loopback()) << text;
  }
  EXPECT_FALSE(parse_address("tcp://10.0.0.1:1", "listen").is_loopback());
}

TEST(Address, AnAdvertisedHostHasNeitherSchemeNorPort) {
  for (const char* text : {"node17.cluster", "my_host-2", "10.0.0.17", "fe80::1%eth0", "::1"}) {
    EXPECT_NO_THROW(check_host(text, "advertise")) << text;
  }
  for (const char* text : {"", "tcp://node17", "tcp://node17:5555", "node17:5555", "bad host",
                           "[::1]", "*", "a/b", "a\nb"}) {
    EXPECT_THROW(check_host(text, "advertise"), Error) << text;
  }
}

TEST(Address, AMistakeIsNamedWithItsFlagAndTheExpectedForm) {
  for (const char* text :
       {"", "127.0.0.1:5555", "tcp://", "tcp://:", "tcp://host", "tcp://host:", "tcp://:5555",
        "tcp://host:port", "tcp://host:65536", "tcp://host:-1", "tcp://host:1 ", "tcp://host:0x10",
        "udp://host:1", "tcp://h 1:1", "tcp://h/x:1", "tcp://grpc://h:1", "tcp://h:1:2",
        "tcp://host:123456789012345678901"}) {
    const std::string error = usage_error(text);
    EXPECT_NE(error.find("--join"), std::string::npos) << text << ": " << error;
    EXPECT_NE(error.find(text), std::string::npos) << error;
    EXPECT_NE(error.find("tcp://HOST:PORT"), std::string::npos) << error;
  }
}

TEST(Address, TheLocalAddressTowardsLoopbackIsLoopback) {
  EXPECT_EQ(local_address_towards({"127.0.0.1", "5555"}), "127.0.0.1");
}

TEST(Address, AHostThatCannotBeResolvedIsNamed) {
  EXPECT_THAT(thrown(ErrorCode::kUnreachable,
                     [] {
                       local_address_towards({"no such host", "5555"});
                     }),  // a space: no resolver is asked
              testing::HasSubstr("no such host"));
}

}  // namespace
}  // namespace pushpull
