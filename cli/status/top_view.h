// `pushpull top` without its terminal: the job that it watches, and its screen as lines of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

// The job that `pushpull top` watches, as a state machine: when to ask its coordinator, and what to say while there is no
// answer, or after the coordinator has changed. Does no I/O and reads no clock. Not thread-safe.
class TopJob {
 public:
  //   interval_ms: between an answer and the next question.
  explicit TopJob(int64_t interval_ms) : interval_ms_(interval_ms) {}

  // Returns true if a question should be sent; it is then pending until it is answered, has failed, or is given up.
  bool ask(int64_t now_ms);
  // Returns true if the pending question should be given up: its connection may be of a coordinator that is gone.
  bool give_up(int64_t now_ms);
  void answered(int64_t now_ms, nlohmann::ordered_json document);
  // why: of a coordinator that refuses the key, or speaks another protocol.
  void failed(int64_t now_ms, const std::string& why);

  // Returns the newest answer.
  const std::optional<nlohmann::ordered_json>& document() const { return document_; }
  // Returns a line about the coordinator, or "" if it answers as it did.
  std::string trouble(int64_t now_ms) const;

 private:
  const int64_t interval_ms_;
  std::optional<int64_t> asked_ms_;  // the pending question
  int64_t next_ms_ = 0;
  int64_t silent_since_ms_ = -1;  // since the newest answer, or the first question
  std::string why_;               // of the newest failure
  std::optional<nlohmann::ordered_json> document_;
  std::string news_;  // the coordinator has changed
  int64_t news_ms_ = 0;
};

// The screen of `pushpull top` as lines of text. Plain functions; any thread.
struct TopState {
  std::string address;                             // of the coordinator
  std::optional<nlohmann::ordered_json> document;  // its newest answer
  std::string
      trouble;  // why the document is not up to date, or what has happened to the coordinator; "" = nothing
  std::string clock;        // time of day at the right end of the first line
  size_t first_member = 0;  // members that are scrolled away
};

// Returns at most `rows` lines of at most `columns` characters. Columns of the table that do not fit are left out, the
// least important first. Throws nlohmann::json::exception if the document lacks a field.
std::vector<std::string> top_lines(const TopState& state, size_t rows, size_t columns);

// Returns the first `columns` characters of UTF-8 text, with a mark at the end if some are missing.
std::string clip_text(const std::string& text, size_t columns);

}  // namespace pushpull
