// A network as a Model: the caller's memory is on the host, and calls return when the work is done.
// Not thread-safe.
#pragma once

#include <memory>
#include <string>

#include "models/device_step.h"
#include "models/model.h"
#include "models/network.h"

namespace pushpull {

class Sequential final : public Model {
 public:
  explicit Sequential(std::unique_ptr<Network> network);

  float train(std::span<const float> weights, const Samples& samples, std::span<float> gradients,
              const GradientReady& ready, const WeightsNeeded& needed = {}) override;
  void evaluate(std::span<const float> weights, const Samples& samples,
                std::span<HeadSums> sums) override;
  DeviceStep* device_step() override;
  std::string numerics() const override;
  std::string choices() const override;
  void choose(const std::string& choices) override;

 private:
  // Device copies of the caller's host memory; created on first use.
  struct Copies {
    ops::Buffer weights;
    ops::Buffer gradients;
    ops::Buffer block;
  };
  Copies& copies();
  float train_on_device(std::span<const float> weights, const Samples& samples,
                        std::span<float> gradients, const GradientReady& ready,
                        const WeightsNeeded& needed);
  void evaluate_on_device(std::span<const float> weights, const Samples& samples);

  std::unique_ptr<Network> network_;  // outlives the members below
  std::unique_ptr<DeviceStep> step_;
  Copies copies_;
  std::vector<float> losses_;  // per sample; host copy if the network's are on a device
  std::vector<int32_t> predictions_;
};

// Creates the model that the job names on the given backend, see make_model.
std::unique_ptr<Model> make_model_on(std::unique_ptr<ops::Backend> backend, const Job& job,
                                     const FieldTable& fields);

}  // namespace pushpull
