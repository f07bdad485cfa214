// Plans of the operations of ops.h behind the interface of operation.h, for backends that have the
// former. Each plan keeps the state of its latest forward, so only one run may be between forward
// and backward.
#pragma once

#include <memory>

#include "models/ops/operation.h"

namespace pushpull::ops {

// Returns null if the backend's old operations cannot do what is asked.
std::unique_ptr<Operation> plan_on_old(Backend& backend, const Spec& spec);

}  // namespace pushpull::ops
