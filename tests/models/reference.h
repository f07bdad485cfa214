// Plain loops in double: the definition of each operation and the oracle of its tests. Images are
// [N, C, H, W] in C order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "models/ops/convolution.h"
#include "models/ops/linear.h"
#include "models/ops/norms.h"
#include "models/ops/pool.h"

namespace pushpull::reference {

using Values = std::vector<double>;

inline size_t at(const ops::ImageShape& s, int64_t n, int64_t c, int64_t h, int64_t w) {
  return static_cast<size_t>(((n * s.channels + c) * s.height + h) * s.width + w);
}
inline size_t at(int64_t columns, int64_t row, int64_t column) {
  return static_cast<size_t>(row * columns + column);
}

// y = x wᵀ + b
inline Values linear(const ops::LinearShape& s, const Values& x, const Values& w, const Values& b) {
  Values y(static_cast<size_t>(s.samples * s.outputs));
  for (int64_t n = 0; n < s.samples; ++n) {
    for (int64_t m = 0; m < s.outputs; ++m) {
      double sum = b[static_cast<size_t>(m)];
      for (int64_t k = 0; k < s.inputs; ++k) sum += x[at(s.inputs, n, k)] * w[at(s.inputs, m, k)];
      y[at(s.outputs, n, m)] = s.relu ? std::max(sum, 0.0) : sum;
    }
  }
  return y;
}

struct Gradients {
  Values dx, dw, db;  // of the input, the first and the second parameter
};

inline Gradients linear_backward(const ops::LinearShape& s, const Values& x, const Values& w,
                                 const Values& y, const Values& dy) {
  Gradients g{Values(x.size()), Values(w.size()), Values(static_cast<size_t>(s.outputs))};
  for (int64_t n = 0; n < s.samples; ++n) {
    for (int64_t m = 0; m < s.outputs; ++m) {
      if (s.relu && y[at(s.outputs, n, m)] <= 0.0) continue;
      const double d = dy[at(s.outputs, n, m)];
      g.db[static_cast<size_t>(m)] += d;
      for (int64_t k = 0; k < s.inputs; ++k) {
        g.dw[at(s.inputs, m, k)] += d * x[at(s.inputs, n, k)];
        g.dx[at(s.inputs, n, k)] += d * w[at(s.inputs, m, k)];
      }
    }
  }
  return g;
}

// Calls f(index of y, index of x, index of w) for each product of a convolution.
template <class F>
void for_each_product(const ops::ConvolutionShape& s, F f) {
  const ops::ImageShape in = s.input;
  const ops::ImageShape out = s.output();
  for (int64_t n = 0; n < out.samples; ++n)
    for (int64_t o = 0; o < out.channels; ++o)
      for (int64_t h = 0; h < out.height; ++h)
        for (int64_t w = 0; w < out.width; ++w)
          for (int64_t c = 0; c < in.channels; ++c)
            for (int64_t i = 0; i < s.kernel; ++i)
              for (int64_t j = 0; j < s.kernel; ++j) {
                const int64_t y = h * s.stride + i - s.padding;
                const int64_t x = w * s.stride + j - s.padding;
                if (y < 0 || y >= in.height || x < 0 || x >= in.width) continue;
                const ops::ImageShape kernel{s.outputs, in.channels, s.kernel, s.kernel};
                f(at(out, n, o, h, w), at(in, n, c, y, x), at(kernel, o, c, i, j));
              }
}

// Calls f(channel, index) for each element.
template <class F>
void for_each_element(const ops::ImageShape& s, F f) {
  for (int64_t n = 0; n < s.samples; ++n)
    for (int64_t c = 0; c < s.channels; ++c)
      for (int64_t i = 0; i < s.height * s.width; ++i)
        f(static_cast<size_t>(c), at(s, n, c, 0, 0) + static_cast<size_t>(i));
}

inline Values convolution(const ops::ConvolutionShape& s, const Values& x, const Values& w,
                          const Values& b) {
  Values y(static_cast<size_t>(s.output().size()));
  for_each_element(s.output(), [&](size_t c, size_t i) { y[i] = b[c]; });
  for_each_product(s, [&](size_t iy, size_t ix, size_t iw) { y[iy] += x[ix] * w[iw]; });
  return y;
}

inline Gradients convolution_backward(const ops::ConvolutionShape& s, const Values& x,
                                      const Values& w, const Values& dy) {
  Gradients g{Values(x.size()), Values(w.size()), Values(static_cast<size_t>(s.outputs))};
  for_each_element(s.output(), [&](size_t c, size_t i) { g.db[c] += dy[i]; });
  for_each_product(s, [&](size_t iy, size_t ix, size_t iw) {
    g.dx[ix] += dy[iy] * w[iw];
    g.dw[iw] += dy[iy] * x[ix];
  });
  return g;
}

struct BatchNormOutput {
  Values y, mean, variance;  // variance: biased
  double unbiased = 1.0;     // factor from biased to unbiased
};

inline Values normalize(const ops::BatchNormShape& s, const Values& x, const Values& scale,
                        const Values& shift, const Values& mean, const Values& variance) {
  Values y(x.size());
  for_each_element(s.image, [&](size_t c, size_t i) {
    y[i] = (x[i] - mean[c]) / std::sqrt(variance[c] + s.epsilon) * scale[c] + shift[c];
    if (s.relu) y[i] = std::max(y[i], 0.0);
  });
  return y;
}

inline BatchNormOutput batch_norm(const ops::BatchNormShape& s, const Values& x,
                                  const Values& scale, const Values& shift) {
  const auto channels = static_cast<size_t>(s.image.channels);
  const auto count = static_cast<double>(s.image.samples * s.image.height * s.image.width);
  BatchNormOutput out{{}, Values(channels), Values(channels), count / (count - 1.0)};
  for_each_element(s.image, [&](size_t c, size_t i) { out.mean[c] += x[i] / count; });
  for_each_element(s.image, [&](size_t c, size_t i) {
    out.variance[c] += (x[i] - out.mean[c]) * (x[i] - out.mean[c]) / count;
  });
  out.y = normalize(s, x, scale, shift, out.mean, out.variance);
  return out;
}

// dw is the gradient of scale, db that of shift.
inline Gradients batch_norm_backward(const ops::BatchNormShape& s, const Values& x,
                                     const Values& scale, const BatchNormOutput& out,
                                     const Values& dy) {
  const size_t channels = scale.size();
  const auto count = static_cast<double>(s.image.samples * s.image.height * s.image.width);
  Gradients g{Values(x.size()), Values(channels), Values(channels)};
  const auto normal = [&](size_t c, size_t i) {
    return (x[i] - out.mean[c]) / std::sqrt(out.variance[c] + s.epsilon);
  };
  const auto masked = [&](size_t i) { return s.relu && out.y[i] <= 0.0 ? 0.0 : dy[i]; };
  for_each_element(s.image, [&](size_t c, size_t i) {
    g.dw[c] += masked(i) * normal(c, i);
    g.db[c] += masked(i);
  });
  for_each_element(s.image, [&](size_t c, size_t i) {
    g.dx[i] = scale[c] / std::sqrt(out.variance[c] + s.epsilon) *
              (masked(i) - g.db[c] / count - normal(c, i) * g.dw[c] / count);
  });
  return g;
}

// Returns the index of x that wins each window, the first of equal values.
inline std::vector<size_t> max_pool_winners(const ops::MaxPoolShape& s, const Values& x) {
  const ops::ImageShape out = s.output();
  std::vector<size_t> winners(static_cast<size_t>(out.size()));
  for (int64_t n = 0; n < out.samples; ++n)
    for (int64_t c = 0; c < out.channels; ++c)
      for (int64_t h = 0; h < out.height; ++h)
        for (int64_t w = 0; w < out.width; ++w) {
          const int64_t top = h * s.stride - s.padding;
          const int64_t left = w * s.stride - s.padding;
          size_t best = at(s.image, n, c, std::max<int64_t>(top, 0), std::max<int64_t>(left, 0));
          for (int64_t y = std::max<int64_t>(top, 0); y < std::min(top + s.kernel, s.image.height);
               ++y)
            for (int64_t z = std::max<int64_t>(left, 0);
                 z < std::min(left + s.kernel, s.image.width); ++z) {
              const size_t candidate = at(s.image, n, c, y, z);
              if (x[candidate] > x[best]) best = candidate;
            }
          winners[at(out, n, c, h, w)] = best;
        }
  return winners;
}

inline Values max_pool(const ops::MaxPoolShape& s, const Values& x) {
  Values y;
  for (const size_t winner : max_pool_winners(s, x)) y.push_back(x[winner]);
  return y;
}

inline Values max_pool_backward(const ops::MaxPoolShape& s, const Values& x, const Values& dy) {
  Values dx(x.size());
  const std::vector<size_t> winners = max_pool_winners(s, x);
  for (size_t i = 0; i < winners.size(); ++i) dx[winners[i]] += dy[i];
  return dx;
}

// Returns the loss of each sample.
inline Values cross_entropy(int64_t classes, const Values& logits,
                            const std::vector<int32_t>& labels) {
  Values losses;
  for (size_t n = 0; n < labels.size(); ++n) {
    const double* row = logits.data() + n * static_cast<size_t>(classes);
    const double top = *std::max_element(row, row + classes);
    double sum = 0.0;
    for (int64_t m = 0; m < classes; ++m) sum += std::exp(row[m] - top);
    losses.push_back(top + std::log(sum) - row[labels[n]]);
  }
  return losses;
}

// Returns the gradient of the mean loss.
inline Values cross_entropy_backward(int64_t classes, const Values& logits,
                                     const std::vector<int32_t>& labels) {
  Values d(logits.size());
  const auto count = static_cast<double>(labels.size());
  for (size_t n = 0; n < labels.size(); ++n) {
    const double loss_of_zero =
        cross_entropy(classes,
                      Values(logits.begin() + static_cast<std::ptrdiff_t>(n) * classes,
                             logits.begin() + static_cast<std::ptrdiff_t>(n + 1) * classes),
                      {0})[0];
    for (int64_t m = 0; m < classes; ++m) {
      const size_t i = n * static_cast<size_t>(classes) + static_cast<size_t>(m);
      const double p =
          std::exp(logits[i] - logits[n * static_cast<size_t>(classes)] - loss_of_zero);
      d[i] = (p - (m == labels[n] ? 1.0 : 0.0)) / count;
    }
  }
  return d;
}

}  // namespace pushpull::reference
