// Whole clusters with members that join, declare, live and leave over control connections that
// lose, repeat, delay and reorder messages, break, and go silent. `ControlWatch` checks each
// message of a member. A failing run prints its seed, as in simulation_test.cpp. The mutations in
// mutations/ show that these tests catch errors.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/simulation/checked_run.h"

namespace pushpull::sim {
namespace {

Scenario any(uint64_t seed) {
  constexpr const char* kStrategies[] = {"sync", "async", "backup:1", "ssp:2", "local:2"};
  Scenario scenario = draw(seed, kStrategies[seed % 5]);
  // a lost worker loses its optimizer state
  if (seed % 5 == 4) scenario.job.optimizer.kind = OptimizerKind::kSgd;
  // servers with a log to deliver
  const bool recordable = seed % 5 >= 1 && seed % 5 <= 3 && !scenario.job.encodes_pushes();
  if (recordable && seed % 2 == 0) scenario.job.record = "record";
  return scenario;
}

// Returns true if all workers ended well, except those that came after the end and newcomers with
// other data: their refusal and their removal may reach them in any order.
bool ended_well(const Scenario& scenario, const Cluster& cluster) {
  for (int i = 0; i < scenario.workers; ++i) {
    const int code = cluster.exit_code(i).value_or(-1);
    if (code == 0 || code == static_cast<int>(ErrorCode::kUnreachable)) continue;
    ADD_FAILURE() << "worker process " << i << " ended with " << code << "\n  "
                  << scenario.to_string() << "\n  " << cluster.describe();
    return false;
  }
  return true;
}

// Returns true if all members of the job ended well and none was given up.
bool passes_without_a_loss(const Scenario& scenario) {
  sim::Run run(scenario);
  run.go();
  run.check();
  // a repeated, late Hello makes a refused worker a member again, which is then given up
  const auto misfits = std::count_if(scenario.newcomers.begin(), scenario.newcomers.end(),
                                     [](const Newcomer& n) { return n.digest == "other"; });
  if (::testing::Test::HasFailure()) return false;
  if (run.cluster().lost_members > misfits) run.complain("a member was given up");
  return !::testing::Test::HasFailure() && ended_well(scenario, run.cluster());
}

TEST(MembershipSimulation, LiveMembersAreNeverGivenUp) {
  for (const uint64_t seed : seeds(1500)) {
    Scenario scenario = any(seed);
    add_disorder(scenario);
    if (!passes_without_a_loss(scenario)) return;
  }
}

TEST(MembershipSimulation, AllMembersJoinAndLeaveOverABadControlConnection) {
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = any(seed);
    add_control_faults(scenario);
    if (seed % 3 == 0) {
      const double timeout_s = scenario.job.heartbeat_timeout_s;
      add_accidents(scenario, OnWorkerLoss::kWait);
      scenario.job.heartbeat_timeout_s = timeout_s;
      // The first worker that declares says what data the job has. With all workers lost early, that
      // might be a stranger, and every replacement would be refused (seed 5268).
      std::erase_if(scenario.newcomers,
                    [](const Newcomer& newcomer) { return !newcomer.surplus_server; });
    }
    if (!passes(scenario)) return;
  }
}

// A worker whose connection was damaged as the job ended waited for its next heartbeat before it
// used its second connection, and did not hear the end.
constexpr Seeds kEndUnheard = {5306, 11140, 17130};

// Damage, as after bad bytes: one direction of a connection delivers nothing more, and libzmq keeps
// the connection. The member reconnects before the coordinator counts it as lost.
TEST(MembershipSimulation, DamagedControlConnectionCostsNoMemberItsPlace) {
  for (const uint64_t seed : seeds(1500, {kEndUnheard})) {
    Scenario scenario = any(seed);
    if (seed % 2 == 0) add_disorder(scenario);
    Dice dice(seed);
    scenario.job.heartbeat_timeout_s = 10.0;
    scenario.compute_us = dice.chance(0.3) ? 300'000 : 30'000;
    scenario.faults.damage = dice.chance(0.5) ? 0.002 : 0.0005;  // every 5 s or 20 s
    scenario.faults.until_ms = dice.between(5000, 60'000);
    // the new connection closes the old one here, and 2 s later that would be a loss
    scenario.faults.reorder = 0.0;
    if (!passes_without_a_loss(scenario)) return;
  }
}

// A worker noticed that the connection after a closed one was damaged only after a third of
// heartbeat-timeout. A closed connection counts as a loss after 2 s.
constexpr Seeds kDamagedSuccessor = {22};

TEST(MembershipSimulation, DamagedConnectionAfterAClosedOneCostsNoMemberItsPlace) {
  for (const uint64_t seed : seeds(1500, {kDamagedSuccessor})) {
    Scenario scenario = any(seed);
    if (seed % 2 == 0) add_disorder(scenario);
    Dice dice(seed);
    scenario.job.heartbeat_timeout_s = 10.0;
    scenario.compute_us = dice.chance(0.3) ? 300'000 : 30'000;
    scenario.faults.damage = dice.chance(0.5) ? 0.002 : 0.0005;  // every 5 s or 20 s
    scenario.faults.reset = dice.chance(0.5) ? 0.005 : 0.001;    // every 2 s or 10 s
    scenario.faults.until_ms = dice.between(5000, 60'000);
    // no message of a closed connection arrives seconds after the next one has worked
    scenario.faults.reorder = scenario.faults.duplicate = 0.0;
    if (!passes_without_a_loss(scenario)) return;
  }
}

// For some newcomers no message passes until their last Hello but one; for others, none passes at
// all.
TEST(MembershipSimulation, NewcomerSendsHelloUntilItsDeadline) {
  int gave_up = 0;
  int joined = 0;
  for (const uint64_t seed : seeds(1000)) {
    Scenario scenario = any(seed);
    Dice dice(seed);
    scenario.join_timeout_s = static_cast<double>(dice.between(1100, 9900)) / 1000.0;
    const auto timeout_ms = static_cast<int64_t>(scenario.join_timeout_s * 1000);
    const int64_t just_in_time_ms = timeout_ms - dice.between(600, 900);
    scenario.silences.push_back({false, 0, 0, just_in_time_ms});
    if (scenario.servers > 1) scenario.silences.push_back({true, 0, 0, just_in_time_ms});
    Newcomer deaf;
    deaf.at_ms = dice.between(0, 3000);
    deaf.replaced = false;
    deaf.deaf_ms = dice.chance(0.5) ? 1'000'000 : just_in_time_ms;
    scenario.newcomers.push_back(deaf);
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    const Cluster& cluster = run.cluster();
    // if the newcomer can join, the job may end without the first worker
    if (deaf.deaf_ms > just_in_time_ms && cluster.exit_code(0) != 0) {
      return run.complain("the first worker has not joined");
    }
    for (int i = scenario.workers; i < cluster.workers(); ++i) {
      cluster.exit_code(i) == static_cast<int>(ErrorCode::kUnreachable) ? ++gave_up : ++joined;
    }
  }
  if (gave_up + joined < 50) return;
  EXPECT_GT(gave_up, 5);
  EXPECT_GT(joined, 5);
}

// The coordinator refuses the worker at once; it does not continue as before.
TEST(MembershipSimulation, WorkerFrozenTooLongLearnsThatItWasGivenUp) {
  int given_up = 0;
  for (const uint64_t seed : seeds(300)) {
    Scenario scenario = any(seed);
    scenario.job.on_worker_loss = OnWorkerLoss::kWait;
    scenario.job.heartbeat_timeout_s = 3.0;
    scenario.compute_us = 300'000;
    scenario.accidents.push_back({500, 0, 12'000, 100});
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    if (run.cluster().exit_code(0) == static_cast<int>(ErrorCode::kPeerLost)) ++given_up;
  }
  expect_some(given_up, "given_up");
}

// Returns a job of two to six workers that continues without lost ones. Others join later.
Scenario with_late_workers(uint64_t seed, const std::string& strategy) {
  Scenario scenario = draw(seed, strategy);
  Dice dice(seed);
  if (seed % 2 == 0) add_faults(scenario);
  Job& job = scenario.job;
  job.on_worker_loss = OnWorkerLoss::kContinue;
  // a lost worker loses its optimizer state
  if (job.strategy.kind == StrategyKind::kLocal) job.optimizer.kind = OptimizerKind::kSgd;
  if (scenario.workers < 2) scenario.workers = static_cast<int>(dice.between(2, 5));
  scenario.compute_us = 200'000;
  const int64_t losses = dice.between(1, 3);
  for (int64_t i = 0; i < losses; ++i) {
    Accident accident;
    accident.at_ms = dice.between(100, 3000);
    accident.worker = static_cast<int>(dice.between(0, scenario.workers - 1));
    accident.replaced_ms = dice.between(0, 1500);
    scenario.accidents.push_back(accident);
  }
  for (int64_t i = dice.between(0, 3); i > 0; --i) {
    scenario.newcomers.push_back({dice.between(0, 5000)});
  }
  job.min_workers = dice.between(1, std::min<int64_t>(scenario.workers, job.micro_batches()));
  if (dice.chance(0.3)) job.max_workers = scenario.workers + dice.between(0, 2);
  return scenario;
}

TEST(MembershipSimulation, UnderContinueLaterWorkersCompute) {
  constexpr const char* kStrategies[] = {"sync",  "local:2",  "ssp:1",     "ssp:3",
                                         "async", "backup:1", "buffered:2"};
  int late = 0;
  for (const uint64_t seed : seeds(3000)) {
    const Scenario scenario = with_late_workers(seed, kStrategies[seed % 7]);
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    for (const auto& [worker, tasks] : run.cluster().computed) {
      late += worker >= scenario.workers ? 1 : 0;
    }
  }
  expect_some(late, "late");
}

// Under sync steps are split anew when workers join, and the bits do not change, even if workers
// are lost meanwhile.
TEST(MembershipSimulation, StepsAreSplitAnewWithTheSameBits) {
  int cuts = 0;
  for (const uint64_t seed : seeds(2000)) {
    Scenario scenario = with_late_workers(seed, "sync");
    Dice dice(seed + 1);
    scenario.compute_us = dice.chance(0.5) ? 20'000 : 200'000;
    scenario.job.steps += 20;
    scenario.job.stop_after = 0;
    scenario.write_us = std::min<int64_t>(scenario.write_us, 500'000);
    scenario.workers = static_cast<int>(dice.between(1, 3));
    scenario.job.min_workers = 1;
    scenario.job.max_workers = dice.chance(0.3) ? scenario.workers + dice.between(0, 3) : 0;
    if (dice.chance(0.3)) scenario.accidents.clear();
    for (int64_t n = dice.between(1, 4); n > 0; --n) {
      scenario.newcomers.push_back({dice.between(0, 3000)});
    }
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    cuts += run.cluster().coordinator().state_for_self().cuts_size();
  }
  const auto runs = static_cast<int>(seeds(2000).size());
  if (runs > 500) {
    EXPECT_GT(cuts, runs / 2);
  }
}

// Members hear of a new division at different times, and a server may be behind. Weights of its steps wait
// for the last member, and the earlier shares end after the last server.
TEST(MembershipSimulation, StepsAreSplitAnewThoughOneMemberIsBehind) {
  int cuts = 0;
  for (const uint64_t seed : seeds(1000)) {
    Scenario scenario = draw(seed, "sync");
    Dice dice(seed);
    Job& job = scenario.job;
    job.on_worker_loss = OnWorkerLoss::kContinue;
    job.heartbeat_timeout_s = 10.0;
    job.stop_after = 0;
    job.steps += 40;
    job.min_workers = 1;
    scenario.servers = static_cast<int>(dice.between(2, 3));
    scenario.elements = 4096;
    job.slice_bytes = 4096;
    scenario.workers = static_cast<int>(dice.between(1, 3));
    scenario.compute_us = dice.chance(0.5) ? 20'000 : 100'000;
    scenario.write_us = std::min<int64_t>(scenario.write_us, 500'000);
    const int64_t joins_ms = dice.between(300, 1500);
    scenario.newcomers.push_back({joins_ms});
    const int64_t behind_ms = joins_ms + dice.between(-100, 300);
    const int64_t ms = dice.between(500, 3000);
    const int behind = static_cast<int>(dice.between(0, 2));
    if (behind == 0) scenario.silences.push_back({false, 0, behind_ms, ms});
    if (behind == 1) scenario.silences.push_back({true, 0, behind_ms, ms});
    if (behind == 2) scenario.partitions.push_back({1, 0, behind_ms, ms});
    if (dice.chance(0.5)) {
      scenario.accidents.push_back({behind_ms + dice.between(0, ms), 0, 0, dice.between(0, 500)});
    }
    sim::Run run(scenario);
    run.go();
    run.check();
    if (::testing::Test::HasFailure()) return;
    cuts += run.cluster().coordinator().state_for_self().cuts_size();
  }
  const auto runs = static_cast<int>(seeds(1000).size());
  if (runs > 100) {
    EXPECT_GT(cuts, runs / 4);
  }
}

// A worker that gave a share to another one dies before a server has its last push of that share.
TEST(MembershipSimulation, PushOfAMovedShareReachesTheServerThatLacksIt) {
  for (const uint64_t seed : seeds(500)) {
    Scenario scenario = draw(seed, seed % 2 == 0 ? "sync" : strategy_of(seed / 2));
    Dice dice(seed);
    Job& job = scenario.job;
    job.on_worker_loss = OnWorkerLoss::kContinue;
    job.stop_after = 0;
    job.steps += 40;
    job.min_workers = 1;
    scenario.servers = 2;
    scenario.workers = 2;
    scenario.elements = 4096;
    job.slice_bytes = 4096;
    scenario.compute_us = 100'000;
    scenario.accidents.push_back({dice.between(300, 600), 1, 0, -1});
    const int64_t joins_ms = dice.between(2700, 3500);
    scenario.newcomers.push_back({joins_ms});
    scenario.partitions.push_back({1, 0, joins_ms - dice.between(0, 300), 60'000});
    scenario.accidents.push_back({joins_ms + dice.between(50, 1000), 0, 0, -1});
    if (!passes(scenario)) return;
  }
}

}  // namespace
}  // namespace pushpull::sim
