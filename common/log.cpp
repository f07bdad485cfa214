#include "common/log.h"

#include <unistd.h>

namespace pushpull {

void Log::write(std::string_view level, std::string_view text) const {
  std::string line = who_;
  line.append(": ").append(level).append(text).append("\n");
  const ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
  (void)ignored;  // there is nowhere left to complain
}

}  // namespace pushpull
