// Replaces gloo_all_reduce.cpp if Gloo was not found at build time.
#include "common/base/error.h"
#include "worker/all_reduce/collective.h"

namespace pushpull {

bool has_gloo() { return false; }

std::unique_ptr<Collective> make_gloo(Peers& /*peers*/, double /*timeout_s*/) {
  check_built(AllReduceKind::kGloo);
  return nullptr;
}

}  // namespace pushpull
