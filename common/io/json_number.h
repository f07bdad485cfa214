// Writes numbers to JSON files. Plain function; any thread.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace pushpull {

// Returns null if the value is missing, infinite or NaN: JSON (RFC 8259, section 6) has no such
// number.
inline nlohmann::ordered_json json_number(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

}  // namespace pushpull
