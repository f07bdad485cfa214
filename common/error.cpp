#include "common/error.h"

namespace pushpull {

void assertion_failed(const char* condition, const std::source_location& where) {
  throw Error(ErrorCode::kInternal,
              std::string("[assert] ") + where.file_name() + ":" + std::to_string(where.line()) +
                  ": " + condition +
                  " does not hold; this is a fault of pushpull, please report it");
}

}  // namespace pushpull
