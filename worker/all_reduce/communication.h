// The thread on which a worker's sums run while backward goes on. Work is done in the order in
// which it was posted; in between, the thread answers the other workers' questions.
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
#include "worker/trace/activity.h"

namespace pushpull {

class Communication {
 public:
  // over: true once the job is over. activity: is told of waits. References are borrowed; peers and
  // collective are this thread's from now on.
  Communication(Peers& peers, Collective& collective, std::function<bool()> over,
                Activity& activity);
  // Ends what runs.
  ~Communication();
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;

  // ---- the trainer's thread ----
  // Returns a ticket.
  int64_t post(std::function<void()> work);
  // Until the work is done. Throws what it has thrown; after that, nothing is done any more.
  void wait(int64_t ticket);

 private:
  void loop();
  std::function<void()> take();
  // count: works that it stands for.
  void run(const std::function<void()>& work, int64_t count);

  Peers& peers_;
  Collective& collective_;
  const std::function<bool()> over_;
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

  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace pushpull
