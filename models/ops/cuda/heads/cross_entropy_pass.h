// The per-thread arithmetic of softmax with cross-entropy. A group of `width` threads reads a row
// once: each thread keeps the largest of its scores and the sum of exponentials below it, which grows
// with the maximum (Milakov and Gimelshein, arXiv:1805.02867). Sums are f64 over f32 exponentials, as
// on the CPU: the probability of a certain class is exactly 1. Which thread reads which scores
// depends on the shape only. Pure.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/ops/arithmetic.h"
#include "models/ops/cuda/flat_pass.h"

namespace pushpull::ops::cuda {

constexpr int64_t kWarpClasses = 1024;  // up to here a warp processes a row, beyond it a block

// Returns e^(x - top); 1 at the top, even if that is infinite.
PP_HOST_DEVICE inline float exponential_below(float x, float top) {
  return x == top ? 1.0F : expf(x - top);
}
PP_HOST_DEVICE inline double exponential_below(double x, double top) {
  return x == top ? 1.0 : exp(x - top);
}

// A part of a row: its largest score with the lowest class that has it, the sum of the exponentials
// of the scores less the largest, and the sum of the scores (for smoothing).
struct RowPart {  // no initial values, because it is used in shared memory
  float top;
  int32_t label;
  double sum;
  double scores;

  // Returns the part of no scores. A NaN never becomes the largest, but makes the sum NaN.
  static PP_HOST_DEVICE RowPart none() { return {-INFINITY, INT32_MAX, 0.0, 0.0}; }

  PP_HOST_DEVICE void merge(const RowPart& other) {
    const bool is_higher = other.top > top;
    const bool wins = is_higher || (other.top == top && other.label < label);
    const auto high = static_cast<double>(is_higher ? other.top : top);
    sum = sum * exponential_below(static_cast<double>(top), high) +
          other.sum * exponential_below(static_cast<double>(other.top), high);
    label = wins ? other.label : label;
    top = is_higher ? other.top : top;
    scores += other.scores;
  }
};

// Returns whether a row's packs are whole and aligned.
template <class T>
bool rows_are_packed(const T* first, int64_t classes) {
  return classes % kPackSize<T> == 0 && is_aligned(first);
}

// Returns a thread's part of a row.
template <class T, bool kPacked>
PP_HOST_DEVICE RowPart part_of(const T* row, int64_t classes, int thread, int width) {
  constexpr int kCount = kPackSize<T>;
  RowPart part = RowPart::none();
  for (int64_t first = int64_t{thread} * kCount; first < classes;
       first += int64_t{width} * kCount) {
    const int64_t count = classes - first;
    float x[kCount];
    load_pack<kPacked, kCount>(row + first, count, x);
    float top = part.top;
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (i < count && (x[i] > top || part.label == INT32_MAX)) {
        top = x[i] > top ? x[i] : top;
        part.label = static_cast<int32_t>(first + i);
      }
    }
    if (top > part.top) {
      part.sum *= exponential_below(static_cast<double>(part.top), static_cast<double>(top));
      part.top = top;
    }
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) {
      if (i >= count) continue;
      part.sum += static_cast<double>(exponential_below(x[i], part.top));
      part.scores += static_cast<double>(x[i]);
    }
  }
  return part;
}

// Rows' results that backward needs.
struct KeptRow {
  float top;
  float inverse;  // 1 / sum of the exponentials
};

// The rule of a cross-entropy in training; weights are null if all are 1.
struct CrossEntropyRule {
  const float* class_weights = nullptr;  // of the device, M
  float smoothing = 0.0F;
  int32_t ignored = 0;  // counts if has_ignored
  bool has_ignored = false;

  PP_HOST_DEVICE bool is_ignored(int32_t label) const { return has_ignored && label == ignored; }
  PP_HOST_DEVICE float weight(int32_t label) const {
    return class_weights == nullptr ? 1.0F : class_weights[label];
  }
};

PP_HOST_DEVICE inline float loss_of(const RowPart& row, float score, int64_t classes,
                                    float smoothing) {
  const auto top = static_cast<double>(row.top);
  const double distance = top - static_cast<double>(score);
  if (smoothing == 0.0F) return static_cast<float>(distance + log(row.sum));
  const auto share = static_cast<double>(smoothing);
  const double mean = top - row.scores / static_cast<double>(classes);
  return static_cast<float>((1.0 - share) * distance + share * mean + log(row.sum));
}

// Returns the derivative of the loss by a score, times scale.
//   p: the class's probability.
PP_HOST_DEVICE inline float score_gradient(float p, bool is_label, int64_t classes, float smoothing,
                                           float scale) {
  if (smoothing == 0.0F) return (is_label ? p - 1.0F : p) * scale;
  const float share = smoothing / static_cast<float>(classes);
  return (is_label ? p - (1.0F - smoothing) - share : p - share) * scale;
}

// Computes a thread's part of dx [N, M] (`count` elements); dx may be x.
template <class T, bool kPacked>
PP_HOST_DEVICE void score_gradients(const T* x, const int32_t* labels, const KeptRow* kept,
                                    const Divider& by_classes, const CrossEntropyRule& rule,
                                    int64_t count, float scale, int64_t block, int thread, T* dx) {
  const int64_t classes = by_classes.divisor;
  for_each_pack<kPackSize<T>>(count, block, thread, [&](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(x + first, elements, values);
    uint32_t row = by_classes.quotient(static_cast<uint32_t>(first));
    int64_t next = (int64_t{row} + 1) * classes;  // first element of the next row
    int32_t label = labels[row];
    KeptRow state = kept[row];
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) {
      if (i >= elements) continue;
      if (first + i == next) {
        ++row;
        next += classes;
        label = labels[row];
        state = kept[row];
      }
      if (rule.is_ignored(label)) {
        values[i] = 0.0F;
        continue;
      }
      const float p = exponential_below(values[i], state.top) * state.inverse;
      const bool is_label = first + i == next - classes + label;
      values[i] = score_gradient(p, is_label, classes, rule.smoothing, scale * rule.weight(label));
    }
    store_pack<kPacked, kPackSize<T>>(values, elements, dx + first);
  });
}

}  // namespace pushpull::ops::cuda
