// Why a message was not taken. Every check of a message returns one; the caller counts it by its
// reason and logs the first of each. A check that finds nothing wrong builds no text. Plain values;
// any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace pushpull {

struct Refusal {
  // A short stable tag such as "unknown-member": counts and tests go by it. Static storage.
  const char* reason = "";
  // For people: what was expected, what came, and from whom.
  std::string text;
  // Its sender is a member of the run, who may be told.
  bool from_member = false;

  // "[REASON] TEXT", for logs and answers.
  std::string line() const { return "[" + std::string(reason) + "] " + text; }
};

// The outcome of a check. Empty: the message was taken, or is harmless. Not empty: it was refused.
using Checked = std::optional<Refusal>;

// The outcome that names what a check has seen: "expected EXPECTED, got GOT".
inline Checked refused(const char* reason, const std::string& expected, const std::string& got) {
  return Refusal{reason, "expected " + expected + ", got " + got};
}
inline Checked refused(const char* reason, int64_t expected, int64_t got) {
  return refused(reason, std::to_string(expected), std::to_string(got));
}
inline Checked refused(const char* reason, std::string text) {
  return Refusal{reason, std::move(text)};
}

// The same outcome of a message that a member has sent: its text names the member.
inline Checked from_member(Checked checked, const std::string& member) {
  if (checked) {
    checked->text += " from " + member;
    checked->from_member = true;
  }
  return checked;
}

// "[lo, hi)", for texts.
inline std::string range_text(int64_t lo, int64_t hi) {
  return "[" + std::to_string(lo) + ", " + std::to_string(hi) + ")";
}

}  // namespace pushpull
