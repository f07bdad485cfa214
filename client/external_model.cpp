#include "client/external_model.h"

#include "common/base/error.h"

namespace pushpull {

ExternalData::ExternalData(const ExternalSpec& spec, Handover& handover)
    : spec_(spec), handover_(handover) {}

int64_t ExternalData::size(Split split) const {
  return split == Split::kTrain ? spec_.train_samples : spec_.test_samples;
}

void ExternalData::read(const Request& request, float* /*block*/) const {
  for (const int64_t index : request.indices) {
    PP_ASSERT(index >= 0 && index < size(request.split));
  }
}

void ExternalData::announce(const Announcement& soon) const {
  handover_.announce({soon.split == Split::kTrain,
                      soon.step,
                      soon.micro_batch,
                      soon.epoch,
                      {soon.indices.begin(), soon.indices.end()}});
}

ExternalModel::ExternalModel(const ExternalSpec& spec, Handover& handover)
    : spec_(spec), handover_(handover) {
  table_ = spec.table;
  heads_ = spec.heads;
}

float ExternalModel::train(std::span<const float> weights, const Samples& samples,
                           std::span<float> gradients, const GradientReady& ready,
                           const WeightsNeeded& needed) {
  return handover_.train(table_, weights, samples, gradients, ready, needed);
}

void ExternalModel::evaluate(std::span<const float> weights, const Samples& samples,
                             std::span<HeadSums> sums) {
  handover_.evaluate(table_, weights, samples, sums);
}

void ExternalModel::keep_final(std::span<const float> weights) {
  handover_.keep_final(table_, weights);
}

void ExternalModel::choose(const std::string& choices) {
  if (choices.empty()) return;
  throw Error(ErrorCode::kProtocol,
              "[client] the job has choices of algorithms, and an external model has none");
}

}  // namespace pushpull
