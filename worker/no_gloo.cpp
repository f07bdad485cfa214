// Stands for gloo_all_reduce.cpp where Gloo was not found at build time.
#include "common/error.h"
#include "worker/collective.h"

namespace pushpull {

std::unique_ptr<Collective> make_gloo(Peers& /*peers*/, double /*timeout_s*/) {
  throw Error(ErrorCode::kUsage,
              "[all-reduce] this program was built without Gloo: install libgloo-dev and build "
              "again, or take strategy allreduce:ring");
}

}  // namespace pushpull
