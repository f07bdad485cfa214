// Makers of plans on CUDA. Each room below models/ops/cuda lists its makers by Spec::name() in a
// table; models/ops/cuda/backend/cuda_backend.cpp searches all tables. Used on the backend's thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/operation.h"

namespace pushpull::ops::cuda {

// Casts the specification, which has been checked, to its own type. `shared` outlives the plan.
// Throws Error(kUsage) by `require_kernel` for a shape that the kernel cannot take.
using Maker = std::unique_ptr<Operation> (*)(Shared& shared, const Spec& spec);
using Makers = std::span<const std::pair<std::string_view, Maker>>;

// Throws Error(kUsage) "[models] SPEC WHAT on DEVICE; ..." unless `holds`. The graph adds the node's
// name.
inline void require_kernel(bool holds, const Shared& shared, const Spec& spec,
                           const std::string& what) {
  if (holds) return;
  throw Error(ErrorCode::kUsage, std::string("[models] ") + spec.name() + " " + what + " on " +
                                     shared.device->name() + "; start workers with --device cpu");
}

}  // namespace pushpull::ops::cuda
