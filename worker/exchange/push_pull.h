// A worker's side of push and pull as a state machine: brings together what decides (Schedule), the
// pushes under way (PushDelivery) and the pull in progress (Pull). Knows no strategy,
// socket, thread, clock or model. One thread (the trainer's).
//
// The driver's loop: `next` says what to do; after kCompute it pushes the gradient with begin_push,
// add_part..., end_push; messages of servers go to on_message, the coordinator's state to on_state,
// time to on_tick. Source: push and pull of Li et al., OSDI 2014.
//
// A task may begin while its weights are still coming: forward waits for the slices of the layer
// that it is about to compute, and the others arrive meanwhile (Jayarajan et al., Priority-Based
// Parameter Propagation, MLSys 2019; Peng et al., ByteScheduler, SOSP 2019).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/exchange/pull.h"
#include "worker/exchange/push_delivery.h"
#include "worker/exchange/push_pull_setup.h"
#include "worker/exchange/weights_buffer.h"
#include "worker/schedule/schedule.h"

namespace pushpull {

class PushPull {
 public:
  explicit PushPull(PushPullSetup setup);

  // ---- events ----
  // Shares of this worker. Only newer states have an effect, and none before a running push ends.
  void on_state(const wire::State& state, int64_t now_ms);
  // False: the message does not belong here.
  bool on_message(int server, const Message& message, int64_t now_ms);
  // Repeats what has not been answered. Throws Error(kUnreachable) naming a server that was asked and
  // has been silent for too long.
  void on_tick(int64_t now_ms);
  // This server's memory and ours can be shared from here on, or cannot: weights are then asked for
  // in place, and what is pushed stays as it is until the server has read it.
  //   on_device: that of the device that we compute on, too; then spans of weights may lie there.
  void share_memory(int server, bool shared, bool on_device = false) {
    pull_.share_memory(server, shared, on_device);
  }

  // ---- the driver's side ----
  Task next(int64_t now_ms);
  // The task that will probably be computed after this one: its data can be read ahead.
  std::optional<Task> upcoming() const { return schedule_->upcoming(); }
  // All weights, for the task that `next` has given. Valid until the next call of on_message.
  std::span<const float> weights() const { return weights_.current(); }
  bool weights_in_place() const { return weights_.current_in_place(); }  // some, at least
  // ... for an evaluation: with all their bits, whatever `pull-codec` makes of the others.
  std::span<const float> evaluation_weights() const { return weights_.whole(); }

  // The next task, though its weights are still coming (then `next` says kWait): what is here of
  // `weights_of` the task is final, nothing else must be read. begin_push comes when all are here.
  std::optional<Task> early() const;
  // It is still to be done next, and its weights are here or coming. Else drop it, and ask `next`.
  bool stands(const Task& task) const;
  // Of an early task that stands: these weights are here; all are, and all pushes have arrived.
  bool here(Range elements) const { return all_here() || weights_.has(elements); }
  bool all_here() const { return delivery_.is_running() || !pull_.brings_weights(); }
  // All weights of a task that stands, also while they are coming. Valid until `next` is called.
  std::span<const float> weights_of(const Task& task) const;

  // Updates that each server had had in these weights.
  const std::vector<int64_t>& read_versions() const { return read_versions_; }

  // The parts of a push: one per (slice, node), each node one of `nodes(range)`.
  std::vector<Range> nodes(Range range) const { return schedule_->nodes(range); }
  void begin_push(int64_t step, Range range);
  void add_part(int slice, Range node, Payload payload);
  // losses: by step and micro-batch; squares: of the mean gradient, where clip-norm works per push;
  // data_hash: of the samples, HashSum::bytes(); bad: what counts as zeros.
  void end_push(const std::vector<float>& losses, double squares, int64_t now_ms,
                const std::string& data_hash = {}, std::span<const wire::BadGradient> bad = {});
  void finish_evaluation() { schedule_->on_evaluated(); }

  std::vector<ToServer> take_outgoing() { return std::exchange(outgoing_, {}); }
  std::vector<std::string> take_warnings() { return pull_.take_warnings(); }  // for people
  // Servers in whose place another process is: to be connected anew before anything else goes out.
  std::vector<int> take_replaced() { return std::exchange(replaced_, {}); }

  const PushPullSetup& setup() const { return setup_; }
  const SliceMap& slices() const { return connections_.map(); }
  // Servers have all that was pushed, as far as they have said.
  bool pushes_arrived() const { return delivery_.arrived(); }
  int connections(int server) const { return connections_.count(server); }
  // The next weights have been asked for while this push goes on.
  bool pulls_while_pushing() const { return delivery_.is_running() && pull_.brings_weights(); }
  bool pull_answered() const { return pull_answered_; }  // weights have come since the last push
  std::string waiting_for() const;

 private:
  void take_state(const wire::State& state, int64_t now_ms);
  void follow_servers(const wire::Places& places, int64_t now_ms);
  bool coming_for(const Task& task) const;
  void pull_while_pushing();
  void finish_if_complete(int64_t now_ms);

  const PushPullSetup setup_;
  const ConnectionMap connections_;
  const std::unique_ptr<Schedule> schedule_;
  std::vector<ToServer> outgoing_;
  WeightsBuffer weights_;
  PushDelivery delivery_;
  Pull pull_;
  int64_t state_version_ = -1;
  std::optional<wire::State> later_;    // that came while a push was running
  std::vector<int64_t> read_versions_;  // by server, of the weights in use
  std::vector<int32_t> lives_;          // of the servers' places
  std::vector<int> replaced_;
  bool pull_answered_ = false;
};

}  // namespace pushpull
