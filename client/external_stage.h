// A stage of a model that is the caller's, for a worker of a group: the caller computes a micro-batch as a
// whole and passes activations itself. Used by the trainer's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/external_model.h"
#include "client/handover.h"
#include "models/model.h"
#include "models/pipeline.h"

namespace pushpull {

class ExternalStage final : public Model, public GroupStage {
 public:
  // Borrows both. spec: has a stage.
  ExternalStage(const ExternalSpec& spec, Handover& handover);

  // ---- Model ----
  std::span<const float> own_weights() const override { return spec_.weights; }
  // A stage alone computes neither: see PipelineStage.
  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  std::string numerics() const override { return spec_.numerics; }
  // Throws Error(kProtocol) unless `choices` is "".
  void choose(const std::string& choices) override;
  // Keeps them only if nothing is evaluated: the last evaluation has these weights, too.
  void keep_final(std::span<const float> weights) override;
  NamedSums named_sums() const override { return handover_.named_sums(); }
  void note_progress(const StepProgress& progress) override { handover_.note_progress(progress); }
  GroupStage* group_stage() override { return this; }

  // ---- GroupStage ----
  int stages() const override { return spec_.own_stage->stages; }
  const std::vector<std::vector<size_t>>& tensors_read() const override { return read_; }
  // Returns the most elements of this stage that lie in a block of another one.
  size_t boundary_floats() const override;
  void take_stage(int stage, const std::vector<int>& local_stages, int64_t micro_batches) override;
  int stage() const override { return taken_ ? spec_.own_stage->stage : -1; }
  std::vector<PipelineStage*> planned() override { return {&passes_}; }
  const OwnStage* own_stage() const override { return &*spec_.own_stage; }
  // Throws Error(kProtocol) unless this stage of the table is the caller's.
  void take_whole(const TensorTable& table) override;
  void on_group(const MeetingPlace& place) override { handover_.set_group(place); }
  void set_idle(std::function<void()> idle) override { handover_.set_idle(std::move(idle)); }

 private:
  // Forward computes a micro-batch with all its gradients, and backward passes them on: in between come
  // those of stages behind, whose programs need this one's forward.
  class Passes final : public PipelineStage {
   public:
    explicit Passes(ExternalStage& of) : of_(of) {}
    std::vector<size_t> tensors() const override;
    int64_t layers() const override { return 0; }
    size_t slots() const override { return 1; }
    std::vector<StageAction> actions(int64_t micro_batches) const override;
    size_t input_floats() const override { return 0; }
    size_t output_floats() const override { return 0; }
    bool forward_writes() const override { return true; }
    std::unique_ptr<Batch> prepare(const Samples& samples) const override;
    void forward(const Pass& pass, const float* input, float* output,
                 const WeightsNeeded& needed) override;
    void backward(const Pass& pass, const float* output_gradient, float* input_gradient,
                  const GradientReady& ready) override;
    float loss(const Pass& /*pass*/) const override { return loss_; }
    void evaluate(std::span<const float> weights, const Samples& samples, const float* input,
                  float* output, std::span<HeadSums> sums) override;

   private:
    ExternalStage& of_;
    float loss_ = 0.0F;
  };

  const ExternalSpec& spec_;
  Handover& handover_;
  Passes passes_{*this};
  std::vector<std::vector<size_t>> read_;  // tensors, by stage; of this one alone before take_whole
  TensorTable own_;                        // the stage's tensors, where they are in the whole model
  size_t first_ = 0;                       // index of its first tensor there
  bool taken_ = false;                     // take_stage was called
};

}  // namespace pushpull
