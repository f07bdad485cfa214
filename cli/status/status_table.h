// The status of a job as a table for people. Plain function; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pushpull {

// document: of ask_status. Throws nlohmann::json::exception where a field is missing or of another
// type.
std::string status_table(const nlohmann::ordered_json& document);

}  // namespace pushpull
