// Updates a batch of slices of the flat vector on a device: sums the parts of each slice along the
// fixed tree, then applies one update, computes the squares of the sum for the norm, or those of the
// weights and of the update for trust ratios. Holds the
// descriptors (plain data in device memory, like everything that they point to) and the work of one
// kernel thread, as functions that the fake device runs too. The bits equal the host's
// (common/update/range_update.h, common/update/optimizer_rule.h, common/update/norm.h), whichever
// thread computes an element.
//
// A tile is the unit of work of one thread block: elements of one slice, all with one rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/base/host_device.h"
#include "common/update/optimizer_rule.h"

namespace pushpull::device {

// A partial sum of a slice. After it is pushed on the stack, the two top entries are replaced by
// their sum `merges` times (merge_plan of common/layout/fixed_tree.h).
struct SlicePart {
  const float* floats;
  int64_t merges;
};

// All pointers point to the slice's first element.
struct SliceMove {
  int32_t first_part;  // index in SliceBatch::parts
  int32_t parts;
  int32_t states;   // number of state vectors: 0, 1 or 2
  int32_t aligned;  // 1 if every pointer is 16-byte aligned
  const float* before;
  float* after;
  const float* state_before[2];  // read; equal to `state` if it is updated in place
  float* state[2];
  const float* read;  // weights that the gradient was computed on, or null
};

// Elements [lo, hi) of a slice, all with one rule.
struct SliceSegment {
  int64_t lo;
  int64_t hi;
  int32_t slice;   // index in SliceBatch::slices
  int32_t counts;  // 1 if they count in the norm
  ElementRule rule;
};

struct SliceTile {
  int64_t lo;
  int32_t elements;
  // index in SliceBatch::segments of the segment that holds the tile, or of the first one if a
  // tile of `square` spans several
  int32_t segment;
};

struct SliceBatch {
  const SlicePart* parts;
  const SliceMove* slices;
  const SliceSegment* segments;
  const SliceTile* tiles;
  int64_t tile_count;
  int32_t segment_count;
  int32_t depth;  // stack entries that a thread needs at most
};

constexpr int kUpdateThreads = 256;  // per thread block
constexpr int kNormBlock = 1024;     // elements per sum of squares, see common/update/norm.h
constexpr int kNormSums = 8;         // running sums per block

// kWidth adjacent floats; four are one 16-byte load.
template <int kWidth>
struct alignas(sizeof(float) * kWidth) Floats {
  float at[kWidth];
};

template <int kWidth>
PP_HOST_DEVICE_INLINE Floats<kWidth> load_floats(const float* from) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const Floats<kWidth>*>(from);
#else
  Floats<kWidth> out;
  std::memcpy(&out, from, sizeof(out));
  return out;
#endif
}

template <int kWidth>
PP_HOST_DEVICE_INLINE void store_floats(const Floats<kWidth>& from, float* to) {
#if defined(__CUDA_ARCH__)
  *reinterpret_cast<Floats<kWidth>*>(to) = from;
#else
  std::memcpy(to, &from, sizeof(from));
#endif
}

// One thread's stack within the block's: entries of adjacent threads are adjacent. An entry has room
// for `width` floats. A thread uses one stack for sums of every width up to that, since threads of a
// block run at the same time, some on wide sums and others on single elements.
struct ThreadStack {
  PP_HOST_DEVICE ThreadStack(float* of_block, int thread, int threads, int width)
      : first(of_block + int64_t{thread} * width), stride(int64_t{threads} * width) {}
  float* first;
  int64_t stride;
};

// Sums a slice's parts at elements [i, i + kWidth). The newest part stays in registers, so that one
// part needs no stack and two parts need one entry.
//   stack: this thread's; its entries have room for kWidth floats or more.
template <int kWidth>
PP_HOST_DEVICE_INLINE Floats<kWidth> sum_of_parts(const SlicePart* parts, int count, int64_t i,
                                                  const ThreadStack& stack) {
  Floats<kWidth> newest = load_floats<kWidth>(parts[0].floats + i);
  int waiting = 0;
  for (int p = 1; p < count; ++p) {
    store_floats(newest, stack.first + stack.stride * waiting++);
    newest = load_floats<kWidth>(parts[p].floats + i);
    for (int64_t m = 0; m < parts[p].merges; ++m) {
      const Floats<kWidth> left = load_floats<kWidth>(stack.first + stack.stride * --waiting);
      for (int k = 0; k < kWidth; ++k) newest.at[k] = left.at[k] + newest.at[k];
    }
  }
  return newest;
}

// Updates elements [i, i + kWidth). The first loads are in flight while the parts are summed.
template <ElementRule::Kind kKind, Decay kDecay, int kWidth>
PP_HOST_DEVICE_INLINE void move_elements(const SliceMove& slice, const SlicePart* parts,
                                         const ElementRule& rule, int64_t i,
                                         const ThreadStack& stack) {
  constexpr int kMoved = states_of(kKind);
  const Floats<kWidth> w = load_floats<kWidth>(slice.before + i);
  Floats<kWidth> state[2] = {};
  for (int s = 0; s < kMoved; ++s) state[s] = load_floats<kWidth>(slice.state_before[s] + i);
  Floats<kWidth> read{};
  if (rule.compensates) read = load_floats<kWidth>(slice.read + i);
  const Floats<kWidth> sum = sum_of_parts<kWidth>(parts, slice.parts, i, stack);
  Floats<kWidth> out;
  for (int k = 0; k < kWidth; ++k) {
    float g = sum.at[k];
    if (rule.compensates) {
      g = compensated_element(rule.compensation, g, w.at[k], read.at[k]);
    }
    float of_element[2] = {state[0].at[k], state[1].at[k]};
    out.at[k] = moved_element<kKind, kDecay>(rule, g, w.at[k], of_element);
    state[0].at[k] = of_element[0];
    state[1].at[k] = of_element[1];
  }
  store_floats(out, slice.after + i);
  for (int s = 0; s < kMoved; ++s) store_floats(state[s], slice.state[s] + i);
  for (int s = kMoved; s < 2; ++s) {  // constant bounds: the array stays in registers
    if (s >= slice.states || slice.state[s] == slice.state_before[s]) continue;
    store_floats(load_floats<kWidth>(slice.state_before[s] + i), slice.state[s] + i);
  }
}

// Updates the share of one of `threads` threads in a tile: kWide elements at a time where all
// pointers are aligned, the rest one by one.
template <ElementRule::Kind kKind, Decay kDecay, int kWide>
PP_HOST_DEVICE void move_tile(const SliceBatch& batch, const SliceTile& tile,
                              const SliceSegment& segment, int thread, int threads,
                              float* of_block) {
  const SliceMove slice = batch.slices[segment.slice];
  const SlicePart* parts = batch.parts + slice.first_part;
  const ElementRule rule = segment.rule;
  const int64_t end = tile.lo + tile.elements;
  int64_t wide_lo = tile.lo;
  int64_t wide_hi = tile.lo;
  if (kWide > 1 && slice.aligned != 0) {
    wide_lo = (tile.lo + kWide - 1) / kWide * kWide;
    wide_hi = end / kWide * kWide;
    if (wide_lo >= wide_hi) wide_lo = wide_hi = tile.lo;
  }
  const ThreadStack stack(of_block, thread, threads, kWide);
  for (int64_t i = wide_lo + int64_t{kWide} * thread; i < wide_hi; i += int64_t{kWide} * threads) {
    move_elements<kKind, kDecay, kWide>(slice, parts, rule, i, stack);
  }
  for (int64_t i = tile.lo + thread; i < wide_lo; i += threads) {
    move_elements<kKind, kDecay, 1>(slice, parts, rule, i, stack);
  }
  for (int64_t i = wide_hi + thread; i < end; i += threads) {
    move_elements<kKind, kDecay, 1>(slice, parts, rule, i, stack);
  }
}

template <ElementRule::Kind kKind, int kWide>
PP_HOST_DEVICE void move_by_decay(const SliceBatch& batch, const SliceTile& tile,
                                  const SliceSegment& segment, int thread, int threads,
                                  float* of_block) {
  constexpr bool kDecouples = kKind == ElementRule::kLion || kKind == ElementRule::kLamb;
  constexpr bool kMayDecouple = kDecouples || kKind == ElementRule::kAdam;
  if (kMayDecouple && segment.rule.decay == Decay::kDecoupled) {
    constexpr Decay kDecay = kMayDecouple ? Decay::kDecoupled : Decay::kNone;
    move_tile<kKind, kDecay, kWide>(batch, tile, segment, thread, threads, of_block);
  } else if (!kDecouples && segment.rule.decay == Decay::kL2) {
    constexpr Decay kDecay = kDecouples ? Decay::kNone : Decay::kL2;
    move_tile<kKind, kDecay, kWide>(batch, tile, segment, thread, threads, of_block);
  } else {
    move_tile<kKind, Decay::kNone, kWide>(batch, tile, segment, thread, threads, of_block);
  }
}

// Runs one of `threads` threads on tile `index`.
//   of_block: batch.depth * threads * kWide floats, shared by the threads of a block, 16-byte
//   aligned.
template <int kWide>
PP_HOST_DEVICE void update_tile(const SliceBatch& batch, int64_t index, int thread, int threads,
                                float* of_block) {
  const SliceTile tile = batch.tiles[index];
  const SliceSegment& of = batch.segments[tile.segment];
  switch (of.rule.kind) {
    case ElementRule::kSgd:
      move_by_decay<ElementRule::kSgd, kWide>(batch, tile, of, thread, threads, of_block);
      return;
    case ElementRule::kMomentum:
      move_by_decay<ElementRule::kMomentum, kWide>(batch, tile, of, thread, threads, of_block);
      return;
    case ElementRule::kNesterov:
      move_by_decay<ElementRule::kNesterov, kWide>(batch, tile, of, thread, threads, of_block);
      return;
    case ElementRule::kAdam:
      move_by_decay<ElementRule::kAdam, kWide>(batch, tile, of, thread, threads, of_block);
      return;
    case ElementRule::kRmsprop:
      move_by_decay<ElementRule::kRmsprop, kWide>(batch, tile, of, thread, threads, of_block);
      return;
    case ElementRule::kAdagrad:
      move_by_decay<ElementRule::kAdagrad, kWide>(batch, tile, of, thread, threads, of_block);
      return;
    case ElementRule::kLion:
      move_by_decay<ElementRule::kLion, kWide>(batch, tile, of, thread, threads, of_block);
      return;
    case ElementRule::kLamb:
      move_by_decay<ElementRule::kLamb, kWide>(batch, tile, of, thread, threads, of_block);
      return;
    case ElementRule::kAverage:
      move_tile<ElementRule::kAverage, Decay::kNone, kWide>(batch, tile, of, thread, threads,
                                                            of_block);
      return;
  }
}

// ---- norms ----

// Computes the mean gradient of a tile of at most kNormBlock elements; elements that do not count
// become 0.
//   means: kNormBlock floats, 16-byte aligned.
//   stack: this thread's; its entries have room for kWide floats.
template <int kWide>
PP_HOST_DEVICE void mean_gradient(const SliceBatch& batch, int64_t index, float divisor, int thread,
                                  int threads, float* means, const ThreadStack& stack) {
  const SliceTile tile = batch.tiles[index];
  const SliceSegment* segment = batch.segments + tile.segment;
  const SliceMove slice = batch.slices[segment->slice];
  const SlicePart* parts = batch.parts + slice.first_part;
  const int64_t end = tile.lo + tile.elements;
  const bool is_plain = segment->counts != 0 && end <= segment->hi;
  const int by_fours =
      kWide > 1 && is_plain && slice.aligned != 0 ? tile.elements / kWide * kWide : 0;
  for (int i = kWide * thread; i < by_fours; i += kWide * threads) {
    Floats<kWide> sum = sum_of_parts<kWide>(parts, slice.parts, tile.lo + i, stack);
    for (int k = 0; k < kWide; ++k) sum.at[k] = sum.at[k] / divisor;
    store_floats(sum, means + i);
  }
  for (int i = by_fours + thread; i < tile.elements; i += threads) {
    while (tile.lo + i >= segment->hi) ++segment;
    means[i] = 0.0F;
    if (segment->counts == 0) continue;
    const Floats<1> sum = sum_of_parts<1>(parts, slice.parts, tile.lo + i, stack);
    means[i] = sum.at[0] / divisor;
  }
}

// Computes the weights and lamb's directions of a tile of at most kNormBlock elements, all with one
// rule, for the norms of its trust ratio. Changes nothing.
//   weights, directions: kNormBlock floats each.
//   stack: this thread's.
PP_HOST_DEVICE inline void trust_tile(const SliceBatch& batch, int64_t index, int thread,
                                      int threads, float* weights, float* directions,
                                      const ThreadStack& stack) {
  const SliceTile tile = batch.tiles[index];
  const SliceSegment& segment = batch.segments[tile.segment];
  const SliceMove slice = batch.slices[segment.slice];
  const SlicePart* parts = batch.parts + slice.first_part;
  const ElementRule rule = segment.rule;
  for (int k = thread; k < tile.elements; k += threads) {
    const int64_t i = tile.lo + k;
    const float sum = sum_of_parts<1>(parts, slice.parts, i, stack).at[0];
    const float w = slice.before[i];
    float m = slice.state_before[0][i];
    float v = slice.state_before[1][i];
    weights[k] = w;
    directions[k] = rule.decay == Decay::kDecoupled
                        ? lamb_direction<Decay::kDecoupled>(rule.scale, rule.adam, sum, w, m, v)
                        : lamb_direction<Decay::kNone>(rule.scale, rule.adam, sum, w, m, v);
  }
}

// Returns running sum number `index` of a tile's squares, in the order of block_squares
// (common/update/norm.h).
PP_HOST_DEVICE inline double running_sum_of_squares(const float* means, int elements, int index) {
  double sum = 0.0;
  for (int i = index; i < elements; i += kNormSums) {
    const double value = means[i];
    sum += value * value;
  }
  return sum;
}

PP_HOST_DEVICE inline double sum_of_running_sums(const double* s) {
  return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

}  // namespace pushpull::device
