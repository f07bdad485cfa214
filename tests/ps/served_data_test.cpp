#include <gtest/gtest.h>

#include "common/net/model_wire.h"
#include "ps/server/data_plane.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

class Parts : public ServerParts {
 public:
  std::unique_ptr<Server> make_server(const JobView& /*job*/, ServerSetup setup,
                                      TrainingObserver* observer) override {
    setups.push_back(setup);
    return std::make_unique<Server>(std::move(setup), observer);
  }
  void on_state(const wire::State& state) override { versions.push_back(state.version()); }
  void add_stats(wire::Stats* stats) const override { stats->set_rejected_frames(9); }

  std::vector<ServerSetup> setups;
  std::vector<int64_t> versions;
};

class ServedDataTest : public testing::Test {
 protected:
  void state(int64_t version, wire::Phase phase) {
    wire::State state;
    state.set_version(version);
    state.set_phase(phase);
    state.set_rank(1);
    if (phase != wire::PHASE_GATHERING) {
      to_wire(table_of(3000), state.mutable_tensors());
      state.set_end_step(10);
      state.set_total_steps(10);
      state.set_shares(2);
      state.add_data_endpoints("tcp://a:1");
      state.add_data_endpoints("tcp://b:1");
    }
    data_.on_state({job_, kTermId, 7, state}, nullptr);
  }

  const Job job_ = job_of("slice-bytes = 4096\n");
  Parts parts_;
  ServedData data_{parts_};
};

TEST_F(ServedDataTest, EarlyRequestIsAnsweredNotReady) {
  EXPECT_TRUE(taken(data_.take("anna", pull_message(kAnna, 1, 0))));
  data_.work();
  const std::vector<Outgoing> out = data_.take_outgoing();
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].to, "anna");
  EXPECT_TRUE(out[0].message.header.status().not_ready());
}

TEST_F(ServedDataTest, ServesOnceTheJobTrainsAndNotBefore) {
  state(1, wire::PHASE_GATHERING);
  EXPECT_EQ(data_.server(), nullptr);
  state(2, wire::PHASE_FAILED);
  EXPECT_EQ(data_.server(), nullptr);
  state(3, wire::PHASE_TRAINING);
  ASSERT_NE(data_.server(), nullptr);
  ASSERT_EQ(parts_.setups.size(), 1U);
  const ServerSetup& setup = parts_.setups.front();
  EXPECT_EQ(setup.term_id, kTermId);
  EXPECT_EQ(setup.incarnation, 7U);
  EXPECT_EQ(setup.rank, 1);
  EXPECT_EQ(setup.servers, 2);
  EXPECT_EQ(setup.table.total, 3000);
}

TEST_F(ServedDataTest, LaterStatesReachTheExistingServer) {
  state(3, wire::PHASE_TRAINING);
  state(4, wire::PHASE_FINISHING);
  EXPECT_EQ(parts_.setups.size(), 1U);
  EXPECT_EQ(parts_.versions, (std::vector<int64_t>{3, 4}));
}

// Server 0 gets the State of a stop at once. An older State may then still wait among the
// coordinator's messages, and would lift the stop.
TEST_F(ServedDataTest, OlderStateDoesNotReplaceANewerOneOfItsTerm) {
  state(4, wire::PHASE_TRAINING);
  state(3, wire::PHASE_TRAINING);
  EXPECT_EQ(parts_.versions, (std::vector<int64_t>{4}));
  data_.end_term(kTermId);
  state(1, wire::PHASE_TRAINING);
  EXPECT_EQ(parts_.versions, (std::vector<int64_t>{4, 1}));
}

TEST_F(ServedDataTest, StatisticsCoverTheServerAndItsProcess) {
  EXPECT_EQ(data_.stats().rejected_frames(), 9);
  state(3, wire::PHASE_TRAINING);
  EXPECT_EQ(data_.stats().rejected_frames(), 9);
}

}  // namespace
}  // namespace pushpull
