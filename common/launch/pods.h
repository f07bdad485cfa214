// Pods of Kubernetes, as a claim (claim.h). No I/O. Any thread.
#pragma once

#include <optional>
#include <string>

#include "common/launch/claim.h"

namespace pushpull {

// Returns the claim of a pod of an indexed Job or of a JobSet, or nothing outside one. The first server
// is in the pod with index 0. For a pod of a JobSet's replicated job "worker" that is a pod of the
// replicated job "server".
//   host_name: full name of the pod's host; without the subdomain the claim has no host.
std::optional<Claim> claim_of_kubernetes(const Environment& environment,
                                         const std::string& host_name);

}  // namespace pushpull
