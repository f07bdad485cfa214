// The steps of a worker in all-reduce, and the buckets in which it sums gradients.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/process.h"
#include "common/job/barriers.h"
#include "common/layout/fixed_tree.h"
#include "common/layout/slice_map.h"
#include "common/net/endpoint.h"
#include "common/net/join.h"
#include "common/net/shard_client.h"
#include "common/update/range_update.h"
#include "models/model.h"
#include "worker/all_reduce/collective.h"
#include "worker/all_reduce/communication.h"
#include "worker/all_reduce/peers.h"
#include "worker/compute/compute.h"
#include "worker/exchange/step.h"
#include "worker/member/coordinator_link.h"

namespace pushpull {

// Groups gradients for all-reduce. A bucket is a run of slices; buckets are sent in the order in
// which backward reaches them, from the last slice to the first, as in PyTorch's DDP (Li et al.,
// PyTorch Distributed, VLDB 2020). The order depends on the model alone, never on the gradient that
// is ready first, so that all workers sum the same buckets in the same order. Plain bookkeeping;
// single-threaded.
class Buckets {
 public:
  // stage: whose slices are grouped; without elements it has no bucket.
  // first_bytes: limit of the first bucket; small, so that communication starts early.
  // max_bytes: limit of the others.
  // A bucket holds at least one slice.
  Buckets(const SliceMap& map, int stage, int64_t first_bytes, int64_t max_bytes);

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
  const int64_t first_slice_;
  std::vector<int> bucket_of_slice_;  // from first_slice_
  std::vector<int> slices_in_;
  std::vector<int> missing_;
  int next_ = 0;
};

// The steps of a worker that updates by itself: every worker keeps the weights and the optimizer's
// state, sums gradients with the others (worker/all_reduce/collective.h) and applies the same update.
// A worker of a group that divides the model does so for the elements of its stage, with the workers
// of other groups that have this stage. The flat vectors are whole, but it touches no pages of other
// stages, except those with weights that its stage reads; the group passes these on.
// Servers provide the first weights, collect losses, which are pushes without parts, and keep
// checkpoints. Runs on the trainer's thread, and the sums on another.
class AllReduceStep final : public Step {
 public:
  // view: its state has a share for this worker. router: the socket that other workers connect to.
  // Borrows the job of `run`, `model`, `coordinator` and `context`.
  //   credentials: of this worker, for the other workers.
  AllReduceStep(const JobView& view, Model& model, const StepParts& parts,
                CoordinatorLink& coordinator, zmq::context_t& context,
                const Credentials& credentials, std::unique_ptr<Router> router);

  void start(StepHost& host) override;
  std::optional<Result> run(const Task& task, StepHost& host) override;
  // At a barrier all workers with these weights compare theirs, and store them if it is due.
  void pushed(const Task& task, StepHost& host) override;
  std::span<const float> own_weights() const override {
    return {weights_.get(), static_cast<size_t>(map_.total())};
  }
  std::span<const float> evaluated_weights() const override;
  void on_message(int server, const Message& message) override;
  void on_state(const wire::State& state) override;
  Traffic traffic() const override {
    return {peers_.bytes_sent(), peers_.bytes_received(), peers_.rejected()};
  }

 private:
  void post_sum(int bucket, const std::vector<SumPart>& parts);
  void update(const Task& task, StepHost& host);
  double clip(int64_t step);
  // Returns the trust ratios of the update, or an empty vector if the optimizer has none.
  std::vector<double> trust(const UpdateInfo& info, StepHost& host);
  void apply(Range elements, const UpdateInfo& info);
  // Waits for posted work. Serves the host meanwhile: members of the group may need parts of this
  // worker before they can take part in the sum.
  void wait(int64_t ticket, StepHost& host);
  void check_equal(int64_t step, StepHost& host);
  void store(int64_t step, StepHost& host);
  // Waits for the answers of a transfer. what: its name, for messages.
  void transfer(StepHost& host, const char* what);

  const Job& job_;
  CoordinatorLink& coordinator_;
  Barriers barriers_;
  const int64_t total_steps_;
  const int shares_;
  const int share_;
  const std::vector<int> ranks_;  // in the job, of the workers that sum, by share
  const SliceMap map_;
  const SlicePart part_;
  const Range owned_;  // elements that this worker updates
  Compute& compute_;
  const TensorTable& table_;
  RangeUpdate update_;
  Buckets buckets_;
  std::shared_ptr<float[]> weights_;  // flat, in memory that the model's device copies from
  std::vector<std::shared_ptr<float[]>> slots_;  // optimizer state, flat
  int64_t updates_ = 0;
  std::shared_ptr<float[]> sums_;  // of the gradients, flat

  ShardClient client_;
  AwakeClock clock_;
  std::vector<int64_t> heard_ms_;  // by server: its last message

  Peers peers_;
  std::unique_ptr<Collective> collective_;
  int64_t next_operation_ = 0;
  std::vector<int64_t> tickets_;  // by bucket of the step
  Communication communication_;   // last: joins before the members that it uses go
};

}  // namespace pushpull
