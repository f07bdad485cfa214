#include "ps/files/announcements.h"

#include <unistd.h>

#include <utility>

#include "common/base/text.h"

namespace pushpull {

namespace {

constexpr size_t kMaxLineReasonBytes = 400;

}  // namespace

void Announcements::lost(const std::string& host, int64_t pid) {
  if (host == host_) write_line("lost " + std::to_string(pid));
}

void Announcements::failed(const std::string& host, int64_t pid, int code,
                           const std::string& reason) {
  if (host != host_ || std::exchange(failed_, true)) return;
  write_line("failed " + std::to_string(pid) + " " + std::to_string(code) + " " +
             printable(reason, kMaxLineReasonBytes));
}

bool Announcements::write_line(const std::string& text) {
  if (fd_.get() < 0) return true;
  const std::string line = text + "\n";
  if (write(fd_.get(), line.data(), line.size()) == std::ssize(line)) return true;
  fd_.reset();
  return false;
}

}  // namespace pushpull
