// Computes a graph of images in plain loops in double: the oracle of models whose layers are tested
// one by one.
#pragma once

#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "models/graph.h"
#include "models/ops/convolution.h"
#include "models/ops/linear.h"
#include "models/ops/norms.h"
#include "models/ops/pointwise.h"
#include "models/ops/pool.h"
#include "tests/models/reference.h"

namespace pushpull::reference {

// Returns the mean loss of a graph with the fields pixels and label, in training.
class GraphLoss {
 public:
  explicit GraphLoss(const Graph& graph) : graph_(graph) {}

  double operator()(const Values& weights, const std::vector<float>& pixels,
                    const std::vector<int32_t>& labels) const {
    std::vector<Values> values(graph_.values.size());
    for (const GraphNode& node : graph_.nodes) {
      std::vector<const Values*> in;
      for (const int32_t i : node.inputs) in.push_back(&values[static_cast<size_t>(i)]);
      std::vector<Values> params;
      for (const int32_t i : node.params) params.push_back(param(static_cast<size_t>(i), weights));
      values[static_cast<size_t>(node.output)] =
          node.spec->name() == std::string_view(ops::ElementsSpec::kName)
              ? Values(pixels.begin(), pixels.end())
              : output_of(*node.spec, in, params);
    }
    const GraphHead& head = graph_.heads.front();
    const Values& scores = values[static_cast<size_t>(head.scores)];
    const int64_t classes = static_cast<int64_t>(scores.size() / labels.size());
    double sum = 0.0;
    for (const double loss : cross_entropy(classes, scores, labels)) sum += loss;
    return sum / static_cast<double>(labels.size());
  }

 private:
  Values param(size_t i, const Values& weights) const {
    const TensorInfo& info = graph_.table.tensors[i];
    const auto begin = weights.begin() + info.offset;
    return {begin, begin + info.size};
  }

  static Values output_of(const ops::Spec& spec, const std::vector<const Values*>& in,
                          const std::vector<Values>& params) {
    const std::string_view name = spec.name();
    const Values& x = *in.front();
    if (name == ops::ConvolutionSpec::kName) {
      const auto& shape = ops::spec_as<ops::ConvolutionSpec>(spec).shape();
      const Values zeros(static_cast<size_t>(shape.outputs));
      return convolution(shape, x, params[0], shape.bias ? params[1] : zeros);
    }
    if (name == ops::BatchNormSpec::kName) {
      const auto& shape = ops::spec_as<ops::BatchNormSpec>(spec).shape();
      return batch_norm(shape, x, params[0], params[1]).y;
    }
    if (name == ops::MaxPoolSpec::kName) {
      return max_pool(ops::spec_as<ops::MaxPoolSpec>(spec).shape(), x);
    }
    if (name == ops::LinearSpec::kName) {
      return linear(ops::spec_as<ops::LinearSpec>(spec).shape(), x, params[0], params[1]);
    }
    if (name == ops::AveragePoolSpec::kName) {
      const ops::ImageShape& image = ops::spec_as<ops::AveragePoolSpec>(spec).image();
      const auto area = static_cast<size_t>(image.height * image.width);
      Values y(x.size() / area);
      for (size_t i = 0; i < x.size(); ++i) y[i / area] += x[i] / static_cast<double>(area);
      return y;
    }
    Values y = x;
    if (name == ops::AddSpec::kName) {
      for (size_t i = 0; i < y.size(); ++i) y[i] += in[1]->at(i);
    } else if (name == ops::ActivateSpec::kName) {
      for (double& value : y) value = std::max(value, 0.0);
    } else {
      throw std::runtime_error("no loop for " + std::string(name));
    }
    return y;
  }

  const Graph& graph_;
};

}  // namespace pushpull::reference
