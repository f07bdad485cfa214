// Whether something that a peer has sent fits, and why not. Costs nothing when it fits: the text is
// built only for a refusal. Plain value; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace pushpull {

class Verdict {
 public:
  Verdict() = default;  // it fits
  // A refusal.
  //   reason: one of a few constant words, such as "push-share": refusals are counted by it.
  //   text: what was expected and what came, for people.
  Verdict(std::string_view reason, std::string text) : reason_(reason), text_(std::move(text)) {}

  bool fits() const { return reason_.empty(); }
  explicit operator bool() const { return fits(); }
  // Both are empty when it fits. reason() outlives the verdict.
  std::string_view reason() const { return reason_; }
  const std::string& text() const { return text_; }
  // Its sender is a member of the run, who may be told.
  bool from_member() const { return from_member_; }
  // The same refusal of what a member has sent: its text names the member.
  Verdict from(const std::string& member) const {
    Verdict out(reason_, text_ + " from " + member);
    out.from_member_ = true;
    return out;
  }

 private:
  std::string_view reason_;
  std::string text_;
  bool from_member_ = false;
};

// A refusal with the text "[REASON] expected EXPECTED, got GOT".
inline Verdict misfit(std::string_view reason, const std::string& expected,
                      const std::string& got) {
  return {reason, "[" + std::string(reason) + "] expected " + expected + ", got " + got};
}
inline Verdict misfit(std::string_view reason, int64_t expected, int64_t got) {
  return misfit(reason, std::to_string(expected), std::to_string(got));
}

// "[lo, hi)", for texts.
inline std::string range_text(int64_t lo, int64_t hi) {
  return "[" + std::to_string(lo) + ", " + std::to_string(hi) + ")";
}

}  // namespace pushpull
