#include "common/io/latest_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

namespace pushpull {

struct LatestFile::State {
  std::string path;
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  std::optional<std::string> waiting;
  bool writing = false;
  bool closed = false;
  int error = 0;
};

namespace {

// Returns 0, or the errno of the write that failed.
int write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

int replace_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return errno;
  int error = write_whole(file, text);
  // some file systems report a full disk only now
  if (close(file) != 0 && error == 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) unlink(temporary.c_str());
  return error;
}

}  // namespace

LatestFile::LatestFile(std::string path) : state_(std::make_shared<State>()) {
  state_->path = std::move(path);
  // The new thread inherits a full signal mask: the threads that wait for signals handle them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(run, state_).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LatestFile::~LatestFile() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
}

void LatestFile::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->waiting || state->closed; });
    if (!state->waiting) return;
    const std::string text = *std::exchange(state->waiting, std::nullopt);
    state->writing = true;
    lock.unlock();
    const int error = replace_file(state->path, text);
    lock.lock();
    state->writing = false;
    state->error = error;
    state->changed.notify_all();
  }
}

void LatestFile::put(std::string text) {
  const std::lock_guard lock(state_->mutex);
  state_->waiting = std::move(text);
  state_->changed.notify_all();
}

bool LatestFile::flush(int64_t milliseconds) {
  std::unique_lock lock(state_->mutex);
  const bool done = state_->changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                                             [&] { return !state_->waiting && !state_->writing; });
  return done && state_->error == 0;
}

int LatestFile::error() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error;
}

const std::string& LatestFile::path() const { return state_->path; }

}  // namespace pushpull
