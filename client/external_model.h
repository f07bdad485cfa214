// A model and a data set that are the caller's: the trainer's thread hands each micro-batch, as the
// indices of its samples, to the caller's thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/handover.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "models/pipeline.h"

namespace pushpull {

// The caller's description, equal in all workers of a job except for the weights.
struct ExternalSpec {
  TensorTable table;
  std::vector<HeadInfo> heads;
  std::vector<float> weights;  // initial ones, table.total; empty if the servers draw them
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  std::string data_digest;
  std::string numerics;
  std::vector<double> sample_weights = {};  // of the training samples; empty: they have none
  bool in_order = false;                    // each epoch has the training samples in their order
  std::optional<OwnStage> own_stage = {};   // that the table describes; none: the whole model
};

// Samples without fields: the caller knows them by their index.
class ExternalData final : public Dataset {
 public:
  // Borrows both.
  ExternalData(const ExternalSpec& spec, Handover& handover);

  int64_t size(Split split) const override;
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return spec_.data_digest; }
  void read(const Request& request, float* block) const override;
  void announce(const Announcement& soon) const override;
  bool in_order() const override { return spec_.in_order; }
  std::span<const double> sample_weights() const override { return spec_.sample_weights; }

 private:
  const ExternalSpec& spec_;
  Handover& handover_;
  const FieldTable fields_;
};

class ExternalModel final : public Model {
 public:
  // Borrows both.
  ExternalModel(const ExternalSpec& spec, Handover& handover);

  std::span<const float> own_weights() const override { return spec_.weights; }
  // Throws Error(kFailed) if the caller gives up or has hung.
  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  std::string numerics() const override { return spec_.numerics; }
  // Throws Error(kProtocol) unless `choices` is "".
  void choose(const std::string& choices) override;
  void keep_final(std::span<const float> weights) override;
  NamedSums named_sums() const override { return handover_.named_sums(); }
  void note_progress(const StepProgress& progress) override { handover_.note_progress(progress); }
  std::optional<double> learning_rate() const override { return handover_.step_rate(); }

 private:
  const ExternalSpec& spec_;
  Handover& handover_;
};

}  // namespace pushpull
