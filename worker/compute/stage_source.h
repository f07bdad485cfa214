// Gradients of the stage that a worker of a group computes. Sums have the bits of HostSource: each stage adds
// the gradients of the elements that it owns along the same tree. Single-threaded; what it waits for are
// parts of other stages.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/buffer_pool.h"
#include "models/model.h"
#include "models/pipeline.h"
#include "worker/compute/gradient_source.h"
#include "worker/compute/stage_exchange.h"
#include "worker/compute/stage_parts.h"

namespace pushpull {

class StageSource final : public GradientSource {
 public:
  // Borrows all references but `map`. memory: where sums are sent from; it holds what the stage owns.
  StageSource(GroupStage& group, const TensorTable& table, const SliceMap& map,
              MicroBatches& batches, StageExchange& exchange, FloatAllocator memory);

  void set_trace(Trace& trace) override { trace_ = trace.on() ? &trace : nullptr; }
  // Computes the stage that the group has then. Only the last stage knows losses and counts samples in
  // the hash. Also throws as StageExchange::receive does.
  bool node(const NodeWork& work, std::vector<float>& losses) override;
  void abandon() override { in_flight_.clear(); }
  std::vector<StageTotals> stages() const override {
    return figures_.layers == 0 ? std::vector<StageTotals>{} : std::vector{figures_};
  }
  // Only the elements that the stage owns.
  std::span<const float> sum() const override { return sum_->sum(); }
  bool finite(int slice, const Payload& part) const override { return sum_->finite(slice, part); }

 private:
  using Buffer = std::shared_ptr<float[]>;
  using Kind = wire::StagePart;
  // A micro-batch between forward and backward.
  struct InFlight {
    std::unique_ptr<PipelineStage::Batch> batch;
    Buffer gradient;  // from its first write
  };
  // Gradients that are returned, and the memory that they are sent from.
  struct Return {
    StageParts::Returned part;
    BufferPool pool;
  };

  // Prepares for the group's stage, if it has another one than before.
  void follow();
  bool is_last() const { return stage_ + 1 == group_.stages(); }
  void forward(const NodeWork& work, int64_t micro_batch, std::vector<float>& losses);
  void backward(const NodeWork& work, int64_t micro_batch);
  PipelineStage::Pass pass(const NodeWork& work, int64_t micro_batch, const InFlight& of);
  // Puts gradients of stages behind in their places.
  void gather(const NodeWork& work, int64_t micro_batch, float* gradient);
  void send_back(const NodeWork& work, int64_t micro_batch, const float* gradient);
  // Returns a slice of the sum where it is sent from.
  Payload sent(int slice, const Payload& part);
  Payload receive(const StageExchange::Part& from, size_t floats);
  void send(const StageExchange::Part& to, const Buffer& buffer, size_t floats);
  // Does something else than computing.
  template <class Do>
  void aside(Do&& action);
  // Ends a pass, which began then.
  void count(Trace::Kind kind, const NodeWork& work, int64_t micro_batch, double begin_s);

  GroupStage& group_;
  const TensorTable& table_;
  const SliceMap map_;
  MicroBatches& batches_;
  StageExchange& exchange_;
  const FloatAllocator memory_;
  Trace* trace_ = nullptr;  // null unless traced

  // ---- of the stage ----
  int stage_ = -1;
  StageParts parts_;
  std::vector<std::optional<size_t>> places_;  // of each tensor in the sum; none: not owned
  std::optional<size_t> behind_;       // place of the owned elements of tensors of stages behind
  std::unique_ptr<GradientSum> sum_;   // in flat buffers, whose other pages are never touched
  std::optional<BufferPool> sent_;     // of the owned elements; none if there are none
  std::optional<BufferPool> outputs_;  // none in the last stage
  std::optional<BufferPool> input_gradients_;  // none in the first stage
  std::vector<Return> returns_;
  StageTotals figures_;

  // ---- of the node ----
  std::deque<InFlight> in_flight_;
  Buffer sum_sent_;       // of sent_
  double aside_s_ = 0.0;  // seconds so far
};

}  // namespace pushpull
