#include "client/external_model.h"

#include "common/base/error.h"

namespace pushpull {

ExternalData::ExternalData(const ExternalSpec& spec)
    : train_(spec.train_samples), test_(spec.test_samples), digest_(spec.data_digest) {}

int64_t ExternalData::size(Split split) const { return split == Split::kTrain ? train_ : test_; }

void ExternalData::read(const Request& request, float* /*block*/) const {
  for (const int64_t index : request.indices) {
    PP_ASSERT(index >= 0 && index < size(request.split));
  }
}

ExternalModel::ExternalModel(const ExternalSpec& spec, Handover& handover)
    : handover_(handover), numerics_(spec.numerics) {
  table_ = spec.table;
  heads_.push_back({.name = "output", .metric = spec.metric});
}

float ExternalModel::train(std::span<const float> weights, const Samples& samples,
                           std::span<float> gradients, const GradientReady& ready,
                           const WeightsNeeded& needed) {
  for (size_t tensor = 0; needed && tensor < table_.tensors.size(); ++tensor) needed(tensor);
  return handover_.train(table_, weights, samples, gradients, ready);
}

void ExternalModel::evaluate(std::span<const float> weights, const Samples& samples,
                             std::span<HeadSums> sums) {
  sums.front() = handover_.evaluate(table_, weights, samples);
}

void ExternalModel::choose(const std::string& choices) {
  if (choices.empty()) return;
  throw Error(ErrorCode::kProtocol,
              "[client] the job has choices of algorithms, and an external model has none");
}

}  // namespace pushpull
