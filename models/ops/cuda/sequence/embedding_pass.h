// The per-thread part of an embedding. Backward sorts the places by their ids without atomics: the
// position of a place in the order is the number of places with a smaller id, plus that of earlier
// places with the same id (enumeration sort; Knuth, The Art of Computer Programming 3, 5.2). A warp
// counts them for a few places at once. Each row of dw is then summed in that order. Pure.
#pragma once

#include <cstdint>

#include "models/ops/cuda/flat_pass.h"
#include "models/ops/embedding.h"

namespace pushpull::ops::cuda {

// The places of an id: [begin, end) in the order. Both are 0 if there are none.
struct PlaceRange {
  int32_t begin;
  int32_t end;
};

struct EmbeddingPass {
  static constexpr int kPlaces = 4;  // places that a warp ranks
  static constexpr int kBatch = 8;   // rows of dy in flight

  int64_t places = 0;
  int64_t vocabulary = 0;
  int64_t width = 0;
  int64_t packs = 0;  // of a row
  Divider by_width;
  Divider by_packs;

  EmbeddingPass(const EmbeddingShape& shape, int pack_size)
      : places(shape.samples * shape.positions),
        vocabulary(shape.vocabulary),
        width(shape.width),
        packs(pieces(width, pack_size)),
        by_width(width),
        by_packs(packs) {}

  PP_HOST_DEVICE int64_t units() const { return vocabulary * packs; }
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

// How many places have a smaller id than one place, the same id and are earlier, or the same id.
struct Rank {
  int32_t smaller = 0;
  int32_t earlier = 0;
  int32_t equal = 0;
};

// Counts a thread's share for the places from `first` on.
PP_HOST_DEVICE inline void count_places(const int32_t* ids, int64_t places, int64_t first,
                                        int thread, int threads,
                                        Rank (&ranks)[EmbeddingPass::kPlaces]) {
  int32_t own[EmbeddingPass::kPlaces];
  PP_UNROLL
  for (int p = 0; p < EmbeddingPass::kPlaces; ++p) own[p] = first + p < places ? ids[first + p] : 0;
  for (int64_t i = thread; i < places; i += threads) {
    const int32_t id = ids[i];
    PP_UNROLL
    for (int p = 0; p < EmbeddingPass::kPlaces; ++p) {
      ranks[p].smaller += id < own[p] ? 1 : 0;
      ranks[p].equal += id == own[p] ? 1 : 0;
      ranks[p].earlier += id == own[p] && i < first + p ? 1 : 0;
    }
  }
}

// Puts a place into the order; the first place of an id also writes the id's range.
PP_HOST_DEVICE inline void put_place(int64_t place, int32_t id, const Rank& rank, int32_t* order,
                                     PlaceRange* ranges) {
  order[rank.smaller + rank.earlier] = static_cast<int32_t>(place);
  if (rank.earlier == 0) ranges[id] = {rank.smaller, rank.smaller + rank.equal};
}

// Computes pack `unit` of dw: the sum over the places of its row, times `unscale` (1 / loss scale).
//   adds: the sum begins with the value in dw.
template <class T, bool kPacked>
PP_HOST_DEVICE void sum_places(const EmbeddingPass& pass, int64_t unit, const T* dy,
                               const int32_t* order, const PlaceRange* ranges, float unscale,
                               bool adds, float* dw) {
  constexpr int kCount = kPackSize<T>;
  constexpr int kBatch = EmbeddingPass::kBatch;
  if (unit >= pass.units()) return;
  const int64_t id = pass.by_packs.quotient(static_cast<uint32_t>(unit));
  const int64_t column = (unit - id * pass.packs) * kCount;
  const int64_t width = pass.width - column;
  const PlaceRange range = ranges[id];
  if (adds && range.begin == range.end) return;
  float* to = dw + id * pass.width + column;
  float sums[kCount] = {};
  if (adds) load_pack<kPacked, kCount>(to, width, sums);
  for (int32_t k = range.begin; k < range.end; k += kBatch) {
    float values[kBatch][kCount];
    PP_UNROLL
    for (int i = 0; i < kBatch; ++i) {  // all loads before the first addition
      const int64_t place = k + i < range.end ? order[k + i] : 0;
      load_pack<kPacked, kCount>(dy + place * pass.width + column, k + i < range.end ? width : 0,
                                 values[i]);
    }
    PP_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      PP_UNROLL
      for (int j = 0; j < kCount; ++j) sums[j] += values[i][j] * unscale;
    }
  }
  store_pack<kPacked, kCount>(sums, width, to);
}

}  // namespace pushpull::ops::cuda
