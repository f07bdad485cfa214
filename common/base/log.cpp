#include "common/base/log.h"

#include <unistd.h>

#include "common/base/text.h"

namespace pushpull {

void Log::write(std::string_view level, std::string_view text) const {
  // some of it is what strangers have said: no line of theirs, no command to the terminal
  constexpr size_t kMaxTextBytes = 2 * kMaxPathBytes;
  std::string line = who_;
  line.append(": ").append(level).append(printable(text, kMaxTextBytes)).append("\n");
  const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
  (void)ignored;  // there is nowhere left to complain
}

}  // namespace pushpull
