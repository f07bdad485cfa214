// Runs the kernels of models/ops/cuda on the host: loops over blocks and threads around the same
// functions, with the same splits and the same order of sums.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "models/ops/cuda/batch_norm_pass.h"
#include "models/ops/cuda/flat_pass.h"
#include "models/ops/cuda/head_pass.h"
#include "models/ops/cuda/pool_pass.h"
#include "models/ops/cuda/row_pass.h"
#include "models/ops/norms.h"

namespace pushpull::blocks {

using namespace ops;        // NOLINT(google-build-using-namespace): its own file of tests
using namespace ops::cuda;  // NOLINT(google-build-using-namespace)

// Like block_sum of launch.cuh: first within the warps, then over them.
template <class PerThread>
float block_sum(const PerThread& of_thread) {
  std::array<float, kBlock> values;
  for (uint32_t t = 0; t < kBlock; ++t) values[t] = of_thread(t);
  constexpr int kWarps = kBlock / kWarp;
  std::array<float, kWarps> warps;
  for (int w = 0; w < kWarps; ++w) {
    tree_sum(values.data() + w * kWarp, kWarp);
    warps[static_cast<size_t>(w)] = values[static_cast<size_t>(w) * kWarp];
  }
  tree_sum(warps.data(), kWarps);
  return warps[0];
}

// Calls visit(block, first position of a round, thread) for each of them.
template <class Visit>
void for_each_round(const ImagePass& pass, const Visit& visit) {
  for (uint32_t b = 0; b < pass.blocks(); ++b) {
    const ImagePass::Block block = pass.block(b);
    for (uint32_t first = block.first; first < block.last; first += kRound) {
      for (uint32_t t = 0; t < kBlock; ++t) visit(block, first, t);
    }
  }
}

// batch_norm.cu
template <class T, int kVector>
struct BatchNormKernels {
  explicit BatchNormKernels(const BatchNormShape& given) : shape(given), pass(given.image) {}

  void forward(const T* x, const float* scale, const float* shift, T* y) {
    const auto channels = static_cast<size_t>(shape.image.channels);
    mean.resize(channels);
    variance.resize(channels);
    states.resize(channels);
    std::vector<Moments> chunks(static_cast<size_t>(pass.blocks()));
    for (uint32_t b = 0; b < chunks.size(); ++b) chunks[b] = moments(pass.block(b), x);
    for (uint32_t c = 0; c < channels; ++c) {
      const Moments all =
          merge_chunks(chunks.data() + int64_t{c} * pass.chunks, pass.chunks, pass.places);
      states[c] = state_of(all, shape.epsilon);
      mean[c] = states[c].mean;
      variance[c] = unbiased_variance(all);
    }
    normalise_all(x, scale, shift, y);
  }

  void infer(const T* x, const float* scale, const float* shift, const float* given_mean,
             const float* given_variance, T* y) {
    states.resize(static_cast<size_t>(shape.image.channels));
    for (size_t c = 0; c < states.size(); ++c) {
      states[c] = {given_mean[c], inverse_deviation(given_variance[c], shape.epsilon)};
    }
    normalise_all(x, scale, shift, y);
  }

  void backward(const T* x, const T* dy, const float* scale, const float* shift, float unscale,
                T* dx) {
    const auto channels = static_cast<size_t>(shape.image.channels);
    std::vector<ChannelGradient> gradients(channels);
    std::vector<GradientSums> chunks(static_cast<size_t>(pass.blocks()));
    for (uint32_t b = 0; b < chunks.size(); ++b) {
      chunks[b] = sums(pass.block(b), x, dy, scale, shift);
    }
    for (uint32_t c = 0; c < channels; ++c) {
      gradients[c] = merge_gradients(chunks.data() + int64_t{c} * pass.chunks, pass.chunks,
                                     pass.places, states[c], unscale);
      dscale.push_back(gradients[c].scale);
      dshift.push_back(gradients[c].shift);
    }
    for_each_round(pass, [&](const ImagePass::Block& block, uint32_t first, uint32_t t) {
      float inputs[kPerThread];
      float outputs[kPerThread];
      load_round<kVector>(x, pass, block, first, t, inputs);
      load_round<kVector>(dy, pass, block, first, t, outputs);
      input_gradients<T>(normal(block.channel, scale, shift), gradients[block.channel].of_x,
                         outputs, inputs);
      store_round<kVector>(inputs, pass, block, first, t, dx);
    });
  }

  BatchNormShape shape;
  ImagePass pass;
  std::vector<ChannelState> states;
  std::vector<float> mean, variance, dscale, dshift;

 private:
  Normal normal(uint32_t channel, const float* scale, const float* shift) const {
    return normal_of(states[channel], scale[channel], shift[channel], shape.relu);
  }

  Moments moments(const ImagePass::Block& block, const T* x) const {
    Moments all;
    for (uint32_t first = block.first; first < block.last; first += kRound) {
      std::vector<float> values(size_t{kBlock} * kPerThread);
      const auto of = [&](uint32_t t) -> float(&)[kPerThread] {
        return *reinterpret_cast<float(*)[kPerThread]>(values.data() + t * kPerThread);
      };
      const uint32_t count = round_count(first, block.last);
      const float sum = block_sum([&](uint32_t t) {
        load_round<kVector>(x, pass, block, first, t, of(t));
        return sum_of(of(t));
      });
      const float middle = sum / static_cast<float>(count);
      const float squares =
          block_sum([&](uint32_t t) { return squares_of<T>(of(t), middle, first, block.last, t); });
      all = merge(all, {static_cast<double>(count), middle, squares});
    }
    return all;
  }

  GradientSums sums(const ImagePass::Block& block, const T* x, const T* dy, const float* scale,
                    const float* shift) const {
    std::vector<GradientSums> of_thread(kBlock);
    for (uint32_t first = block.first; first < block.last; first += kRound) {
      for (uint32_t t = 0; t < kBlock; ++t) {
        float inputs[kPerThread];
        float outputs[kPerThread];
        load_round<kVector>(x, pass, block, first, t, inputs);
        load_round<kVector>(dy, pass, block, first, t, outputs);
        add_gradients<T>(normal(block.channel, scale, shift), inputs, outputs, of_thread[t]);
      }
    }
    return {block_sum([&](uint32_t t) { return of_thread[t].dy; }),
            block_sum([&](uint32_t t) { return of_thread[t].product; })};
  }

  void normalise_all(const T* x, const float* scale, const float* shift, T* y) const {
    for_each_round(pass, [&](const ImagePass::Block& block, uint32_t first, uint32_t t) {
      float values[kPerThread];
      load_round<kVector>(x, pass, block, first, t, values);
      normalise(normal(block.channel, scale, shift), values);
      store_round<kVector>(values, pass, block, first, t, y);
    });
  }
};

// Like finish_block of sums.cuh: adds up a block's sums per column.
//   part(thread, sums): the sums of a thread.
template <int kSums, int kPack, class Part>
void finish_block(const RowPass& pass, const RowPass::Block& block, const Part& part,
                  float* chunks) {
  std::vector<float> of_warps(static_cast<size_t>(kSums * RowPass::kWarps * pass.tile));
  for (int t = 0; t < kBlock; ++t) {
    float sums[kSums][kPack];
    part(t, sums);
    for (int i = 0; i < kSums * kPack; ++i) {
      const int64_t row = i / kPack * RowPass::kWarps + t / kWarp;
      of_warps[static_cast<size_t>(row * pass.tile + t % kWarp * kPack + i % kPack)] =
          sums[i / kPack][i % kPack];
    }
  }
  for (int64_t s = 0; s < kSums; ++s) {
    for (int64_t t = 0; t < pass.tile && block.column + t < pass.columns; ++t) {
      const float* of_column = of_warps.data() + s * RowPass::kWarps * pass.tile + t;
      chunks[(block.chunk * kSums + s) * pass.columns + block.column + t] =
          sum_warps(of_column, pass.tile);
    }
  }
}

// Like sum_over_warps of sums.cuh.
template <class Value>
double sum_over_warps(int64_t count, const Value& value) {
  double parts[RowPass::kWarps];
  for (int warp = 0; warp < RowPass::kWarps; ++warp) parts[warp] = sum_part(count, warp, value);
  return sum_warps(parts, 1);
}

// Like finish_columns of passes.h: returns the sums of one of the tensors.
inline std::vector<float> finish_columns(const RowPass& pass, int sums, const float* chunks,
                                         float unscale) {
  std::vector<float> out;
  for (int64_t c = 0; c < pass.columns; ++c) {
    const auto value = [&](int64_t i) { return chunks[i * sums * pass.columns + c]; };
    out.push_back(pass.chunks == 1 ? value(0) * unscale
                                   : unscaled(sum_over_warps(pass.chunks, value), unscale));
  }
  return out;
}

// mask_and_sum_rows of passes.cu
template <class T, bool kPacked, bool kMask>
std::vector<float> mask_and_sum(int64_t rows, int64_t columns, const T* y, T* dy, float unscale) {
  const RowPass pass(rows, columns, kPackSize<T>);
  std::vector<float> chunks(static_cast<size_t>(pass.chunks * columns));
  for (int64_t b = 0; b < pass.blocks(); ++b) {
    const RowPass::Block block = pass.block(b);
    const auto part = [&](int t, float(&sums)[1][kPackSize<T>]) {
      sum_rows<T, kPacked, kMask>(pass, block, t, y, dy, sums[0]);
    };
    finish_block<1, kPackSize<T>>(pass, block, part, chunks.data());
  }
  return finish_columns(pass, 1, chunks.data(), unscale);
}

// sum_planes and finish_planes of passes.cu
template <class T, int kVector>
std::vector<float> sum_channels(const ImageShape& image, const T* dy, float unscale) {
  const ImagePass pass(image);
  std::vector<float> chunks(static_cast<size_t>(pass.blocks()));
  for (uint32_t b = 0; b < chunks.size(); ++b) {
    const ImagePass::Block block = pass.block(b);
    std::vector<float> of_thread(kBlock);
    for (uint32_t first = block.first; first < block.last; first += kRound) {
      for (uint32_t t = 0; t < kBlock; ++t) {
        float values[kPerThread];
        load_round<kVector>(dy, pass, block, first, t, values);
        of_thread[t] += sum_of(values);
      }
    }
    chunks[b] = block_sum([&](uint32_t t) { return of_thread[t]; });
  }
  std::vector<float> db;
  for (int64_t c = 0; c < image.channels; ++c) {
    const float* of_channel = chunks.data() + c * pass.chunks;
    const double sum =
        WarpSum{pass.chunks}([=](uint32_t i) { return static_cast<double>(of_channel[i]); });
    db.push_back(pass.chunks == 1 ? of_channel[0] * unscale
                                  : static_cast<float>(sum * static_cast<double>(unscale)));
  }
  return db;
}

// Visits a tensor as one row, like a kernel: visit(block, thread).
template <class Visit>
void for_each_flat(int64_t count, const Visit& visit) {
  for (int64_t b = 0; b < flat_blocks(count); ++b) {
    for (int t = 0; t < kBlock; ++t) visit(b, t);
  }
}

// Merges the values of the threads of a group, like merge_group of sums.cuh.
template <class Value, class Merge>
Value merge_group(std::vector<Value> values, const Merge& merge) {
  const auto halve = [&](size_t first, size_t count, size_t stride) {
    for (size_t reach = count / 2; reach > 0; reach /= 2) {
      for (size_t i = 0; i < reach; ++i) {
        Value& value = values[first + i * stride];
        value = merge(value, values[first + (i + reach) * stride]);
      }
    }
  };
  for (size_t warp = 0; warp < values.size(); warp += kWarp) halve(warp, kWarp, 1);
  halve(0, values.size() / kWarp, kWarp);
  return values[0];
}

// find_losses of cross_entropy.cu, in a group of `width` threads. scores: of row `row` of a tensor.
template <bool kPacked = false, class T>
RowPart whole_row(const T* scores, int64_t classes, int width, int64_t row = 0) {
  std::vector<RowPart> parts;
  RowPart whole;
  for (int t = 0; t < width; ++t) {
    parts.push_back(part_of<T, kPacked>(scores, row, classes, t, width));
    whole.top = std::max(whole.top, parts.back().top);
  }
  std::vector<double> sums;
  std::vector<double> scores_of;
  for (RowPart& part : parts) {
    if (part.top == whole.top) whole.label = std::min(whole.label, part.label);
    part.rescale(whole.top);
    sums.push_back(part.sum);
    scores_of.push_back(part.scores);
  }
  whole.sum = merge_group(sums, std::plus<>());
  whole.scores = merge_group(scores_of, std::plus<>());
  return whole;
}

// find_gradients of cross_entropy.cu
template <bool kPacked = false, class T>
void find_gradients(const T* x, const std::vector<int32_t>& labels,
                    const std::vector<KeptRow>& kept, int64_t classes, const CrossEntropyRule& rule,
                    float scale, int width, T* dx) {
  for (size_t n = 0; n < labels.size(); ++n) {
    const auto row = static_cast<int64_t>(n);
    for (int t = 0; t < width; ++t) {
      score_gradients<T, kPacked>(x + row * classes, row, classes, labels[n], kept[n], rule, scale,
                                  t, width, dx + row * classes);
    }
  }
}
inline KeptRow kept_of(const RowPart& row) { return {row.top, static_cast<float>(1.0 / row.sum)}; }

}  // namespace pushpull::blocks
