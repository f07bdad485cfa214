// The training loop of a worker in all-reduce, and the buckets in which it sums gradients.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "common/job/barriers.h"
#include "common/layout/fixed_tree.h"
#include "common/net/endpoint.h"
#include "common/net/join.h"
#include "common/net/shard_client.h"
#include "common/update/range_update.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/all_reduce/collective.h"
#include "worker/all_reduce/communication.h"
#include "worker/all_reduce/peers.h"
#include "worker/compute/compute.h"
#include "worker/compute/evaluate.h"
#include "worker/exchange/to_server.h"
#include "worker/member/control.h"
#include "worker/member/time_split.h"

namespace pushpull {

class SliceMap;

// Groups gradients for all-reduce. A bucket is a run of slices; buckets are sent in the order in
// which backward reaches them, from the last slice to the first, as in PyTorch's DDP (Li et al.,
// PyTorch Distributed, VLDB 2020). The order depends on the model alone, never on the gradient that
// is ready first, so that all workers sum the same buckets in the same order. Plain bookkeeping;
// single-threaded.
class Buckets {
 public:
  // first_bytes: limit of the first bucket; small, so that communication starts early.
  // max_bytes: limit of the others.
  // A bucket holds at least one slice.
  Buckets(const SliceMap& map, int64_t first_bytes, int64_t max_bytes);

  int count() const { return static_cast<int>(elements_.size()); }
  // Returns the elements of a bucket. Bucket 0 is sent first.
  Range elements(int bucket) const { return elements_.at(static_cast<size_t>(bucket)); }

  // Begins a step: no slice is ready.
  void begin();
  // Records that the slice's gradient is final.
  void mark(int slice);
  // Returns the next bucket once all its slices are final, in order; nothing if it is not ready.
  std::optional<int> next();

 private:
  std::vector<Range> elements_;
  std::vector<int> bucket_of_slice_;
  std::vector<int> slices_in_;
  std::vector<int> missing_;
  int next_ = 0;
};

// The training loop of a worker that updates by itself: every worker keeps the weights and the
// optimizer's state, sums gradients with the others (worker/all_reduce/collective.h) and applies
// the same update. Servers provide the first weights, collect losses and keep checkpoints. Runs on
// one thread, and the sums on another.
class AllReduceTrainer {
 public:
  // run: its state has a share for this worker. router: the socket that other workers connect to.
  // Borrows all references.
  AllReduceTrainer(const JobView& run, const Dataset& dataset, Model& model, Control& control,
                   zmq::context_t& context, std::unique_ptr<Router> router);

  // Trains until the job is over. Throws Error if this worker fails: a loss or gradient is not
  // finite, a worker or server does not answer, or weights differ.
  JobEnd run();

 private:
  struct Report {
    int64_t number = 0;
    int64_t sent_ms = 0;
    Message message;
  };

  void train_to_the_end();
  void learn_barriers();
  void fetch_start();
  void step(int64_t step);
  bool compute(int64_t step, std::vector<float>& losses);
  std::span<const float> weights() const {
    return {weights_.get(), static_cast<size_t>(map_.total())};
  }
  void post_sum(int bucket, const std::vector<SumPart>& parts);
  void update(int64_t step);
  double clip() const;
  void apply(Range elements, const UpdateInfo& info);
  void barrier(int64_t step);
  void check_equal(int64_t step);
  void evaluate(int64_t step);
  void store(int64_t step);
  void report(int64_t step, const std::vector<float>& losses);
  void exchange();
  void take(const Message& message);
  void check_servers();
  // Exchanges messages with servers until `done`, or throws JobOver. what: reason, for messages.
  void until(const std::function<bool()>& done, const char* what);

  const Job& job_;
  const SenderId sender_;
  Control& control_;
  Barriers barriers_;
  const int64_t total_steps_;
  const int shares_;
  const int share_;
  const Range range_;               // micro-batches of every step
  const wire::Grant grant_;         // permission to push them
  const std::vector<Range> nodes_;  // of the fixed tree; together they cover range_
  const SliceMap map_;
  EvaluationShare evaluation_;
  Compute compute_;
  TimeSplit split_ = watched_time_split();
  RangeUpdate update_;
  Buckets buckets_;
  std::shared_ptr<float[]> weights_;       // flat, in memory that the model's device copies from
  std::vector<std::vector<float>> slots_;  // optimizer state
  int64_t updates_ = 0;
  std::shared_ptr<float[]> sums_;  // of the gradients, flat vector

  ShardClient client_;
  std::vector<std::unique_ptr<Dealer>> servers_;
  std::vector<zmq::pollitem_t> poll_items_;
  std::deque<Report> reports_;  // not acknowledged by server 0
  int64_t next_report_ = 1;
  int64_t learnt_version_ = -1;  // of the newest State with known barriers
  AwakeClock clock_;
  std::vector<int64_t> heard_ms_;  // by server: last message, or first request if later
  const char* waits_for_ = "";

  Peers peers_;
  std::unique_ptr<Collective> collective_;
  int64_t next_operation_ = 0;
  std::vector<int64_t> tickets_;  // by bucket of the step
  Communication communication_;   // last: joins before the members that it uses go
};

}  // namespace pushpull
