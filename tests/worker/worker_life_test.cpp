// The life of a worker over real sockets, with work of the test's own. The test plays the
// coordinator.
#include "worker/worker_life.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "tests/worker/fake_coordinator.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class UnaskedOwner final : public WorkerOwner {
 public:
  void end_now(int code) override { ADD_FAILURE() << code; }
  std::string failure() const override { return fails() ? "[test] the owner fails" : ""; }

  std::function<bool()> fails = [] { return false; };
};

// Keeps, in order, what the worker and the coordinator have seen.
class Story {
 public:
  void add(const std::string& event) {
    const std::lock_guard lock(mutex_);
    if (events_.empty() || events_.back() != event) events_.push_back(event);
  }
  std::vector<std::string> events() const {
    const std::lock_guard lock(mutex_);
    return events_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
};

// Ends with the job, or fails.
class ToldWork final : public Work {
 public:
  ToldWork(const WorkerParts& parts, Story& story, bool fails)
      : parts_(parts), story_(story), fails_(fails) {
    story_.add("made for " + std::to_string(parts.control.job().steps) + " steps");
  }
  ~ToldWork() override { story_.add("destroyed"); }

  wire::Declare declare() override {
    wire::Declare declare;
    declare.set_numerics("the test's");
    return declare;
  }
  JobEnd run(const JobView& view) override {
    story_.add("runs as worker " + std::to_string(view.state.rank()));
    if (fails_) throw Error(ErrorCode::kData, "[data] the disk is gone");
    while (!parts_.control.over()) poll_sockets({}, 10);
    return *parts_.control.end();
  }

 private:
  const WorkerParts parts_;
  Story& story_;
  const bool fails_;
};

class WorkerLifeTest : public testing::Test {
 protected:
  // Starts training at the first declaration, and finishes the job once the work runs.
  FakeCoordinator::Answer answers() {
    return [this](Router& router, const PeerId& peer, const Message& message) {
      const wire::Header& header = message.header;
      if (header.has_hello()) give_job(router, peer);
      if (header.has_declare()) story_.add("declared: " + header.declare().numerics());
      if (header.has_leave()) left_ = header.leave();
      if (header.has_leave()) story_.add("left with " + std::to_string(header.leave().code()));
      if (!header.has_declare() && !header.has_heartbeat()) return;
      Message state;
      state.header.set_term_id(5);
      state.header.mutable_state()->set_version(header.has_declare() ? 1 : 2);
      state.header.mutable_state()->set_phase(header.has_declare() ? wire::PHASE_TRAINING
                                                                   : wire::PHASE_FINISHED);
      state.header.mutable_state()->set_rank(3);
      state.header.mutable_state()->set_declared(true);
      const bool may_finish = finishes_ && story_.events().size() > 2;
      if (header.has_declare() || may_finish) router.send(peer, state);
    };
  }

  JobEnd live(const std::string& address, bool fails) {
    WorkerOptions options;
    options.join = address;
    WorkerLife life(options, owner_);
    return life.run(
        [&](const WorkerParts& parts) { return std::make_unique<ToldWork>(parts, story_, fails); });
  }

  void wait_for_leave() {
    const auto has_left = [this] { return story_.events().back().starts_with("left"); };
    for (int i = 0; i < 2000 && !has_left(); ++i) poll_sockets({}, 10);
  }

  UnaskedOwner owner_;
  Story story_;
  wire::Leave left_;
  bool finishes_ = true;
};

TEST_F(WorkerLifeTest, JoinsDeclaresRunsItsWorkAndLeaves) {
  FakeCoordinator coordinator(answers());
  const JobEnd end = live(coordinator.address(), false);
  EXPECT_TRUE(end.success) << end.text;
  wait_for_leave();
  EXPECT_THAT(story_.events(), ElementsAre("made for 10 steps", "declared: the test's",
                                           "runs as worker 3", "destroyed", "left with 0"));
}

TEST_F(WorkerLifeTest, WorkThatFailsLeavesWithItsError) {
  FakeCoordinator coordinator(answers());
  EXPECT_THROW(live(coordinator.address(), true), Error);
  wait_for_leave();
  EXPECT_EQ(left_.code(), static_cast<int>(ErrorCode::kData));
  EXPECT_THAT(left_.text(), HasSubstr("the disk is gone"));
}

TEST_F(WorkerLifeTest, AnOwnerThatFailsEndsTheWorkAndIsTheReason) {
  finishes_ = false;
  owner_.fails = [this] { return story_.events().size() > 2; };
  FakeCoordinator coordinator(answers());
  EXPECT_THROW(live(coordinator.address(), false), Error);
  wait_for_leave();
  EXPECT_THAT(story_.events(), ElementsAre("made for 10 steps", "declared: the test's",
                                           "runs as worker 3", "destroyed", "left with 1"));
  EXPECT_THAT(left_.text(), HasSubstr("the owner fails"));
}

TEST_F(WorkerLifeTest, AnOwnerThatFailsEndsTheWaitForTheCoordinator) {
  owner_.fails = [] { return true; };
  FakeCoordinator coordinator([](Router&, const PeerId&, const Message&) {});
  try {
    live(coordinator.address(), false);
    FAIL() << "it lived";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("the owner fails"));
  }
}

TEST_F(WorkerLifeTest, AnAddressThatIsNoneIsRefusedBeforeAnySocketOpens) {
  EXPECT_THROW(live("nowhere", false), Error);
  EXPECT_TRUE(story_.events().empty());
}

}  // namespace
}  // namespace pushpull
