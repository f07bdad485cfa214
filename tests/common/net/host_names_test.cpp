// Tests names of hosts in addresses. The resolver of this program knows three names more: one with an IPv6
// address alone, one with both, one of another host.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cstdlib>
#include <string>

#include "common/base/error.h"
#include "common/net/address.h"
#include "common/net/endpoint.h"
#include "tests/common/net/loopback.h"

using Resolver = int(const char*, const char*, const addrinfo*, addrinfo**);

// Takes the place of libc's, also for libzmq.
extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* name,
                                                                  const char* port,
                                                                  const addrinfo* hints,
                                                                  addrinfo** found) {
  static auto* const real = reinterpret_cast<Resolver*>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string asked = name == nullptr ? "" : name;
  const int family = hints == nullptr ? AF_UNSPEC : hints->ai_family;
  const bool numbers = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (!asked.ends_with(".test") || numbers) return real(name, port, hints, found);
  if (asked == "six.test") return family == AF_INET ? EAI_NONAME : real("::1", port, hints, found);
  if (asked == "far.test") return real("192.0.2.1", port, hints, found);
  if (asked != "both.test") return EAI_NONAME;
  if (family != AF_UNSPEC) return real(family == AF_INET ? "127.0.0.1" : "::1", port, hints, found);
  const int code = real("::1", port, hints, found);  // IPv6 first, as the real one has it
  addrinfo* last = code == 0 ? *found : nullptr;
  while (last != nullptr && last->ai_next != nullptr) last = last->ai_next;
  return last == nullptr ? code : real("127.0.0.1", port, hints, &last->ai_next);
}

namespace pushpull::host_names_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

bool has_ipv6() {
  zmq::context_t context{1};
  try {
    Router router(context, "tcp://[::1]:*", EndpointLimits{});
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string port_of(const Router& router) { return parse_address(router.address(), "test").port; }

// Returns the host that a message of `name`'s connection names.
std::string sent_to(Router& router, zmq::context_t& context, const std::string& name) {
  Dealer dealer(context, "tcp://" + name + ":" + port_of(router), EndpointLimits{});
  dealer.send(hello("there"));
  const auto message = receive_one(router);
  return message ? message->second.header.hello().host() : "";
}

std::string refusal(const std::string& address) {
  zmq::context_t context{1};
  try {
    const Router router(context, address, EndpointLimits{});
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "it listens";
}

TEST(HostNames, HaveTheirIpv4AddressesFirst) {
  EXPECT_THAT(look_up_host("both.test").addresses, ElementsAre("127.0.0.1", "::1"));
  EXPECT_FALSE(look_up_host("both.test").only_ipv6());
  EXPECT_TRUE(look_up_host("six.test").only_ipv6());
  EXPECT_THAT(look_up_host("127.0.0.3").addresses, ElementsAre("127.0.0.3"));
  const HostLookUp unknown = look_up_host("nowhere.test");
  EXPECT_FALSE(unknown.only_ipv6());
  EXPECT_NE(unknown.why, "");
}

TEST(HostNames, WithAnIpv6AddressAloneAreReached) {
  if (!has_ipv6()) GTEST_SKIP() << "no IPv6 on this host";
  zmq::context_t context{1};
  Router router(context, "tcp://[::1]:*", EndpointLimits{});
  EXPECT_EQ(sent_to(router, context, "six.test"), "there");
}

TEST(HostNames, WithBothKindsAreReachedByIpv4) {
  zmq::context_t context{1};
  Router router(context, "tcp://127.0.0.1:*", EndpointLimits{});
  EXPECT_EQ(sent_to(router, context, "both.test"), "there");
}

TEST(HostNames, OfThisHostAreListenedOn) {
  zmq::context_t context{1};
  Router router(context, "tcp://both.test:*", EndpointLimits{});
  EXPECT_EQ(parse_address(router.address(), "test").host, "127.0.0.1");
  EXPECT_EQ(sent_to(router, context, "both.test"), "there");
  if (!has_ipv6()) return;
  Router six(context, "tcp://six.test:*", EndpointLimits{});
  EXPECT_EQ(parse_address(six.address(), "test").host, "::1");
}

TEST(HostNames, ThatCannotBeListenedOnAreNamedWithTheCause) {
  EXPECT_THAT(refusal("tcp://far.test:5555"),
              AllOf(HasSubstr("tcp://far.test:5555, which is tcp://192.0.2.1:5555: "),
                    HasSubstr("this host has no such address"), Not(HasSubstr("port"))));
  EXPECT_THAT(refusal("tcp://nowhere.test:5555"),
              AllOf(HasSubstr("nowhere.test cannot be resolved: "), Not(HasSubstr("port"))));
}

TEST(HostNames, ThatAreUnknownAreNamedOnce) {
  zmq::context_t context{1};
  Dealer dealer(context, "tcp://nowhere.test:5555", EndpointLimits{});
  EXPECT_THAT(dealer.take_warning(), HasSubstr("nowhere.test cannot be resolved: "));
  EXPECT_EQ(dealer.take_warning(), "");
  EXPECT_NE(dealer.unresolved(), "");
  Dealer known(context, "tcp://both.test:5555", EndpointLimits{});
  EXPECT_EQ(known.take_warning() + known.unresolved(), "");
}

}  // namespace
}  // namespace pushpull::host_names_test
