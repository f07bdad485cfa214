// The per-thread arithmetic of the losses of heads: cross-entropy and squared error.
//
// The per-thread arithmetic of softmax with cross-entropy. A group of threads, a warp or a block,
// reads a row once: each thread keeps the largest of its scores and the sum of exponentials below
// it, which is rescaled when the maximum grows (Milakov and Gimelshein, arXiv:1805.02867); then all
// sums are rescaled to the row's maximum. Exponentials are f32. The sum of a pack is f32 and those
// of packs are f64: the probability of a certain class is exactly 1. Packs are those of the whole
// tensor, so that they are aligned in every row; a pack that two rows share is read one element at
// a time. Which thread reads which scores depends on the shape only. Pure.
#pragma once

#include <cmath>
#include <cstdint>

#include "models/ops/arithmetic.h"
#include "models/ops/cuda/flat_pass.h"

namespace pushpull::ops::cuda {

// The per-thread arithmetic of squared errors. Pure.

// y = (x - target)^2; target and y are f32.
template <class T, bool kPacked>
PP_HOST_DEVICE void squares(const T* x, const float* target, int64_t count, int64_t block,
                            int thread, float* y) {
  for_each_pack<kPackSize<T>>(count, block, thread, [=](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    float targets[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(x + first, elements, values);
    load_pack<kPacked, kPackSize<T>>(target + first, elements, targets);
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) {
      values[i] = (values[i] - targets[i]) * (values[i] - targets[i]);
    }
    store_pack<kPacked, kPackSize<T>>(values, elements, y + first);
  });
}

// dx = (x - target) * (2 scale); dx may be x.
template <class T, bool kPacked>
PP_HOST_DEVICE void square_gradients(const T* x, const float* target, int64_t count, float scale,
                                     int64_t block, int thread, T* dx) {
  for_each_pack<kPackSize<T>>(count, block, thread, [=](int64_t first, int64_t elements) {
    float values[kPackSize<T>];
    float targets[kPackSize<T>];
    load_pack<kPacked, kPackSize<T>>(x + first, elements, values);
    load_pack<kPacked, kPackSize<T>>(target + first, elements, targets);
    PP_UNROLL
    for (int i = 0; i < kPackSize<T>; ++i) values[i] = (values[i] - targets[i]) * (2.0F * scale);
    store_pack<kPacked, kPackSize<T>>(values, elements, dx + first);
  });
}

// Returns e^(x - top); 1 at the top, even if that is infinite.
PP_HOST_DEVICE inline float exponential_below(float x, float top) {
  return x == top ? 1.0F : expf(x - top);
}

// A part of a row: its largest score with the lowest class that has it, the sum of the exponentials
// of the scores less the largest, and the sum of the scores (for smoothing).
struct RowPart {
  float top = -INFINITY;  // a NaN never becomes the largest, but makes the sum NaN
  int32_t label = INT32_MAX;
  double sum = 0.0;
  double scores = 0.0;

  // Adds the scores of kCount classes from `first` on, which rise from call to call.
  template <int kCount>
  PP_HOST_DEVICE void add(const float (&x)[kCount], int64_t first) {
    float largest = top;
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) largest = x[i] > largest ? x[i] : largest;
    if (label == INT32_MAX) label = static_cast<int32_t>(first);
    if (largest > top) {
      PP_UNROLL
      for (int i = kCount - 1; i >= 0; --i) {
        if (x[i] == largest) label = static_cast<int32_t>(first + i);
      }
      rescale(largest);
    }
    float exponentials = 0.0F;
    float plain = 0.0F;
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) {
      exponentials += exponential_below(x[i], largest);
      plain += x[i];
    }
    sum += static_cast<double>(exponentials);
    scores += static_cast<double>(plain);
  }

  // Makes `score`, which is at least the top, the top.
  PP_HOST_DEVICE void rescale(float score) {
    sum *= static_cast<double>(exponential_below(top, score));
    top = score;
  }
};

// Calls of_pack(first class) for each of a thread's packs that lies within a row, and
// of_score(class) for its other scores; classes rise.
//   row: its number; the tensor begins at row 0.
template <int kCount, class OfPack, class OfScore>
PP_HOST_DEVICE void for_each_score(int64_t row, int64_t classes, int thread, int threads,
                                   const OfPack& of_pack, const OfScore& of_score) {
  const int64_t lead = row * classes % kCount;  // scores of earlier rows in the first pack
  for (int64_t first = int64_t{thread} * kCount - lead; first < classes;
       first += int64_t{threads} * kCount) {
    if (first >= 0 && first + kCount <= classes) {
      of_pack(first);
      continue;
    }
    const int64_t end = first + kCount < classes ? first + kCount : classes;
    for (int64_t i = first < 0 ? 0 : first; i < end; ++i) of_score(i);
  }
}

// Returns a thread's part of a row.
//   scores: of the row.
//   kPacked: the tensor is aligned.
template <class T, bool kPacked>
PP_HOST_DEVICE RowPart part_of(const T* scores, int64_t row, int64_t classes, int thread,
                               int threads) {
  constexpr int kCount = kPackSize<T>;
  RowPart part;
  for_each_score<kCount>(
      row, classes, thread, threads,
      [&](int64_t first) {
        float x[kCount];
        load_pack<kPacked, kCount>(scores + first, kCount, x);
        part.add(x, first);
      },
      [&](int64_t i) { part.add({to_float(scores[i])}, i); });
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

// Computes a thread's part of a row of dx [N, M]; dx may be x.
//   scores, to: of the row. kPacked: both tensors are aligned.
template <class T, bool kPacked>
PP_HOST_DEVICE void score_gradients(const T* scores, int64_t row, int64_t classes, int32_t label,
                                    const KeptRow& kept, const CrossEntropyRule& rule, float scale,
                                    int thread, int threads, T* to) {
  constexpr int kCount = kPackSize<T>;
  const bool is_ignored = rule.is_ignored(label);
  const float weighted = is_ignored ? 0.0F : scale * rule.weight(label);
  const auto gradient = [&](float x, int64_t i) {
    const float p = exponential_below(x, kept.top) * kept.inverse;
    return is_ignored ? 0.0F : score_gradient(p, i == label, classes, rule.smoothing, weighted);
  };
  for_each_score<kCount>(
      row, classes, thread, threads,
      [&](int64_t first) {
        float x[kCount];
        load_pack<kPacked, kCount>(scores + first, kCount, x);
        PP_UNROLL
        for (int i = 0; i < kCount; ++i) x[i] = gradient(x[i], first + i);
        store_pack<kPacked, kCount>(x, kCount, to + first);
      },
      [&](int64_t i) { to[i] = from_float<T>(gradient(to_float(scores[i]), i)); });
}

}  // namespace pushpull::ops::cuda
