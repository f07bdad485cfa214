#include "datasets/limits.h"

#include <string>

#include "common/base/error.h"

namespace pushpull {

int64_t take_samples(const char* key, int64_t wanted, int64_t available) {
  if (wanted < 0 || wanted > available) {
    throw Error(ErrorCode::kUsage, std::string("[data] ") + key + ": expected at most " +
                                       std::to_string(available) + ", the size of the split, got " +
                                       std::to_string(wanted) + "; lower it, or set 0 for all");
  }
  return wanted == 0 ? available : wanted;
}

}  // namespace pushpull
