// Helpers of tests that read the result of a check.
#pragma once

#include <string>

#include "common/net/refusals.h"

namespace pushpull {

// Returns the tag of the refusal, or "" if the message was accepted.
inline std::string reason_of(const Checked& checked) { return checked ? checked->reason : ""; }
// Returns tag and text of the refusal, or "" if the message was accepted.
inline std::string line_of(const Checked& checked) { return checked ? checked->line() : ""; }
inline bool taken(const Checked& checked) { return !checked; }

}  // namespace pushpull
