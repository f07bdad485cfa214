// Descriptions of clusters that give each task a role, as claims (claim.h). No I/O. Any thread.
#pragma once

#include <optional>
#include <string>

#include "common/launch/claim.h"

namespace pushpull {

// Pods of Kubernetes, as a claim (claim.h). No I/O. Any thread.

// Returns the claim of a pod of an indexed Job or of a JobSet, or nothing outside one. The first server
// is in the pod with index 0. For a pod of a JobSet's replicated job "worker" that is a pod of the
// replicated job "server".
//   host_name: full name of the pod's host; without the subdomain the claim has no host.
std::optional<Claim> claim_of_kubernetes(const Environment& environment,
                                         const std::string& host_name);

// TF_CONFIG of TensorFlow: ps 0 coordinates, the chief is worker 0. Returns nothing without TF_CONFIG.
// Throws Error(kUsage) naming the part that is missing or has no meaning.
std::optional<Claim> claim_of_tf_config(const Environment& environment);

// ps-lite: DMLC_ROLE and others. The scheduler coordinates. Returns nothing without DMLC_ROLE.
std::optional<Claim> claim_of_ps_lite(const Environment& environment);

}  // namespace pushpull
