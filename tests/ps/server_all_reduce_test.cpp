// A server of workers that update by themselves, and the coordinator that gives workers their
// peers.
#include <gtest/gtest.h>

#include "common/net/shard_client.h"
#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/coordinator_fixture.h"
#include "tests/ps/refusals.h"

namespace pushpull::server_all_reduce_test {
namespace {

constexpr int64_t kElements = 3000;  // three slices of 4 KiB
constexpr const char* kKeys =
    "strategy = allreduce:ring\noptimizer = momentum\nmomentum = 0.5\n"
    "checkpoint-every = 2\n";

class AllReduceServer : public testing::Test {
 protected:
  AllReduceServer() : setup_(server_setup(job_of(kKeys), kElements)) {
    server_ = std::make_unique<Server>(setup_, &observer_);
    server_->on_state(state_with_workers({kAnna, kBert}));
  }
  // Returns the message with the losses of a share of a step.
  Message losses(uint64_t who, int64_t number, int64_t step, Range share) const {
    Message message = push_message(setup_, who, number, step, share, 1.0F);
    wire::Push* push = message.header.mutable_exchange()->mutable_push();
    push->clear_parts();
    push->set_parts_total(0);
    push->set_acknowledge(true);
    push->mutable_losses()->Resize(static_cast<int>(share.size()), 0.5F);
    message.payloads.clear();
    return message;
  }
  // Returns the message with which the worker that keeps the slice stores it.
  static Message store(int slice, int64_t step, float value) {
    return store(slice, step, value, slice % 2 == 0 ? kAnna : kBert);
  }
  static Message store(int slice, int64_t step, float value, uint64_t who) {
    Message message;
    wire::Store* store = message.header.mutable_store();
    store->mutable_sender()->set_term_id(kTermId);
    store->mutable_sender()->set_incarnation(who);
    store->set_slice(slice);
    store->set_step(step);
    store->set_updates(step);
    const int64_t n = slice == 2 ? kElements - 2048 : 1024;
    message.payloads = {constant_payload(n, value), constant_payload(n, -value)};
    return message;
  }
  static Message fetch(int slice, int64_t step) {
    Message message;
    message.header.mutable_fetch()->mutable_sender()->set_term_id(kTermId);
    message.header.mutable_fetch()->mutable_sender()->set_incarnation(kCoordinator);
    message.header.mutable_fetch()->set_slice(slice);
    message.header.mutable_fetch()->set_step(step);
    message.header.mutable_fetch()->set_state(true);
    return message;
  }
  Checked give(const Message& message) { return server_->on_data("anna", message); }
  // Returns the single answer to a message that the server must accept.
  Message answer(const Message& message) {
    EXPECT_TRUE(taken(give(message)));
    std::vector<Outgoing> out = server_->take_outgoing();
    EXPECT_EQ(out.size(), 1U);
    return out.empty() ? Message() : out.front().message;
  }
  void compute_to(int64_t step) {
    for (; reported_ < step; ++reported_) {
      EXPECT_TRUE(taken(give(losses(kAnna, reported_ + 1, reported_, {0, 2}))));
      EXPECT_TRUE(taken(give(losses(kBert, reported_ + 1, reported_, {2, 4}))));
    }
    server_->take_outgoing();
  }

  ListeningObserver observer_;
  ServerSetup setup_;
  std::unique_ptr<Server> server_;
  int64_t reported_ = 0;
};

TEST_F(AllReduceServer, SendsTheInitialWeightsUntilTheNextAreStored) {
  const Message first = answer(fetch(0, 0));
  ASSERT_TRUE(first.header.has_fetched());
  EXPECT_EQ(first.payloads.size(), 2U);
  EXPECT_TRUE(answer(fetch(0, 2)).header.status().not_ready());
  EXPECT_TRUE(answer(store(0, 2, 7.0F)).header.has_stored());
  EXPECT_TRUE(answer(fetch(0, 0)).header.status().not_ready());
}

TEST_F(AllReduceServer, LossesCountOnceAndAreAcknowledged) {
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ(answer(losses(kAnna, 1, 0, {0, 2})).header.status().pushes_through(), 1);
  }
  ASSERT_EQ(observer_.commits.size(), 1U);
  EXPECT_EQ(observer_.commits[0].losses, (std::vector<float>{0.5F, 0.5F}));
  EXPECT_EQ(server_->floor(), 0);
  EXPECT_TRUE(taken(give(losses(kBert, 1, 0, {2, 4}))));
  EXPECT_EQ(server_->floor(), 1);
}

TEST_F(AllReduceServer, BarrierOpensWhenAllSlicesAndLossesAreThere) {
  compute_to(1);
  for (const int slice : {0, 1, 2}) EXPECT_TRUE(answer(store(slice, 2, 3.0F)).header.has_stored());
  EXPECT_EQ(observer_.barriers, std::vector<int64_t>{});
  compute_to(2);
  EXPECT_EQ(observer_.barriers, std::vector<int64_t>{2});
  const Message snapshot = answer(fetch(1, 2));
  ASSERT_EQ(snapshot.payloads.size(), 2U);
  EXPECT_EQ(snapshot.header.fetched().updates(), 2);
  EXPECT_EQ(floats_of(snapshot.payloads[0])[5], 3.0F);
  EXPECT_EQ(floats_of(snapshot.payloads[1])[5], -3.0F);
}

TEST_F(AllReduceServer, HoldsTwoCheckpointsAndDelaysTheThirdUntilOneIsGathered) {
  for (int64_t step : {2, 4, 6}) {
    compute_to(step);
    for (const int slice : {0, 1, 2}) {
      EXPECT_TRUE(answer(store(slice, step, static_cast<float>(step))).header.has_stored());
    }
  }
  EXPECT_EQ(observer_.barriers, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(observer_.waits, (std::set<int64_t>{6}));
  EXPECT_TRUE(answer(store(0, 8, 1.0F)).header.status().not_ready());
  EXPECT_TRUE(answer(store(1, 6, 9.0F)).header.has_stored());  // a repeat changes nothing
  for (const int64_t step : {2, 4}) {
    const Message held = answer(fetch(1, step));
    EXPECT_EQ(floats_of(held.payloads[0])[0], static_cast<float>(step));
    EXPECT_EQ(floats_of(held.payloads[1])[0], static_cast<float>(-step));
  }
  server_->on_state(state_with_workers({kAnna, kBert}, 2));
  EXPECT_EQ(observer_.barriers, (std::vector<int64_t>{2, 4, 6}));
  EXPECT_EQ(floats_of(answer(fetch(1, 6)).payloads[0])[0], 6.0F);
  EXPECT_TRUE(answer(store(0, 8, 1.0F)).header.has_stored());
}

TEST_F(AllReduceServer, InvalidMessagesAreRefused) {
  EXPECT_EQ(reason_of(give(push_message(setup_, kAnna, 1, 0, {0, 2}, 1.0F))),
            "push-parts");  // has gradients
  EXPECT_EQ(reason_of(give(pull_message(kAnna, 1, 0))), "pull-strategy");
  EXPECT_EQ(reason_of(give(losses(kAnna, 1, 0, {0, 3}))), "push-share");     // not a share
  EXPECT_EQ(reason_of(give(losses(kAnna, 1, 99, {0, 2}))), "push-step");     // beyond the end
  EXPECT_EQ(reason_of(give(losses(kAnna, 500, 0, {0, 2}))), "push-number");  // far ahead
  Message few = losses(kAnna, 1, 0, {0, 2});
  few.header.mutable_exchange()->mutable_push()->mutable_losses()->Resize(1, 0.0F);
  EXPECT_EQ(reason_of(give(few)), "push-losses");
  EXPECT_EQ(reason_of(give(store(3, 2, 1.0F))), "slice");       // unknown slice
  EXPECT_EQ(reason_of(give(store(0, 3, 1.0F))), "store-step");  // no checkpoint at this step
  Message other = store(0, 2, 1.0F);
  other.header.mutable_store()->mutable_sender()->set_term_id(kTermId + 1);
  EXPECT_EQ(reason_of(give(other)), "run");
  other = store(0, 2, 1.0F);
  other.header.mutable_store()->set_updates(5);
  EXPECT_EQ(reason_of(give(other)), "store-updates");
  other = store(0, 2, 1.0F);
  other.payloads.pop_back();
  EXPECT_EQ(reason_of(give(other)), "slice-payloads");
  other = store(0, 2, 1.0F);
  other.payloads[1] = constant_payload(7, 1.0F);
  EXPECT_EQ(reason_of(give(other)), "slice-bytes");
  EXPECT_TRUE(answer(store(0, 2, 1.0F, 4711)).header.status().not_ready());  // unknown worker
  EXPECT_TRUE(observer_.commits.empty());
  EXPECT_TRUE(answer(fetch(0, 0)).header.has_fetched());
}

TEST_F(AllReduceServer, StoreIsRefusedUnderOtherStrategies) {
  const ServerSetup sync =
      server_setup(job_of("strategy = sync\ncheckpoint-every = 2\n"), kElements);
  Server server(sync, nullptr);
  server.on_state(state_with_workers({kAnna}));
  EXPECT_EQ(reason_of(server.on_data("anna", store(0, 2, 1.0F))), "store-strategy");
}

TEST_F(AllReduceServer, ShardClientOfAWorkerFetchesAndStores) {
  const SliceMap map(kElements, setup_.job.slice_bytes, 1);
  ShardClient annas(kTermId, kAnna, map, 1);
  ShardClient berts(kTermId, kBert, map, 1);
  int64_t now = 0;
  const auto run = [&](ShardClient& client) {
    for (int turn = 0; turn < 100 && client.busy(); ++turn) {
      for (const ToShard& out : client.take_outgoing()) {
        for (Message copy : {out.message, out.message}) give(copy);  // each message twice
      }
      for (const Outgoing& out : server_->take_outgoing()) client.on_message(out.message, now);
      client.on_tick(now += 50);
    }
    EXPECT_FALSE(client.busy());
  };
  annas.fetch(0, true, now);
  run(annas);
  std::optional<GatheredState> fetched = annas.take_fetched();
  ASSERT_TRUE(fetched);
  FlatState state = flatten(std::move(*fetched));
  compute_to(2);
  state.weights.assign(kElements, 4.0F);
  const FlatStateView view{2, 2, state.weights, {state.slots.begin(), state.slots.end()}};
  annas.store(view, {0, 2}, now);
  run(annas);
  EXPECT_TRUE(observer_.barriers.empty());
  berts.store(view, {1}, now);
  run(berts);
  EXPECT_EQ(observer_.barriers, std::vector<int64_t>{2});
  annas.store(view, {}, now);  // nothing to store
  EXPECT_FALSE(annas.busy());
}

class AllReduceCoordinator : public CoordinatorTest {
 protected:
  void declare(uint64_t who, const std::string& endpoint) {
    EXPECT_TRUE(hello(who));
    Message message = declaration(who);
    message.header.mutable_declare()->set_peer_endpoint(endpoint);
    taken_ = send(who, message);
  }
  bool taken_ = false;
};

TEST_F(AllReduceCoordinator, TellsWorkersTheAddressesOfTheirPeers) {
  make(kKeys);
  declare(kBert, "tcp://10.0.0.2:7001");
  declare(kAnna, "tcp://10.0.0.1:7000");
  begin();
  tick();
  const wire::State state = state_of(kAnna);
  ASSERT_EQ(state.peer_endpoints_size(), 2);
  EXPECT_EQ(state.peer_endpoints(0), "tcp://10.0.0.2:7001");
  EXPECT_EQ(state.peer_endpoints(1), "tcp://10.0.0.1:7000");
  EXPECT_EQ(state.peer_incarnations(0), kBert);
  EXPECT_EQ(state.peer_incarnations(1), kAnna);
}

TEST_F(AllReduceCoordinator, DropsAWorkerWithoutAnAddress) {
  make(kKeys);
  for (const std::string& endpoint :
       {std::string(), std::string("tcp://10.0.0.1:*"), std::string("nonsense"),
        "tcp://" + std::string(600, 'a') + ":1"}) {
    declare(kAnna, endpoint);
    EXPECT_FALSE(taken_) << endpoint;
  }
  declare(kAnna, "tcp://10.0.0.1:7000");
  EXPECT_TRUE(taken_);
}

// Peers would send to one address the parts of both workers.
TEST_F(AllReduceCoordinator, RefusesTheAddressOfAnotherWorker) {
  make(kKeys);
  declare(kAnna, "tcp://10.0.0.1:7000");
  declare(kAnna, "tcp://10.0.0.1:7000");
  EXPECT_EQ(refusal_of(kAnna), "") << "a repeat is fine";
  declare(kBert, "tcp://10.0.0.1:7000");
  const std::string refusal = refusal_of(kBert);
  EXPECT_NE(refusal.find("tcp://10.0.0.1:7000 is the address of worker 0 (node"), std::string::npos)
      << refusal;
  EXPECT_FALSE(coordinator_->wants_start());
  declare(kBert, "tcp://10.0.0.1:7001");
  EXPECT_TRUE(coordinator_->wants_start());
}

TEST_F(AllReduceCoordinator, RefusesOtherNumerics) {
  make(kKeys);
  declare(kAnna, "tcp://10.0.0.1:7000");
  EXPECT_TRUE(hello(kBert));
  Message message = declaration(kBert);
  message.header.mutable_declare()->set_peer_endpoint("tcp://10.0.0.2:7000");
  message.header.mutable_declare()->set_numerics("cpu avx512");
  EXPECT_TRUE(send(kBert, message));
  EXPECT_FALSE(coordinator_->wants_start());
}

}  // namespace
}  // namespace pushpull::server_all_reduce_test
