#include "ps/files/file_watch.h"

#include "common/base/error.h"

namespace pushpull {

FileStep FileWatch::end() {
  PP_ASSERT(step_);
  watch_.idle();
  return *std::exchange(step_, std::nullopt);
}

}  // namespace pushpull
