#include "common/update/optimizer_options.h"

#include "common/base/error.h"

namespace pushpull {

const std::vector<std::string>& state_names(OptimizerKind kind) {
  static const std::vector<std::string> of_sgd;
  static const std::vector<std::string> of_momentum = {"momentum_buffer"};
  static const std::vector<std::string> of_adam = {"exp_avg", "exp_avg_sq"};
  switch (kind) {
    case OptimizerKind::kSgd:
      return of_sgd;
    case OptimizerKind::kMomentum:
    case OptimizerKind::kNesterov:
      return of_momentum;
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return of_adam;
  }
  PP_ASSERT(!"an optimizer of the enumeration");
  return of_sgd;
}

}  // namespace pushpull
