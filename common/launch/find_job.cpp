#include "common/launch/find_job.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <memory>
#include <utility>
#include <zmq.hpp>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/unique_fd.h"
#include "common/net/address.h"
#include "common/net/endpoint.h"
#include "common/net/intervals.h"
#include "common/net/join.h"

namespace pushpull {
namespace {

constexpr int kConnectMs = 500;
constexpr int64_t kAnswerMs = 3000;
constexpr useconds_t kBetweenRoundsUs = 200'000;

bool connects(const addrinfo& to) {
  const UniqueFd fd(socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return false;
  if (connect(fd.get(), to.ai_addr, to.ai_addrlen) == 0) return true;
  pollfd item{fd.get(), POLLOUT, 0};
  if (errno != EINPROGRESS || poll(&item, 1, kConnectMs) != 1) return false;
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

// Returns whether a process listens there.
//   unknown: set to why the name cannot be resolved, if so: the names of pods appear late.
bool listens(const Address& address, std::string& unknown) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  unknown = rc == 0 ? "" : address.host + " cannot be resolved: " + gai_strerror(rc);
  if (rc != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    if (connects(*at)) return true;
  }
  return false;
}

// A server that asks for the job is no member of it.
Message question(const std::string& job_token) {
  Message message;
  wire::Hello* hello = message.header.mutable_hello();
  hello->set_role(wire::ROLE_SERVER);
  hello->set_host(host_name());
  hello->set_pid(getpid());
  hello->set_incarnation(random_id());
  hello->set_version(program_version());
  hello->set_job_token(job_token);
  return message;
}

// Returns "" if the server of this job is at the address, else the reason against it.
std::string what_is_at(const std::string& address, const std::string& job_token, const Keys& keys) {
  zmq::context_t context{1};
  Dealer dealer(context, address, control_limits(), keys.control_credentials());
  const Message asked = question(job_token);
  int64_t next_ms = now_ms();
  for (const int64_t end_ms = next_ms + kAnswerMs; now_ms() < end_ms;) {
    if (now_ms() >= next_ms) {
      dealer.send(asked);
      next_ms += kHelloMs;
    }
    zmq::pollitem_t item{dealer.socket().handle(), 0, ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, 100);
    while (const auto message = dealer.receive()) {
      const bool other = message->header.has_refused() &&
                         message->header.refused().code() == static_cast<int>(ErrorCode::kRefused);
      return other ? message->header.refused().text() : "";
    }
    if (const auto why = dealer.refused()) return *why;
    if (dealer.foreign_version() != 0) {
      return foreign_version_text(address, dealer.foreign_version());
    }
  }
  return "[join] " + address + " does not answer";
}

std::string ports_text(const JobSearch& search) {
  const std::string first = Address{search.host, std::to_string(search.first_port)}.to_string();
  return first + " to port " + std::to_string(search.first_port + search.ports - 1);
}

}  // namespace

std::optional<std::string> find_job(const JobSearch& search, const Keys& keys,
                                    const SearchListener& listener) {
  const int64_t begin_ms = now_ms();
  const auto end_ms = begin_ms + static_cast<int64_t>(search.timeout_s * 1000);
  int64_t next_line_ms = begin_ms + 1000;
  std::string unknown;
  bool told = false;
  std::map<std::string, std::string> others;  // address -> what is there
  while (now_ms() < end_ms) {
    for (int64_t i = 0; i < search.ports; ++i) {
      if (listener.stop()) return std::nullopt;
      const Address address{search.host, std::to_string(search.first_port + i)};
      const bool there = listens(address, unknown);
      if (!unknown.empty() && !std::exchange(told, true)) {
        listener.say("[join] " + unknown + "; asking again");
      }
      if (!unknown.empty()) break;
      if (!there) continue;
      const std::string what = what_is_at(address.to_string(), search.job_token, keys);
      if (what.empty()) return address.to_string();
      others[address.to_string()] = what;
    }
    if (now_ms() >= next_line_ms) {
      next_line_ms += kWaitingMs;
      listener.say("waiting for the server of " + search.job_token + " at " + ports_text(search));
    }
    usleep(kBetweenRoundsUs);
  }
  throw Error(
      ErrorCode::kUnreachable,
      "[join] no server of " + search.job_token + " has answered at " + ports_text(search) +
          " for " + std::to_string(static_cast<int64_t>(search.timeout_s)) + " s" +
          (!unknown.empty() ? "; " + unknown + ";"
           : others.empty() ? "; is it running there?"
                            : "; " + others.begin()->first + ": " + others.begin()->second) +
          " --join-timeout sets how long to wait");
}

std::optional<std::string> address_of_job(const Placement& placement, const Keys& keys,
                                          double timeout_s, const SearchListener& listener) {
  if (placement.ports == 1) return placement.address();
  return find_job(
      {placement.host.value, placement.port.value, placement.ports, placement.job_token, timeout_s},
      keys, listener);
}

}  // namespace pushpull
