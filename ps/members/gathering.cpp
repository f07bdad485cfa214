#include "ps/members/gathering.h"

#include "common/job/job.h"

namespace pushpull {

namespace {

int64_t milliseconds(double seconds) { return static_cast<int64_t>(seconds * 1000); }

}  // namespace

Gathering::Gathering(const Job& job, bool again, double join_timeout_s)
    : again_(again),
      may_lack_(again_ && job.on_worker_loss == OnWorkerLoss::kContinue),
      silence_ms_(milliseconds(job.heartbeat_timeout_s)),
      limit_ms_(milliseconds(again_ ? job.replacement_timeout_s : join_timeout_s)) {}

std::vector<MemberInfo> Gathering::take_missing(int64_t now_ms, const Membership& members) {
  if (expected_.empty() || !began_ms_ || now_ms - *began_ms_ <= silence_ms_) return {};
  std::erase_if(expected_, [&](const MemberInfo& member) {
    return members.find(member.incarnation) != nullptr;
  });
  return std::exchange(expected_, {});
}

bool Gathering::begins_without_others(int64_t now_ms, bool quorum) {
  if (!may_lack_ || !quorum) {
    quorum_ms_.reset();
    return false;
  }
  if (!quorum_ms_) quorum_ms_ = now_ms;
  return now_ms - *quorum_ms_ > silence_ms_ || time_is_over(now_ms);
}

std::optional<std::string> Gathering::line(int64_t now_ms, const std::string& waiting) {
  if (!began_ms_) {
    began_ms_ = now_ms;
    line_.restart(now_ms);
  }
  if (waiting.empty() || !line_.due(now_ms)) return std::nullopt;
  return waiting;
}

std::optional<Error> Gathering::overdue(int64_t now_ms, const std::string& waiting) const {
  if (waiting.empty() || !time_is_over(now_ms)) return std::nullopt;
  if (!again_) {
    return Error(ErrorCode::kUnreachable,
                 "[join] not all members joined within --join-timeout: " + waiting);
  }
  return Error(ErrorCode::kPeerLost,
               "[job] not all members came back within "
               "replacement-timeout = " +
                   seconds_text(limit_ms_) + " s: " + waiting);
}

bool Gathering::time_is_over(int64_t now_ms) const {
  return began_ms_ && now_ms - *began_ms_ > limit_ms_;
}

}  // namespace pushpull
