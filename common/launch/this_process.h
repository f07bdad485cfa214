// Places this process by its environment and its host. Any thread.
#pragma once

#include "common/launch/placement.h"

namespace pushpull {

Environment environment_of_this_process();

// Calls place_task for this process. In a pod it asks the resolver for the host's full name, which is
// in the pod's /etc/hosts. Throws as place_task does.
Placement place_this_process(const LaunchFlags& flags);

}  // namespace pushpull
