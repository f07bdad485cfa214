#include "tests/simulation/worker_stage.h"

#include <algorithm>
#include <cstring>

namespace pushpull::sim {

void WorkerStage::take_stage(int stage, const std::vector<int>& /*local_stages*/,
                             int64_t micro_batches) {
  stage_ = stage;
  checks_.set_elements(cluster_.toy().elements_read(stage));
  passes_.resize(static_cast<size_t>(std::max<int64_t>(micro_batches, 1)));
}

// In half of the scenarios all forward passes come first (gpipe), else as few as fill the stages behind (1f1b).
std::vector<StageAction> WorkerStage::actions(int64_t micro_batches) const {
  const int64_t ahead = cluster_.scenario().seed / 2 % 2 == 0 ? micro_batches : stages() - stage_;
  std::vector<StageAction> out;
  for (int64_t m = 0; m < micro_batches + ahead; ++m) {
    if (m < micro_batches) out.push_back({true, m});
    if (m + 1 >= ahead && m + 1 - ahead < micro_batches) out.push_back({false, m + 1 - ahead});
  }
  return out;
}

std::vector<size_t> WorkerStage::tensors() const {
  std::vector<size_t> out = tensors_read()[static_cast<size_t>(stage_)];
  const auto elsewhere = [&](size_t tensor) {
    return std::any_of(tensors_read().begin(), tensors_read().begin() + stage_,
                       [&](const auto& read) { return std::ranges::count(read, tensor) > 0; });
  };
  std::erase_if(out, elsewhere);
  return out;
}

WorkerStage::Signals WorkerStage::signals_of(const float* floats) {
  Signals out;
  std::copy_n(floats, Toy::kSignals, out.values.begin());
  out.tag = floats[Toy::kSignals];
  return out;
}

void WorkerStage::put(const Signals& signals, float* floats) {
  std::copy_n(signals.values.begin(), Toy::kSignals, floats);
  floats[Toy::kSignals] = signals.tag;
}

float WorkerStage::new_tag() {
  constexpr int64_t kTags = 1 << 23;  // floats hold them exactly
  return static_cast<float>(++cluster_.parts_tagged % kTags);
}

void WorkerStage::compute_for(int64_t longest_us) {
  thread_.sleep(cluster_.dice().between(0, longest_us));
}

std::unique_ptr<PipelineStage::Batch> WorkerStage::prepare(const Samples& samples) const {
  auto place = std::make_unique<Place>();
  place->step = samples.step;
  place->micro_batch = samples.micro_batch;
  return place;
}

// Each tensor is read when its weights are said to be here.
void WorkerStage::read(std::span<const float> weights, const WeightsNeeded& needed) {
  early_.resize(weights.size());
  for (const size_t t : tensors_read()[static_cast<size_t>(stage_)]) {
    const TensorInfo& tensor = cluster_.toy().table().tensors[t];
    if (needed) needed(t);
    std::copy_n(weights.begin() + tensor.offset, tensor.size, early_.begin() + tensor.offset);
    compute_for(cluster_.scenario().compute_us / (2 * std::ssize(cluster_.toy().table().tensors)));
  }
  for (const Range& elements : cluster_.toy().elements_read(stage_)) {
    if (!std::equal(weights.begin() + elements.lo, weights.begin() + elements.hi,
                    early_.begin() + elements.lo) &&
        !checks_.given_up()) {
      checks_.wrong("has read other weights early");
    }
  }
  checks_.read(weights);
}

void WorkerStage::forward(const Pass& pass, const float* input, float* output,
                          const WeightsNeeded& needed) {
  const auto& batch = dynamic_cast<const Place&>(*pass.batch);
  read(pass.weights, needed);
  checks_.count(batch.step, false);
  Kept& kept = passes_.at(pass.slot);
  kept = {{stage_, batch.step, batch.micro_batch}, {}, {}};
  if (input != nullptr) kept.input = signals_of(input);
  kept.output = {cluster_.toy().forward(kept.place, pass.weights, kept.input.values), new_tag()};
  if (output != nullptr) put(kept.output, output);
}

void WorkerStage::backward(const Pass& pass, const float* output_gradient, float* input_gradient,
                           const GradientReady& ready) {
  const Kept& kept = passes_.at(pass.slot);
  const Signals gradient = output_gradient == nullptr ? kept.output : signals_of(output_gradient);
  if (gradient.tag != kept.output.tag) checks_.wrong("has got the gradient of another pass");
  const Toy::Signals back = cluster_.toy().backward(kept.place, pass.weights, kept.input.values,
                                                    gradient.values, pass.gradients);
  checks_.unchanged(pass.weights);
  if (input_gradient != nullptr) put({back, kept.input.tag}, input_gradient);
  const std::vector<size_t> own = tensors();
  for (size_t i = own.size(); i-- > 0;) {
    compute_for(cluster_.scenario().compute_us / (2 * std::ssize(cluster_.toy().table().tensors)));
    ready(own[i]);
  }
  ++cluster_.computed[number_];
}

float WorkerStage::loss(const Pass& pass) const {
  const auto& batch = dynamic_cast<const Place&>(*pass.batch);
  return Toy::loss(batch.step, batch.micro_batch);
}

void WorkerStage::evaluate(std::span<const float> weights, const Samples& samples,
                           const float* input, float* output, std::span<HeadSums> sums) {
  static_assert(sizeof(Toy::Evaluated) <= kFloats * sizeof(float));
  checks_.read(weights);
  Toy::Evaluated so_far = Toy::begin_evaluation(samples.micro_batch);
  if (input != nullptr) std::memcpy(static_cast<void*>(&so_far), input, sizeof so_far);
  Toy::evaluate(so_far, weights, samples.micro_batch, cluster_.toy().elements_of(stage_));
  compute_for(cluster_.scenario().compute_us);
  checks_.unchanged(weights);
  ++cluster_.computed[number_];
  if (output == nullptr) {
    std::ranges::copy(Toy::sums_of(so_far, samples.micro_batch), sums.begin());
    return;
  }
  std::fill_n(output, kFloats, 0.0F);
  std::memcpy(output, &so_far, sizeof so_far);
}

}  // namespace pushpull::sim
