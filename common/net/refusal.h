// Why a message was not taken. Every check of a message returns one; the caller counts it by its
// reason and logs the first of each. A plain value; any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace pushpull {

struct Refusal {
  // A short stable tag such as "unknown-member": counts and tests go by it. Static storage.
  const char* reason = "";
  // For people: what was expected, what came, and from whom.
  std::string text;
};

// The outcome of a check. Empty: the message was taken, or is harmless.
using Checked = std::optional<Refusal>;

// The outcome that names what a check has seen: "expected EXPECTED, got GOT".
inline Checked refused(const char* reason, const std::string& expected, const std::string& got) {
  return Refusal{reason, "expected " + expected + ", got " + got};
}
inline Checked refused(const char* reason, std::string text) {
  return Refusal{reason, std::move(text)};
}

}  // namespace pushpull
