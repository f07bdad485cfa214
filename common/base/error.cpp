#include "common/base/error.h"

namespace pushpull {

void assertion_failed(const char* condition, const char* file, int line) {
  throw Error(ErrorCode::kInternal,
              std::string("[assert] ") + file + ":" + std::to_string(line) + ": " + condition +
                  " does not hold; this is a fault of pushpull, please report it");
}

}  // namespace pushpull
