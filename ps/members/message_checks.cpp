#include "ps/members/message_checks.h"

#include <string>

namespace pushpull {

Checked check_member(const MemberInfo* member, wire::Role role, uint64_t incarnation) {
  const std::string wanted = role == wire::ROLE_SERVER ? "a server" : "a worker";
  if (member == nullptr) {
    return refused("unknown-member", wanted + " of this job",
                   "incarnation " + std::to_string(incarnation) + ", which no member has");
  }
  if (member->role != role) return refused("wrong-role", wanted, member->name());
  return std::nullopt;
}

Checked check_trainer(const MemberInfo* member, uint64_t incarnation) {
  if (Checked refusal = check_member(member, wire::ROLE_WORKER, incarnation)) return refusal;
  if (member->declared) return std::nullopt;
  return refused("undeclared", "a worker that has declared", member->name());
}

Checked check_step(const Barriers& barriers, int64_t step, const MemberInfo& from) {
  if (step >= barriers.start_step && step < barriers.end_step) return std::nullopt;
  return refused("wrong-step",
                 "a step from " + std::to_string(barriers.start_step) + " to " +
                     std::to_string(barriers.end_step - 1),
                 std::to_string(step) + " from " + from.name());
}

Checked check_results(const Barriers& barriers, int64_t micro_batch, const wire::EvalResult& result,
                      const MemberInfo& from) {
  if (!barriers.evaluation_due(result.step())) {
    return refused("no-evaluation", "a step with an evaluation",
                   std::to_string(result.step()) + " from " + from.name());
  }
  for (const wire::ChunkResult& chunk : result.chunks()) {
    if (chunk.correct() >= 0 && chunk.correct() <= micro_batch) continue;
    return refused("bad-result",
                   "0 to " + std::to_string(micro_batch) + " correct samples in a chunk",
                   std::to_string(chunk.correct()) + " from " + from.name());
  }
  return std::nullopt;
}

}  // namespace pushpull
