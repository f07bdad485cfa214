// The place of a task among those of its host. Plain data.
#pragma once

#include <cstdint>

namespace pushpull {

// The default is a process that was started alone.
struct TaskOnHost {
  int64_t rank = 0;
  int64_t size = 0;  // 0: unknown
};

}  // namespace pushpull
