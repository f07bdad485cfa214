// The status of a job as a table for users. Plain function; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace pushpull {

// document: from ask_status. Throws nlohmann::json::exception if a field is missing or has another
// type.
std::string status_table(const nlohmann::ordered_json& document);

}  // namespace pushpull
