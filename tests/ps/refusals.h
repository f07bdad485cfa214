// Helpers that tests use to read a check's outcome.
#pragma once

#include <string>

#include "common/net/refusal.h"

namespace pushpull {

// The tag of a refusal; "" where the message was taken.
inline std::string reason_of(const Checked& checked) { return checked ? checked->reason : ""; }
// Its tag and text for people; "" likewise.
inline std::string line_of(const Checked& checked) { return checked ? checked->line() : ""; }
inline bool taken(const Checked& checked) { return !checked; }

}  // namespace pushpull
