#include "common/base/log.h"

#include <unistd.h>

#include "common/base/console.h"
#include "common/base/text.h"

namespace pushpull {

void Log::write(std::string_view level, std::string_view text) const {
  // `text` may hold bytes from untrusted peers: no line breaks, no terminal escapes, bounded length
  constexpr size_t kMaxTextBytes = 2 * kMaxPathBytes;
  std::string line = who_;
  line.append(": ").append(level).append(printable(text, kMaxTextBytes)).append("\n");
  print(STDERR_FILENO, line);
}

}  // namespace pushpull
