// Why a message was refused. Every check of a message returns a Refusal; the caller counts it by
// its reason and logs the first of each. A check that passes builds no text. Plain values; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace pushpull {

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

}  // namespace pushpull
