// One suite for each all-reduce. Ranks are threads, connections are real ones over loopback.
#include "worker/all_reduce/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <exception>
#include <random>
#include <thread>

#include "common/base/error.h"
#include "common/net/data_proof.h"
#include "common/net/keys.h"
#include "common/net/zap_handler.h"
#include "common/update/range_update.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

constexpr uint64_t kTermId = 77;

// The workers of a job, in one process.
class Ranks {
 public:
  explicit Ranks(int n, double timeout_s = 60.0) {
    std::vector<std::unique_ptr<Router>> routers;
    PeersSetup setup;
    setup.term_id = kTermId;
    setup.timeout_s = timeout_s;
    for (int r = 0; r < n; ++r) {
      routers.push_back(std::make_unique<Router>(context_, "tcp://127.0.0.1:*", EndpointLimits{}));
      setup.all.push_back({routers.back()->address(), static_cast<uint64_t>(1000 + r)});
    }
    for (int r = 0; r < n; ++r) {
      setup.rank = r;
      peers_.push_back(std::make_unique<Peers>(context_, std::move(routers[static_cast<size_t>(r)]),
                                               setup, [] { return false; }));
    }
  }
  int size() const { return static_cast<int>(peers_.size()); }
  Peers& at(int rank) { return *peers_[static_cast<size_t>(rank)]; }
  zmq::context_t& context() { return context_; }

  // Runs `work` for each rank except `without`, concurrently. Rethrows the first error.
  template <class Work>
  void run(const Work& work, int without = -1) {
    std::vector<std::exception_ptr> errors(peers_.size());
    {
      std::vector<std::jthread> threads;
      for (int r = 0; r < size(); ++r) {
        if (r == without) continue;
        threads.emplace_back([&, r] {
          try {
            work(r, at(r));
          } catch (...) {
            errors[static_cast<size_t>(r)] = std::current_exception();
          }
        });
      }
    }
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

 private:
  zmq::context_t context_;
  std::vector<std::unique_ptr<Peers>> peers_;
};

using Floats = std::vector<float>;

// Returns a random vector for a node of a step, the same in each call.
std::shared_ptr<Floats> gradient(Range node, int64_t elements, int64_t step) {
  auto state = static_cast<uint32_t>(node.lo * 1000 + node.hi * 10 + step);
  auto out = std::make_shared<Floats>(static_cast<size_t>(elements));
  for (float& x : *out) {
    state = state * 1664525U + 1013904223U;  // Press et al., Numerical Recipes: quick, from -1 to 1
    x = static_cast<float>(static_cast<int32_t>(state) >> 8) / 8388608.0F;
  }
  return out;
}

std::vector<SumPart> parts_of(int rank, int ranks, int64_t leaves, int64_t elements, int64_t step) {
  std::vector<SumPart> parts;
  for (const Range& node : maximal_subtrees(share_range(rank, ranks, leaves), leaves)) {
    const std::shared_ptr<Floats> floats = gradient(node, elements, step);
    parts.push_back({node, floats, floats->data()});
  }
  return parts;
}

// Returns the sum that a server would compute.
Floats tree_sum(int ranks, int64_t leaves, int64_t elements, int64_t step) {
  std::vector<TreePart> parts;
  std::vector<std::shared_ptr<Floats>> owners;
  for (int r = 0; r < ranks; ++r) {
    for (const Range& node : maximal_subtrees(share_range(r, ranks, leaves), leaves)) {
      owners.push_back(gradient(node, elements, step));
      parts.push_back({node, owners.back()->data()});
    }
  }
  TreeSum sum(parts, leaves);
  Floats out;
  for (int64_t lo = 0; lo < elements; lo += TreeSum::kStride) {
    const int64_t n = std::min(TreeSum::kStride, elements - lo);
    const float* block = sum.block(lo, n);
    out.insert(out.end(), block, block + n);
  }
  return out;
}

class AllReduce : public testing::TestWithParam<std::tuple<AllReduceKind, int>> {
 protected:
  AllReduceKind kind() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }
  void SetUp() override {
    if (kind() == AllReduceKind::kGloo && !has_gloo()) GTEST_SKIP() << "built without Gloo";
  }
  // Computes several sums in a row and returns the result of each, per rank.
  std::vector<std::vector<Floats>> sums(const std::vector<int64_t>& sizes, int64_t leaves,
                                        const CollectiveOptions& options) {
    Ranks all(ranks());
    std::vector<std::vector<Floats>> out(sizes.size(),
                                         std::vector<Floats>(static_cast<size_t>(ranks())));
    all.run([&](int rank, Peers& peers) {
      const auto collective = make_collective(kind(), peers, leaves, 60.0, options);
      for (size_t i = 0; i < sizes.size(); ++i) {
        const auto n = static_cast<size_t>(sizes[i]);
        const std::shared_ptr<float[]> target(new float[n]);
        const auto parts = parts_of(rank, ranks(), leaves, sizes[i], static_cast<int64_t>(i));
        collective->sum(static_cast<int64_t>(i), parts, sizes[i], {target, target.get()});
        out[i][static_cast<size_t>(rank)].assign(target.get(), target.get() + n);
      }
    });
    return out;
  }
};

TEST_P(AllReduce, EachRankGetsTheSumOfAllForAnySize) {
  const std::vector<int64_t> sizes = {1, 2, 3, 15, 16, 17, 100, 4097, 33'333, 70'001};
  constexpr int64_t kLeaves = 8;
  // in one piece, and cut into chunks of small segments
  for (const int64_t whole : {int64_t{1} << 30, int64_t{0}}) {
    const auto results = sums(sizes, kLeaves, {.segment_bytes = 4096, .whole_bytes = whole});
    for (size_t i = 0; i < sizes.size(); ++i) {
      const Floats want = tree_sum(ranks(), kLeaves, sizes[i], static_cast<int64_t>(i));
      for (const Floats& got : results[i]) {
        ASSERT_EQ(got.size(), want.size());
        EXPECT_EQ(std::memcmp(got.data(), results[i][0].data(), got.size() * 4), 0)
            << "ranks disagree at size " << sizes[i];
      }
      // at most 8 numbers below 1 in another order: a few roundings of their sum
      float apart = 0.0F;
      for (size_t e = 0; e < want.size(); ++e) {
        apart = std::max(apart, std::fabs(results[i][0][e] - want[e]));
      }
      EXPECT_LE(apart, 8 * 8 * 6e-8) << "size " << sizes[i];
    }
  }
}

// The other kinds add in another order.
class TreeAllReduce : public AllReduce {};

TEST_P(TreeAllReduce, HasTheBitsOfTheServersSum) {
  for (const int64_t leaves : {5, 6, 8, 13}) {
    for (const int64_t whole : {int64_t{1} << 30, int64_t{0}}) {
      const auto results =
          sums({10, 30'001}, leaves, {.segment_bytes = 16'384, .whole_bytes = whole});
      EXPECT_EQ(results[0][0], tree_sum(ranks(), leaves, 10, 0));
      const Floats want = tree_sum(ranks(), leaves, 30'001, 1);
      for (const Floats& got : results[1]) EXPECT_TRUE(got == want);
    }
  }
}

std::string kind_name(AllReduceKind kind) {
  if (kind == AllReduceKind::kTree) return "Tree";
  return kind == AllReduceKind::kRing ? "Ring" : "Gloo";
}

INSTANTIATE_TEST_SUITE_P(Kinds, AllReduce,
                         testing::Combine(testing::Values(AllReduceKind::kTree,
                                                          AllReduceKind::kRing,
                                                          AllReduceKind::kGloo),
                                          testing::Values(1, 2, 3, 4, 5)),
                         [](const auto& instance) {
                           return kind_name(std::get<0>(instance.param)) +
                                  std::to_string(std::get<1>(instance.param));
                         });

INSTANTIATE_TEST_SUITE_P(Kinds, TreeAllReduce,
                         testing::Combine(testing::Values(AllReduceKind::kTree),
                                          testing::Values(1, 2, 3, 4, 5)),
                         [](const auto& instance) {
                           return kind_name(AllReduceKind::kTree) +
                                  std::to_string(std::get<1>(instance.param));
                         });

class OwnAllReduce : public testing::TestWithParam<AllReduceKind> {};

TEST_P(OwnAllReduce, NamesAWorkerThatNeverAnswers) {
  Ranks all(3, 0.3);
  const std::string text = thrown(ErrorCode::kUnreachable, [&] {
    all.run(
        [&](int rank, Peers& peers) {
          const auto collective = make_collective(GetParam(), peers, 3, 0.3, {});
          const auto parts = parts_of(rank, 3, 3, 1000, 0);
          const std::shared_ptr<float[]> target(new float[1000]);
          collective->sum(0, parts, 1000, {target, target.get()});
        },
        1);
  });
  EXPECT_THAT(text, testing::HasSubstr("worker 1 at tcp://127.0.0.1:"));
  EXPECT_THAT(text, testing::HasSubstr("operation 0"));
}

TEST_P(OwnAllReduce, SlowWorkerIsWaitedFor) {
  constexpr double kTimeoutS = 1.0;
  Ranks all(2, kTimeoutS);
  const WakeFd never;
  all.run([&](int rank, Peers& peers) {
    const auto collective = make_collective(GetParam(), peers, 2, kTimeoutS, {});
    // rank 1 is late by far more than the timeout, but it answers messages
    const int64_t most = now_ms() + static_cast<int64_t>(2.5 * kTimeoutS * 1000);
    while (rank == 1 && now_ms() < most) peers.serve(never, 20);
    const std::shared_ptr<float[]> target(new float[10]);
    collective->sum(0, parts_of(rank, 2, 2, 10, 0), 10, {target, target.get()});
    EXPECT_EQ(target[3], tree_sum(2, 2, 10, 0)[3]);
  });
}

// A flood must delay neither the deadline nor the end of the job.
TEST_P(OwnAllReduce, FloodOfStrangersHidesNoLostWorker) {
  Ranks all(3, 0.3);
  std::atomic<bool> over = false;
  std::atomic<bool> flooding = true;
  std::jthread flood([&] {
    Dealer stranger(all.context(), all.at(0).endpoint(), {});
    Message message;
    message.header.mutable_heartbeat()->set_incarnation(4711);
    for (const int64_t most = now_ms() + 30'000; !over && now_ms() < most;) {
      for (int i = 0; i < 50; ++i) stranger.send(message);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    flooding = false;
  });
  const auto sum = [&] {
    const auto collective = make_collective(GetParam(), all.at(0), 3, 0.3, {});
    const std::shared_ptr<float[]> target(new float[1000]);
    collective->sum(0, parts_of(0, 3, 3, 1000, 0), 1000, {target, target.get()});
  };
  EXPECT_THROW(sum(), Error);
  EXPECT_TRUE(flooding) << "the wait lasted until the flood ended";
  over = true;
}

// Messages that a stranger with access to the port can send: all are dropped and counted.
TEST_P(OwnAllReduce, StrangersChangeNothing) {
  Ranks all(2);
  Dealer stranger(all.context(), all.at(0).endpoint(), {});
  const auto floats = std::make_shared<Floats>(10, 1e9F);
  const auto send = [&](uint64_t term_id, uint64_t incarnation, int rank, int64_t operation,
                        int stage) {
    Message message;
    wire::PeerChunk* chunk = message.header.mutable_peer_chunk();
    chunk->mutable_sender()->set_term_id(term_id);
    chunk->mutable_sender()->set_incarnation(incarnation);
    chunk->mutable_sender()->set_rank(rank);
    chunk->set_operation(operation);
    chunk->set_stage(stage);
    message.payloads.push_back({floats, std::as_bytes(std::span<const float>(*floats))});
    stranger.send(message);
  };
  send(kTermId + 1, 1001, 1, 0, 0);  // another run
  send(kTermId, 4711, 1, 0, 0);      // no worker has this incarnation
  send(kTermId, 1001, 0, 0, 0);      // the incarnation of another rank
  send(kTermId, 1001, 2, 0, 0);      // no such rank
  send(kTermId, 1001, -1, 0, 0);
  send(kTermId, 1001, 1, -5, 0);  // long past
  send(kTermId, 1001, 1, 0, -7);
  Message other;
  other.header.mutable_heartbeat()->set_incarnation(1001);
  stranger.send(other);
  zmq::socket_t nonsense(all.context(), zmq::socket_type::dealer);
  nonsense.set(zmq::sockopt::linger, 0);
  nonsense.connect(all.at(0).endpoint());
  nonsense.send(zmq::str_buffer("nonsense"));
  const WakeFd never;
  for (const int64_t most = now_ms() + 20'000; all.at(0).rejected() < 9 && now_ms() < most;) {
    all.at(0).serve(never, 20);
  }
  all.run([&](int rank, Peers& peers) {
    const auto collective = make_collective(GetParam(), peers, 2, 60.0, {});
    const std::shared_ptr<float[]> target(new float[10]);
    collective->sum(0, parts_of(rank, 2, 2, 10, 0), 10, {target, target.get()});
    EXPECT_EQ(Floats(target.get(), target.get() + 10), tree_sum(2, 2, 10, 0));
  });
  EXPECT_EQ(all.at(0).rejected(), 9);
}

// Wrong sizes and numbers from the right sender are dropped, and its right parts still count.
TEST_P(OwnAllReduce, PartsThatDoNotFitAreDropped) {
  for (const int64_t whole : {int64_t{1} << 30, int64_t{0}}) {
    Ranks all(3);
    all.run([&](int rank, Peers& peers) {
      const CollectiveOptions options{.segment_bytes = 4096, .whole_bytes = whole};
      const auto collective = make_collective(GetParam(), peers, 3, 60.0, options);
      if (rank == 2) {
        Dealer other(all.context(), all.at(0).endpoint(), {});
        const auto floats = std::make_shared<Floats>(7, 1e9F);
        for (const auto& [stage, index] : {std::pair{0, 0}, {0, 99}, {INT_MAX, INT_MAX}}) {
          Message message;
          wire::PeerChunk* chunk = message.header.mutable_peer_chunk();
          chunk->mutable_sender()->set_term_id(kTermId);
          chunk->mutable_sender()->set_incarnation(1002);
          chunk->mutable_sender()->set_rank(2);
          chunk->set_stage(stage);
          chunk->set_index(index);
          message.payloads.push_back({floats, std::as_bytes(std::span<const float>(*floats))});
          other.send(message);
        }
        const int64_t most = now_ms() + 20'000;
        const WakeFd never;
        // rank 0 receives them before this rank's own parts
        while (all.at(0).rejected() < 3 && now_ms() < most) peers.serve(never, 10);
      }
      const std::shared_ptr<float[]> target(new float[5000]);
      collective->sum(0, parts_of(rank, 3, 3, 5000, 0), 5000, {target, target.get()});
      EXPECT_NEAR(target[4999], tree_sum(3, 3, 5000, 0)[4999], 1e-6);
    });
    EXPECT_EQ(all.at(0).rejected(), 3);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, OwnAllReduce,
                         testing::Values(AllReduceKind::kTree, AllReduceKind::kRing),
                         [](const auto& instance) { return kind_name(instance.param); });

TEST(Peers, GatherReturnsTheTextsOfAllWorkers) {
  Ranks all(4);
  all.run([](int rank, Peers& peers) {
    peers.begin(0);
    const auto words = peers.gather("from " + std::to_string(rank));
    EXPECT_EQ(words, (std::vector<std::string>{"from 0", "from 1", "from 2", "from 3"}));
  });
}

// A part of a sum arrives during a gather: the worker that sends it runs another operation.
TEST(Peers, MessageOfTheOtherKindIsRefused) {
  Ranks all(2);
  all.run([](int rank, Peers& peers) {
    peers.begin(0);
    if (rank == 1) {
      const auto floats = std::make_shared<Floats>(4, 1.0F);
      peers.send(0, 0, 0, {floats, std::as_bytes(std::span<const float>(*floats))});
    }
    const auto words = peers.gather("from " + std::to_string(rank));
    EXPECT_EQ(words, (std::vector<std::string>{"from 0", "from 1"}));
  });
  EXPECT_EQ(all.at(0).rejected(), 1);
}

TEST(Peers, WorkerInAnotherOperationIsNamed) {
  Ranks all(2);
  const WakeFd never;
  for (int operation = 0; operation < 3; ++operation) all.at(1).begin(operation);
  all.at(1).send_text(0, "x");
  EXPECT_THAT(thrown(ErrorCode::kProtocol,
                     [&] {
                       for (const int64_t most = now_ms() + 20'000; now_ms() < most;)
                         all.at(0).serve(never, 20);
                     }),
              testing::HasSubstr("worker 1"));
}

TEST(Peers, StopEndsAWait) {
  Ranks all(2);
  std::jthread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    all.at(0).stop();
  });
  all.at(0).begin(0);
  const std::vector<int64_t> missing = {0, 1};
  EXPECT_THROW(all.at(0).receive(missing), JobOver);
}

// Each worker has its own context, as its process has, and proves the run's key to the others. After
// the operation no worker looks after its connections, as under Gloo.
TEST(PeersWithKeys, AnOperationEndsWithAllOfItsMessagesSent) {
  constexpr int kWorkers = 5;
  SecretKey key;
  key.secret.fill(1);
  const Keys keys(key, "job.key");
  for (int repetition = 0; repetition < 30; ++repetition) {
    std::vector<std::unique_ptr<zmq::context_t>> contexts;
    std::vector<std::unique_ptr<ZapHandler>> handlers;
    std::vector<std::unique_ptr<Router>> routers;
    PeersSetup setup;
    setup.term_id = kTermId;
    setup.credentials = keys.data_credentials(false, kTermId);
    for (int r = 0; r < kWorkers; ++r) {
      const auto incarnation = static_cast<uint64_t>(1000 + r);
      contexts.push_back(std::make_unique<zmq::context_t>(1));
      handlers.push_back(std::make_unique<ZapHandler>(
          *contexts.back(), keys.data_demand(false, kTermId, listener_name(incarnation))));
      routers.push_back(
          std::make_unique<Router>(*handlers.back(), "tcp://127.0.0.1:*", EndpointLimits{}));
      setup.all.push_back({routers.back()->address(), incarnation});
    }
    std::vector<std::unique_ptr<Peers>> peers;
    for (int r = 0; r < kWorkers; ++r) {
      setup.rank = r;
      const auto at = static_cast<size_t>(r);
      peers.push_back(std::make_unique<Peers>(*contexts[at], std::move(routers[at]), setup,
                                              [] { return false; }));
    }
    std::vector<std::vector<std::string>> gathered(kWorkers);
    {
      std::vector<std::jthread> threads;
      for (size_t r = 0; r < kWorkers; ++r) {
        threads.emplace_back([&, r] {
          peers[r]->begin(0);
          try {
            gathered[r] = peers[r]->gather(std::to_string(r));
          } catch (const Error& e) {
            ADD_FAILURE() << e.what();
          }
        });
      }
    }
    for (const auto& texts : gathered) {
      ASSERT_EQ(texts, (std::vector<std::string>{"0", "1", "2", "3", "4"}));
    }
  }
}

}  // namespace
}  // namespace pushpull
