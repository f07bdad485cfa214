// Weights that a server keeps for workers that read them in place.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull::server_in_place_test {
namespace {

constexpr int64_t kElements = 3000;
constexpr Range kSecond{2, 4};

class ServerInPlace : public testing::Test {
 protected:
  void make(const std::string& keys) {
    setup_ = server_setup(job_of(keys), kElements);
    server_ = std::make_unique<Server>(setup_, nullptr);
    server_->on_state(state_with_workers({kAnna, kBert}));
    overwrite_free_buffers();  // else the initial weights stay, as the run's start
  }
  // The weights that kAnna was given, without the owner: as over the wire, only the server holds
  // them.
  struct Handed {
    std::weak_ptr<const void> owner;
    const float* floats = nullptr;
    std::vector<float> copy;
  };
  Handed pull(int64_t number, bool in_place = true, bool lease_only = false) {
    Message message = pull_message(kAnna, number, 0);
    message.header.mutable_exchange()->mutable_pull()->set_in_place(in_place);
    message.header.mutable_exchange()->mutable_pull()->set_lease_only(lease_only);
    EXPECT_TRUE(taken(server_->on_data("anna", message)));
    Handed out;
    for (const Outgoing& sent : server_->take_outgoing()) {
      if (sent.message.payloads.empty()) continue;
      const Payload& payload = sent.message.payloads[0];
      out = {payload.owner, payload.floats(), floats_of(payload)};
    }
    return out;
  }
  // Updates the weights with pushes of kBert until each free buffer has been written.
  void overwrite_free_buffers() {
    for (int i = 0; i < 4; ++i) {
      ++pushed_;
      EXPECT_TRUE(taken(server_->on_data(
          "bert", push_message(setup_, kBert, pushed_, pushed_ - 1, kSecond, 3.0F))));
    }
    server_->take_outgoing();
  }
  static bool unchanged(const Handed& handed) {
    return std::equal(handed.copy.begin(), handed.copy.end(), handed.floats);
  }

  ServerSetup setup_;
  std::unique_ptr<Server> server_;
  int64_t pushed_ = 0;
};

TEST_F(ServerInPlace, WeightsStayUntilTheWorkerPullsAgain) {
  make("strategy = async\nsteps = 100\n");
  const Handed first = pull(1);
  overwrite_free_buffers();
  EXPECT_FALSE(first.owner.expired());
  EXPECT_TRUE(unchanged(first));
  const Handed second = pull(2);
  EXPECT_TRUE(first.owner.expired());
  overwrite_free_buffers();
  EXPECT_FALSE(second.owner.expired());
  EXPECT_TRUE(unchanged(second));
  EXPECT_NE(second.copy, first.copy);
}

TEST_F(ServerInPlace, SentWeightsAreNotHeld) {
  make("strategy = async\nsteps = 100\n");
  const Handed first = pull(1, false);
  overwrite_free_buffers();
  EXPECT_TRUE(first.owner.expired());
}

TEST_F(ServerInPlace, AllAnswersToARepeatedPullStay) {
  make("strategy = async\nsteps = 100\n");
  const Handed first = pull(1);
  overwrite_free_buffers();
  const Handed again = pull(1);
  overwrite_free_buffers();
  EXPECT_TRUE(unchanged(first));
  EXPECT_TRUE(unchanged(again));
  EXPECT_NE(first.floats, again.floats);
  pull(2);
  overwrite_free_buffers();
  EXPECT_TRUE(first.owner.expired());
  EXPECT_TRUE(again.owner.expired());
}

TEST_F(ServerInPlace, RequestForALeaseReleasesNothing) {
  make("strategy = async\nsteps = 100\n");
  const Handed first = pull(1);
  pull(2, true, true);
  overwrite_free_buffers();
  EXPECT_FALSE(first.owner.expired());
  EXPECT_TRUE(unchanged(first));
}

TEST_F(ServerInPlace, RemovedWorkerHoldsNothing) {
  make("strategy = async\nsteps = 100\n");
  const Handed first = pull(1);
  server_->on_state(state_with_workers({kBert}));
  overwrite_free_buffers();
  EXPECT_TRUE(first.owner.expired());
}

}  // namespace
}  // namespace pushpull::server_in_place_test
