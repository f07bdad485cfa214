#include "common/base/task_thread.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "common/base/error.h"

namespace pushpull {
namespace {

std::exception_ptr result_of(TaskThread& thread) {
  pollfd done{thread.done_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&done, 1, 20'000), 1) << "the task has not ended";
  const auto result = thread.take();
  EXPECT_TRUE(result);
  return result.value_or(nullptr);
}

TEST(TaskThread, TaskEndsWithAResultThatIsTakenOnce) {
  TaskThread thread;
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

TEST(TaskThread, ErrorOfATaskIsItsResult) {
  TaskThread thread;
  thread.start([] { throw Error(ErrorCode::kIo, "[out] full"); });
  EXPECT_THROW(std::rethrow_exception(result_of(thread)), Error);
  thread.start([] {});
  EXPECT_EQ(result_of(thread), nullptr) << "the next task is another one";
}

TEST(TaskThread, TaskThatHangsBlocksNoCallAndSaysWhatItWaitsFor) {
  auto release = std::make_shared<std::promise<void>>();
  auto named = std::make_shared<std::promise<void>>();
  TaskThread thread;
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

TEST(TaskThread, TasksRunInOrderAndAreAwaitedWithALimit) {
  auto release = std::make_shared<std::promise<void>>();
  TaskThread thread;
  EXPECT_TRUE(thread.wait(0));
  std::string done;
  thread.start([release] { release->get_future().wait(); });
  for (const char c : {'a', 'b', 'c'}) thread.start([&done, c] { done += c; });
  EXPECT_FALSE(thread.wait(1));
  release->set_value();
  EXPECT_TRUE(thread.wait(20'000));
  EXPECT_EQ(done, "abc");
}

TEST(TaskThread, TasksThatWereStartedRunWithoutTheOwner) {
  auto release = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  {
    TaskThread thread;
    thread.start([release] { release->get_future().wait(); });
    thread.start([ended] { ended->set_value(); });
  }
  release->set_value();
  EXPECT_EQ(ended->get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

}  // namespace
}  // namespace pushpull
