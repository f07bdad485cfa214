// The gradients of a small model against differences of its loss, on random fields.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "common/layout/fields.h"
#include "models/model.h"

namespace pushpull::test {

// A micro-batch whose ints are below their limit, and whose floats are in [0, 1).
class RandomBatch {
 public:
  RandomBatch(const FieldTable& fields, int64_t samples, uint64_t seed = 1)
      : fields_(fields),
        layout_(fields, samples),
        block_(layout_.words()),
        indices_(static_cast<size_t>(samples)) {
    std::mt19937_64 random(seed);
    for (size_t f = 0; f < fields.fields.size(); ++f) {
      const FieldInfo& field = fields.fields[f];
      float* words = block_.data() + layout_.offset(f);
      for (size_t i = 0; i < layout_.size(f); ++i) {
        const uint64_t drawn = random() >> 40U;
        if (field.type == FieldType::kInt) {
          as_ints(words)[i] = static_cast<int32_t>(drawn % static_cast<uint64_t>(field.limit));
        } else {
          words[i] = static_cast<float>(static_cast<double>(drawn) / 16777216.0);
        }
      }
    }
  }

  int32_t* ints(const std::string& field) {
    return as_ints(block_.data() + layout_.offset(fields_.find(field).value()));
  }
  Samples view(int64_t step = 0, int64_t micro_batch = 0) const {
    return {step, micro_batch, indices_, block_};
  }

 private:
  FieldTable fields_;
  BatchLayout layout_;
  std::vector<float> block_;
  std::vector<int64_t> indices_;
};

inline std::vector<float> weights_of(const Model& model, uint64_t seed = 3) {
  std::mt19937_64 random(seed);
  std::vector<float> weights(static_cast<size_t>(model.table().total));
  for (float& w : weights) {
    w = static_cast<float>(static_cast<double>(random() >> 40U) / 16777216.0 - 0.5) * 0.8F;
  }
  return weights;
}

struct Trained {
  float loss = 0.0F;
  std::vector<float> gradients;
  std::vector<size_t> order;
  friend bool operator==(const Trained& a, const Trained& b) {
    const auto same = [](float x, float y) {
      return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
    };
    return same(a.loss, b.loss) && std::ranges::equal(a.gradients, b.gradients, same);
  }
};

inline Trained train(Model& model, const std::vector<float>& weights, const Samples& samples) {
  Trained out;
  out.gradients.assign(weights.size(), std::nanf(""));
  out.loss = model.train(weights, samples, out.gradients,
                         [&](size_t tensor) { out.order.push_back(tensor); });
  return out;
}

// Expects the derivative along a direction in each tensor to be a difference of the loss.
inline void expect_slopes(Model& model, const Samples& samples) {
  const std::vector<float> weights = weights_of(model);
  const Trained at = train(model, weights, samples);
  std::mt19937_64 random(7);
  for (const TensorInfo& tensor : model.table().tensors) {
    constexpr float kStep = 1.0F / 256;
    std::vector<float> up = weights;
    std::vector<float> down = weights;
    double slope = 0.0;
    double length = 0.0;
    for (int64_t i = 0; i < tensor.size; ++i) {
      const auto k = static_cast<size_t>(tensor.offset + i);
      const float direction = random() % 2 == 0 ? 1.0F : -1.0F;
      up[k] += kStep * direction;
      down[k] -= kStep * direction;
      slope += static_cast<double>(at.gradients[k] * direction);
      length += static_cast<double>(at.gradients[k] * at.gradients[k]);
    }
    const double difference = (static_cast<double>(train(model, up, samples).loss) -
                               static_cast<double>(train(model, down, samples).loss)) /
                              (2.0 * kStep);
    // the second term: the loss is a float; the third: curvature
    EXPECT_NEAR(slope, difference, 0.02 * std::sqrt(length) + 1e-4 + 0.01 * std::fabs(slope))
        << tensor.name;
  }
}

}  // namespace pushpull::test
