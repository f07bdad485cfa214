// Results as JSON: numbers and the results of a model's heads, for summary.json, metrics.jsonl and
// `pushpull eval`. Plain functions; any thread.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "common/layout/metric.h"

namespace pushpull {

// Writes numbers to JSON files. Plain function; any thread.

// Returns null if the value is missing, infinite or NaN: JSON (RFC 8259, section 6) has no such
// number.
inline nlohmann::ordered_json json_number(std::optional<double> value) {
  if (!value || !std::isfinite(*value)) return nullptr;
  return *value;
}

// Writes "test_loss", "test_correct", "test_total", "test_accuracy" of the first head, and "heads"
// with all of them. test_correct is 0 and test_accuracy null if its metric counts no targets; all
// losses and values are null if no target was counted.
void add_heads(nlohmann::ordered_json& out, const std::vector<HeadResult>& heads);

// Returns the number of correct targets, 0 if the metric counts none.
int64_t correct_targets(const HeadResult& head);

}  // namespace pushpull
