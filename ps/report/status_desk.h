// Informs users about the members and the progress of the job: keeps members.json and answers
// `pushpull status`. Decides when the file is rewritten, which requests are answered, and which
// members are shown: once the job is over, those of its last step. Part of the coordinator's state
// machine. Does no I/O and reads no clock. Not thread-safe.
//
// A request costs at most one answer, made from a text that is rendered at most five times a
// second. It changes nothing, and its sender does not become a member.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/net/message.h"
#include "common/net/refusals.h"
#include "ps/members/committed_work.h"
#include "ps/members/membership.h"
#include "ps/members/work_groups.h"
#include "ps/report/member_document.h"
#include "ps/report/run_figures.h"
#include "ps/report/straggler_detector.h"
#include "ps/server/outgoing.h"

namespace pushpull {

// Limits how often status requests are answered: any process may send them, and must not be able to
// overload the coordinator. The caller passes the time. Not thread-safe.
class AnswerLimits {
 public:
  static constexpr int64_t kBetweenMs = 200;  // between two answers on one connection
  static constexpr int64_t kMaxOfConnection =
      100;  // answers on one connection, since a peer may not read them
  static constexpr int64_t kMaxPerSecond = 50;      // answers to all peers
  static constexpr size_t kMaxConnections = 1'024;  // connections remembered

  // Returns true if this request may be answered, and counts it.
  bool take(int64_t now_ms, const PeerId& peer);

 private:
  struct Client {
    int64_t newest_ms = 0;
    int64_t answers = 0;
  };

  std::map<PeerId, Client> clients_;
  int64_t second_ms_ = 0;  // start of the running second
  int64_t in_second_ = 0;
};

class StatusDesk {
 public:
  //   members: borrowed. self: the incarnation of the server in this process.
  //   began_ms: of the desk of an earlier term; -1: this is the first one.
  StatusDesk(const Membership& members, uint64_t self, int64_t began_ms = -1)
      : members_(members), self_(self), began_ms_(began_ms) {}
  // Returns when the first `update` was, or -1.
  int64_t began_ms() const { return began_ms_; }

  // Accepts a request. Returns a refusal if it will not be answered.
  Checked ask(int64_t now_ms, const PeerId& peer, const wire::StatusRequest& request);
  // Returns true if `update` is due, for the file or for an answer.
  bool due(int64_t now_ms, wire::Phase phase);
  // Returns the figures with up_ms.
  //   committed, groups: null before the start. own: Stats of the server in this process.
  RunFigures update(int64_t now_ms, const CommittedWork* committed, const WorkGroups* groups,
                    const wire::Stats& own, RunFigures figures);
  // Returns the members that `update` chose. Valid until the next event.
  MembersView view(int64_t now_ms, const CommittedWork* committed) const {
    return {now_ms, began_ms_, &shown_, &members_, committed, &stragglers_, &usage_, &groups_};
  }

  // Returns the text for members.json if there is a newer one.
  std::optional<std::string> take_file() { return std::exchange(file_, std::nullopt); }
  // Returns the answers to pending requests once a text is ready.
  //   utc_ms: time of day.
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
  StragglerDetector stragglers_;
  UsageRates usage_;
  std::map<uint64_t, MemberInfo> shown_;   // by incarnation
  std::map<uint64_t, GroupPlace> groups_;  // by worker; of the last step, once the job is over
  bool over_ = false;                      // `shown_` has the members of the last step
  int64_t began_ms_;
  int64_t looked_ms_ = -1;            // last check for changes
  int64_t written_ms_ = 0;            // last text for the file
  std::optional<wire::Phase> phase_;  // phase in the file; empty if there is none yet
  int64_t made_ms_ = -1;              // time of `answer_`
  size_t fingerprint_ = 0;            // of the members in the file
  std::string answer_;
  std::optional<std::string> file_;
};

}  // namespace pushpull
