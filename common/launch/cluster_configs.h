// Descriptions of clusters that give each task a role, as claims (claim.h). No I/O. Any thread.
#pragma once

#include <optional>

#include "common/launch/claim.h"

namespace pushpull {

// TF_CONFIG of TensorFlow: ps 0 coordinates, the chief is worker 0. Returns nothing without TF_CONFIG.
// Throws Error(kUsage) naming the part that is missing or has no meaning.
std::optional<Claim> claim_of_tf_config(const Environment& environment);

// ps-lite: DMLC_ROLE and others. The scheduler coordinates. Returns nothing without DMLC_ROLE.
std::optional<Claim> claim_of_ps_lite(const Environment& environment);

}  // namespace pushpull
