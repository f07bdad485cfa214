// Groups of workers over real connections. Each worker has its own context, as its process has, and proves the
// run's key to the others.
#include "worker/group/socket_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "common/base/error.h"
#include "common/base/process.h"
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
  explicit GroupProcess(uint64_t incarnation, int rank, int64_t timeout_ms = kPatientMs)
      : handler(context, keys.data_demand(false, kSocketRun, listener_name(incarnation))) {
    auto router = std::make_unique<Router>(handler, "tcp://127.0.0.1:*", data_limits(kLargestPart));
    member = {router->address(), incarnation, rank};
    links = std::make_unique<SocketGroup>(context, std::move(router),
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

  zmq::context_t context{1};
  Keys keys = group_keys();
  ZapHandler handler;
  GroupMember member;
  std::unique_ptr<SocketGroup> links;
};

Payload filled(int64_t bytes, float value) {
  auto owner =
      std::make_shared<const std::vector<float>>(static_cast<size_t>(bytes) / sizeof(float), value);
  return {owner, std::as_bytes(std::span(*owner))};
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
                                       filled(bytes, value(stage, index)));
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

TEST(SocketGroup, PassesPartsAlsoAfterAMemberWasReplaced) {
  Processes processes;
  for (int s = 0; s < 3; ++s) {
    processes.push_back(std::make_unique<GroupProcess>(static_cast<uint64_t>(1000 + s), s));
  }
  EXPECT_EQ(run_attempt(processes, 1), (std::vector<int64_t>{10, 10, 10}));
  processes[1] = std::make_unique<GroupProcess>(2001, 7);
  EXPECT_EQ(run_attempt(processes, 4), (std::vector<int64_t>{40, 40, 40}));
  for (const auto& process : processes) {
    EXPECT_EQ(process->links->rejected(), 0);
    EXPECT_EQ(process->handler.refused_peers(), 0);
  }
  EXPECT_EQ(processes[1]->links->parts().bytes_sent(),
            processes[1]->links->parts().bytes_received());
}

TEST(SocketGroup, MemberThatDoesNotAnswerIsNamed) {
  GroupProcess first(1000, 0, 300);
  const GroupProcess second(1001, 1, 300);
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
