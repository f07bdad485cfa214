// The stage that a simulated worker of a group computes: that of the toy, whose passes take simulated time.
// Beside its signals each part carries a tag of the pass that has sent it, so parts of two attempts are told
// apart.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/pipeline.h"
#include "tests/simulation/trainer_thread.h"
#include "tests/simulation/weight_checks.h"

namespace pushpull::sim {

class WorkerStage final : public GroupStage, public PipelineStage {
 public:
  // All are borrowed. number: of the process.
  WorkerStage(Cluster& cluster, TrainerThread& thread, WeightChecks& checks, int number)
      : cluster_(cluster), thread_(thread), checks_(checks), number_(number) {}

  // ---- GroupStage ----
  int stages() const override { return cluster_.toy().stages(); }
  const std::vector<std::vector<size_t>>& tensors_read() const override {
    return cluster_.toy().tensors_read();
  }
  size_t boundary_floats() const override { return kFloats; }
  void take_stage(int stage, const std::vector<int>& local_stages, int64_t micro_batches) override;
  int stage() const override { return stage_; }
  std::vector<PipelineStage*> planned() override { return {this}; }

  // ---- PipelineStage ----
  std::vector<size_t> tensors() const override;
  int64_t layers() const override { return 1; }
  size_t slots() const override { return passes_.size(); }
  std::vector<StageAction> actions(int64_t micro_batches) const override;
  size_t input_floats() const override { return stage_ == 0 ? 0 : kFloats; }
  size_t output_floats() const override { return is_last() ? 0 : kFloats; }
  bool forward_writes() const override { return false; }
  std::unique_ptr<Batch> prepare(const Samples& samples) const override;
  void forward(const Pass& pass, const float* input, float* output,
               const WeightsNeeded& needed) override;
  void backward(const Pass& pass, const float* output_gradient, float* input_gradient,
                const GradientReady& ready) override;
  float loss(const Pass& pass) const override;
  void evaluate(std::span<const float> weights, const Samples& samples, const float* input,
                float* output, std::span<HeadSums> sums) override;

 private:
  struct Place : Batch {
    int64_t step = 0;
    int64_t micro_batch = 0;
  };
  // What a part of a pass carries.
  struct Signals {
    Toy::Signals values{};
    float tag = 0.0F;
  };
  // Between forward and backward.
  struct Kept {
    Toy::Place place;
    Signals input;
    Signals output;
  };
  static constexpr size_t kFloats = Toy::kSignals + 1;

  static Signals signals_of(const float* floats);
  static void put(const Signals& signals, float* floats);
  bool is_last() const { return stage_ + 1 == stages(); }
  float new_tag();
  void read(std::span<const float> weights, const WeightsNeeded& needed);
  // Lets a random time pass.
  void compute_for(int64_t longest_us);

  Cluster& cluster_;
  TrainerThread& thread_;
  WeightChecks& checks_;
  const int number_;
  int stage_ = -1;
  std::vector<Kept> passes_;  // by slot
  std::vector<float> early_;  // weights as they were when `needed` returned
};

}  // namespace pushpull::sim
