#include "common/base/background_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace pushpull {

namespace {

// Returns 0, or the errno of the write that failed.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd writable{fd, POLLOUT, 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// Opens `fd` first if there is an `open`. Returns 0 or errno.
int append(UniqueFd& fd, std::function<UniqueFd()>& open, std::string_view text) {
  if (open) {
    fd = std::exchange(open, nullptr)();
    if (fd.get() < 0) return errno;
  }
  return write_all(fd.get(), text);
}

// Returns 0 or errno.
int replace_file(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return errno;
  int error = write_all(file, text);
  // some file systems report a full disk only now
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) unlink(temporary.c_str());
  return error;
}

}  // namespace

struct BackgroundWriter::State {
  // Used by tasks.
  UniqueFd fd;                     // the descriptor that texts are appended to
  std::function<UniqueFd()> open;  // makes it; empty if it is open
  std::string path;                // the file that texts replace; empty with a descriptor
  int failed = 0;                  // errno of the first text that was not appended

  std::mutex mutex;                   // guards the members below
  size_t max_waiting_bytes = 0;       // constant
  size_t waiting_bytes = 0;           // to append, with the text that is being written
  std::optional<std::string> newest;  // to replace the file; without the one being written
  int error = 0;

  bool replaces() const { return !path.empty(); }
  // Tasks.
  void append_next(const std::string& text);
  void replace_by_newest();
};

void BackgroundWriter::State::append_next(const std::string& text) {
  if (failed == 0) failed = append(fd, open, text);
  const std::lock_guard lock(mutex);
  waiting_bytes -= text.size();
  error = failed;
}

void BackgroundWriter::State::replace_by_newest() {
  std::unique_lock lock(mutex);
  const std::string text = *std::exchange(newest, std::nullopt);
  lock.unlock();
  const int now = replace_file(path, text);
  lock.lock();
  error = now;
}

BackgroundWriter::BackgroundWriter(int fd, size_t max_waiting_bytes)
    : state_(std::make_shared<State>()) {
  state_->fd = UniqueFd(fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0));
  state_->max_waiting_bytes = max_waiting_bytes;
  if (state_->fd.get() < 0) state_->error = EBADF;
}

BackgroundWriter::BackgroundWriter(std::function<UniqueFd()> open)
    : state_(std::make_shared<State>()) {
  state_->open = std::move(open);
  state_->max_waiting_bytes = kMaxWaitingBytes;
}

BackgroundWriter::BackgroundWriter(const std::string& path) : state_(std::make_shared<State>()) {
  state_->path = path;
}

BackgroundWriter::~BackgroundWriter() = default;

bool BackgroundWriter::write(std::string text) {
  const std::lock_guard lock(state_->mutex);
  if (state_->replaces()) {
    const bool begun = !state_->newest;
    state_->newest = std::move(text);
    if (begun) thread_.start([state = state_] { state->replace_by_newest(); });
    return true;
  }
  if (state_->error != 0 || state_->waiting_bytes + text.size() > state_->max_waiting_bytes) {
    return false;
  }
  if (text.empty()) return true;
  state_->waiting_bytes += text.size();
  thread_.start([state = state_, text = std::move(text)] { state->append_next(text); });
  return true;
}

bool BackgroundWriter::flush(int64_t milliseconds) {
  return thread_.wait(milliseconds) && error() == 0;
}

int BackgroundWriter::error() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error;
}

}  // namespace pushpull
