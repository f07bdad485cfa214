// Counts refused messages by reason, and decides which of them to report to users, so that a flood
// fills neither the log nor memory. Each socket of a process has one. Time is an argument. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/net/message.h"

namespace pushpull {

// Why a message was refused. Every check of a message returns a Refusal; the caller counts it by
// its reason and logs the first of each. A check that passes builds no text. Plain values; any
// thread.
struct Refusal {
  // A short stable tag such as "unknown-member", which counts and tests use. Static storage.
  const char* reason = "";
  // For users: the expected value, the actual one, and the peer.
  std::string text;
  // The sender is a member of the run, so it may learn the reason.
  bool from_member = false;

  // "[REASON] TEXT", for logs and answers.
  std::string line() const { return "[" + std::string(reason) + "] " + text; }
};

// The outcome of a check: nullopt if the message was accepted or is harmless.
using Checked = std::optional<Refusal>;

// Return the outcome that names both values: "expected EXPECTED, got GOT".
inline Checked refused(const char* reason, const std::string& expected, const std::string& got) {
  return Refusal{reason, "expected " + expected + ", got " + got};
}
inline Checked refused(const char* reason, int64_t expected, int64_t got) {
  return refused(reason, std::to_string(expected), std::to_string(got));
}
inline Checked refused(const char* reason, std::string text) {
  return Refusal{reason, std::move(text)};
}

// Returns the same outcome for a message from a member; the text names the member.
inline Checked from_member(Checked checked, const std::string& member) {
  if (checked) {
    checked->text += " from " + member;
    checked->from_member = true;
  }
  return checked;
}

// Returns "[lo, hi)", for texts.
inline std::string range_text(int64_t lo, int64_t hi) {
  return "[" + std::to_string(lo) + ", " + std::to_string(hi) + ")";
}

class Refusals {
 public:
  static constexpr int64_t kWindowMs = 10'000;
  static constexpr int kMaxReports = 5;       // in one window
  static constexpr size_t kMaxKnown = 1'024;  // pairs of peer and reason that are remembered

  // Counts one refusal. Returns true if it should be reported: it is the first of this peer for
  // this reason, and few have been reported recently.
  bool add(const PeerId& peer, const Refusal& refusal, int64_t now_ms);

  // Returns the number of refusals by reason.
  const std::map<std::string, int64_t>& counts() const { return counts_; }
  int64_t total() const { return total_; }
  // Adds the counts to the statistics that this process sends to the coordinator.
  //   rejected: all frames that it has rejected; those beyond total() could not be read at all.
  void report(int64_t rejected, wire::Stats& stats) const;

 private:
  std::map<std::string, int64_t> counts_;
  int64_t total_ = 0;
  std::set<std::pair<PeerId, std::string>> known_;
  int64_t window_ms_ = 0;  // when the running window began
  int reports_ = 0;        // in the running window
};

}  // namespace pushpull
