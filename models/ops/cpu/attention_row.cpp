#include "models/ops/cpu/attention_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "common/base/random.h"
#include "models/ops/arithmetic.h"
#include "models/ops/cpu/softmax_row.h"

namespace pushpull::ops::cpu {

namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr int64_t kPiece = 512;  // keys whose factors lie on the stack

// The factors of a piece of a row; the stream is drawn in blocks of four words.
class DropoutPiece {
 public:
  // Returns the factors of `count` <= kPiece elements from `first` on.
  const float* factors(const RowDropout& dropout, int64_t first, int64_t count);

 private:
  std::array<uint32_t, kPiece + 8> words_;
  std::array<float, kPiece + 8> factors_;
};

PUSHPULL_SIMD void factors_of(const uint32_t* words, uint32_t least, float factor, int64_t count,
                              float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) out[i] = words[i] >= least ? factor : 0.0F;
}

const float* DropoutPiece::factors(const RowDropout& dropout, int64_t first, int64_t count) {
  const uint64_t element = dropout.first + static_cast<uint64_t>(first);
  const auto skipped = static_cast<int64_t>(element % 4);
  fill_dropout_words(dropout.key, element / 4, (skipped + count + 3) / 4, words_.data());
  factors_of(words_.data() + skipped, dropout.least, dropout.factor, count, factors_.data());
  return factors_.data();
}

PUSHPULL_SIMD void hide(const int32_t* mask, int64_t count, float* scores) {
  PUSHPULL_ELEMENTWISE
  for (int64_t j = 0; j < count; ++j) scores[j] = mask[j] == 0 ? kHidden : scores[j];
}

PUSHPULL_SIMD void multiply_each(const float* by, int64_t count, float* x) {
  PUSHPULL_ELEMENTWISE
  for (int64_t j = 0; j < count; ++j) x[j] *= by[j];
}

PUSHPULL_SIMD void gradient_piece(float log_sum, float delta, float scale, int64_t count,
                                  float* scores, float* gradient) {
  PUSHPULL_ELEMENTWISE
  for (int64_t j = 0; j < count; ++j) {
    const float p = fast_exp(scores[j] - log_sum);
    gradient[j] = p * (gradient[j] - delta) * scale;
    scores[j] = p;
  }
}

PUSHPULL_SIMD void dropped_gradient_piece(const float* factors, float log_sum, float delta,
                                          float scale, int64_t count, float* scores,
                                          float* gradient) {
  PUSHPULL_ELEMENTWISE
  for (int64_t j = 0; j < count; ++j) {
    const float p = fast_exp(scores[j] - log_sum);
    gradient[j] = p * (gradient[j] * factors[j] - delta) * scale;
    scores[j] = p * factors[j];
  }
}

}  // namespace

Softmax softmax_row(const RowOfKeys& row, float* scores) {
  if (row.mask != nullptr) hide(row.mask, row.visible, scores);
  const float top = largest(scores, row.visible);
  if (top == kHidden) {
    std::fill_n(scores, row.keys, 0.0F);
    return {0.0F, std::numeric_limits<float>::infinity()};
  }
  const double sum = exp_row(scores, row.visible, top, scores);
  std::fill(scores + row.visible, scores + row.keys, 0.0F);
  if (row.dropout) {
    DropoutPiece piece;
    for (int64_t first = 0; first < row.visible; first += kPiece) {
      const int64_t count = std::min(kPiece, row.visible - first);
      multiply_each(piece.factors(*row.dropout, first, count), count, scores + first);
    }
  }
  return {static_cast<float>(1.0 / sum),
          static_cast<float>(static_cast<double>(top) + std::log(sum))};
}

void softmax_gradient_row(const RowOfKeys& row, float log_sum, float delta, float scale,
                          float* scores, float* gradient) {
  if (row.mask != nullptr) hide(row.mask, row.visible, scores);
  if (row.dropout) {
    DropoutPiece piece;
    for (int64_t first = 0; first < row.visible; first += kPiece) {
      const int64_t count = std::min(kPiece, row.visible - first);
      dropped_gradient_piece(piece.factors(*row.dropout, first, count), log_sum, delta, scale,
                             count, scores + first, gradient + first);
    }
  } else {
    gradient_piece(log_sum, delta, scale, row.visible, scores, gradient);
  }
  std::fill(scores + row.visible, scores + row.keys, 0.0F);
  std::fill(gradient + row.visible, gradient + row.keys, 0.0F);
}

PUSHPULL_SIMD float dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t kWide = 16;
  float sums[kWide] = {};
  int64_t i = 0;
  for (; i + kWide <= count; i += kWide) {
    for (int64_t l = 0; l < kWide; ++l) sums[l] += a[i + l] * b[i + l];
  }
  for (int64_t l = 0; i + l < count; ++l) sums[l] += a[i + l] * b[i + l];
  tree_sum(sums, kWide);
  return sums[0];
}

PUSHPULL_SIMD void multiply(float* x, int64_t count, float factor) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

}  // namespace pushpull::ops::cpu
