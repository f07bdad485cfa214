#include "common/base/task_thread.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/process.h"

namespace pushpull {

struct TaskThread::State {
  WakeFd done;
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;  // without the one that runs
  bool runs = false;
  bool closed = false;
  std::optional<std::exception_ptr> result;  // of the newest task that has ended
  std::string waiting = "the file system";

  bool idle() const { return tasks.empty() && !runs; }
};

TaskThread::TaskThread() : state_(std::make_shared<State>()) {
  // blocks all signals in the new thread: other threads handle them
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(run, state_).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TaskThread::~TaskThread() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
}

void TaskThread::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return !state->tasks.empty() || state->closed; });
    if (state->tasks.empty()) return;
    std::function<void()> task = std::move(state->tasks.front());
    state->tasks.pop_front();
    state->runs = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      task();
    } catch (...) {
      error = std::current_exception();
    }
    task = nullptr;  // frees what it holds before others hear of its end
    lock.lock();
    state->runs = false;
    if (!state->result) state->done.wake();
    state->result = error;
    state->changed.notify_all();
  }
}

void TaskThread::start(std::function<void()> task) {
  const std::lock_guard lock(state_->mutex);
  state_->tasks.push_back(std::move(task));
  state_->changed.notify_all();
}

bool TaskThread::wait(int64_t milliseconds) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                                  [&] { return state_->idle(); });
}

std::optional<std::exception_ptr> TaskThread::take() {
  const std::lock_guard lock(state_->mutex);
  if (state_->result) state_->done.clear();
  return std::exchange(state_->result, std::nullopt);
}

bool TaskThread::busy() const {
  const std::lock_guard lock(state_->mutex);
  return !state_->idle() || state_->result;
}

int TaskThread::done_fd() const { return state_->done.fd(); }

void TaskThread::waits(const std::string& verb, const std::string& path) {
  std::string text = "the file system to " + verb + " " + path;
  const std::lock_guard lock(state_->mutex);
  state_->waiting = std::move(text);
}

std::string TaskThread::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting;
}

}  // namespace pushpull
