// The thread that runs a worker's sums while backward continues. It runs work in the order of
// posting and answers questions of other workers in between.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "common/base/process.h"
#include "worker/all_reduce/collective.h"
#include "worker/all_reduce/peers.h"
#include "worker/member/time_split.h"

namespace pushpull {

class Communication {
 public:
  // activity: told the reasons for waits. Borrows all references; `peers` and `collective` belong to
  // this thread from now on.
  Communication(Peers& peers, Collective& collective, Activity& activity);
  // Aborts the running work and joins the thread.
  ~Communication();
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;

  // ---- the trainer's thread ----
  // Queues `work` and returns a ticket for it.
  int64_t post(std::function<void()> work);
  // Waits for at most kLookMs until the work is done, and returns true once it is. Rethrows the first exception of
  // any work; later work is not run.
  bool wait(int64_t ticket);

  static constexpr int kLookMs = 50;

 private:
  void loop();
  std::function<void()> take();
  // count: 1 for posted work, 0 for serving questions.
  void run(const std::function<void()>& work, int64_t count);

  Peers& peers_;
  Collective& collective_;
  Activity& activity_;
  std::atomic<bool> stopping_ = false;
  WakeFd wake_;

  // guarded by mutex_
  std::mutex mutex_;
  std::condition_variable done_;
  std::deque<std::function<void()>> queue_;
  int64_t posted_ = 0;
  int64_t finished_ = 0;
  std::exception_ptr error_;

  std::jthread thread_;  // last: joins before the members that it uses go
};

}  // namespace pushpull
