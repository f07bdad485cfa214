// A worker's side of push and pull as a state machine: combines the schedule, the pushes in flight
// (PushDelivery) and the pull in progress (Pull). Does no I/O, reads no clock, and does not depend
// on strategy or model. Not thread-safe; used by the trainer's thread.
//
// The driver's loop: `next` returns a task. After kCompute the driver pushes the gradient with
// begin_push, add_part..., end_push. It passes servers' messages to on_message, the coordinator's
// state to on_state and the time to on_tick. Source: push and pull of Li et al., OSDI 2014.
//
// A task may begin while its weights arrive: forward waits for the slices of the next layer, and
// the others arrive meanwhile (Jayarajan et al., Priority-Based Parameter Propagation, MLSys 2019;
// Peng et al., ByteScheduler, SOSP 2019).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/job/barriers.h"
#include "common/job/job.h"
#include "worker/exchange/pull.h"
#include "worker/exchange/push_delivery.h"
#include "worker/exchange/schedule.h"
#include "worker/exchange/weights_buffer.h"

namespace pushpull {

struct JobView;

// The setup of PushPull for one term. Plain value.
struct PushPullSetup {
  uint64_t term_id = 0;
  uint64_t incarnation = 0;
  Job job;
  int64_t total_elements = 0;              // of the flat vector
  std::vector<int64_t> stage_begins = {};  // see SliceMap
  SlicePart part = {};
  int servers = 1;
  Barriers barriers;
  int shares = 1;                        // of a step and of an evaluation
  int64_t chunks = 0;                    // of an evaluation
  size_t flush_bytes = size_t{1} << 20;  // size at which a push's message is sent
  // Most bytes of weights in flight on each connection; 0 = no limit. The default is several times
  // the socket buffers of a loopback connection. PullWindows lowers it over a slow link.
  int64_t window_bytes = int64_t{8} << 20;
  FloatAllocator memory = heap_floats;  // for weights that are copied from servers
  // Weights need not be in `memory`: see WeightsBuffer.
  bool anywhere = true;
  // Servers acknowledge each push, and the next pull starts with the next call of `next`. Otherwise
  // it rides on the push.
  bool acknowledge = false;
};

// Returns the setup of PushPull for this term.
//   chunks: of an evaluation.
PushPullSetup push_pull_setup(const JobView& view, const TensorTable& table, int64_t chunks);

class PushPull {
 public:
  explicit PushPull(PushPullSetup setup);

  // ---- events ----
  // Handles the worker's shares. Ignores older states; takes effect after a running push.
  void on_state(const wire::State& state, int64_t now_ms);
  // Returns false if the message is not for this object.
  bool on_message(int server, const Message& message, int64_t now_ms);
  // Repeats unanswered messages. Throws Error(kUnreachable), naming a server, after a long silence.
  void on_tick(int64_t now_ms);
  // Sets whether this server and the worker share memory from now on. If so, weights are read in
  // place, and a pushed buffer does not change until the server has read it.
  //   on_device: also the memory of the worker's device; spans of weights may then be in it.
  void share_memory(int server, bool shared, bool on_device = false) {
    pull_.share_memory(server, shared, on_device);
  }

  // ---- the driver's side ----
  Task next(int64_t now_ms);
  // In a group of workers that divides the model: see Schedule.
  std::optional<int64_t> proposed_step() const { return schedule_->proposed_step(); }
  void begin_at(int64_t step) { schedule_->begin_at(step); }
  bool leads() const { return schedule_->leads(); }
  bool awaits_task() const { return schedule_->awaits_task(); }
  void follow(const Task& task);
  // Returns the task that will probably follow, so that its data can be prefetched.
  std::optional<Task> upcoming() const { return schedule_->upcoming(); }
  // The weights for the task that `next` returned. Valid until the next call of on_message.
  std::span<const float> weights() const { return weights_.current(); }
  bool weights_in_place() const { return weights_.current_in_place(); }  // at least some
  // Returns true if the evaluation that `next` returned has no weights: see Schedule::is_past_barrier.
  bool is_past_barrier() const { return schedule_->is_past_barrier(); }
  // Returns true if the weights in use are those of this step, for a task of the model.
  bool has_weights_of(int64_t step) const {
    return schedule_->weights_fit({Task::kCompute, step, {}});
  }
  // The weights for an evaluation: without the rounding of `pull-codec`.
  std::span<const float> evaluation_weights() const { return weights_.whole(); }

  // Returns the next task while its weights arrive (`next` returns kWait then). Only elements of
  // `weights_of` for which `here` returns true may be read. Call begin_push when `all_here`.
  std::optional<Task> early() const;
  // Returns whether the task is still the next one. If not, the driver drops it and calls `next`.
  bool is_current(const Task& task) const;
  // For a current early task: true once these weights, or all weights and pushes, have arrived.
  bool here(Range elements) const { return all_here() || weights_.has(elements); }
  bool all_here() const { return delivery_.is_running() || !pull_.brings_weights(); }
  // The weights of a current task, also while they arrive. Valid until the next call of `next`.
  std::span<const float> weights_of(const Task& task) const;
  // The version of the current weights, by server; -1 under ssp if the worker's stage reads none of its slices.
  const std::vector<int64_t>& read_versions() const { return read_versions_; }

  // A push has one part for each slice and each node of `nodes(range)`.
  std::vector<Range> nodes(Range range) const { return schedule_->nodes(range); }
  void begin_push(int64_t step, Range range);
  void add_part(int slice, Range node, Payload payload);
  // losses: by step and micro-batch; squares: of the mean gradient, if clip-norm applies per push;
  // data_hash: of the samples, HashSum::bytes(); bad: gradients that count as zeros; learning_rate: that
  // the model's program has said.
  void end_push(const std::vector<float>& losses, double squares, int64_t now_ms,
                const std::string& data_hash = {}, std::span<const wire::BadGradient> bad = {},
                std::optional<double> learning_rate = {});
  void finish_evaluation() { schedule_->on_evaluated(); }

  std::vector<ToServer> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::vector<std::string> take_warnings() { return pull_.take_warnings(); }  // for the log
  // Servers that another process has replaced: connect to them again before the next message.
  std::vector<int> take_replaced() { return std::exchange(replaced_, {}); }

  const PushPullSetup& setup() const { return setup_; }
  const SliceMap& slices() const { return connections_.map(); }
  // The most pushes that a server has not acknowledged.
  int64_t unacknowledged() const { return delivery_.unacknowledged(); }
  int connections(int server) const { return connections_.count(server); }
  // Returns true if the next pull runs beside the running push.
  bool pulls_while_pushing() const { return delivery_.is_running() && pull_.brings_weights(); }
  bool pull_answered() const { return pull_answered_; }  // since the last push
  // The newest that server 0 has told.
  const wire::Progress& progress() const { return progress_; }
  std::string waiting_for() const;

 private:
  void take_state(const wire::State& state, int64_t now_ms);
  void follow_servers(const wire::Places& places, int64_t now_ms);
  void give_up_pull();
  bool arrives_for(const Task& task) const;
  void pull_while_pushing();
  void finish_if_complete(int64_t now_ms);
  void repeat_reports(int64_t now_ms);

  const PushPullSetup setup_;
  const ConnectionMap connections_;
  const std::unique_ptr<Schedule> schedule_;
  std::vector<ToServer> outgoing_;
  WeightsBuffer weights_;
  PushDelivery delivery_;
  Pull pull_;
  int64_t state_version_ = -1;
  int64_t evaluated_;                   // newest evaluation after which training may go on
  std::optional<wire::State> later_;    // arrived during the running push
  std::vector<int64_t> read_versions_;  // by server, of the current weights
  std::vector<int32_t> lives_;          // by server: incarnations of its place
  std::vector<int> replaced_;
  bool pull_answered_ = false;
  wire::Progress progress_;
  // Without pulls: when server 0 was last heard or, if later, the first unacknowledged push was
  // sent; when pushes were last repeated; and the time of the last tick.
  int64_t heard_ms_ = 0;
  int64_t repeated_ms_ = 0;
  int64_t ticked_ms_ = 0;
};

}  // namespace pushpull
