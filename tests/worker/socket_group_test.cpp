// Groups of workers over real connections. Each worker has its own context, as its process has, and proves the
// run's key to the others.
#include "worker/group/socket_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/unique_fd.h"
#include "common/job/job.h"
#include "common/net/address.h"
#include "common/net/data_proof.h"
#include "common/net/keys.h"
#include "common/net/zap_handler.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

constexpr uint64_t kSocketRun = 78;
constexpr int64_t kLargestPart = int64_t{20} << 20;  // above the frames of other connections
constexpr int64_t kPatientMs = 30'000;

Keys group_keys() {
  SecretKey key;
  key.secret.fill(1);
  return {key, "job.key"};
}

// A worker that listens.
struct GroupProcess {
  GroupProcess(uint64_t incarnation, int rank, Transport transport = Transport::kTcp,
               int64_t timeout_ms = kPatientMs)
      : handler(context, keys.data_demand(false, kSocketRun, listener_name(incarnation))) {
    auto router = std::make_unique<Router>(handler, "tcp://127.0.0.1:*", data_limits(kLargestPart));
    member = {router->address(), incarnation, rank};
    job.transport = transport;
    links = std::make_unique<SocketGroup>(job, context, std::move(router),
                                          GroupSetup{.term_id = kSocketRun,
                                                     .incarnation = incarnation,
                                                     .timeout_ms = timeout_ms,
                                                     .max_part_bytes = kLargestPart},
                                          keys.data_credentials(false, kSocketRun));
  }

  void wait() {
    std::vector<zmq::pollitem_t> items;
    links->add_poll_items(items);
    poll_sockets(items, 20);
  }
  int64_t agree(int64_t attempt, const std::vector<GroupMember>& members, int64_t step) {
    links->begin(attempt, members);
    links->parts().start(step);
    while (!links->parts().agreed()) {
      links->exchange();
      wait();
    }
    return *links->parts().agreed();
  }
  Payload receive(const GroupParts::Part& from) {
    for (const GroupParts::Wait waits{from};;) {
      links->exchange(waits);
      if (auto part = links->parts().take(from)) return *part;
      wait();
    }
  }
  void serve_until(const std::function<bool()>& done) {
    while (!done()) {
      links->exchange();
      wait();
    }
  }

  Job job;
  zmq::context_t context{1};
  Keys keys = group_keys();
  ZapHandler handler;
  GroupMember member;
  std::unique_ptr<SocketGroup> links;
};

Payload filled(int64_t bytes, float value, const FloatAllocator& memory = heap_floats) {
  const size_t floats = static_cast<size_t>(bytes) / sizeof(float);
  std::shared_ptr<float[]> owner = memory(floats);
  std::fill_n(owner.get(), floats, value);
  const auto all = std::as_bytes(std::span<const float>(owner.get(), floats));
  return {std::move(owner), all};
}

using Processes = std::vector<std::unique_ptr<GroupProcess>>;

// Passes parts to and fro between all stages, and returns the first step of each member.
std::vector<int64_t> run_attempt(Processes& processes, int64_t attempt) {
  std::vector<GroupMember> members;
  for (const auto& process : processes) members.push_back(process->member);
  std::vector<int64_t> agreed(processes.size());
  std::atomic<size_t> done = 0;
  std::vector<std::jthread> threads;
  for (size_t s = 0; s < processes.size(); ++s) {
    threads.emplace_back([&, s] {
      GroupProcess& self = *processes[s];
      const auto stage = static_cast<int>(s);
      const int last = static_cast<int>(processes.size()) - 1;
      const auto value = [&](int from, int64_t index) {
        return static_cast<float>(1000 * attempt + 100 * from + index);
      };
      try {
        agreed[s] = self.agree(attempt, members, 10 * attempt + stage);
        for (int64_t index = 0; index < 8; ++index) {
          const int64_t bytes = index == 3 ? kLargestPart : 40'000;
          const auto pass = [&](wire::StagePart::Kind kind, int from, int to) {
            if (from >= 0 && from <= last) {
              const Payload got = self.receive({from, kind, agreed[s], index});
              EXPECT_EQ(std::ssize(got.bytes), bytes);
              EXPECT_EQ(got.floats()[got.float_count() - 1], value(from, index));
            }
            if (to >= 0 && to <= last) {
              self.links->parts().send({to, kind, agreed[s], index},
                                       filled(bytes, value(stage, index), self.links->memory()));
              self.links->exchange();
            }
          };
          pass(wire::StagePart::KIND_ACTIVATIONS, stage - 1, stage + 1);
          pass(wire::StagePart::KIND_GRADIENTS, stage + 1, stage - 1);
        }
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
      ++done;
      self.serve_until([&] { return done == processes.size(); });
    });
  }
  threads.clear();
  return agreed;
}

class SocketGroupOver : public testing::TestWithParam<Transport> {};

INSTANTIATE_TEST_SUITE_P(Transports, SocketGroupOver,
                         testing::Values(Transport::kTcp, Transport::kShm));

TEST_P(SocketGroupOver, PassesPartsAlsoAfterAMemberWasReplaced) {
  Processes processes;
  for (int s = 0; s < 3; ++s) {
    const auto incarnation = static_cast<uint64_t>(1000 + s);
    processes.push_back(std::make_unique<GroupProcess>(incarnation, s, GetParam()));
  }
  EXPECT_EQ(run_attempt(processes, 1), (std::vector<int64_t>{10, 10, 10}));
  processes[1] = std::make_unique<GroupProcess>(2001, 7, GetParam());
  EXPECT_EQ(run_attempt(processes, 4), (std::vector<int64_t>{40, 40, 40}));
  for (const auto& process : processes) {
    EXPECT_EQ(process->links->rejected(), 0);
    EXPECT_EQ(process->handler.refused_peers(), 0);
  }
  EXPECT_EQ(processes[1]->links->parts().bytes_sent(),
            processes[1]->links->parts().bytes_received());
}

// Passes the bytes of one connection after the other to a port of this host. Closes the first one in the
// midst of what it carries.
class Relay {
 public:
  Relay(const std::string& to, int64_t cut_at_bytes)
      : to_(std::stoi(parse_address(to, "to").port)), cut_at_bytes_(cut_at_bytes) {
    sockaddr_in any = at(0);
    socklen_t size = sizeof any;
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&any), size) != 0 ||
        listen(listener_.get(), 8) != 0 ||
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&any), &size) != 0) {
      throw Error(ErrorCode::kFailed, "the relay cannot listen");
    }
    address_ = "tcp://127.0.0.1:" + std::to_string(ntohs(any.sin_port));
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }

  const std::string& address() const { return address_; }
  int connections() const { return connections_; }
  int64_t bytes() const { return bytes_; }

 private:
  static sockaddr_in at(int port) {
    sockaddr_in out{};
    out.sin_family = AF_INET;
    out.sin_port = htons(static_cast<uint16_t>(port));
    out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return out;
  }
  static UniqueFd tcp() { return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd ready{listener_.get(), POLLIN, 0};
      if (poll(&ready, 1, 10) <= 0) continue;
      const UniqueFd here(accept(listener_.get(), nullptr, nullptr));
      const UniqueFd there = tcp();
      const sockaddr_in to = at(to_);
      if (connect(there.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) continue;
      ++connections_;
      while (!stop.stop_requested() && !cuts() && pass(here.get(), there.get())) {
      }
    }
  }

  bool cuts() const { return connections_ == 1 && bytes_ >= cut_at_bytes_; }

  // Returns false once one end has closed the connection.
  bool pass(int here, int there) {
    pollfd ends[] = {{here, POLLIN, 0}, {there, POLLIN, 0}};
    poll(ends, 2, 10);
    for (const auto& [from, to] : {std::pair{0, there}, {1, here}}) {
      if (ends[from].revents == 0) continue;
      char piece[4096];
      const ssize_t size = read(ends[from].fd, piece, sizeof piece);
      if (size <= 0 || send(to, piece, static_cast<size_t>(size), MSG_NOSIGNAL) != size)
        return false;
      bytes_ += size;
    }
    return true;
  }

  const int to_;
  const int64_t cut_at_bytes_;
  UniqueFd listener_ = tcp();
  std::string address_;
  std::atomic<int64_t> bytes_ = 0;
  std::atomic<int> connections_ = 0;
  std::jthread thread_;  // last: uses the others
};

TEST(SocketGroup, PartsOfABrokenConnectionAreSentAgain) {
  GroupProcess first(1000, 0);
  GroupProcess second(1001, 1);
  const Relay relay(second.member.endpoint, 6 << 20);
  GroupMember through = second.member;
  through.endpoint = relay.address();
  std::atomic<bool> done = false;
  std::jthread sender([&] {
    first.agree(1, {first.member, through}, 0);
    for (int64_t index = 0; index < 4; ++index) {
      first.links->parts().send({1, wire::StagePart::KIND_ACTIVATIONS, 0, index},
                                filled(4 << 20, static_cast<float>(index)));
    }
    first.serve_until([&] { return done.load(); });
  });
  second.agree(1, {first.member, second.member}, 0);
  for (const int64_t index : {3, 2, 1, 0}) {
    EXPECT_EQ(second.receive({0, wire::StagePart::KIND_ACTIVATIONS, 0, index}).floats()[7],
              static_cast<float>(index));
  }
  done = true;
  sender.join();
  EXPECT_EQ(relay.connections(), 2);
  EXPECT_GE(first.links->parts().repeated(), 1);
  EXPECT_EQ(first.links->parts().bytes_sent(), second.links->parts().bytes_received());
}

TEST(SocketGroup, PartsOnOneHostDoNotPassThroughTheSocket) {
  GroupProcess first(1000, 0, Transport::kShm);
  GroupProcess second(1001, 1, Transport::kShm);
  const Relay relay(second.member.endpoint, INT64_MAX);
  GroupMember through = second.member;
  through.endpoint = relay.address();
  std::atomic<bool> done = false;
  std::jthread sender([&] {
    first.agree(1, {first.member, through}, 0);
    first.receive({1, wire::StagePart::KIND_SQUARES, 0, 0});
    for (int64_t index = 0; index < 4; ++index) {
      first.links->parts().send({1, wire::StagePart::KIND_ACTIVATIONS, 0, index},
                                filled(4 << 20, static_cast<float>(index), first.links->memory()));
    }
    first.serve_until([&] { return done.load(); });
  });
  second.agree(1, {first.member, second.member}, 0);
  second.links->parts().send({0, wire::StagePart::KIND_SQUARES, 0, 0}, filled(8, 1.0F));
  for (const int64_t index : {3, 2, 1, 0}) {
    EXPECT_EQ(second.receive({0, wire::StagePart::KIND_ACTIVATIONS, 0, index}).floats()[7],
              static_cast<float>(index));
  }
  done = true;
  sender.join();
  EXPECT_LT(relay.bytes(), 16'384);
  EXPECT_EQ(second.links->parts().bytes_received(), 16 << 20);
}

TEST(SocketGroup, MemberThatDoesNotAnswerIsNamed) {
  GroupProcess first(1000, 0, Transport::kTcp, 300);
  const GroupProcess second(1001, 1, Transport::kTcp, 300);
  const std::string text = thrown(ErrorCode::kUnreachable, [&] {
    first.agree(1, {first.member, second.member}, 0);
  });
  EXPECT_EQ(text.substr(0, text.find(" has not")),
            "[stages] worker 1 (stage 1) at " + second.member.endpoint);
}

// A process with the run's key that is no member: its messages are dropped and counted.
TEST(SocketGroup, StrangersChangeNothing) {
  Processes processes;
  for (int s = 0; s < 2; ++s) {
    processes.push_back(std::make_unique<GroupProcess>(static_cast<uint64_t>(1000 + s), s));
  }
  run_attempt(processes, 1);
  GroupProcess& first = *processes[0];
  Dealer stranger(first.context, first.member.endpoint, {},
                  first.keys.data_credentials(false, kSocketRun).to(listener_name(1000)));
  Message message;
  wire::StagePart* part = message.header.mutable_stage_part();
  part->mutable_sender()->set_term_id(kSocketRun);
  part->mutable_sender()->set_incarnation(4711);
  part->mutable_sender()->set_rank(1);
  part->set_attempt(1);
  part->set_number(20);
  part->set_kind(wire::StagePart::KIND_ACTIVATIONS);
  message.payloads.push_back(filled(40, 1.0F));
  stranger.send(message);
  Message other;
  other.header.mutable_heartbeat()->set_incarnation(1001);
  stranger.send(other);
  Message damaged = message;  // cannot be decoded
  damaged.payloads.clear();
  stranger.send(damaged);
  const int64_t until_ms = now_ms() + kPatientMs;
  first.serve_until([&] {
    stranger.receive();  // its proof
    return first.links->rejected() == 3 || now_ms() > until_ms;
  });
  EXPECT_EQ(first.links->rejected(), 3);
  run_attempt(processes, 2);
}

}  // namespace
}  // namespace pushpull
