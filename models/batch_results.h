// Computes on the host the counted targets and the loss of a micro-batch, and the sums of an
// evaluation, from the results of a graph. Results of a graph are the losses of all heads, then (in an
// evaluation) the predictions of all heads, each target by target. Stateless; any thread.
#pragma once

#include <cstdint>
#include <span>

#include "common/layout/fields.h"
#include "common/layout/metric.h"
#include "models/graph.h"

namespace pushpull {

// Checks a micro-batch: the size of its block, and the range of the ints of the first `valid`
// samples. A mistake is a programming error (PP_ASSERT): datasets check what they read.
void check_samples(const Graph& graph, const BatchLayout& layout, const Samples& samples,
                   int64_t valid);

// Returns what a head's losses of a training micro-batch are divided by: the number of its targets
// that count, or the sum of their class weights.
double denominator_of(const Graph& graph, size_t head, const BatchLayout& layout,
                      const Samples& samples);

// Returns the factor of a head's gradient: its weight divided by the denominator; 0 if no target
// counts.
float scale_of(const GraphHead& head, double denominator);

// Returns the loss of a training micro-batch: the sum over the heads of weight times sum of losses,
// in order, divided by the denominator; a head with no target that counts adds 0.
float batch_loss(const Graph& graph, std::span<const float> losses,
                 std::span<const double> denominators);

// Computes the sums of an evaluation over the samples that have indices.
//   sums: one for each head, overwritten.
void batch_sums(const Graph& graph, const BatchLayout& layout, const Samples& samples,
                std::span<const float> losses, std::span<const int32_t> predictions,
                std::span<HeadSums> sums);

}  // namespace pushpull
