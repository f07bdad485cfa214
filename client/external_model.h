// A model and a data set that are the caller's: the trainer's thread hands each micro-batch, as the
// indices of its samples, to the caller's thread.
#pragma once

#include <string>
#include <vector>

#include "client/handover.h"
#include "datasets/dataset.h"
#include "models/model.h"

namespace pushpull {

// The caller's description, equal in all workers of a job.
struct ExternalSpec {
  TensorTable table;
  Metric metric = Metric::kAccuracy;  // of the one head
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  std::string data_digest;
  std::string numerics;
};

// Samples without fields: the caller knows them by their index.
class ExternalData final : public Dataset {
 public:
  explicit ExternalData(const ExternalSpec& spec);

  int64_t size(Split split) const override;
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& request, float* block) const override;

 private:
  const int64_t train_;
  const int64_t test_;
  const std::string digest_;
  const FieldTable fields_;
};

class ExternalModel final : public Model {
 public:
  // Borrows `handover`.
  ExternalModel(const ExternalSpec& spec, Handover& handover);

  // Waits for all weights first. Throws Error(kFailed) if the caller gives up.
  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  std::string numerics() const override { return numerics_; }
  // Throws Error(kProtocol) unless `choices` is "".
  void choose(const std::string& choices) override;

 private:
  Handover& handover_;
  const std::string numerics_;
};

}  // namespace pushpull
