// One micro-batch of a model for tests: job, inputs, weights, results.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "common/layout/fields.h"
#include "models/graph_model.h"
#include "models/model.h"
#include "tests/models/initial_weights.h"

namespace pushpull {

struct Case {
  std::string model = "mlp";
  InputShape input{1, 8, 8};
  int64_t classes = 10;
  int64_t micro_batch = 8;
  int64_t threads = 1;
  std::vector<int64_t> hidden = {64, 32};
  std::function<std::unique_ptr<ops::Backend>(int threads)> backend = {};  // empty for the CPU

  Job job() const {
    Job job;
    job.model = model;
    job.hidden = hidden;
    job.micro_batch = micro_batch;
    job.threads = threads;
    return job;
  }
  FieldTable fields() const {
    return image_fields({input.channels, input.height, input.width}, classes);
  }
  std::unique_ptr<Model> make() const {
    if (!backend) return make_model(job(), fields());
    return make_model_on(backend(static_cast<int>(threads)), job(), fields());
  }
};

// Images in 0..1 and labels, from the tests' own generator.
struct Inputs {
  explicit Inputs(const Case& c, uint64_t seed = 1)
      : layout(c.fields(), c.micro_batch), indices(static_cast<size_t>(c.micro_batch)) {
    std::mt19937_64 random(seed);
    for (int64_t i = 0; i < c.micro_batch * c.input.size(); ++i) {
      images.push_back(static_cast<float>(random() >> 40U) / 16777216.0F);
    }
    for (int64_t n = 0; n < c.micro_batch; ++n) {
      labels.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(c.classes)));
    }
  }
  // Returns the micro-batch, valid until the next call; the first `valid` samples have indices.
  Samples view(int64_t valid) const {
    block.assign(layout.words(), 0.0F);
    std::ranges::copy(images, block.begin());
    std::ranges::copy(labels, as_ints(block.data() + layout.offset(1)));
    indices.resize(static_cast<size_t>(valid));
    return {0, 0, indices, block};
  }
  Samples view() const { return view(layout.samples()); }

  std::vector<float> images;
  std::vector<int32_t> labels;
  BatchLayout layout;
  mutable std::vector<int64_t> indices;
  mutable std::vector<float> block;
};

struct Result {
  float loss = 0.0F;
  std::vector<float> gradients;
  friend bool operator==(const Result& a, const Result& b) {  // compares bits: 0 is not -0
    const auto same = [](float x, float y) {
      return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
    };
    return same(a.loss, b.loss) && std::ranges::equal(a.gradients, b.gradients, same);
  }
};

inline Result train(Model& model, const std::vector<float>& weights, const Inputs& inputs) {
  Result result;
  result.gradients.assign(weights.size(), -77.0F);  // must be overwritten
  result.loss = model.train(weights, inputs.view(), result.gradients, [](size_t) {});
  return result;
}

// Returns the sums of the model's first head over the first `valid` samples.
inline HeadSums evaluate(Model& model, std::span<const float> weights, const Inputs& inputs,
                         int64_t valid) {
  std::vector<HeadSums> sums(model.heads().size());
  model.evaluate(weights, inputs.view(valid), sums);
  return sums.front();
}

// Returns small and odd cases, and the shapes of real jobs.
inline std::vector<Case> all_cases(int64_t threads = 1) {
  return {
      {.threads = threads},
      {.input = {1, 28, 28}, .micro_batch = 64, .threads = threads, .hidden = {128}},
      {.input = {3, 7, 5}, .classes = 3, .micro_batch = 5, .threads = threads, .hidden = {}},
      {.input = {784, 1, 1},
       .classes = 37,
       .micro_batch = 33,
       .threads = threads,
       .hidden = {301, 200}},
      {.model = "convnet", .input = {1, 28, 28}, .micro_batch = 8, .threads = threads},
      {.model = "convnet", .input = {1, 28, 28}, .micro_batch = 50, .threads = threads},
      {.model = "convnet",
       .input = {3, 13, 11},
       .classes = 7,
       .micro_batch = 6,
       .threads = threads},
      {.model = "convnet", .input = {5, 4, 9}, .classes = 4, .micro_batch = 7, .threads = threads}};
}

inline std::string describe(const Case& c) {
  return c.model + " " + std::to_string(c.input.channels) + "x" + std::to_string(c.input.height) +
         "x" + std::to_string(c.input.width) + " micro-batch " + std::to_string(c.micro_batch) +
         " threads " + std::to_string(c.threads);
}

}  // namespace pushpull
