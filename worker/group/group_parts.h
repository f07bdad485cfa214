// The parts that pass between the workers of one group, each of which computes one stage of a model: numbers
// them, keeps them until they have arrived, repeats lost ones, and notices a member that does not answer.
// A group at its share is an *attempt*: another one begins when a member is replaced, and knows no part of
// the earlier one. Does no I/O and reads no clock. Not thread-safe.
//
// A worker that waits asks the member once a second, and the asked one sends again what has not arrived.
// Each message says how far the parts of its receiver have arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/net/message.h"
#include "worker/compute/stage_exchange.h"

namespace pushpull {

// A worker of a group. Its index in the group is its stage.
struct GroupMember {
  std::string endpoint;  // that other workers connect to
  uint64_t incarnation = 0;
  int rank = 0;
};

// Returns the members of a group by stage.
std::vector<GroupMember> members_of(const wire::Group& group);

struct Job;

struct ToMember {
  int stage = 0;  // of the receiver
  Message message;
};

struct GroupSetup {
  uint64_t term_id = 0;
  uint64_t incarnation = 0;     // of this worker
  int64_t timeout_ms = 20'000;  // without an answer of a member: group_silence_ms
  int64_t max_part_bytes = 0;   // of the largest part
  // Members read floats in this worker's memory when a message arrives, at times that it does not know.
  bool lends = false;
};

// Returns how long a member may be silent: longer than the coordinator takes to declare it lost, and than a member that
// fails waits for that as its reason. Otherwise each loss would cost the whole group, and again the next one.
int64_t group_silence_ms(const Job& job);

class GroupParts {
 public:
  using Part = StageExchange::Part;
  using Kind = StageExchange::Kind;

  // What the worker waits for.
  struct Wait {
    Part part;  // from part.stage
    friend bool operator==(const Wait&, const Wait&) = default;
  };

  explicit GroupParts(GroupSetup setup);

  // ---- what the worker does ----
  // Begins an attempt and drops everything of the earlier one.
  //   members: by stage; this worker is one of them.
  void begin(int64_t attempt, std::vector<GroupMember> members);
  // Leaves the group, and drops everything of the attempt. No attempt goes on until begin.
  void end();
  // Tells the members the step from which this worker can start. Once in an attempt, before any other part.
  void start(int64_t step);
  // Returns the lowest step of all members, once all have told theirs.
  std::optional<int64_t> agreed() const;
  // Sends a part. It differs from all earlier ones of the attempt. floats: not empty, on the host, and not
  // changed until its owner is released.
  void send(const Part& to, Payload floats);
  // Returns the part if it has arrived. Returns each part once.
  std::optional<Payload> take(const Part& from);
  bool is_here(const Part& from) const { return here_.contains(from); }
  // Drops parts of earlier steps, now and whenever they arrive.
  void forget_before(int64_t step);

  // ---- events ----
  // message: of another worker, or a stranger.
  void on_message(Message& message);
  // Sends questions, answers and reports that are due. Call often. Until all members have told their step,
  // this worker waits for those that have not.
  //   wait: what the worker waits for at this time. The wait ends once a second has passed without it.
  // Throws Error(kUnreachable), which names the member.
  void on_tick(int64_t now_ms, const std::optional<Wait>& wait);
  std::vector<ToMember> take_outgoing() { return std::exchange(outgoing_, {}); }

  // ---- queries ----
  int stage() const { return stage_; }
  int stages() const { return static_cast<int>(members_.size()); }
  int64_t attempt() const { return attempt_; }  // 0: none
  // Returns a member's name, for messages: "worker 3 (stage 1) at tcp://...".
  std::string name(int stage) const;
  // Returns what `wait` waits for and from whom, for the coordinator. Without one: the members that have not
  // told their step.
  std::string waiting_for(const std::optional<Wait>& wait) const;
  // Bytes of parts, each counted once however often it was sent.
  int64_t bytes_sent() const { return bytes_sent_; }
  int64_t bytes_received() const { return bytes_received_; }
  // Parts that were sent again in answer to a question.
  int64_t repeated() const { return repeated_; }
  // Messages that were refused.
  int64_t rejected() const { return rejected_; }
  // Bytes of parts that are kept, for any reason.
  int64_t kept_bytes() const;

  static constexpr int64_t kAskMs = 1000;                    // between questions to one member
  static constexpr size_t kMaxKept = 4096;                   // parts of a member that are not taken
  static constexpr int64_t kReportBytes = int64_t{4} << 20;  // arrived, before a report of its own
  static constexpr int64_t kReportParts = 16;

 private:
  struct Sent {
    int64_t number = 0;
    Part part;
    Payload floats;
    int64_t sent_ms = -1;  // -1: since the last tick
    int repeats = 0;
  };
  struct Member {
    GroupMember who;
    // what this worker has sent to it
    int64_t numbers = 0;
    std::deque<Sent> unarrived;
    int64_t unarrived_bytes = 0;
    bool asks = false;  // since the last tick
    // what it has sent to this worker
    int64_t arrived = 0;       // all parts up to this number
    std::set<int64_t> beyond;  // numbers above the next one
    int64_t reported = 0;      // the last `arrived` that was sent
    int64_t unreported_bytes = 0;
    size_t kept = 0;  // parts that are not taken
    int64_t kept_bytes = 0;
    std::optional<int64_t> start;
    // questions
    std::optional<Wait> wait;
    int64_t waited_ms = 0;        // last tick of the wait
    int64_t asked_ms = 0;         // or when the wait began
    int questions = 0;            // without an answer
    int64_t silent_since_ms = 0;  // when the first of them was sent
  };

  Member& at(int stage) { return members_[static_cast<size_t>(stage)]; }
  const Member& at(int stage) const { return members_[static_cast<size_t>(stage)]; }
  bool take_message(Message& message);
  bool take_part(int from, Message& message);
  bool is_sane(const Member& member, const wire::StagePart& part, const Message& message) const;
  bool take_arrived(Member& member, int64_t arrived);
  void count_arrived(Member& member, int64_t number);
  void keep_lent();
  void release(std::map<Part, Payload>::iterator kept);
  void post(int to, const Sent& sent);
  void answer(int to, int64_t now_ms);
  void report_arrived(int to);
  int64_t report(Member& member);
  std::optional<Wait> wait_of(int stage, const std::optional<Wait>& wait) const;
  void ask(int to, const std::optional<Wait>& wait, int64_t now_ms);
  wire::PeerSender sender() const;

  const GroupSetup setup_;
  int64_t attempt_ = 0;
  int stage_ = 0;
  std::vector<Member> members_;  // by stage; that of this worker is not used
  // Parts of earlier attempts that had not arrived, by incarnation of the receiver, if this worker lends. It
  // may not have heard of the end of its attempt, and must not read floats of the next one in their place.
  std::map<uint64_t, std::vector<Payload>> lent_;
  std::optional<int64_t> start_;
  int64_t forgotten_ = 0;  // parts of steps below are dropped
  std::map<Part, Payload> here_;
  std::vector<ToMember> outgoing_;
  int64_t bytes_sent_ = 0;
  int64_t bytes_received_ = 0;
  int64_t repeated_ = 0;
  int64_t rejected_ = 0;
};

}  // namespace pushpull
