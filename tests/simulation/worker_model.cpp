#include "tests/simulation/worker_model.h"

#include <algorithm>

namespace pushpull::sim {

WorkerModel::WorkerModel(Cluster& cluster, TrainerThread& thread, WeightChecks& checks, int number)
    : cluster_(cluster),
      thread_(thread),
      checks_(checks),
      number_(number),
      stage_(cluster, thread, checks, number) {
  table_ = cluster.toy().table();
  heads_ = Toy::heads();
}

void WorkerModel::compute_for(int64_t longest_us) {
  thread_.sleep(cluster_.dice().between(0, longest_us));
}

// Each layer waits for its own tensors and reads them then.
void WorkerModel::forward(std::span<const float> weights, const WeightsNeeded& needed) {
  read_.resize(weights.size());
  ++cluster_.early_tasks;
  for (size_t t = 0; t < table_.tensors.size(); ++t) {
    const int64_t before_us = cluster_.clock().now_us();
    needed(t);
    if (cluster_.clock().now_us() > before_us) ++cluster_.early_waits;
    const TensorInfo& tensor = table_.tensors[t];
    std::copy_n(weights.begin() + tensor.offset, tensor.size, read_.begin() + tensor.offset);
    compute_for(cluster_.scenario().compute_us / 3);
  }
  if (!std::equal(weights.begin(), weights.end(), read_.begin()) && !checks_.given_up()) {
    checks_.wrong("has read other weights early");
  }
}

float WorkerModel::train(std::span<const float> weights, const Samples& samples,
                         std::span<float> gradients, const GradientReady& ready,
                         const WeightsNeeded& needed) {
  if (needed) forward(weights, needed);
  if (!samples.same_weights) {
    checks_.read(weights);
    checks_.count(samples.step, false);
  }
  cluster_.toy().gradient(weights, samples.step, samples.micro_batch, gradients);
  for (size_t t = table_.tensors.size(); t-- > 0;) {
    compute_for(cluster_.scenario().compute_us / std::ssize(table_.tensors));
    ready(t);
  }
  checks_.unchanged(weights);
  ++cluster_.computed[number_];
  return Toy::loss(samples.step, samples.micro_batch);
}

void WorkerModel::evaluate(std::span<const float> weights, const Samples& samples,
                           std::span<HeadSums> sums) {
  if (!samples.same_weights) checks_.read(weights);
  std::ranges::copy(cluster_.toy().evaluate(weights, samples.micro_batch), sums.begin());
  compute_for(cluster_.scenario().compute_us);
  checks_.unchanged(weights);
  ++cluster_.computed[number_];
}

}  // namespace pushpull::sim
