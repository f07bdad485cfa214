// The per-thread part of attention, between its products. Heads are processed in groups: a pair is
// one head of one sample, and a group is some pairs that follow each other, sample by sample.
//
// The products read their factors from matrices of each pair, [positions, width], in which both sizes
// are rounded up to a multiple of eight and padded with zeros: `split` writes them and `join` reads
// them. A matrix of scores is [rows, keys] per pair, for a block of queries. Threads process packs of
// eight elements, so that a pack of 16-bit numbers is 16 bytes. Pure.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/base/random.h"
#include "models/ops/arithmetic.h"
#include "models/ops/number.h"

namespace pushpull::ops::cuda {

// The words of attention's dropout, eight following elements at once. Pure.

// An element counts `factor` times if its word is at least `least`, and otherwise 0 times.
struct DropoutKey {
  const uint64_t* key = nullptr;  // of the run, in the backend's memory; null: every element counts
  uint32_t least = 0;
  float factor = 1.0F;  // 1 / (1 - p)
};

// Computes how often the eight elements from `element` on count.
PP_HOST_DEVICE inline void dropout_factors(const DropoutKey& dropout, uint64_t element,
                                           float (&factors)[8]) {
  if (dropout.key == nullptr) {
    PP_UNROLL
    for (int k = 0; k < 8; ++k) factors[k] = 1.0F;
    return;
  }
  uint32_t words[12] = {};
  const auto skipped = static_cast<int>(element % 4);
  PP_UNROLL
  for (int part = 0; part < 3; ++part) {
    if (part == 2 && skipped == 0) continue;
    const PhiloxBlock block =
        dropout_block(*dropout.key, element / 4 + static_cast<uint64_t>(part));
    PP_UNROLL
    for (int k = 0; k < 4; ++k) words[4 * part + k] = block.of[k];
  }
  PP_UNROLL
  for (int k = 0; k < 8; ++k) {
    // constant indices, so that the words stay in registers
    const uint32_t low = skipped % 2 == 0 ? words[k] : words[k + 1];
    const uint32_t high = skipped % 2 == 0 ? words[k + 2] : words[k + 3];
    factors[k] = (skipped < 2 ? low : high) >= dropout.least ? dropout.factor : 0.0F;
  }
}

constexpr int kHeadPack = 8;

PP_HOST_DEVICE constexpr int64_t whole_packs(int64_t count) {
  return pieces(count, kHeadPack) * kHeadPack;
}

// Where the heads of a group lie in a tensor [N, T, ...] and in matrices.
struct HeadsPass {
  int64_t positions = 0;  // T
  int64_t heads = 0;
  int64_t width = 0;       // of a head
  int64_t first_pair = 0;  // of the group
  int64_t pairs = 0;
  int64_t stride = 0;  // of the tensor: elements from one position to the next
  int64_t offset = 0;  // of the tensor: the first head in a position
  Divider by_packs;    // of a matrix's row
  Divider by_rows;     // of a matrix
  Divider by_heads;

  PP_HOST_DEVICE int64_t rows() const { return by_rows.divisor; }
  PP_HOST_DEVICE int64_t packs() const { return by_packs.divisor; }
  PP_HOST_DEVICE int64_t units() const { return pairs * rows() * packs(); }
  // Returns true if a pack of the tensor is a whole one at an aligned address.
  bool packed(const void* tensor) const {
    return width % kHeadPack == 0 && stride % kHeadPack == 0 && offset % kHeadPack == 0 &&
           is_aligned(tensor);
  }

  // A row of a matrix.
  struct Row {
    int64_t position;
    int64_t tensor;  // place of the head's first element, if the position is below T
  };
  PP_HOST_DEVICE Row row(uint32_t index) const {
    const uint32_t pair = by_rows.quotient(index);
    const int64_t position = index - pair * by_rows.divisor;
    const int64_t of_all = first_pair + pair;
    const int64_t sample = by_heads.quotient(static_cast<uint32_t>(of_all));
    const int64_t head = of_all - sample * heads;
    return {position, (sample * positions + position) * stride + offset + head * width};
  }
};

// Makes a pass over all pairs from `first_pair` on.
//   packed: the tensor is [N, T, 3E] and `part` says which of q, k and v; otherwise it is [N, T, E].
inline HeadsPass heads_pass(int64_t positions, int64_t heads, int64_t width, int64_t pairs,
                            bool packed, int64_t part) {
  HeadsPass pass;
  pass.positions = positions;
  pass.heads = heads;
  pass.width = width;
  pass.pairs = pairs;
  pass.stride = (packed ? 3 : 1) * heads * width;
  pass.offset = packed ? part * heads * width : 0;
  pass.by_packs = Divider(pieces(width, kHeadPack));
  pass.by_rows = Divider(whole_packs(positions));
  pass.by_heads = Divider(heads);
  return pass;
}

// Copies pack `unit` of the matrices from the tensor.
template <class T, bool kPacked>
PP_HOST_DEVICE void split(const HeadsPass& pass, int64_t unit, const T* tensor, T* matrices) {
  if (unit >= pass.units()) return;
  const uint32_t index = pass.by_packs.quotient(static_cast<uint32_t>(unit));
  const int64_t column = (unit - int64_t{index} * pass.packs()) * kHeadPack;
  const HeadsPass::Row row = pass.row(index);
  float values[kHeadPack];
  load_pack<kPacked, kHeadPack>(tensor + row.tensor + column,
                                row.position < pass.positions ? pass.width - column : 0, values);
  store_pack<true, kHeadPack>(values, kHeadPack, matrices + unit * kHeadPack);
}

// Writes pack `unit` of the matrices to the tensor, if it has the place.
//   factors: of each row of the matrices; null: 1.
template <class T, bool kPacked>
PP_HOST_DEVICE void join(const HeadsPass& pass, int64_t unit, const float* matrices,
                         const float* factors, T* tensor) {
  if (unit >= pass.units()) return;
  const uint32_t index = pass.by_packs.quotient(static_cast<uint32_t>(unit));
  const int64_t column = (unit - int64_t{index} * pass.packs()) * kHeadPack;
  const HeadsPass::Row row = pass.row(index);
  if (row.position >= pass.positions) return;
  const float factor = factors == nullptr ? 1.0F : factors[index];
  float values[kHeadPack];
  load_pack<true, kHeadPack>(matrices + unit * kHeadPack, kHeadPack, values);
  PP_UNROLL
  for (int i = 0; i < kHeadPack; ++i) values[i] *= factor;
  store_pack<kPacked, kHeadPack>(values, pass.width - column, tensor + row.tensor + column);
}

// Returns a thread's share of the sum of dy y over a head, for one row.
template <class T>
PP_HOST_DEVICE float output_product(const HeadsPass& pass, const HeadsPass::Row& row, const T* y,
                                    const T* dy, int thread, int threads) {
  float sum = 0.0F;
  if (row.position >= pass.positions) return sum;
  for (int64_t d = thread; d < pass.width; d += threads) {
    sum += to_float(y[row.tensor + d]) * to_float(dy[row.tensor + d]);
  }
  return sum;
}

// The scores of a block of queries of a group.
struct ScoresPass {
  int64_t positions = 0;  // T
  int64_t first_pair = 0;
  int64_t pairs = 0;
  int64_t first = 0;  // query
  int64_t rows = 0;   // queries, and columns `keys`: multiples of kHeadPack
  int64_t keys = 0;
  bool causal = false;
  const int32_t* mask = nullptr;  // ints [N, T]: 0 hides a key; null: hides none
  DropoutKey dropout;
  Divider by_rows;
  Divider by_packs;  // of a row
  Divider by_heads;

  PP_HOST_DEVICE int64_t all_rows() const { return pairs * rows; }
  PP_HOST_DEVICE int64_t units() const { return all_rows() * by_packs.divisor; }

  // The scores of one query.
  struct Row {
    int64_t visible;      // the first keys, of which the mask hides some; 0 behind the last query
    int64_t matrix;       // index of the query among the rows of the group's matrices
    int64_t all;          // index of the query among all: pair * T + query
    const int32_t* mask;  // of its sample
  };
  PP_HOST_DEVICE Row row(uint32_t index) const {
    const uint32_t pair = by_rows.quotient(index);
    const int64_t query = first + (index - pair * by_rows.divisor);
    const int64_t sample = by_heads.quotient(static_cast<uint32_t>(first_pair + pair));
    const int64_t seen = causal ? query + 1 : positions;
    return {query < positions ? seen : 0, pair * whole_packs(positions) + query,
            (first_pair + pair) * positions + query,
            mask == nullptr ? nullptr : mask + sample * positions};
  }
  // Returns the dropout stream's element of a row's first key.
  PP_HOST_DEVICE uint64_t element(const Row& row) const {
    return static_cast<uint64_t>(row.all) * static_cast<uint64_t>(positions);
  }
};

PP_HOST_DEVICE inline bool sees(const ScoresPass::Row& row, int64_t key) {
  return key < row.visible && (row.mask == nullptr || row.mask[key] != 0);
}

// Returns the largest score that a thread sees in its packs of a row, or -infinity.
PP_HOST_DEVICE inline float top_score(const ScoresPass::Row& row, const float* scores, int thread,
                                      int threads) {
  float top = -INFINITY;
  for (int64_t first = int64_t{thread} * kHeadPack; first < row.visible;
       first += int64_t{threads} * kHeadPack) {
    float values[kHeadPack];
    load_pack<true, kHeadPack>(scores + first, kHeadPack, values);
    PP_UNROLL
    for (int i = 0; i < kHeadPack; ++i) {
      if (sees(row, first + i) && values[i] > top) top = values[i];
    }
  }
  return top;
}

// Writes e^(score - top) with dropout to a thread's packs of a row, 0 for hidden keys, and returns
// the sum without dropout. p may be the scores.
template <class T>
PP_HOST_DEVICE float score_exponentials(const ScoresPass& pass, const ScoresPass::Row& row,
                                        float top, const float* scores, int thread, int threads,
                                        T* p) {
  float sum = 0.0F;
  for (int64_t first = int64_t{thread} * kHeadPack; first < pass.keys;
       first += int64_t{threads} * kHeadPack) {
    float values[kHeadPack] = {};
    if (first < row.visible) {
      float factors[kHeadPack];
      load_pack<true, kHeadPack>(scores + first, kHeadPack, values);
      dropout_factors(pass.dropout, pass.element(row) + static_cast<uint64_t>(first), factors);
      PP_UNROLL
      for (int i = 0; i < kHeadPack; ++i) {
        const float e = sees(row, first + i) ? expf(values[i] - top) : 0.0F;
        sum += e;
        values[i] = e * factors[i];
      }
    }
    store_pack<true, kHeadPack>(values, kHeadPack, p + first);
  }
  return sum;
}

// The results of a row, given its largest score and its sum.
struct RowSoftmax {
  float inverse;  // 1 / sum; 0 if no key is visible
  float log_sum;  // logarithm of the sum of e^score; +infinity if no key is visible
};
PP_HOST_DEVICE inline RowSoftmax softmax_of(float top, float sum) {
  if (sum == 0.0F) return {0.0F, INFINITY};  // the largest score alone adds 1
  return {1.0F / sum, top + logf(sum)};
}

// Turns a pack of scores into P with dropout, and of the gradients of that into the gradients of the
// scores times `scale`, dS = P (dP with dropout - D). p may be the scores, and ds may be dp.
template <class T>
PP_HOST_DEVICE void score_gradients(const ScoresPass& pass, int64_t unit, const float* scores,
                                    const float* dp, const float* log_sums, const float* deltas,
                                    float scale, T* p, T* ds) {
  if (unit >= pass.units()) return;
  const uint32_t index = pass.by_packs.quotient(static_cast<uint32_t>(unit));
  const int64_t first = (unit - int64_t{index} * pass.by_packs.divisor) * kHeadPack;
  const ScoresPass::Row row = pass.row(index);
  float values[kHeadPack] = {};
  float gradients[kHeadPack] = {};
  if (first < row.visible) {
    const float log_sum = log_sums[row.all];
    const float delta = deltas[row.matrix];
    float factors[kHeadPack];
    load_pack<true, kHeadPack>(scores + unit * kHeadPack, kHeadPack, values);
    load_pack<true, kHeadPack>(dp + unit * kHeadPack, kHeadPack, gradients);
    dropout_factors(pass.dropout, pass.element(row) + static_cast<uint64_t>(first), factors);
    PP_UNROLL
    for (int i = 0; i < kHeadPack; ++i) {
      const bool seen = sees(row, first + i);
      const float share = seen ? expf(values[i] - log_sum) : 0.0F;
      gradients[i] = seen ? share * (gradients[i] * factors[i] - delta) * scale : 0.0F;
      values[i] = share * factors[i];
    }
  }
  store_pack<true, kHeadPack>(values, kHeadPack, p + unit * kHeadPack);
  store_pack<true, kHeadPack>(gradients, kHeadPack, ds + unit * kHeadPack);
}

}  // namespace pushpull::ops::cuda
