#include "client/handover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

HandedTask task(int64_t step, int64_t micro_batch) {
  return {step >= 0, step, micro_batch, 0, {micro_batch}};
}

// Takes all that wait. Returns their micro-batches.
std::vector<int64_t> told(UpcomingTasks& upcoming) {
  std::vector<int64_t> out;
  while (const auto next = upcoming.take()) out.push_back(next->micro_batch);
  return out;
}

TEST(UpcomingTasks, TellEachTaskOnceInOrder) {
  UpcomingTasks upcoming;
  for (const int64_t m : {3, 4, 3, 5}) upcoming.add(task(7, m));
  EXPECT_EQ(upcoming.take()->micro_batch, 3);
  upcoming.add(task(7, 3));
  EXPECT_THAT(told(upcoming), ElementsAre(4, 5));
  upcoming.add(task(7, 5));
  EXPECT_THAT(told(upcoming), IsEmpty());
}

TEST(UpcomingTasks, ATaskThatBeginsIsNotAnnouncedAnyMoreNorThoseBeforeIt) {
  UpcomingTasks upcoming;
  for (const int64_t m : {1, 2, 3}) upcoming.add(task(7, m));
  upcoming.begin(task(7, 2));
  EXPECT_THAT(told(upcoming), ElementsAre(3));
}

TEST(UpcomingTasks, ATaskThatComesAgainIsAnnouncedAgain) {
  UpcomingTasks upcoming;
  upcoming.add(task(-1, 0));  // a chunk of each evaluation
  EXPECT_THAT(told(upcoming), ElementsAre(0));
  upcoming.begin(task(-1, 0));
  upcoming.add(task(-1, 0));
  EXPECT_THAT(told(upcoming), ElementsAre(0));
}

TEST(UpcomingTasks, AnUnreadQueueKeepsTheFirstTasks) {
  UpcomingTasks upcoming;
  const auto most = static_cast<int64_t>(UpcomingTasks::kMaxTasks);
  for (int64_t m = 0; m < 2 * most; ++m) upcoming.add(task(0, m));
  EXPECT_EQ(upcoming.take()->micro_batch, 0);
  EXPECT_THAT(told(upcoming), SizeIs(most - 1));
  upcoming.add(task(0, most));
  EXPECT_THAT(told(upcoming), ElementsAre(most));
}

TEST(UpcomingTasks, TasksThatNeverComeAreForgotten) {
  UpcomingTasks upcoming;
  const auto most = static_cast<int64_t>(UpcomingTasks::kMaxTasks);
  for (int64_t step = 0; step <= most; ++step) {
    upcoming.add(task(step, 0));
    EXPECT_THAT(told(upcoming), ElementsAre(0));
  }
  upcoming.add(task(0, 0));
  upcoming.add(task(2, 0));
  EXPECT_THAT(told(upcoming), ElementsAre(0)) << "step 0 only";
}

}  // namespace

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class HandoverTest : public testing::Test {
 protected:
  HandoverTest() {
    table_.add(tensor("a", 2));
    table_.add(tensor("b", 1));
  }

  static TensorInfo tensor(const std::string& name, int64_t size) {
    TensorInfo info;
    info.name = name;
    info.shape = {size};
    return info;
  }

  // Trains on another thread, as the trainer does.
  std::future<float> train(const GradientReady& also = {}, const WeightsNeeded& needed = {}) {
    return std::async(std::launch::async, [this, also, needed] {
      const GradientReady ready = [&](size_t tensor) {
        ready_.push_back(tensor);
        if (also) also(tensor);
      };
      return handover_.train(table_, weights_, {4, 7, indices_, {}}, gradients_, ready, needed);
    });
  }

  std::string error_of(const std::function<void()>& action) {
    try {
      action();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  // Returns the next task, or nothing after the end.
  std::optional<HandedTask> next() {
    HandedTask task;
    if (handover_.next(-1, &task) == Handover::Next::kTask) return task;
    return std::nullopt;
  }

  Handover handover_;
  TensorTable table_;
  const std::vector<float> weights_ = {1.0F, 2.0F, 3.0F};
  const std::vector<int64_t> indices_ = {11, 12};
  std::vector<float> gradients_ = {9.0F, 9.0F, 9.0F};
  std::vector<size_t> ready_;  // by the trainer's thread
};

TEST_F(HandoverTest, ATaskGoesToTheCallerAndItsGradientsComeBack) {
  std::future<float> loss = train();
  const auto task = next();
  ASSERT_TRUE(task && task->trains);
  EXPECT_EQ(task->step, 4);
  EXPECT_EQ(task->micro_batch, 7);
  EXPECT_THAT(task->indices, ElementsAre(11, 12));
  std::array<float, 2> a{};
  handover_.copy_weights(0, a);
  EXPECT_THAT(a, ElementsAre(1.0F, 2.0F));
  handover_.set_gradient(1, std::array{0.5F});
  handover_.set_gradient(0, std::array{0.25F, 0.75F});
  handover_.end_training(1.5F);
  EXPECT_EQ(loss.get(), 1.5F);
  EXPECT_THAT(gradients_, ElementsAre(0.25F, 0.75F, 0.5F));
  EXPECT_THAT(ready_, ElementsAre(1, 0));
}

TEST_F(HandoverTest, TheEndHasTheFinalWeights) {
  std::future<float> loss = train();
  next();
  handover_.end_training(0.0F);
  loss.get();
  const std::array final = {4.0F, 5.0F, 6.0F};
  handover_.keep_final(table_, final);
  handover_.end();
  HandedTask end;
  ASSERT_EQ(handover_.next(-1, &end), Handover::Next::kEnd);
  EXPECT_FALSE(end.same_weights);
  std::array<float, 2> a{};
  std::array<float*, 2> to = {a.data(), nullptr};
  EXPECT_EQ(handover_.copy_arriving(0, to), 0);
  EXPECT_THAT(a, ElementsAre(4.0F, 5.0F));
  EXPECT_EQ(to[0], nullptr);
}

TEST_F(HandoverTest, TheEndMayHaveNoFinalWeights) {
  handover_.end();
  HandedTask end;
  ASSERT_EQ(handover_.next(-1, &end), Handover::Next::kEnd);
  EXPECT_TRUE(end.same_weights);
  std::array<float*, 2> to{};
  EXPECT_THAT(error_of([&] { handover_.copy_arriving(0, to); }), HasSubstr("no task to"));
}

TEST_F(HandoverTest, ATensorWithoutAGradientHasZeros) {
  std::future<float> loss = train();
  ASSERT_TRUE(next());
  handover_.set_gradient(1, std::array{0.5F});
  handover_.end_training(0.0F);
  loss.get();
  EXPECT_THAT(gradients_, ElementsAre(0.0F, 0.0F, 0.5F));
  EXPECT_THAT(ready_, ElementsAre(1, 0));
}

TEST_F(HandoverTest, AStatisticWithoutAValueRemainsAsItIs) {
  table_.tensors[0].rule = UpdateRule::kAverage;
  std::future<float> loss = train();
  ASSERT_TRUE(next());
  handover_.set_gradient(1, std::array{0.5F});
  handover_.end_training(0.0F);
  loss.get();
  EXPECT_THAT(gradients_, ElementsAre(1.0F, 2.0F, 0.5F));
}

TEST_F(HandoverTest, WrongCallsAreRefusedByName) {
  EXPECT_THAT(error_of([&] { handover_.end_training(0.0F); }), HasSubstr("no task to train"));
  std::future<float> loss = train();
  ASSERT_TRUE(next());
  handover_.set_gradient(1, std::array{0.5F});
  EXPECT_THAT(error_of([&] { handover_.set_gradient(1, std::array{0.5F}); }),
              HasSubstr("second gradient of b"));
  EXPECT_THAT(error_of([&] { handover_.set_gradient(0, std::array{0.5F}); }),
              HasSubstr("a has 2 elements, got 1"));
  EXPECT_THAT(error_of([&] { handover_.set_gradient(2, std::array{0.5F}); }),
              HasSubstr("tensor 2: the model has 2"));
  EXPECT_THAT(error_of([&] { handover_.end_evaluation({}); }), HasSubstr("no task to evaluate"));
  EXPECT_THAT(error_of([&] { next(); }), HasSubstr("still open"));
  handover_.end_training(0.0F);
  loss.get();
}

TEST_F(HandoverTest, AVoidTaskEndsWithoutEffectBeforeTheNextOneBegins) {
  std::future<float> thrown = train([](size_t) { throw Error(ErrorCode::kFailed, "dropped"); });
  ASSERT_TRUE(next());
  handover_.set_gradient(1, std::array{0.5F});
  EXPECT_THAT(error_of([&] { thrown.get(); }), HasSubstr("dropped"));
  std::array<float, 2> a{5.0F, 5.0F};
  handover_.copy_weights(0, a);
  EXPECT_THAT(a, ElementsAre(5.0F, 5.0F));
  handover_.set_gradient(0, std::array{0.25F, 0.75F});
  EXPECT_EQ(gradients_[0], 9.0F);
  std::future<float> loss = train();
  handover_.end_training(1.0F);
  ASSERT_TRUE(next());
  handover_.end_training(2.0F);
  EXPECT_EQ(loss.get(), 2.0F);
}

TEST_F(HandoverTest, WeightsAreCopiedAsTheyArrive) {
  std::promise<void> sent;
  std::future<float> loss = train({}, [&](size_t tensor) {
    if (tensor == 0) sent.get_future().wait();
  });
  ASSERT_TRUE(next());
  std::array<float, 2> a{};
  float b = 0.0F;
  std::array<float*, 2> to{a.data(), &b};
  while (handover_.copy_arriving(1, to) != 1) {
  }
  EXPECT_EQ(b, 3.0F);
  EXPECT_THAT(to, ElementsAre(a.data(), nullptr));
  EXPECT_THAT(a, ElementsAre(0.0F, 0.0F));
  sent.set_value();
  EXPECT_EQ(handover_.copy_arriving(-1, to), 0U);
  EXPECT_THAT(a, ElementsAre(1.0F, 2.0F));
  a = {};
  handover_.copy_weights(0, a);
  EXPECT_THAT(a, ElementsAre(1.0F, 2.0F));
  handover_.end_training(2.0F);
  EXPECT_EQ(loss.get(), 2.0F);
}

TEST_F(HandoverTest, WeightsThatTheCallerHasChangedAreFound) {
  std::future<float> loss = train();
  ASSERT_TRUE(next());
  std::array<float, 2> a{};
  float b = 0.0F;
  const std::array<const float*, 2> at{a.data(), &b};
  EXPECT_THAT(error_of([&] { handover_.find_changed(at); }),
              HasSubstr("tensor 0 have not been copied"));
  std::array<float*, 2> to{a.data(), &b};
  EXPECT_EQ(handover_.copy_arriving(-1, to), 0U);
  handover_.end_training(2.0F);
  EXPECT_EQ(loss.get(), 2.0F);
  EXPECT_EQ(handover_.find_changed(at), 2U) << "none, also between tasks";
  b = std::nextafter(b, 9.0F);
  EXPECT_EQ(handover_.find_changed(at), 1U);
  EXPECT_EQ(handover_.find_changed(std::array<const float*, 2>{a.data(), nullptr}), 2U);
  std::swap(a[0], a[1]);
  EXPECT_EQ(handover_.find_changed(at), 0U);
}

TEST_F(HandoverTest, ChangesOfALargeTensorAreFoundAtEachPlace) {
  constexpr int64_t kSize = 10'001;  // several blocks of the copy, and a rest
  table_ = {};
  table_.add(tensor("large", kSize));
  std::vector<float> large(kSize, 0.5F);
  gradients_.resize(kSize);
  std::future<float> loss = std::async(std::launch::async, [&] {
    return handover_.train(table_, large, {4, 7, indices_, {}}, gradients_, [](size_t) {}, {});
  });
  ASSERT_TRUE(next());
  std::vector<float> copy(kSize);
  std::array<float*, 1> to{copy.data()};
  EXPECT_EQ(handover_.copy_arriving(-1, to), 0U);
  handover_.end_training(0.0F);
  loss.get();
  const std::array<const float*, 1> at{copy.data()};
  EXPECT_EQ(handover_.find_changed(at), 1U);
  for (const size_t place :
       {size_t{0}, size_t{4095}, size_t{4096}, size_t{8192}, size_t{kSize - 1}}) {
    const float before = std::exchange(copy[place], 0.25F);
    EXPECT_EQ(handover_.find_changed(at), 0U) << place;
    copy[place] = before;
  }
  EXPECT_EQ(handover_.find_changed(at), 1U);
}

TEST_F(HandoverTest, AWaitForWeightsEndsWithTheTask) {
  std::promise<void> waits;
  std::future<float> dropped = train({}, [&](size_t) {
    waits.get_future().wait();
    throw Error(ErrorCode::kFailed, "dropped");
  });
  ASSERT_TRUE(next());
  std::array<float, 2> a{5.0F, 5.0F};
  std::array<float*, 2> to{a.data(), nullptr};
  EXPECT_THAT(error_of([&] { handover_.copy_arriving(0, std::span(to).first(1)); }),
              HasSubstr("the model has 2 tensors, got addresses of 1"));
  EXPECT_EQ(handover_.copy_arriving(0, to), 1U);
  waits.set_value();
  EXPECT_EQ(handover_.copy_arriving(-1, to), 0U);
  EXPECT_THAT(a, ElementsAre(5.0F, 5.0F));
  EXPECT_THAT(error_of([&] { dropped.get(); }), HasSubstr("dropped"));
}

TEST_F(HandoverTest, GivingUpEndsAWaitForWeights) {
  std::promise<void> sent;
  std::future<float> loss = train({}, [&](size_t) { sent.get_future().wait(); });
  ASSERT_TRUE(next());
  std::future<std::string> waiting = std::async(std::launch::async, [this] {
    return error_of([&] {
      std::array<float, 1> b{};
      handover_.copy_weights(1, b);
    });
  });
  handover_.give_up("another thread has failed");
  EXPECT_THAT(waiting.get(), HasSubstr("another thread has failed"));
  sent.set_value();
  EXPECT_THAT(error_of([&] { loss.get(); }), HasSubstr("another thread has failed"));
}

TEST_F(HandoverTest, ALentGradientIsReadBeforeTheTaskHasEnded) {
  std::future<float> loss = train([&](size_t tensor) {
    if (tensor == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  ASSERT_TRUE(next());
  const std::array<float, 1> b{0.5F};
  handover_.lend_gradient(1, b);
  std::array<float, 2> a{0.25F, 0.75F};
  handover_.lend_gradient(0, a);
  EXPECT_THAT(error_of([&] { handover_.lend_gradient(0, a); }), HasSubstr("second gradient of a"));
  handover_.end_training(1.5F);
  a = {};
  EXPECT_EQ(loss.get(), 1.5F);
  EXPECT_THAT(gradients_, ElementsAre(0.25F, 0.75F, 0.5F));
  EXPECT_THAT(ready_, ElementsAre(1, 0));
}

TEST_F(HandoverTest, ALentGradientOfAVoidTaskIsNotRead) {
  std::promise<void> lent;
  std::future<float> dropped = train([&](size_t) {
    lent.get_future().wait();
    throw Error(ErrorCode::kFailed, "dropped");
  });
  ASSERT_TRUE(next());
  handover_.set_gradient(1, std::array{0.5F});
  const std::array<float, 2> a{0.25F, 0.75F};
  handover_.lend_gradient(0, a);
  lent.set_value();
  EXPECT_THAT(error_of([&] { dropped.get(); }), HasSubstr("dropped"));
  handover_.end_training(0.0F);
  EXPECT_EQ(gradients_[0], 9.0F);
}

TEST_F(HandoverTest, AnEvaluationReturnsTheSumsOfTheCaller) {
  std::array<HeadSums, 2> sums;
  std::future<void> ended = std::async(std::launch::async, [this, &sums] {
    handover_.evaluate(table_, weights_, {-1, 3, indices_, {}}, sums);
  });
  const auto task = next();
  ASSERT_TRUE(task && !task->trains);
  EXPECT_EQ(task->micro_batch, 3);
  const HeadSums first{4.0, 2, 1.0};
  const HeadSums second{5.0, 3, 2.0};
  EXPECT_THAT(error_of([&] { handover_.end_evaluation(std::array{first}); }),
              HasSubstr("the model has 2 heads, got the sums of 1"));
  handover_.end_evaluation(std::array{first, second});
  ended.get();
  EXPECT_THAT(sums, ElementsAre(first, second));
}

TEST_F(HandoverTest, GivingUpFailsTheTaskAndLaterOnes) {
  std::future<float> loss = train();
  ASSERT_TRUE(next());
  handover_.give_up("the script ended");
  EXPECT_THAT(error_of([&] { loss.get(); }), HasSubstr("the script ended"));
  EXPECT_THAT(error_of([&] { train().get(); }), HasSubstr("the script ended"));
}

TEST_F(HandoverTest, GivingUpEndsAWaitOfTheCaller) {
  std::future<std::string> waiting =
      std::async(std::launch::async, [this] { return error_of([&] { next(); }); });
  handover_.give_up("another thread has failed");
  EXPECT_THAT(waiting.get(), HasSubstr("another thread has failed"));
}

TEST_F(HandoverTest, ATaskThatTakesTooLongIsNamed) {
  handover_.set_time_limit(0.05, 0.05);
  std::future<float> loss = train();
  ASSERT_TRUE(next());
  EXPECT_THAT(error_of([&] { loss.get(); }),
              HasSubstr("[task-timeout] the program has not ended the task of step 4, micro-batch "
                        "7 for 0.05 s (task-timeout = 0.05)"));
  handover_.end_training(0.0F);  // void
  std::array<HeadSums, 1> sums;
  std::future<void> ended = std::async(std::launch::async, [this, &sums] {
    handover_.evaluate(table_, weights_, {-1, 3, indices_, {}}, sums);
  });
  ASSERT_TRUE(next());
  EXPECT_THAT(error_of([&] { ended.get(); }), HasSubstr("chunk 3 of an evaluation"));
}

TEST_F(HandoverTest, OnlyAnOpenTaskHasATimeLimit) {
  handover_.set_time_limit(0.05, 0.0);
  std::future<float> loss = train();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_TRUE(next());
  handover_.end_training(2.0F);
  EXPECT_EQ(loss.get(), 2.0F);
}

TEST_F(HandoverTest, AWaitForWeightsIsNotTheCallers) {
  handover_.set_time_limit(0.2, 0.0);
  std::future<float> loss = train({}, [](size_t tensor) {
    if (tensor == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  });
  ASSERT_TRUE(next());
  std::array<float, 2> a{};
  handover_.copy_weights(0, a);
  handover_.end_training(2.0F);
  EXPECT_EQ(loss.get(), 2.0F);
}

TEST_F(HandoverTest, AnAnnouncedTaskIsToldUntilItBegins) {
  handover_.announce({true, 4, 7, 0, {11, 12}});
  handover_.announce({true, 4, 8, 0, {13}});
  const auto first = handover_.announced();
  ASSERT_TRUE(first);
  EXPECT_THAT(first->indices, ElementsAre(11, 12));
  std::future<float> loss = train();
  ASSERT_TRUE(next());
  EXPECT_EQ(handover_.announced()->micro_batch, 8);
  EXPECT_FALSE(handover_.announced());
  handover_.end_training(0.0F);
  loss.get();
}

TEST_F(HandoverTest, AfterTheEndThereIsNoTask) {
  handover_.end();
  EXPECT_FALSE(next());
}

TEST_F(HandoverTest, AWaitWithALimitMayFindNothing) {
  HandedTask task;
  EXPECT_EQ(handover_.next(1, &task), Handover::Next::kNothingYet);
}

// ---- a caller with a stage of a model ----

struct GroupIsOver {};

TEST_F(HandoverTest, TheNextTaskNeedsThePresentGroup) {
  handover_.set_group({3, "host", 7});
  std::future<float> loss = train();
  HandedTask task;
  EXPECT_EQ(handover_.next(-1, &task), Handover::Next::kRegroup);
  MeetingPlace place;
  EXPECT_EQ(handover_.next_group(-1, &place), Handover::Next::kTask);
  EXPECT_EQ(place.attempt, 3);
  EXPECT_EQ(place.host, "host");
  EXPECT_EQ(place.port, 7);
  EXPECT_EQ(handover_.next(-1, &task), Handover::Next::kTask);
  EXPECT_EQ(handover_.next_group(0, &place), Handover::Next::kNothingYet);
  EXPECT_EQ(place.attempt, 3) << "it goes on, and its task stays open";
  handover_.end_training(1.5F);
  EXPECT_EQ(loss.get(), 1.5F);
  handover_.set_group({});
  EXPECT_EQ(handover_.next(-1, &task), Handover::Next::kRegroup);
  EXPECT_EQ(handover_.next_group(0, &place), Handover::Next::kNothingYet);
  EXPECT_EQ(place.attempt, 0);
  handover_.end();
  EXPECT_EQ(handover_.next_group(-1, &place), Handover::Next::kEnd);
  EXPECT_EQ(handover_.next(-1, &task), Handover::Next::kEnd);
}

TEST_F(HandoverTest, AnOpenTaskOfAGroupThatHasEndedIsDropped) {
  std::atomic<bool> over = false;
  handover_.set_idle([&] {
    if (over) throw GroupIsOver{};
  });
  handover_.set_group({3, "host", 7});
  MeetingPlace place;
  handover_.next_group(-1, &place);
  std::future<float> loss = train();
  ASSERT_TRUE(next());
  over = true;
  EXPECT_THROW(loss.get(), GroupIsOver);
  handover_.set_gradient(1, std::array{0.5F});  // the caller does not know yet
  over = false;
  handover_.set_group({4, "host", 7});
  loss = train();  // waits until the caller has dropped its task
  EXPECT_EQ(handover_.next_group(-1, &place), Handover::Next::kTask);
  EXPECT_EQ(place.attempt, 4);
  ASSERT_TRUE(next());
  handover_.set_gradient(1, std::array{0.25F});
  handover_.end_training(2.0F);
  EXPECT_EQ(loss.get(), 2.0F);
  EXPECT_THAT(gradients_, ElementsAre(0.0F, 0.0F, 0.25F));
}

TEST_F(HandoverTest, ACallerThatEndsAVoidTaskHearsOfTheGroupThen) {
  std::atomic<bool> over = false;
  handover_.set_idle([&] {
    if (over) throw GroupIsOver{};
  });
  std::future<float> loss = train();
  ASSERT_TRUE(next());
  over = true;
  EXPECT_THROW(loss.get(), GroupIsOver);
  handover_.set_group({4, "host", 7});
  handover_.end_training(1.0F);
  HandedTask task;
  EXPECT_EQ(handover_.next(-1, &task), Handover::Next::kRegroup);
}

TEST_F(HandoverTest, AnEvaluationIsDroppedLikewise) {
  std::atomic<bool> over = false;
  handover_.set_idle([&] {
    if (over) throw GroupIsOver{};
  });
  std::vector<HeadSums> none;
  auto done = std::async(std::launch::async, [&] {
    handover_.evaluate(table_, weights_, {-1, 0, indices_, {}}, none);
  });
  ASSERT_TRUE(next());
  EXPECT_THAT(error_of([&] { handover_.end_evaluation(std::array<HeadSums, 1>{}); }),
              HasSubstr("only the last stage reports an evaluation"));
  over = true;
  EXPECT_THROW(done.get(), GroupIsOver);
  MeetingPlace place;
  EXPECT_EQ(handover_.next_group(0, &place), Handover::Next::kNothingYet);
  over = false;
  std::future<float> loss = train();
  ASSERT_TRUE(next());
  handover_.end_training(1.0F);
  EXPECT_EQ(loss.get(), 1.0F);
}

TEST(Handover, ARateHoldsUntilAnotherOneIsSaidAndThatOfTheFirstMicroBatchCounts) {
  Handover handover;
  EXPECT_EQ(handover.step_rate(), std::nullopt);
  EXPECT_THROW(handover.set_learning_rate(0.1), Error) << "the job has rates of its own";
  handover.set_job_rate(0.5);
  for (const double wrong : {-0.1, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    EXPECT_THROW(handover.set_learning_rate(wrong), Error) << wrong;
  }
  TensorTable table;
  table.add({.name = "w", .shape = {1}});
  const std::vector<float> weights(1);
  const auto run = [&](int64_t step, int64_t micro_batch, std::optional<double> says) {
    std::vector<float> gradients(1);
    const std::array<int64_t, 1> indices{0};
    std::jthread caller([&] {
      HandedTask got;
      ASSERT_EQ(handover.next(-1, &got), Handover::Next::kTask);
      if (says) handover.set_learning_rate(*says);
      handover.end_training(0.0F);
    });
    handover.train(table, weights, Samples{step, micro_batch, indices, {}, 0, false}, gradients,
                   [](size_t) {}, {});
    return *handover.step_rate();
  };
  EXPECT_EQ(run(0, 0, {}), 0.5) << "the job's lr";
  handover.note_progress({.steps = 1, .loss = 2.0, .learning_rate = 0.25});
  EXPECT_EQ(run(1, 0, {}), 0.25) << "that of the step before";
  EXPECT_EQ(handover.progress().loss, 2.0);
  EXPECT_EQ(run(2, 0, 0.125), 0.125);
  EXPECT_EQ(run(2, 1, 0.0), 0.125) << "the first micro-batch has ended with another one";
  EXPECT_EQ(run(2, 0, {}), 0.0) << "the task is computed again";
  EXPECT_EQ(run(3, 2, {}), 0.0);
}

}  // namespace
}  // namespace pushpull
