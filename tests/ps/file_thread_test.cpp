#include "ps/files/file_thread.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>

#include <csignal>
#include <future>
#include <string>

#include "common/base/error.h"
#include "common/base/process.h"
#include "ps/files/start_wait.h"

namespace pushpull {
namespace {

std::exception_ptr result_of(FileThread& thread) {
  pollfd done{thread.done_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&done, 1, 20'000), 1) << "the task has not ended";
  const auto result = thread.take();
  EXPECT_TRUE(result);
  return result.value_or(nullptr);
}

TEST(FileThread, TaskEndsWithAResultThatIsTakenOnce) {
  FileThread thread;
  EXPECT_FALSE(thread.busy());
  int done = 0;
  thread.start([&] { ++done; });
  EXPECT_TRUE(thread.busy());
  EXPECT_EQ(result_of(thread), nullptr);
  EXPECT_EQ(done, 1);
  EXPECT_FALSE(thread.busy());
  EXPECT_FALSE(thread.take());
  pollfd readable{thread.done_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 0), 0);
}

TEST(FileThread, ErrorOfATaskIsItsResult) {
  FileThread thread;
  thread.start([] { throw Error(ErrorCode::kIo, "[out] full"); });
  EXPECT_THROW(std::rethrow_exception(result_of(thread)), Error);
  thread.start([] {});
  EXPECT_EQ(result_of(thread), nullptr) << "the next task is another one";
}

TEST(FileThread, TaskThatHangsBlocksNoCallAndSaysWhatItWaitsFor) {
  auto release = std::make_shared<std::promise<void>>();
  auto named = std::make_shared<std::promise<void>>();
  FileThread thread;
  thread.start([&thread, release, named] {
    thread.waits("write", "out/term.json");
    named->set_value();
    release->get_future().wait();
  });
  named->get_future().wait();
  EXPECT_FALSE(thread.take());
  EXPECT_TRUE(thread.busy());
  EXPECT_EQ(thread.waiting(), "the file system to write out/term.json");
  release->set_value();
  EXPECT_EQ(result_of(thread), nullptr);
}

// A coordinator that goes on from an earlier term stops with a checkpoint, in its loop.
TEST(RunBeforeStart, SignalDuringAShortTaskStaysPending) {
  FileThread thread;
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
