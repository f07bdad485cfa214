#include "ps/members/message_checks.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "common/base/text.h"
#include "common/net/join.h"

namespace pushpull {

namespace {

// Losses and errors may be any number, NaN included: a model that has diverged is shown.
Checked check_sums(const HeadInfo& head, int64_t micro_batch, const wire::HeadSums& sums,
                   const MemberInfo& from) {
  const int64_t most = micro_batch * head.targets;
  if (sums.counted() < 0 || sums.counted() > most) {
    return refused(
        "bad-result",
        "0 to " + std::to_string(most) + " counted targets of head " + head.name + " in a chunk",
        std::to_string(sums.counted()) + " from " + from.name());
  }
  const double metric = sums.metric();
  if (!counts_targets(head.metric) || (metric >= 0.0 && std::floor(metric) == metric &&
                                       metric <= static_cast<double>(sums.counted()))) {
    return std::nullopt;
  }
  return refused("bad-result",
                 "0 to " + std::to_string(sums.counted()) + " correct targets of head " +
                     head.name + " in a chunk",
                 std::to_string(metric) + " from " + from.name());
}

}  // namespace

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

namespace {

constexpr size_t kMaxShownName = 80;  // bytes

Checked check_named(const wire::ChunkResult& chunk, const MemberInfo& from) {
  if (std::cmp_greater(chunk.named_size(), kMaxNamedSums)) {
    return refused("bad-result", "at most " + std::to_string(kMaxNamedSums) + " named sums",
                   std::to_string(chunk.named_size()) + " from " + from.name());
  }
  for (const wire::NamedSum& sum : chunk.named()) {
    if (is_logged_name(sum.name())) continue;
    return refused("bad-result", "a sum with a name of 1 to 64 letters, digits and _ - . /",
                   "'" + printable(sum.name(), kMaxShownName) + "' from " + from.name());
  }
  return std::nullopt;
}

}  // namespace

Checked check_results(const Barriers& barriers, int64_t micro_batch,
                      std::span<const HeadInfo> heads, const wire::EvalResult& result,
                      const MemberInfo& from) {
  if (!barriers.evaluation_due(result.step())) {
    return refused("no-evaluation", "a step with an evaluation",
                   std::to_string(result.step()) + " from " + from.name());
  }
  const auto formulas =
      std::ranges::count_if(heads, [](const HeadInfo& head) { return is_formula(head.metric); });
  if (result.values_size() != 0 &&
      (result.values_size() != formulas || result.chunks_size() != 0)) {
    return refused("bad-result", "the values of " + std::to_string(formulas) + " heads",
                   std::to_string(result.values_size()) + " from " + from.name());
  }
  for (const wire::ChunkResult& chunk : result.chunks()) {
    if (chunk.sums_size() != std::ssize(heads)) {
      return refused("bad-result", "the sums of " + std::to_string(heads.size()) + " heads",
                     std::to_string(chunk.sums_size()) + " from " + from.name());
    }
    if (Checked refusal = check_named(chunk, from)) return refusal;
    for (size_t i = 0; i < heads.size(); ++i) {
      const wire::HeadSums& sums = chunk.sums(static_cast<int>(i));
      if (Checked refusal = check_sums(heads[i], micro_batch, sums, from)) return refusal;
    }
  }
  return std::nullopt;
}

}  // namespace pushpull
