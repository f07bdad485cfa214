// The manifest of a JobSet of Kubernetes (jobset.x-k8s.io/v1alpha2) for a submission. Any thread.
#pragma once

#include <string>

#include "cli/submit/submission.h"

namespace pushpull {

// Returns YAML: a ConfigMap with the job file, and a JobSet with two indexed Jobs, `server` and
// `worker`. Their pods find the first server by its name (--join auto). Reads the job file. The key is
// in a Secret that the user makes.
std::string job_set(const Submission& plan);

}  // namespace pushpull
