#include "common/base/background_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "common/base/unique_fd.h"

namespace pushpull {

struct BackgroundWriter::State {
  UniqueFd fd;
  size_t most_waiting_bytes = 0;
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  std::deque<std::string> waiting;  // the first one is being written
  size_t waiting_bytes = 0;
  bool closed = false;
  int error = 0;
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

}  // namespace

BackgroundWriter::BackgroundWriter(int fd, size_t most_waiting_bytes)
    : state_(std::make_shared<State>()) {
  state_->fd = UniqueFd(fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0));
  state_->most_waiting_bytes = most_waiting_bytes;
  if (state_->fd.get() < 0) {
    state_->error = EBADF;
    return;
  }
  // The new thread inherits a full signal mask: the threads that wait for signals handle them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(run, state_).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

BackgroundWriter::~BackgroundWriter() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
}

void BackgroundWriter::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return !state->waiting.empty() || state->closed; });
    if (state->waiting.empty()) return;
    const std::string& text = state->waiting.front();  // growth keeps references valid
    lock.unlock();
    const int error = write_all(state->fd.get(), text);
    lock.lock();
    if (error != 0) {
      state->error = error;
      state->waiting.clear();
      state->waiting_bytes = 0;
    } else {
      state->waiting_bytes -= text.size();
      state->waiting.pop_front();
    }
    state->changed.notify_all();
  }
}

bool BackgroundWriter::write(std::string text) {
  const std::lock_guard lock(state_->mutex);
  if (state_->error != 0 || state_->waiting_bytes + text.size() > state_->most_waiting_bytes) {
    return false;
  }
  if (text.empty()) return true;
  state_->waiting_bytes += text.size();
  state_->waiting.push_back(std::move(text));
  state_->changed.notify_all();
  return true;
}

bool BackgroundWriter::flush(int64_t milliseconds) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                           [&] { return state_->waiting.empty(); });
  return state_->waiting.empty() && state_->error == 0;
}

int BackgroundWriter::error() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error;
}

}  // namespace pushpull
