// Runs the kernels of operations on sequences on the host: loops over blocks, groups and threads
// around the same functions, with the same splits and the same order of sums. Products of matrices
// are plain loops in double.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "models/ops/attention.h"
#include "models/ops/cuda/attention_pass.h"
#include "models/ops/cuda/layer_norm_pass.h"
#include "models/ops/cuda/sequence_pass.h"
#include "models/ops/pointwise.h"
#include "tests/models/kernel_blocks.h"

namespace pushpull::blocks {

// Like group_sum of sums.cuh.
inline float group_sum(int width, const std::function<float(int)>& of_thread) {
  std::vector<float> values;
  for (int t = 0; t < width; ++t) values.push_back(of_thread(t));
  return merge_group(values, [](float a, float b) { return a + b; });
}

// Visits units of one thread each, like a kernel: visit(unit), with some units too many.
template <class Visit>
void for_each_unit(int64_t units, const Visit& visit) {
  for (int64_t unit = 0; unit < pieces(units, kBlock) * kBlock; ++unit) visit(unit);
}

// layer_norm.cu, in groups of `group` threads
template <class T, bool kPacked>
struct LayerNormKernels {
  LayerNormKernels(const LayerNormShape& given, int threads)
      : shape(given), group(threads), kept(static_cast<size_t>(given.rows)) {}

  void forward(const T* x, const float* scale, const float* shift, T* y) {
    const int64_t width = shape.width;
    for (int64_t n = 0; n < shape.rows; ++n) {
      const T* row = x + n * width;
      RowStatistics& of_row = kept[static_cast<size_t>(n)];
      of_row = {0.0F, 0.0F};
      if (shape.centred) {
        of_row.mean = mean_of(
            group_sum(
                group,
                [&](int t) { return sum_of_row<T, kPacked, false>(row, width, 0.0F, t, group); }),
            width);
      }
      const float squares = group_sum(group, [&](int t) {
        return sum_of_row<T, kPacked, true>(row, width, of_row.mean, t, group);
      });
      of_row.inverse = inverse_of(squares, width, shape.epsilon);
      for (int t = 0; t < group; ++t) {
        normalise_row<T, kPacked>(of_row, row, scale, shift, width, t, group, y + n * width);
      }
    }
  }

  // dx may be dy.
  void backward(const T* x, const T* dy, const float* scale, float unscale, T* dx) {
    const RowPass pass(shape.rows, shape.width, kPackSize<T>);
    std::vector<float> chunks(static_cast<size_t>(pass.chunks * 2 * shape.width), NAN);
    for (int64_t b = 0; b < pass.blocks(); ++b) {
      const RowPass::Block block = pass.block(b);
      const auto part = [&](int t, float(&sums)[2][kPackSize<T>]) {
        sum_parameters<T, kPacked>(pass, block, t, x, dy, kept.data(), sums);
      };
      finish_block<2, kPackSize<T>>(pass, block, part, chunks.data());
    }
    dscale = finish_columns(pass, 2, chunks.data(), unscale);
    dshift = finish_columns(pass, 2, chunks.data() + shape.width, unscale);
    for (int64_t n = 0; n < shape.rows; ++n) row_gradient(n, x, dy, scale, dx);
  }

  LayerNormShape shape;
  int group;
  std::vector<RowStatistics> kept;
  std::vector<float> dscale, dshift;

 private:
  void row_gradient(int64_t n, const T* x, const T* dy, const float* scale, T* dx) {
    const int64_t width = shape.width;
    const int64_t at = n * width;
    const RowStatistics of_row = kept[static_cast<size_t>(n)];
    const auto part = [&](int t) {
      return sum_gradients<T, kPacked>(of_row, x + at, dy + at, scale, width, t, group);
    };
    RowGradient means;
    means.product = mean_of(group_sum(group, [&](int t) { return part(t).product; }), width);
    if (shape.centred) means.g = mean_of(group_sum(group, [&](int t) { return part(t).g; }), width);
    for (int t = 0; t < group; ++t) {
      row_gradients<T, kPacked>(of_row, means, x + at, dy + at, scale, width, t, group, dx + at);
    }
  }
};

// Backward of embedding.cu: the sorted keys of the places.
inline std::vector<uint64_t> sorted_keys(const std::vector<int32_t>& ids) {
  const auto places = static_cast<int64_t>(ids.size());
  std::vector<uint64_t> keys(ids.size(), kNoKey);
  for (int64_t first = 0; first < places; first += EmbeddingPass::kTile) {
    std::vector<uint64_t> tile(EmbeddingPass::kTile, kNoKey);
    const int64_t count = std::min(places - first, EmbeddingPass::kTile);
    for (int64_t i = 0; i < count; ++i) {
      tile[static_cast<size_t>(i)] = key_of(ids[static_cast<size_t>(first + i)], first + i);
    }
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t key = tile[static_cast<size_t>(i)];
      keys[static_cast<size_t>(first + rank_in_tile(tile.data(), key))] = key;
    }
  }
  for (int64_t piece = EmbeddingPass::kTile; piece < places; piece *= kWarp) {
    std::vector<uint64_t> merged(keys.size(), kNoKey);
    for (int64_t at = 0; at < places; ++at) {
      int64_t rank = first_of_merge(at, piece);
      for (int lane = 0; lane < kWarp; ++lane) {
        rank += rank_in_piece(keys.data(), places, piece, at, lane);
      }
      merged[static_cast<size_t>(rank)] = keys[static_cast<size_t>(at)];
    }
    keys = merged;
  }
  return keys;
}

//   dw: what the sums are added to if `adds`; otherwise its values do not count.
template <class T, bool kPacked>
std::vector<float> embedding_gradient(const EmbeddingShape& shape, const std::vector<int32_t>& ids,
                                      const std::vector<T>& dy, float unscale, bool adds,
                                      std::vector<float> dw) {
  const EmbeddingPass pass(shape, kPackSize<T>);
  const std::vector<uint64_t> keys = sorted_keys(ids);
  std::vector<float> partials(static_cast<size_t>(pass.partials()), NAN);
  if (!adds) dw.assign(dw.size(), 0.0F);
  for_each_unit(pass.units(), [&](int64_t unit) {
    sum_runs<T, kPacked>(pass, unit, keys.data(), dy.data(), unscale, adds, partials.data(),
                         dw.data());
  });
  for (int64_t chunk = 0; chunk + 1 < pass.chunks; ++chunk) {
    const LongRun run = long_run(pass, keys.data(), chunk);
    for (int64_t column = 0; column < pass.width && run.chunks > 0; ++column) {
      float& to = dw[static_cast<size_t>(run.row * pass.width + column)];
      const double sum = sum_over_warps(run.chunks, [&](int64_t i) {
        return partial_sum(pass, partials.data(), chunk, column, i);
      });
      to = (adds ? to : 0.0F) + unscaled(sum, unscale);
    }
  }
  return dw;
}

// The whole of attention.cpp in groups of `pairs` heads and blocks of `rows` queries.
template <class T>
class AttentionKernels {
 public:
  AttentionKernels(const AttentionShape& given, int64_t pairs, int64_t rows, int threads)
      : shape_(given),
        group_pairs_(pairs),
        block_rows_(rows),
        group_(threads),
        padded_rows_(whole_packs(shape_.positions)),
        padded_width_(whole_packs(shape_.width)),
        scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.width)))),
        log_sums_(static_cast<size_t>(shape_.samples * shape_.heads * shape_.positions)) {}

  // x: one packed tensor, or q, k and v.
  void forward(const std::vector<std::vector<T>>& x, const std::vector<int32_t>& mask,
               const uint64_t* key, std::vector<T>& y) {
    for_each_group([&](int64_t pair) {
      split_inputs(x, pair);
      std::vector<float> inverses(static_cast<size_t>(group_pairs_ * padded_rows_), NAN);
      std::vector<float> out(matrices(), NAN);
      for_each_block([&](int64_t first, int64_t rows, int64_t keys) {
        const ScoresPass pass = scores_pass(pair, first, rows, keys, mask, key);
        const std::vector<float> scores = multiply_keys(q_, k_, pass, scale_);
        std::vector<T> p(scores.size());
        for (int64_t r = 0; r < pass.all_rows(); ++r) softmax(pass, r, scores, p, inverses);
        multiply_values(p, v_, pass, out);
      });
      join_into(heads(pair, false, 0), out, inverses.data(), y);
    });
  }

  void backward(const std::vector<std::vector<T>>& x, const std::vector<int32_t>& mask,
                const uint64_t* key, const std::vector<T>& y, const std::vector<T>& dy,
                std::vector<std::vector<T>>& dx) {
    for_each_group([&](int64_t pair) {
      split_inputs(x, pair);
      const HeadsPass outputs = heads(pair, false, 0);
      const std::vector<T> out = split_one(outputs, dy);
      const std::vector<float> deltas = products(outputs, y, dy);
      std::array<std::vector<float>, 3> sums;
      for (std::vector<float>& sum : sums) sum.assign(matrices(), 0.0F);
      for_each_block([&](int64_t first, int64_t rows, int64_t keys) {
        const ScoresPass pass = scores_pass(pair, first, rows, keys, mask, key);
        const std::vector<float> scores = multiply_keys(q_, k_, pass, scale_);
        const std::vector<float> dp = multiply_keys(out, v_, pass, 1.0F);
        std::vector<T> p(scores.size());
        std::vector<T> ds(scores.size());
        for_each_unit(pass.units(), [&](int64_t unit) {
          score_gradients<T>(pass, unit, scores.data(), dp.data(), log_sums_.data(), deltas.data(),
                             scale_, p.data(), ds.data());
        });
        add_transposed(p, out, pass, sums[2]);
        add_transposed(ds, q_, pass, sums[1]);
        multiply_values(ds, k_, pass, sums[0]);
      });
      for (int64_t which = 0; which < 3; ++which) {
        std::vector<T>& to = dx[shape_.packed ? 0 : static_cast<size_t>(which)];
        join_into(heads(pair, shape_.packed, which), sums[static_cast<size_t>(which)], nullptr, to);
      }
    });
  }

 private:
  size_t matrices() const {
    return static_cast<size_t>(group_pairs_ * padded_rows_ * padded_width_);
  }

  template <class Body>
  void for_each_group(const Body& body) {
    const int64_t pairs = shape_.samples * shape_.heads;
    for (int64_t pair = 0; pair < pairs; pair += group_pairs_) body(pair);
  }
  template <class Body>
  void for_each_block(const Body& body) {
    for (int64_t first = 0; first < padded_rows_; first += block_rows_) {
      const int64_t rows = std::min(block_rows_, padded_rows_ - first);
      body(first, rows, shape_.causal ? first + rows : padded_rows_);
    }
  }
  HeadsPass heads(int64_t pair, bool packed, int64_t part) const {
    HeadsPass pass =
        heads_pass(shape_.positions, shape_.heads, shape_.width, group_pairs_, packed, part);
    pass.first_pair = pair;
    return pass;
  }
  ScoresPass scores_pass(int64_t pair, int64_t first, int64_t rows, int64_t keys,
                         const std::vector<int32_t>& mask, const uint64_t* key) const {
    ScoresPass pass;
    pass.positions = shape_.positions;
    pass.first_pair = pair;
    pass.pairs = group_pairs_;
    pass.first = first;
    pass.rows = rows;
    pass.keys = keys;
    pass.causal = shape_.causal;
    pass.mask = shape_.mask ? mask.data() : nullptr;
    const DropoutRule rule(shape_.dropout);
    if (key != nullptr && rule.least > 0) pass.dropout = {key, rule.least, rule.factor};
    pass.by_rows = Divider(rows);
    pass.by_packs = Divider(keys / kHeadPack);
    pass.by_heads = Divider(shape_.heads);
    return pass;
  }

  std::vector<T> split_one(const HeadsPass& pass, const std::vector<T>& tensor) const {
    std::vector<T> to(matrices());  // aligned to 16 bytes, as every allocation of that size
    for_each_unit(pass.units(),
                  [&](int64_t unit) { split<T, false>(pass, unit, tensor.data(), to.data()); });
    return to;
  }
  void split_inputs(const std::vector<std::vector<T>>& x, int64_t pair) {
    q_ = split_one(heads(pair, shape_.packed, 0), x[0]);
    k_ = split_one(heads(pair, shape_.packed, 1), x[shape_.packed ? 0 : 1]);
    v_ = split_one(heads(pair, shape_.packed, 2), x[shape_.packed ? 0 : 2]);
  }
  void join_into(const HeadsPass& pass, const std::vector<float>& from, const float* factors,
                 std::vector<T>& to) const {
    for_each_unit(pass.units(), [&](int64_t unit) {
      join<T, false>(pass, unit, from.data(), factors, to.data());
    });
  }
  std::vector<float> products(const HeadsPass& pass, const std::vector<T>& y,
                              const std::vector<T>& dy) const {
    std::vector<float> out;
    for (int64_t row = 0; row < pass.pairs * pass.rows(); ++row) {
      const HeadsPass::Row place = pass.row(static_cast<uint32_t>(row));
      out.push_back(group_sum(kWarp, [&](int t) {
        return output_product(pass, place, y.data(), dy.data(), t, kWarp);
      }));
    }
    return out;
  }
  void softmax(const ScoresPass& pass, int64_t index, const std::vector<float>& scores,
               std::vector<T>& p, std::vector<float>& inverses) {
    const ScoresPass::Row row = pass.row(static_cast<uint32_t>(index));
    const float* from = scores.data() + index * pass.keys;
    std::vector<float> tops;
    for (int t = 0; t < group_; ++t) tops.push_back(top_score(row, from, t, group_));
    const float top = merge_group(tops, [](float a, float b) { return b > a ? b : a; });
    const float sum = group_sum(group_, [&](int t) {
      return score_exponentials(pass, row, top, from, t, group_, p.data() + index * pass.keys);
    });
    const RowSoftmax of_row = softmax_of(top, sum);
    inverses[static_cast<size_t>(row.matrix)] = of_row.inverse;
    if (row.visible > 0) log_sums_[static_cast<size_t>(row.all)] = of_row.log_sum;
  }

  double element(const std::vector<T>& of, int64_t pair, int64_t row, int64_t d) const {
    return static_cast<double>(
        to_float(of[static_cast<size_t>((pair * padded_rows_ + row) * padded_width_ + d)]));
  }
  // [rows, keys] = factor a bᵀ
  std::vector<float> multiply_keys(const std::vector<T>& a, const std::vector<T>& b,
                                   const ScoresPass& pass, float factor) const {
    std::vector<float> out;
    for (int64_t pair = 0; pair < pass.pairs; ++pair) {
      for (int64_t i = 0; i < pass.rows; ++i) {
        for (int64_t j = 0; j < pass.keys; ++j) {
          double sum = 0.0;
          for (int64_t d = 0; d < padded_width_; ++d) {
            sum += element(a, pair, pass.first + i, d) * element(b, pair, j, d);
          }
          out.push_back(static_cast<float>(sum * static_cast<double>(factor)));
        }
      }
    }
    return out;
  }
  // rows of `out` = p b
  void multiply_values(const std::vector<T>& p, const std::vector<T>& b, const ScoresPass& pass,
                       std::vector<float>& out) const {
    for_each_row(
        pass,
        [&](int64_t pair, int64_t i, int64_t d, const T* of_row) {
          double sum = 0.0;
          for (int64_t j = 0; j < pass.keys; ++j) {
            sum += static_cast<double>(to_float(of_row[j])) * element(b, pair, j, d);
          }
          const int64_t row = pair * padded_rows_ + pass.first + i;
          out[static_cast<size_t>(row * padded_width_ + d)] = static_cast<float>(sum);
        },
        p);
  }
  // out += pᵀ a
  void add_transposed(const std::vector<T>& p, const std::vector<T>& a, const ScoresPass& pass,
                      std::vector<float>& out) const {
    for_each_row(
        pass,
        [&](int64_t pair, int64_t i, int64_t d, const T* of_row) {
          for (int64_t j = 0; j < pass.keys; ++j) {
            out[static_cast<size_t>((pair * padded_rows_ + j) * padded_width_ + d)] +=
                to_float(of_row[j]) * static_cast<float>(element(a, pair, pass.first + i, d));
          }
        },
        p);
  }
  template <class Body>
  void for_each_row(const ScoresPass& pass, const Body& body, const std::vector<T>& p) const {
    for (int64_t pair = 0; pair < pass.pairs; ++pair) {
      for (int64_t i = 0; i < pass.rows; ++i) {
        const T* of_row = p.data() + (pair * pass.rows + i) * pass.keys;
        for (int64_t d = 0; d < padded_width_; ++d) body(pair, i, d, of_row);
      }
    }
  }

  AttentionShape shape_;
  int64_t group_pairs_;
  int64_t block_rows_;
  int group_;
  int64_t padded_rows_;
  int64_t padded_width_;
  float scale_;
  std::vector<float> log_sums_;
  std::vector<T> q_, k_, v_;
};

}  // namespace pushpull::blocks
