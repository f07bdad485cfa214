// The model and the data of a simulated worker: the toy, whose computation takes simulated time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "datasets/dataset.h"
#include "models/model.h"
#include "tests/simulation/trainer_thread.h"
#include "tests/simulation/weight_checks.h"
#include "tests/simulation/worker_stage.h"

namespace pushpull::sim {

// Samples without content: the toy computes from step and micro-batch.
class WorkerData : public Dataset {
 public:
  WorkerData(int64_t test_samples, std::string digest)
      : test_samples_(test_samples), digest_(std::move(digest)) {}

  int64_t size(Split split) const override {
    return split == Split::kTrain ? Toy::kTrainSamples : test_samples_;
  }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& /*request*/, float* /*block*/) const override {}

 private:
  const int64_t test_samples_;
  const std::string digest_;
  const FieldTable fields_;
};

class WorkerModel : public Model {
 public:
  // All are borrowed. number: of the process.
  WorkerModel(Cluster& cluster, TrainerThread& thread, WeightChecks& checks, int number);

  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  std::span<const float> own_weights() const override { return cluster_.toy().own_weights(); }
  std::string numerics() const override { return "numerics"; }
  void choose(const std::string& /*choices*/) override {}
  GroupStage* group_stage() override { return stage_.stages() > 1 ? &stage_ : nullptr; }

 private:
  void forward(std::span<const float> weights, const WeightsNeeded& needed);
  // Lets a random time pass.
  void compute_for(int64_t longest_us);

  Cluster& cluster_;
  TrainerThread& thread_;
  WeightChecks& checks_;
  const int number_;
  std::vector<float> read_;  // by the layers of `forward`
  WorkerStage stage_;        // used if a group divides the model
};

}  // namespace pushpull::sim
