// Loops over one row of attention: the scores of one query in one head. Every vector width gives the
// same bits. Any thread.
#pragma once

#include <cstdint>
#include <optional>

namespace pushpull::ops::cpu {

// Elements [first, ...) of the dropout stream of `key`: an element counts `factor` times if its word
// is at least `least`, and otherwise 0 times.
struct RowDropout {
  uint64_t key = 0;
  uint64_t first = 0;
  uint32_t least = 0;
  float factor = 1.0F;  // 1 / (1 - p)
};

// The keys that one query sees.
struct RowOfKeys {
  int64_t keys = 0;               // in the row
  int64_t visible = 0;            // the first ones, of which `mask` hides those with 0
  const int32_t* mask = nullptr;  // null: hides none
  std::optional<RowDropout> dropout;
};

struct Softmax {
  float inverse = 0.0F;  // 1 / sum; 0 if no key is visible
  float log_sum = 0.0F;  // logarithm of the sum of exp(score); +infinity if no key is visible
};

// Replaces the scores by exp(score - largest) with dropout; hidden keys get 0. The softmax is that
// times `inverse`.
Softmax softmax_row(const RowOfKeys& row, float* scores);

// Replaces the scores by the softmax P with dropout, and the gradient of that by the gradient of the
// scores, scale P (gradient with dropout - delta).
void softmax_gradient_row(const RowOfKeys& row, float log_sum, float delta, float scale,
                          float* scores, float* gradient);

// Returns the sum of a[i] b[i]: sixteen partial sums, combined in a fixed tree.
float dot(const float* a, const float* b, int64_t count);
void multiply(float* x, int64_t count, float factor);

}  // namespace pushpull::ops::cpu
