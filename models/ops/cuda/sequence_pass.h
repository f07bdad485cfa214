// The arithmetic of operations on the positions of sequences, for each thread of their kernels.
#pragma once

#include <cstdint>

#include "models/ops/cuda/flat_pass.h"
#include "models/ops/sequence.h"

namespace pushpull::ops::cuda {

// The per-thread part of an embedding. Backward sorts the places by their rows of the table, places of
// a row in rising order, without atomics: blocks sort tiles by enumeration, then tiles are merged, 32
// at a time, by binary searches (Knuth, The Art of Computer Programming 3, 5.2). A run is the places
// of one row in that order. The order is split into chunks of kChunk places. A thread sums the runs
// of a chunk: the sum of a run within one chunk is final, the sum of a longer run is partial, and a
// block adds the partial sums of a run. The work does not depend on how the places are spread over
// the rows. Pure.

// A place and its row of the table as one number. Sorted numbers are sorted rows, and the places of
// a row rise.
PP_HOST_DEVICE inline uint64_t key_of(int64_t row, int64_t place) {
  return (static_cast<uint64_t>(row) << 32) | static_cast<uint64_t>(place);
}
PP_HOST_DEVICE inline int64_t row_of(uint64_t key) { return static_cast<int64_t>(key >> 32); }
PP_HOST_DEVICE inline int64_t place_of(uint64_t key) {
  return static_cast<int64_t>(key & 0xffffffffU);
}
constexpr uint64_t kNoKey = ~uint64_t{0};  // behind all keys

struct EmbeddingPass {
  static constexpr int64_t kTile = kBlock;  // keys that a block sorts
  static constexpr int64_t kChunk = 32;     // places
  static constexpr int kBatch = 8;          // rows of dy in flight
  enum Part { kGoesOn = 0, kBegins = 1 };   // of a partial sum: the run's first, or a later one

  int64_t places = 0;
  int64_t vocabulary = 0;
  int64_t width = 0;
  int64_t packs = 0;  // of a row
  int64_t chunks = 0;
  int64_t tiles = 0;  // of a row: columns that a block finishes
  Divider by_width;
  Divider by_packs;
  Divider by_tiles;

  EmbeddingPass(const EmbeddingShape& shape, int pack_size)
      : places(shape.samples * shape.positions),
        vocabulary(shape.vocabulary),
        width(shape.width),
        packs(pieces(width, pack_size)),
        chunks(pieces(places, kChunk)),
        tiles(pieces(width, kWarp)),
        by_width(width),
        by_packs(packs),
        by_tiles(tiles) {}

  PP_HOST_DEVICE int64_t units() const { return chunks * packs; }
  // Returns the floats of the partial sums, two rows for each chunk.
  int64_t partials() const { return chunks * 2 * width; }
  PP_HOST_DEVICE int64_t partial(int64_t chunk, Part part) const {
    return (chunk * 2 + part) * width;
  }
  // Returns true if a pack lies within one row, and all its addresses are aligned.
  template <class T>
  bool packed(const void* activations, const void* w) const {
    return width % kPackSize<T> == 0 && is_aligned(activations) && is_aligned(w);
  }
  // Returns the place in w of element `at` of y.
  PP_HOST_DEVICE int64_t source(const int32_t* ids, int64_t at) const {
    const int64_t place = by_width.quotient(static_cast<uint32_t>(at));
    return ids[place] * width + (at - place * width);
  }
};

// y = w[ids], converted.
template <class T, bool kPacked>
PP_HOST_DEVICE void read_rows(const EmbeddingPass& pass, int64_t block, int thread,
                              const int32_t* ids, const float* w, T* y) {
  constexpr int kCount = kPackSize<T>;
  const int64_t count = pass.places * pass.width;
  for_each_pack<kCount>(count, block, thread, [&](int64_t first, int64_t elements) {
    float values[kCount];
    if constexpr (kPacked) {
      load_pack<true, kCount>(w + pass.source(ids, first), elements, values);
    } else {
      PP_UNROLL
      for (int i = 0; i < kCount; ++i) {
        values[i] = i < elements ? w[pass.source(ids, first + i)] : 0.0F;
      }
    }
    store_pack<kPacked, kCount>(values, elements, y + first);
  });
}

// Returns the number of keys of a tile, sorted or not, that are below `key`.
PP_HOST_DEVICE inline int32_t rank_in_tile(const uint64_t* keys, uint64_t key) {
  int32_t rank = 0;
  for (int i = 0; i < EmbeddingPass::kTile; ++i) rank += keys[i] < key ? 1 : 0;
  return rank;
}

// Returns the number of the sorted keys that are below `key`.
PP_HOST_DEVICE inline int64_t count_below(const uint64_t* keys, int64_t count, uint64_t key) {
  int64_t first = 0;
  while (count > 0) {
    const int64_t half = count / 2;
    const bool is_below = keys[first + half] < key;
    first = is_below ? first + half + 1 : first;
    count = is_below ? count - half - 1 : half;
  }
  return first;
}

// Merging: kWarp sorted pieces of `piece` keys (a power of two) become one.
PP_HOST_DEVICE inline int64_t first_of_merge(int64_t at, int64_t piece) {
  return at & ~(piece * kWarp - 1);
}
// Returns the number of keys of piece `lane` that are below key `at`, which is in the same merge.
PP_HOST_DEVICE inline int32_t rank_in_piece(const uint64_t* keys, int64_t places, int64_t piece,
                                            int64_t at, int lane) {
  const int64_t first = first_of_merge(at, piece) + piece * lane;
  const int64_t rest = places > first ? places - first : 0;
  return static_cast<int32_t>(count_below(keys + first, rest < piece ? rest : piece, keys[at]));
}

// Sums pack unit % packs of the runs of chunk unit / packs: to dw if a run is whole, times `unscale`
// (1 / loss scale), otherwise to `partials`.
//   adds: a sum is added to the value in dw.
template <class T, bool kPacked>
PP_HOST_DEVICE void sum_runs(const EmbeddingPass& pass, int64_t unit, const uint64_t* keys,
                             const T* dy, float unscale, bool adds, float* partials, float* dw) {
  constexpr int kCount = kPackSize<T>;
  constexpr int kBatch = EmbeddingPass::kBatch;
  if (unit >= pass.units()) return;
  const int64_t chunk = pass.by_packs.quotient(static_cast<uint32_t>(unit));
  const int64_t column = (unit - chunk * pass.packs) * kCount;
  const int64_t width = pass.width - column;
  const int64_t first = chunk * EmbeddingPass::kChunk;
  const int64_t last =
      pass.places - first < EmbeddingPass::kChunk ? pass.places : first + EmbeddingPass::kChunk;
  bool began_before = first > 0 && row_of(keys[first - 1]) == row_of(keys[first]);
  float sums[kCount] = {};
  for (int64_t k = first; k < last; k += kBatch) {
    float values[kBatch][kCount];
    uint64_t next[kBatch + 1];  // the batch's keys and the one behind it
    PP_UNROLL
    for (int i = 0; i <= kBatch; ++i) next[i] = k + i < pass.places ? keys[k + i] : kNoKey;
    PP_UNROLL
    for (int i = 0; i < kBatch; ++i) {  // all loads before the first addition
      const int64_t place = k + i < last ? place_of(next[i]) : 0;
      const int64_t count = k + i < last ? width : 0;
      load_pack<kPacked, kCount>(dy + place * pass.width + column, count, values[i]);
    }
    PP_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      if (k + i >= last) continue;
      PP_UNROLL
      for (int j = 0; j < kCount; ++j) sums[j] += values[i][j];
      const int64_t row = row_of(next[i]);
      const bool ends = row_of(next[i + 1]) != row;
      if (!ends && k + i + 1 < last) continue;
      if (ends && !began_before) {
        float* to = dw + row * pass.width + column;
        float before[kCount] = {};
        if (adds) load_pack<kPacked, kCount>(to, width, before);
        PP_UNROLL
        for (int j = 0; j < kCount; ++j) sums[j] = before[j] + sums[j] * unscale;
        store_pack<kPacked, kCount>(sums, width, to);
      } else {
        const auto part = began_before ? EmbeddingPass::kGoesOn : EmbeddingPass::kBegins;
        store_pack<kPacked, kCount>(sums, width, partials + pass.partial(chunk, part) + column);
      }
      began_before = false;
      PP_UNROLL
      for (int j = 0; j < kCount; ++j) sums[j] = 0.0F;
    }
  }
}

// A run that crosses chunks.
struct LongRun {
  int64_t row = 0;
  int64_t chunks = 0;  // 0 if there is none
};

// Returns the run that begins in a chunk and ends in a later one.
PP_HOST_DEVICE inline LongRun long_run(const EmbeddingPass& pass, const uint64_t* keys,
                                       int64_t chunk) {
  const int64_t first = chunk * EmbeddingPass::kChunk;
  const int64_t next = first + EmbeddingPass::kChunk;
  if (next >= pass.places) return {};
  const int64_t row = row_of(keys[next - 1]);
  const bool began_before = first > 0 && row_of(keys[first - 1]) == row;
  if (began_before || row_of(keys[next]) != row) return {};
  const int64_t end = next + count_below(keys + next, pass.places - next, key_of(row + 1, 0));
  return {row, (end - 1) / EmbeddingPass::kChunk - chunk + 1};
}

// Returns partial sum i of a column of the long run that begins in `chunk`.
PP_HOST_DEVICE inline float partial_sum(const EmbeddingPass& pass, const float* partials,
                                        int64_t chunk, int64_t column, int64_t i) {
  const auto part = i == 0 ? EmbeddingPass::kBegins : EmbeddingPass::kGoesOn;
  return partials[pass.partial(chunk + i, part) + column];
}

// The per-thread part of adding a vector per position, and of its gradient. Pure.
struct PositionsPass {
  static constexpr int kBatch = 8;  // samples in flight

  int64_t samples = 0;
  int64_t sample = 0;   // elements of one
  int64_t weights = 0;  // elements of w, at least `sample`
  Divider by_sample;

  explicit PositionsPass(const AddPositionsShape& shape)
      : samples(shape.samples),
        sample(shape.positions * shape.width),
        weights(shape.limit * shape.width),
        by_sample(sample) {}

  // Returns true if a pack lies within one sample, and all its addresses are aligned.
  template <class T>
  bool packed(const void* a, const void* b, const void* w) const {
    return sample % kPackSize<T> == 0 && weights % kPackSize<T> == 0 && is_aligned(a) &&
           is_aligned(b) && is_aligned(w);
  }
  PP_HOST_DEVICE int64_t place(int64_t at) const {
    return at - int64_t{by_sample.quotient(static_cast<uint32_t>(at))} * sample;
  }
};

// y = x + w; y may be x.
template <class T, bool kPacked>
PP_HOST_DEVICE void add_positions(const PositionsPass& pass, int64_t block, int thread, const T* x,
                                  const float* w, T* y) {
  constexpr int kCount = kPackSize<T>;
  const int64_t count = pass.samples * pass.sample;
  for_each_pack<kCount>(count, block, thread, [&](int64_t first, int64_t elements) {
    float values[kCount];
    float added[kCount];
    load_pack<kPacked, kCount>(x + first, elements, values);
    if constexpr (kPacked) {
      load_pack<true, kCount>(w + pass.place(first), elements, added);
    } else {
      PP_UNROLL
      for (int i = 0; i < kCount; ++i) added[i] = i < elements ? w[pass.place(first + i)] : 0.0F;
    }
    PP_UNROLL
    for (int i = 0; i < kCount; ++i) values[i] += added[i];
    store_pack<kPacked, kCount>(values, elements, y + first);
  });
}

// Computes pack `unit` of dw: the sums over the samples in rising order, times `unscale` (1 / loss
// scale); 0 behind the positions of a sample.
template <class T, bool kPacked>
PP_HOST_DEVICE void sum_positions(const PositionsPass& pass, int64_t unit, const T* dy,
                                  float unscale, float* dw) {
  constexpr int kCount = kPackSize<T>;
  const int64_t first = unit * kCount;
  if (first >= pass.weights) return;
  const int64_t summed = first < pass.sample ? pass.sample - first : 0;
  float sums[kCount] = {};
  for (int64_t n = 0; n < pass.samples && summed > 0; n += PositionsPass::kBatch) {
    float values[PositionsPass::kBatch][kCount];
    PP_UNROLL
    for (int i = 0; i < PositionsPass::kBatch; ++i) {  // all loads before the first addition
      const int64_t count = n + i < pass.samples ? summed : 0;
      load_pack<kPacked, kCount>(dy + (n + i) * pass.sample + first, count, values[i]);
    }
    PP_UNROLL
    for (int i = 0; i < PositionsPass::kBatch; ++i) {
      PP_UNROLL
      for (int j = 0; j < kCount; ++j) sums[j] += values[i][j];
    }
  }
  PP_UNROLL
  for (int j = 0; j < kCount; ++j) sums[j] *= unscale;
  store_pack<kPacked, kCount>(sums, pass.weights - first, dw + first);
}

// The per-thread part of a selection: copies of activations, without arithmetic. Pure.
struct SelectPass {
  SelectShape shape;
  Divider by_inner;
  Divider by_slice;  // the size * inner elements of one outer index

  explicit SelectPass(const SelectShape& given)
      : shape(given), by_inner(given.inner), by_slice(given.size * given.inner) {}

  // Returns true if a pack lies within one slice, and all its addresses are aligned.
  template <class T>
  bool packed(const void* a, const void* b) const {
    return shape.inner % kPackSize<T> == 0 && is_aligned(a) && is_aligned(b);
  }
  // Returns the place in x of element `at` of y.
  PP_HOST_DEVICE int64_t source(int64_t at) const {
    const int64_t a = by_inner.quotient(static_cast<uint32_t>(at));
    return (a * shape.size + shape.index) * shape.inner + (at - a * shape.inner);
  }
  // Returns the place in dy of element `at` of dx, or -1 if that is 0.
  PP_HOST_DEVICE int64_t gradient_source(int64_t at) const {
    const int64_t a = by_slice.quotient(static_cast<uint32_t>(at));
    const int64_t of_slice = at - a * by_slice.divisor;
    const int64_t b = by_inner.quotient(static_cast<uint32_t>(of_slice));
    return b == shape.index ? a * shape.inner + (of_slice - b * shape.inner) : -1;
  }
};

template <class T, bool kPacked>
PP_HOST_DEVICE void select(const SelectPass& pass, int64_t block, int thread, const T* x, T* y) {
  const int64_t count = pass.shape.outer * pass.shape.inner;
  for_each_pack<kPackSize<T>>(count, block, thread, [&](int64_t first, int64_t elements) {
    if constexpr (kPacked) {
      store_words(load_words<4>(x + pass.source(first)), y + first);
    } else {
      for (int64_t i = 0; i < elements; ++i) y[first + i] = x[pass.source(first + i)];
    }
  });
}

template <class T, bool kPacked>
PP_HOST_DEVICE void select_gradient(const SelectPass& pass, int64_t block, int thread, const T* dy,
                                    T* dx) {
  const int64_t count = pass.shape.outer * pass.shape.size * pass.shape.inner;
  for_each_pack<kPackSize<T>>(count, block, thread, [&](int64_t first, int64_t elements) {
    if constexpr (kPacked) {
      const int64_t from = pass.gradient_source(first);
      store_words(from < 0 ? Words<4>{} : load_words<4>(dy + from), dx + first);
    } else {
      for (int64_t i = 0; i < elements; ++i) {
        const int64_t from = pass.gradient_source(first + i);
        dx[first + i] = from < 0 ? from_float<T>(0.0F) : dy[from];
      }
    }
  });
}

}  // namespace pushpull::ops::cuda
