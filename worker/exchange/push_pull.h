// A worker's side of push and pull as a state machine: what to compute next, which slices to push
// where, when the weights for the next step are complete, what to repeat when an answer does not
// come. Knows no socket, thread, clock or model. One thread (the trainer's).
//
// The driver's loop: `next` says what to do; after kCompute it pushes the gradient with begin_push,
// add_part..., end_push; messages of servers go to on_message, the coordinator's state to on_state,
// time to on_tick. Sources: push and pull of Li et al., OSDI 2014; bounded staleness of Ho et al.,
// NIPS 2013.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/job/barriers.h"
#include "common/job/job.h"
#include "common/layout/slice_map.h"
#include "common/net/message.h"
#include "worker/exchange/weights_buffer.h"

namespace pushpull {

constexpr int64_t kPullRepeatMs = 1000;  // an answer that has not come by then is asked for again

struct PushPullSetup {
  uint64_t run = 0;
  uint64_t incarnation = 0;
  Job job;
  int64_t total_elements = 0;  // of the flat vector
  int servers = 1;
  Barriers barriers;
  int shares = 1;                        // that a step, and an evaluation, is cut into
  int64_t chunks = 0;                    // of an evaluation
  size_t flush_bytes = size_t{1} << 20;  // a push's message goes out when it holds so much
  // Of weights on their way on each lane, at most; 0: no limit. Several times what a
  // loopback connection holds in its socket buffers. Less over a slow link.
  int64_t window_bytes = int64_t{8} << 20;
  FloatAllocator memory = heap_floats;  // where weights come in that do not stay with a server
  // Weights that stay with several servers are mapped side by side, not copied to `memory`.
  bool side_by_side = true;
  // The next pull begins when `next` is asked for it, not with the push, which the servers
  // acknowledge.
  bool acknowledge = false;
};

struct Task {
  enum Kind {
    kWait,      // for messages; then ask again
    kCompute,   // micro-batches `range` of `step`, then push
    kEvaluate,  // chunks `range` at barrier `step`, then finish_evaluation
    kDone,      // nothing more to compute in this run (a new share may still come)
  };
  Kind kind = kWait;
  int64_t step = 0;
  Range range;
  int64_t steps = 1;  // local:H: steps [step, step + steps) at once
};

struct ToServer {
  int server = 0;
  Message message;
  int lane = 0;
};

class PushPull {
 public:
  explicit PushPull(PushPullSetup setup);

  // ---- events ----
  // Shares that the coordinator has given to this worker. Only newer states than before have an
  // effect.
  void on_state(const wire::State& state, int64_t now_ms);
  // Returns false for a message that does not belong here.
  bool on_message(int server, const Message& message, int64_t now_ms);
  // Repeats what has not been answered. Throws Error(kUnreachable) naming the server when it has
  // not said anything for the job's heartbeat-timeout although it was asked.
  void on_tick(int64_t now_ms);

  // This server's memory and ours can be shared from here on, or cannot: weights are then asked for
  // in place, and what is pushed stays as it is until the server has read it.
  //   on_device: that of the device that we compute on, too; then spans of weights may lie there.
  void share_memory(int server, bool shared, bool on_device = false);

  // ---- the driver's side ----
  Task next(int64_t now_ms);
  // What will probably be computed after the current task, so that data can be read ahead.
  std::optional<Task> upcoming() const;
  // All weights, for the task that `next` has given. Valid until the next call of on_message.
  std::span<const float> weights() const { return weights_.current(); }
  // They, or some of them, lie where a server has written them.
  bool weights_in_place() const { return weights_.current_in_place(); }
  // ... for an evaluation: with all their bits, whatever `pull-codec` makes of the others.
  std::span<const float> evaluation_weights() const { return weights_.whole(); }

  // The next task, which may begin although its weights are still coming (then `next` says kWait):
  // what is here of `weights_of` the task is final, what is not here must not be read.
  // begin_push comes when all are here.
  // worker/exchange/push_pull_early.cpp
  std::optional<Task> early() const;
  // It is still what is to be done next, and its weights are here or on their way. Otherwise it
  // must be dropped, and `next` be asked.
  bool stands(const Task& task) const;
  // Of the weights of an early task that stands (ask that first): these elements; all of them, and
  // all pushes before have arrived.
  bool here(Range elements) const;
  bool all_here() const { return pushing_ || !pulling_; }
  // All weights of a task that stands, also where they are still coming. Valid as long as it
  // stands, and until the next call of `next`.
  std::span<const float> weights_of(const Task& task) const;

  // Updates that each server had had in these weights.
  std::vector<int64_t> read_versions() const;

  // The parts of a push: one per (slice, node), each node one of `nodes(range)`.
  std::vector<Range> nodes(Range range) const;
  void begin_push(int64_t step, Range range);
  void add_part(int slice, Range node, Payload payload);
  // losses: of each micro-batch, step by step; squares: of the mean gradient, where clip-norm works
  // per push; data_hash: of the samples, HashSum::bytes().
  void end_push(const std::vector<float>& losses, double squares, int64_t now_ms,
                const std::string& data_hash = {});
  void finish_evaluation();

  std::vector<ToServer> take_outgoing() { return std::exchange(outgoing_, {}); }

  const PushPullSetup& setup() const { return setup_; }
  const SliceMap& slices() const { return map_; }
  // All servers have all that was pushed, as far as they have said.
  bool pushes_arrived() const;
  // Connections to a server, at most as many as it has slices: slices take turns on them, both
  // ways.
  int lanes(int server) const;
  // The next weights have been asked for while this push goes on.
  bool pulls_while_pushing() const { return pushing_ && pulling_; }
  // Weights have come since the last push.
  bool pull_answered() const { return pull_answered_; }
  // What is being waited for, in words.
  std::string waiting_for() const;

 private:
  // Work that comes from a share; async has none.
  struct ShareWork {
    Range range;
    int index = 0;
    int64_t clock = 0;
    bool evaluated = false;  // the barrier at `clock`
    // backup: barriers up to here need no evaluation of ours. A share without micro-batches is only
    // evaluated.
    int64_t evaluated_through = 0;
  };
  struct SentPush {
    int64_t number = 0;
    int64_t step = 0;
    std::vector<ToServer> messages;
  };
  struct Lane {
    Message pending;  // parts of the running push that are not sent yet
    size_t pending_bytes = 0;
    std::optional<wire::Pull> pull;  // to ride on the pending message
    int64_t received_bytes = 0;      // of the running pull's weights
    int64_t told_bytes = 0;          // of these, the server knows
    int heard = 0;                   // the newest repetition of the running pull it has answered
    int64_t window_bytes = 0;        // of the running pull
    int64_t first_ms = 0;            // when the first message of its answer came,
    int64_t first_bytes = 0;         // and how long that was
    double bytes_per_ms = 0;         // best of the last pulls; 0: not known
  };
  struct ServerLink {
    std::vector<int> slices;
    std::deque<SentPush> unacknowledged;
    std::vector<Lane> lanes;
    bool in_place = false;        // shares memory with us
    bool on_device = false;       // ... and a device's
    bool asked_in_place = false;  // in the running pull
    bool asked_on_device = false;
    bool reads_gradients = false;   // shares memory with us, or did so once
    std::deque<SentPush> unread;    // lockstep: has arrived, and may still be read where it lies
    int64_t read_version = 0;       // of this server's slices that are current
    int64_t coming_version = -1;    // async, ssp: of those that are coming; -1: none is here
    bool coming_at_barrier = true;  // those that are coming are exactly barrier pull_.clock()
    int missing = 0;                // slices of the running pull that have not come
    int64_t asked_ms = -1;          // unanswered since; -1: nothing is asked
    int64_t repeat_ms = -1;         // when to ask again
    int64_t heard_ms = -1;
    int repeats = 0;         // since it was last heard
    int asked = 0;           // repetitions of the running pull
    int pushed_at = 0;       // of these, when pushes were last sent
    bool not_ready = false;  // it said so: ask again soon
  };

  bool sync() const { return setup_.job.strategy.kind == StrategyKind::kSync; }
  bool backup() const { return setup_.job.strategy.kind == StrategyKind::kBackup; }
  // All slices have one version.
  bool lockstep() const { return setup_.job.strategy.in_lockstep(); }
  bool pool() const { return setup_.job.strategy.kind == StrategyKind::kAsync; }
  ShareWork* next_share();
  std::optional<Task> wanted() const;
  bool weights_fit(const Task& task) const;
  bool coming_for(const Task& task) const;  // the pull under way is for its weights
  bool wants_exact_version() const {
    return lockstep() && !pull_.latest() && !(backup() && pull_.barrier());
  }
  // worker/exchange/push_pull_backup.cpp
  Range chunks_of(const ShareWork& share) const;
  ShareWork* backup_evaluation();
  ShareWork* backup_share();
  Task next_of_backup(int64_t now_ms);
  void finish_barrier_pull();
  void finish_backup_evaluation();
  void start_pull(int64_t clock, bool latest, bool barrier, int64_t now_ms);
  // worker/exchange/push_pull_early.cpp
  void pull_while_pushing();
  void start_lease_wait(int64_t now_ms);
  void send_pull(int server, bool repeat, int64_t now_ms);
  int64_t window_of(const Lane& lane) const;
  // What a repeated pull for one version says of the answer so far.
  void add_progress(int server, int lane, wire::Pull* pull) const;
  // worker/exchange/push_pull_lanes.cpp
  int lane_of(int slice) const;
  void flush(int server, int lane);
  void count_received(int server, const wire::Weights& weights,
                      const std::vector<Payload>& payloads);
  static void measure(ServerLink& link);
  void take_weights(int server, const wire::Weights& weights, const std::vector<Payload>& payloads);
  bool one_version(ServerLink& link, int64_t version);
  // All that is coming is exactly barrier pull_.clock().
  bool came_at_barrier() const;
  void check_pushes(int server, bool asked_again, int64_t now_ms);
  static bool settled(const ServerLink& link) {
    return link.missing == 0 && link.unacknowledged.empty();
  }
  void give_up_locating(const ServerLink& link);
  void finish_if_complete(int64_t now_ms);
  void finish_pull(int64_t now_ms);
  bool lease_fits(const wire::Lease& lease) const;
  void take_leases(const google::protobuf::RepeatedPtrField<wire::Lease>& leases);
  void acknowledge(ServerLink& link, int64_t through);
  // Of lockstep: every server has applied all steps below `version`.
  void forget_read(int64_t version);
  void repeat_pushes(int server);
  bool push_is_lost(const ServerLink& link) const;
  void set_sender(wire::Sender* sender) const;
  Message exchange_message() const;

  const PushPullSetup setup_;
  SliceMap map_;
  std::vector<ServerLink> links_;
  int64_t state_version_ = -1;

  std::vector<ShareWork> shares_;
  std::deque<wire::Lease> leases_;
  int64_t newest_lease_ = 0;
  bool waits_for_lease_ = false;

  WeightsBuffer weights_;
  int64_t clock_ = -1;  // that the current weights are for; -1: none
  int64_t newest_ = 0;  // backup: newest version that has been here
  bool fresh_ = false;  // nothing has been pushed since the current weights were pulled

  wire::Pull pull_;  // the running or last pull
  bool pulling_ = false;
  bool pull_answered_ = false;
  bool latest_lies_apart_ = false;  // weights of any version were found in several pieces
  bool at_barrier_ = false;         // the current weights are exactly barrier clock_

  int64_t next_push_ = 1;
  int64_t push_step_ = -1;
  Range push_range_;
  int64_t push_number_ = 0;
  int push_nodes_ = 1;
  bool pushing_ = false;  // between begin_push and end_push
  std::vector<ToServer> outgoing_;
};

}  // namespace pushpull
