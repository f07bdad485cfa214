// The training loop of a worker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/net/join.h"
#include "common/net/message.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/compute/compute.h"
#include "worker/compute/evaluate.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/links.h"
#include "worker/exchange/push_pull.h"
#include "worker/exchange/share_list.h"
#include "worker/exchange/step.h"
#include "worker/group/group_links.h"
#include "worker/member/coordinator_link.h"
#include "worker/member/time_split.h"
#include "worker/member/trace.h"

namespace pushpull {

struct Job;

// Makes the connections to the other workers of a group. They may borrow the links.
using MakeGroup = std::function<std::unique_ptr<GroupLinks>(Links&)>;

// What depends on the program around a trainer, or on the strategy.
struct TrainerMakers {
  MakeLinks links;
  MakeStep step;
  MakeGroup group = {};  // empty unless a group divides the model
};

// Takes the stage that the coordinator has given to this worker in its group.
void take_stage(GroupStage& stage, const Job& job, const wire::State& state);

// Returns the setup of PushPull for a trainer of this model.
PushPullSetup trainer_setup(const JobView& view, const Dataset& dataset, Model& model);

// The training loop of a worker: takes the next task from PushPull, computes it and pushes the
// result, which is usually the sum of the task's gradients. Knows neither sockets nor the clock: the
// simulation drives it too. Single-threaded.
class Trainer : private StepHost, private StageExchange {
 public:
  // setup: of trainer_setup, or a changed one. Borrows all references.
  Trainer(const JobView& view, PushPullSetup setup, const Dataset& dataset, Model& model,
          CoordinatorLink& coordinator, const TrainerMakers& make, Trace& trace);
  ~Trainer() override;

  // Trains until the job is over. Throws Error if this worker fails: a loss or gradient is not
  // finite, or a server does not answer.
  JobEnd run();

 private:
  // ---- StepHost, for task_ ----
  std::span<const float> weights() const override { return weights_; }
  WeightsNeeded weights_needed() override;
  std::vector<Range> nodes() const override { return push_pull_.nodes(task_.range); }
  void hint_next() override;
  bool may_become_void() const override { return group_ != nullptr; }
  void await_all_weights() override;
  void begin_push() override;
  int64_t attempt() const override { return group_ ? group_->parts().attempt() : 0; }
  Payload encoded(Range node, int slice, Payload part) override;
  void push(Range node, int slice, Payload part, bool may_go) override;
  // Also records the step, micro-batches and versions of the push, so that a replay of the run
  // finds it.
  void note_not_finite() override;
  void await(const std::function<bool()>& done, const char* what) override;
  void send(ToServer message) override { links_->send(std::move(message)); }
  int64_t unacknowledged() const override { return push_pull_.unacknowledged(); }
  TimeSplit& split() override { return split_; }

  // ---- StageExchange, for task_ ----
  FloatAllocator memory() override { return group_->memory(); }
  void send(const Part& to, Payload floats) override;
  Payload receive(const Part& from, size_t floats) override;
  std::optional<Payload> take(const Part& from, size_t floats) override;
  void wait(std::span<const Part> parts, bool computes) override;
  void wake() override { coordinator_.wake(); }

  void train();
  // Begins the attempt of the newest state, or leaves the group. Call between tasks.
  void follow_group();
  bool group_changed() const {
    return group_ && news_.group().attempt() != group_->parts().attempt();
  }
  // Agrees with the others of a new group on the step to begin with.
  void agree_on_step();
  void wait_for_group(const GroupParts::Wait& wait);
  // Throws Error, which names the member, unless the part has this size.
  void check_size(const Part& from, const Payload& payload, size_t floats) const;
  // Tells the others of the group that this task is next, if they cannot know it.
  void tell(const Task& task);
  // Returns what this worker waits for if it needs stage 0 to tell it the next task.
  std::optional<GroupParts::Wait> wait_for_task() const;
  void take_task();
  void check_current() const;
  void let_go();
  //   wait: see GroupLinks.
  void exchange(const std::optional<GroupParts::Wait>& wait = {});
  void wait();
  // Gives the model the weights at the end of the job, once, if they are here.
  void keep_final(int64_t end_step);
  // Reports evaluations whose results waited for the weights that the job may end with.
  void report_held();
  // Tells the model the progress of the job.
  void note_progress();
  // Adds a trace event for each slice in `message`.
  void note_weights(const Message& message);
  void begin(const Task& task);
  void compute(const Task& task);
  // Waits until `here` returns true and exchanges messages meanwhile. Throws Dropped if the task is
  // void.
  //   number: of the trace event, as in Trace::add.
  void await_weights(int64_t number, const std::function<bool()>& here);
  std::span<const float> weights_of(const Task& task) const;
  void end_wait(const Task& task);
  void finish_push(const Step::Result& result);
  void report_times();
  void evaluate(const Task& task);

  CoordinatorLink& coordinator_;
  GroupStage* const stage_;  // null unless a group divides the model
  const TensorTable& table_;
  EvaluationShare evaluation_;
  PushPull push_pull_;
  const std::unique_ptr<Links> links_;
  const std::unique_ptr<GroupLinks> group_;  // null unless a group divides the model
  Compute compute_;
  Encoder encoder_;
  std::unique_ptr<Step> step_;
  wire::State news_;        // in a group: the newest state
  bool told_step_ = false;  // to the others of the group
  // of the group's attempt, if stage 0 tells its tasks
  int64_t tasks_ = 0;  // told
  Task told_task_;     // last, at stage 0
  TimeSplit split_ = watched_time_split();
  Task task_;                           // task being computed
  std::span<const float> weights_;      // of task_
  std::vector<wire::EvalResult> held_;  // see report_held
  bool final_kept_ = false;             // since the last task, if this worker has the final weights
  Trace& trace_;
  double waits_since_s_ = 0.0;  // when the last task ended; only if tracing
};

}  // namespace pushpull
