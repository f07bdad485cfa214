#include <gtest/gtest.h>
#include <pthread.h>

#include <csignal>

#include "common/base/process.h"
#include "common/base/task_thread.h"
#include "ps/report/start_state.h"

namespace pushpull {
namespace {

// A coordinator that goes on from an earlier term stops with a checkpoint, in its loop.
TEST(RunBeforeStart, SignalDuringAShortTaskStaysPending) {
  TaskThread thread;
  SignalFd signals;
  int done = 0;
  run_before_start(thread, signals, 0, [&, caller = pthread_self()] {
    pthread_kill(caller, SIGTERM);
    ++done;
  });
  EXPECT_EQ(done, 1);
  EXPECT_EQ(signals.take(), SIGTERM);
}

}  // namespace
}  // namespace pushpull
