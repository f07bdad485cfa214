#include "tests/simulation/describe.h"

namespace pushpull::sim {

std::string describe(const JobDriver& driver) {
  const Coordinator& coordinator = driver.coordinator();
  std::string out = "coordinator: " + wire::Phase_Name(coordinator.phase());
  if (coordinator.phase() == wire::PHASE_FAILED) out += " " + coordinator.failure_text();
  if (driver.over()) return out + ", over";
  out += " " + coordinator.waiting_for();
  if (const TrainingRun* run = coordinator.training()) {
    const auto& evaluation = run->evaluations().newest();
    out += ", floor " + std::to_string(run->floor()) + ", evaluated " +
           std::to_string(evaluation ? evaluation->step : -1) + ", end " +
           std::to_string(run->barriers().end_step);
  }
  if (driver.waits_for_shards()) {
    out += ", shard client waits for server " + std::to_string(driver.slow_shard());
  }
  for (const auto& [incarnation, member] : coordinator.members().all()) {
    out += "\n    member " + member.name() + (member.declared ? " declared" : "");
    const TrainingRun* const run = coordinator.training();
    if (run == nullptr || !run->groups().divides()) continue;
    out += ", stage " + std::to_string(run->groups().stage_of(incarnation)) + " of group " +
           std::to_string(run->groups().unit_of(incarnation));
  }
  return out;
}

std::string describe(const Server* server) {
  if (server == nullptr) return "no server yet";
  return "floor " + std::to_string(server->floor()) + ", barrier " +
         std::to_string(server->open_barrier()) + (server->ready() ? "" : ", not loaded") +
         (server->waiting_norms() ? ", waits for the norm" : "") +
         (server->waiting_arrived() ? ", waits for the set" : "");
}

std::string describe(const WorkerMember& member) {
  if (!member.joined()) return "joining";
  const wire::State& state = member.state();
  if (state.version() < 0) return "no state";
  std::string out = "rank " + std::to_string(state.rank()) + ", state " +
                    std::to_string(state.version()) + " " + wire::Phase_Name(state.phase());
  for (const wire::Share& share : state.assigned()) {
    out += ", share " + std::to_string(share.index()) + " of " + std::to_string(share.shares()) +
           (share.lo() == share.hi() ? " (evaluates only)" : "") + " from step " +
           std::to_string(share.from_step());
  }
  return out;
}

}  // namespace pushpull::sim
