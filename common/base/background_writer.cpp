#include "common/base/background_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

namespace pushpull {

struct BackgroundWriter::State {
  UniqueFd fd;                     // the descriptor that texts are appended to
  std::function<UniqueFd()> open;  // makes it; empty if it is open
  std::string path;                // the file that texts replace; empty with a descriptor
  size_t max_waiting_bytes = 0;
  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::deque<std::string> waiting;  // without the text that is being written
  size_t waiting_bytes = 0;         // with it
  bool writing = false;
  bool closed = false;
  int error = 0;

  bool replaces() const { return !path.empty(); }
};

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

BackgroundWriter::BackgroundWriter(int fd, size_t max_waiting_bytes)
    : state_(std::make_shared<State>()) {
  state_->fd = UniqueFd(fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0));
  state_->max_waiting_bytes = max_waiting_bytes;
  if (state_->fd.get() < 0) {
    state_->error = EBADF;
  } else {
    start(state_);
  }
}

BackgroundWriter::BackgroundWriter(std::function<UniqueFd()> open)
    : state_(std::make_shared<State>()) {
  state_->open = std::move(open);
  state_->max_waiting_bytes = kMaxWaitingBytes;
  start(state_);
}

BackgroundWriter::BackgroundWriter(const std::string& path) : state_(std::make_shared<State>()) {
  state_->path = path;
  start(state_);
}

BackgroundWriter::~BackgroundWriter() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
}

void BackgroundWriter::start(const std::shared_ptr<State>& state) {
  // blocks all signals in the new thread: other threads handle them
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(run, state).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void BackgroundWriter::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return !state->waiting.empty() || state->closed; });
    if (state->waiting.empty()) return;
    const std::string text = std::move(state->waiting.front());
    state->waiting.pop_front();
    state->writing = true;
    lock.unlock();
    const int error =
        state->replaces() ? replace_file(state->path, text) : append(state->fd, state->open, text);
    lock.lock();
    state->writing = false;
    state->waiting_bytes -= text.size();
    state->error = error;
    if (error != 0 && !state->replaces()) {
      state->waiting.clear();
      state->waiting_bytes = 0;
    }
    state->changed.notify_all();
  }
}

bool BackgroundWriter::write(std::string text) {
  const std::lock_guard lock(state_->mutex);
  if (state_->replaces()) {
    for (const std::string& old : state_->waiting) state_->waiting_bytes -= old.size();
    state_->waiting.clear();
  } else {
    if (state_->error != 0 || state_->waiting_bytes + text.size() > state_->max_waiting_bytes) {
      return false;
    }
    if (text.empty()) return true;
  }
  state_->waiting_bytes += text.size();
  state_->waiting.push_back(std::move(text));
  state_->changed.notify_all();
  return true;
}

bool BackgroundWriter::flush(int64_t milliseconds) {
  std::unique_lock lock(state_->mutex);
  const bool done = state_->changed.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] {
    return state_->waiting.empty() && !state_->writing;
  });
  return done && state_->error == 0;
}

int BackgroundWriter::error() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error;
}

}  // namespace pushpull
