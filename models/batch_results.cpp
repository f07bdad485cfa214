#include "models/batch_results.h"

#include <cstddef>

#include "common/base/error.h"

namespace pushpull {

namespace {

size_t field_of(const Graph& graph, const GraphHead& head) {
  return static_cast<size_t>(graph.field_of_value.at(static_cast<size_t>(head.target)));
}

// Returns the labels of a head with int targets.
const int32_t* labels_of(const Graph& graph, const GraphHead& head, const BatchLayout& layout,
                         const Samples& samples) {
  return as_ints(samples.block.data() + layout.offset(field_of(graph, head)));
}

size_t targets_of(const Graph& graph, const GraphHead& head) {
  return static_cast<size_t>(graph.samples * head.targets);
}

size_t head_named(const Graph& graph, const std::string& name) {
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    if (graph.heads[h].head.name == name) return h;
  }
  assertion_failed("the partner of a head exists", __FILE__, __LINE__);
}

}  // namespace

void check_samples(const Graph& graph, const BatchLayout& layout, const Samples& samples,
                   int64_t valid) {
  PP_ASSERT(samples.block.size() == layout.words());
  PP_ASSERT(valid >= 0 && valid <= graph.samples);
  for (size_t f = 0; f < graph.fields.fields.size(); ++f) {
    const FieldInfo& field = graph.fields.fields[f];
    if (field.type != FieldType::kInt) continue;
    const int32_t* ints = as_ints(samples.block.data() + layout.offset(f));
    for (int64_t i = 0; i < valid * field.size(); ++i) {
      PP_ASSERT(ints[i] >= field.least && ints[i] < field.limit);
    }
  }
}

double denominator_of(const Graph& graph, size_t h, const BatchLayout& layout,
                      const Samples& samples) {
  const GraphHead& head = graph.heads.at(h);
  const size_t targets = targets_of(graph, head);
  if (head.head.loss != Loss::kCrossEntropy) return static_cast<double>(targets);
  const std::vector<float>& weights = head.head.class_weights;
  if (!head.head.ignored && weights.empty()) return static_cast<double>(targets);
  const int32_t* labels = labels_of(graph, head, layout, samples);
  double sum = 0.0;
  for (size_t i = 0; i < targets; ++i) {
    if (labels[i] == head.head.ignored) continue;
    sum += weights.empty() ? 1.0 : static_cast<double>(weights[static_cast<size_t>(labels[i])]);
  }
  return sum;
}

float scale_of(const GraphHead& head, double denominator) {
  if (denominator <= 0.0) return 0.0F;
  return head.head.weight / static_cast<float>(denominator);
}

float batch_loss(const Graph& graph, std::span<const float> losses,
                 std::span<const double> denominators) {
  double loss = 0.0;
  size_t at = 0;
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    const size_t targets = targets_of(graph, graph.heads[h]);
    double sum = 0.0;
    for (const float value : losses.subspan(at, targets)) sum += static_cast<double>(value);
    at += targets;
    if (denominators[h] <= 0.0) continue;
    loss += static_cast<double>(graph.heads[h].head.weight) * (sum / denominators[h]);
  }
  return static_cast<float>(loss);
}

void batch_sums(const Graph& graph, const BatchLayout& layout, const Samples& samples,
                std::span<const float> losses, std::span<const int32_t> predictions,
                std::span<HeadSums> sums) {
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    const GraphHead& head = graph.heads[h];
    const bool has_labels = head.head.loss == Loss::kCrossEntropy;
    const int32_t* labels = has_labels ? labels_of(graph, head, layout, samples) : nullptr;
    const auto is_right = [&](size_t of, size_t target) {
      const GraphHead& other = graph.heads[of];
      return predictions[first_result(graph, of) + target] ==
             labels_of(graph, other, layout, samples)[target];
    };
    const size_t first = first_result(graph, h);
    const size_t partner = head.head.partner.empty() ? h : head_named(graph, head.head.partner);
    sums[h] = {};
    const auto valid = static_cast<size_t>(std::ssize(samples.indices) * head.targets);
    for (size_t i = 0; i < valid; ++i) {
      if (has_labels && labels[i] == head.head.ignored) continue;
      ++sums[h].counted;
      sums[h].loss += static_cast<double>(losses[first + i]);
      if (counts_targets(head.head.metric)) {
        sums[h].metric += is_right(h, i) && is_right(partner, i) ? 1.0 : 0.0;
      }
    }
    if (!counts_targets(head.head.metric)) sums[h].metric = sums[h].loss;
  }
}

}  // namespace pushpull
