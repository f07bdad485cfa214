// Refusals as tests compare them.
#pragma once

#include <string>

#include "common/net/refusal.h"

namespace pushpull {

// The tag of a refusal; "" where the message was taken.
inline std::string reason_of(const Checked& checked) { return checked ? checked->reason : ""; }

}  // namespace pushpull
