// The results of a model's heads as JSON, for summary.json, metrics.jsonl and `pushpull eval`. Plain
// functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "common/metrics/metric.h"

namespace pushpull {

// Writes "test_loss", "test_correct", "test_total", "test_accuracy" of the first head, and "heads"
// with all of them. test_correct is 0 and test_accuracy null if its metric counts no targets; all
// losses and values are null if no target was counted.
void add_heads(nlohmann::ordered_json& out, const std::vector<HeadResult>& heads);

// Returns the number of correct targets, 0 if the metric counts none.
int64_t correct_targets(const HeadResult& head);

}  // namespace pushpull
