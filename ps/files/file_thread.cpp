#include "ps/files/file_thread.h"

#include <mutex>
#include <thread>
#include <utility>

#include "common/base/process.h"

namespace pushpull {

struct FileThread::State {
  WakeFd done;
  std::mutex mutex;  // guards all below
  std::string waiting = "the file system";
  std::optional<std::exception_ptr> result;
};

FileThread::FileThread() : state_(std::make_shared<State>()) {}

FileThread::~FileThread() = default;

int FileThread::done_fd() const { return state_->done.fd(); }

// Detached: a thread in a system call that hangs cannot be joined.
void FileThread::start(std::function<void()> task) {
  busy_ = true;
  std::thread([state = state_, task = std::move(task)] {
    std::exception_ptr error;
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(state->mutex);
    state->result = error;
    state->done.wake();
  }).detach();
}

std::optional<std::exception_ptr> FileThread::take() {
  const std::lock_guard lock(state_->mutex);
  if (state_->result) {
    state_->done.clear();
    busy_ = false;
  }
  return std::exchange(state_->result, std::nullopt);
}

void FileThread::waits(const std::string& verb, const std::string& path) {
  std::string text = "the file system to " + verb + " " + path;
  const std::lock_guard lock(state_->mutex);
  state_->waiting = std::move(text);
}

std::string FileThread::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting;
}

}  // namespace pushpull
