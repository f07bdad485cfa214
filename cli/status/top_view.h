// The screen of `pushpull top` as lines of text. Plain functions; any thread.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

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
