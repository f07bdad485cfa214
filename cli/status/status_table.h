// The status of a job as a table for users. Plain function; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pushpull {

// Cells of the tables of `pushpull status` and `pushpull top`, from fields of the status document. Members send texts, so
// these are made printable. Plain functions; any thread.

// Returns a number with that many digits after the point, or "-" for null.
std::string number_text(const nlohmann::ordered_json& value, int digits);
// Returns seconds as a clock, or "?" for null.
std::string clock_of(const nlohmann::ordered_json& seconds);
std::string text_of(const nlohmann::ordered_json& value);

// All throw nlohmann::json::exception if a field of the member is missing.
// Returns "worker 1".
std::string member_name(const nlohmann::ordered_json& member);
// Returns "1/0", the worker's group and its stage; "-/0" while it waits for a group; "" without stages.
std::string member_place(const nlohmann::ordered_json& member);
// Returns what users should know about the member, such as "silent for 4 s", or "".
std::string member_remark(const nlohmann::ordered_json& member);
// Returns "1.5 (3)": mean and largest staleness.
std::string member_staleness(const nlohmann::ordered_json& member);

// document: from ask_status. Throws nlohmann::json::exception if a field is missing or has another
// type.
std::string status_table(const nlohmann::ordered_json& document);

}  // namespace pushpull
