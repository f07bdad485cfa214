#include "common/net/shard_client.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull::shard_client_test {
namespace {

constexpr int64_t kElements = 30000;
constexpr int kServers = 3;

class Client : public testing::Test {
 protected:
  Client() {
    for (int rank = 0; rank < kServers; ++rank) {
      ServerSetup setup = server_setup(job_, kElements, rank, kServers);
      setup.load = true;
      setup.end_step = 1;
      servers_.push_back(std::make_unique<Server>(setup, nullptr));
      servers_.back()->on_state(state_with_workers({kAnna, kBert}));
    }
  }
  static std::shared_ptr<FlatState> some_state() {
    auto state = std::make_shared<FlatState>();
    state->weights = floats_of(random_payload(kElements, 1));
    state->slots = {floats_of(random_payload(kElements, 2))};
    return state;
  }
  // Delivers the messages of the client, and each answer `times` times.
  void deliver(int times = 1) {
    for (const ToShard& out : client_.take_outgoing()) {
      EXPECT_EQ(out.server, map_.server_of(slice_of(out.message)));
      Server& server = *servers_[static_cast<size_t>(out.server)];
      EXPECT_TRUE(taken(server.on_data("coordinator", out.message)));
      for (const Outgoing& answer : server.take_outgoing()) {
        for (int i = 0; i < times; ++i) EXPECT_TRUE(client_.on_message(answer.message, now_));
      }
    }
  }
  static int slice_of(const Message& m) {
    return m.header.has_load() ? m.header.load().slice() : m.header.fetch().slice();
  }
  void run(int times = 1) {
    for (int turn = 0; turn < 1000 && client_.busy(); ++turn) {
      deliver(times);
      now_ += 20;
      client_.on_tick(now_);
    }
    EXPECT_FALSE(client_.busy());
  }
  void one_step() {
    for (int rank = 0; rank < kServers; ++rank) {
      const ServerSetup setup = server_setup(job_, kElements, rank, kServers);
      Server& server = *servers_[static_cast<size_t>(rank)];
      server.on_data("a", push_message(setup, kAnna, 1, 0, {0, 2}, 1.0F));
      server.on_data("b", push_message(setup, kBert, 1, 0, {2, 4}, 1.0F));
      server.take_outgoing();
    }
  }

  Job job_ = job_of("strategy = sync\noptimizer = momentum\nlr = 0.1\nmomentum = 0.5\n");
  SliceMap map_{kElements, job_.slice_bytes, kServers};
  std::vector<std::unique_ptr<Server>> servers_;
  ShardClient client_{kTermId, kCoordinator, map_, 1};
  int64_t now_ = 0;
};

TEST_F(Client, LoadsAStateAndGathersTheNext) {
  const auto state = some_state();
  client_.load(state, now_);
  EXPECT_TRUE(client_.busy());
  run();
  for (const auto& server : servers_) EXPECT_TRUE(server->ready());
  one_step();
  client_.fetch(1, true, now_);
  run();
  std::optional<GatheredState> gathered = client_.take_fetched();
  ASSERT_TRUE(gathered);
  EXPECT_FALSE(client_.take_fetched());
  const auto fetched = std::make_unique<FlatState>(flatten(std::move(*gathered)));
  EXPECT_EQ(fetched->step, 1);
  EXPECT_EQ(fetched->updates, 1);
  ASSERT_EQ(fetched->slots.size(), 1U);
  for (size_t i = 0; i < kElements - 101; i += 97) {
    const float momentum = 0.5F * state->slots[0][i] + 0.5F;
    EXPECT_FLOAT_EQ(fetched->slots[0][i], momentum) << i;
    EXPECT_FLOAT_EQ(fetched->weights[i], state->weights[i] - 0.1F * momentum) << i;
  }
}

TEST_F(Client, GathersWithoutACopy) {
  client_.load(some_state(), now_);
  run();
  one_step();
  client_.fetch(1, true, now_);
  run();
  const auto gathered = client_.take_fetched();
  ASSERT_TRUE(gathered);
  for (int slice = 0; slice < map_.slices(); ++slice) {
    const auto& payloads = gathered->slices[static_cast<size_t>(slice)];
    ASSERT_EQ(payloads.size(), 2U);
    EXPECT_EQ(static_cast<int64_t>(payloads[1].float_count()), map_.elements(slice).size());
    EXPECT_TRUE(payloads[0].owner) << "the received memory";
  }
}

TEST_F(Client, SlicesOfOneServerAreFetchedAndLoadedIntoAnother) {
  client_.load(some_state(), now_);
  run();
  one_step();
  client_.fetch(1, map_.slices_of(1), now_);
  EXPECT_EQ(client_.fetched_step(), 1);
  run();
  const auto copy = std::make_shared<const GatheredState>(*client_.take_fetched());
  EXPECT_TRUE(copy->slices[0].empty()) << "slice 0 belongs to server 0";
  ServerSetup setup = server_setup(job_, kElements, 1, kServers);
  setup.load = true;
  setup.start_step = 1;
  setup.end_step = 2;
  setup.updates = copy->updates;
  servers_[1] = std::make_unique<Server>(setup, nullptr);
  servers_[1]->on_state(state_with_workers({kAnna, kBert}));
  EXPECT_FALSE(servers_[1]->ready());
  client_.load(copy, map_.slices_of(1), now_);
  run();
  EXPECT_TRUE(servers_[1]->ready());
  EXPECT_EQ(servers_[1]->floor(), 1);
}

TEST_F(Client, RequestsAFewSlicesAtATime) {
  client_.load(some_state(), now_);
  EXPECT_EQ(client_.take_outgoing().size(), 8U);
  EXPECT_EQ(client_.waiting_for(), 0);
}

TEST_F(Client, UnansweredRequestsAreRepeated) {
  client_.load(some_state(), now_);
  std::set<int> asked;
  for (const ToShard& out : client_.take_outgoing()) asked.insert(slice_of(out.message));
  client_.on_tick(now_ + 999);
  EXPECT_TRUE(client_.take_outgoing().empty());
  client_.on_tick(now_ + 1000);
  std::set<int> again;
  for (const ToShard& out : client_.take_outgoing()) again.insert(slice_of(out.message));
  EXPECT_EQ(again, asked);
  now_ += 2000;
  client_.on_tick(now_);
  run();
}

TEST_F(Client, ServerThatIsNotReadyIsAskedAgainSoon) {
  client_.load(some_state(), now_);
  client_.take_outgoing();
  Message not_ready;
  not_ready.header.mutable_status()->set_not_ready(true);
  EXPECT_TRUE(client_.on_message(not_ready, now_));
  client_.on_tick(now_ + 10);
  EXPECT_EQ(client_.take_outgoing().size(), 8U);
}

TEST_F(Client, RepeatedAnswersChangeNothing) {
  const auto state = some_state();
  client_.load(state, now_);
  run(3);
  one_step();
  client_.fetch(1, true, now_);
  run(3);
  EXPECT_TRUE(client_.take_fetched());
}

Message fetched(int slice, int64_t step, const std::vector<int64_t>& sizes) {
  Message message;
  message.header.mutable_fetched()->set_slice(slice);
  message.header.mutable_fetched()->set_step(step);
  for (const int64_t n : sizes) message.payloads.push_back(constant_payload(n, 9.0F));
  return message;
}

TEST_F(Client, InvalidAnswersAreRefused) {
  client_.fetch(1, true, now_);
  EXPECT_FALSE(client_.on_message(fetched(-1, 1, {1024, 1024}), now_));
  EXPECT_FALSE(client_.on_message(fetched(1000, 1, {1024, 1024}), now_));
  EXPECT_FALSE(client_.on_message(fetched(0, 1, {1024}), now_));
  EXPECT_FALSE(client_.on_message(fetched(0, 1, {1024, 1024, 1024}), now_));
  EXPECT_FALSE(client_.on_message(fetched(0, 1, {1024, 1023}), now_));
  EXPECT_FALSE(client_.on_message(fetched(0, 1, {0, 0}), now_));
  EXPECT_TRUE(client_.on_message(fetched(0, 2, {1024, 1024}), now_))
      << "an answer to an older fetch";
  EXPECT_EQ(client_.waiting_for(), 0) << "slice 0 is still wanted";
  Message message;
  message.header.mutable_hello();
  EXPECT_FALSE(client_.on_message(message, now_));
}

TEST_F(Client, IsIdleAtFirst) {
  EXPECT_FALSE(client_.busy());
  EXPECT_EQ(client_.waiting_for(), -1);
  client_.on_tick(1'000'000);
  EXPECT_TRUE(client_.take_outgoing().empty());
}

}  // namespace
}  // namespace pushpull::shard_client_test
