// Tests the ports that the first server tries.
#include "ps/run/coordinator_sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "common/net/address.h"
#include "tests/common/thrown.h"

namespace pushpull::coordinator_sockets_test {
namespace {

std::unique_ptr<CoordinatorSockets> open_at(const std::string& listen, int64_t ports,
                                            const std::optional<std::string>& earlier = {}) {
  return open_coordinator_sockets({listen, ports, 7, earlier}, Job{}, Keys{}, nullptr);
}

int64_t port_of(const CoordinatorSockets& sockets) {
  return std::stoll(parse_address(sockets.control.address(), "test").port);
}

std::string at(int64_t port) { return "tcp://127.0.0.1:" + std::to_string(port); }

TEST(CoordinatorSockets, TakesTheNextPortIfOthersHaveTheFirstOnes) {
  const auto first = open_at("tcp://127.0.0.1:*", 1);
  const int64_t port = port_of(*first);
  const auto second = open_at(at(port), 40);
  EXPECT_GT(port_of(*second), port);
  EXPECT_LT(port_of(*second), port + 40);
  EXPECT_THROW(open_at(at(port), 1), Error) << "one port only";
}

TEST(CoordinatorSockets, TakesTheEarlierProcesssPortIfItIsFree) {
  const int64_t port = port_of(*open_at("tcp://127.0.0.1:*", 1));
  const auto again = open_at("tcp://127.0.0.1:*", 1, at(port));
  EXPECT_EQ(port_of(*again), port);
  EXPECT_NE(port_of(*open_at("tcp://127.0.0.1:*", 1, at(port))), port) << "it still runs";
}

TEST(CoordinatorSockets, TheLineNamesTheInterfacesThatAreListenedOn) {
  const auto all = open_at("tcp://*:*", 1);
  const std::string port = std::to_string(port_of(*all));
  EXPECT_EQ(listening_line(all->control, ""),
            "listening on tcp://0.0.0.0:" + port + ", all interfaces of this host");
  EXPECT_EQ(listening_line(all->control, "node7"), "listening on tcp://node7:" + port);
  const auto one = open_at("tcp://127.0.0.1:*", 1);
  EXPECT_EQ(listening_line(one->control, ""), "listening on " + at(port_of(*one)));
}

TEST(CoordinatorSockets, NeverTriesAPortBeyondTheLast) {
  EXPECT_NE(thrown(ErrorCode::kUsage,
                   [&] {
                     const auto one = open_at(at(65535), 16);
                     const auto other = open_at(at(65535), 16);
                   }),
            "");
}

}  // namespace
}  // namespace pushpull::coordinator_sockets_test
