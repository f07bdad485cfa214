// Tells people who takes part in the job and how it goes: keeps members.json, and answers
// `pushpull status`. It decides when the file is written again, which questions are answered, and
// which members are shown: once the job is over, those of its last step. Part of the coordinator's
// state machine; knows no file, socket or clock. One thread.
//
// A question costs at most one answer, from a text that is made five times a second at most; it
// changes nothing, and whoever asks becomes no member.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/net/message.h"
#include "common/net/refusal.h"
#include "ps/members/membership.h"
#include "ps/server/outgoing.h"
#include "ps/status/answer_limits.h"
#include "ps/status/job_facts.h"
#include "ps/status/pace.h"
#include "ps/work/training_progress.h"

namespace pushpull {

class StatusDesk {
 public:
  // members: borrowed. self: the incarnation of the server in this process.
  StatusDesk(const Membership& members, uint64_t self) : members_(members), self_(self) {}

  // A question; or why it is not answered.
  Checked ask(int64_t now_ms, const PeerId& peer, const wire::StatusRequest& request);
  // True: `update` is due, for the file or for an answer.
  bool due(int64_t now_ms, wire::Phase phase);
  // own: of the server in this process. progress: null before the start.
  void update(int64_t now_ms, const TrainingProgress* progress, const wire::Stats& own,
              const JobFacts& facts);

  // The text for members.json, where there is a newer one.
  std::optional<std::string> take_file() { return std::exchange(file_, std::nullopt); }
  // Answers to the questions so far, once there is something to say. utc_ms: the time of day.
  std::vector<Outgoing> take_answers(int64_t now_ms, int64_t utc_ms);

 private:
  struct Question {
    PeerId peer;
    int64_t number = 0;
  };

  bool fresh(int64_t now_ms) const;
  size_t fingerprint() const;
  void choose_shown(const wire::Stats& own, wire::Phase phase);

  const Membership& members_;
  const uint64_t self_;
  AnswerLimits limits_;
  std::vector<Question> questions_;
  Pace pace_;
  std::map<uint64_t, MemberInfo> shown_;  // by incarnation
  bool over_ = false;                     // these are the members of the last step
  int64_t began_ms_ = -1;
  int64_t looked_ms_ = -1;            // for changes
  int64_t written_ms_ = 0;            // the file
  std::optional<wire::Phase> phase_;  // of what it says; empty: there is none yet
  int64_t made_ms_ = -1;              // the answer
  size_t fingerprint_ = 0;            // of what the file says
  std::string answer_;
  std::optional<std::string> file_;
};

}  // namespace pushpull
