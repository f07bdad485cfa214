#include "tests/device/fake_kernels.h"

#include <algorithm>
#include <array>
#include <vector>

#include "common/base/error.h"

namespace pushpull::device {

namespace {

constexpr int kWide = 4;
constexpr int kThreads = 64;

// A checked batch with its deliberate fault. Owns the copies.
class Checked {
 public:
  Checked(const SliceBatch& batch, const FakeReach& reach, Fault fault)
      : batch_(batch), reach_(reach) {
    const auto tiles = static_cast<size_t>(batch.tile_count);
    PP_ASSERT(reach.can_read(batch.tiles, tiles * sizeof(SliceTile)));
    const auto segments = static_cast<size_t>(batch.segment_count);
    PP_ASSERT(reach.can_read(batch.segments, segments * sizeof(SliceSegment)));
    for (size_t s = 0; s < segments; ++s) check(batch.segments[s]);
    if (fault == Fault::kSumsLeftToRight) sum_left_to_right();
    if (fault == Fault::kHeldStateIsForgotten) forget_held_state();
  }

  const SliceBatch& batch() const { return batch_; }

 private:
  void check(const SliceSegment& segment) {
    const SliceMove& slice = batch_.slices[segment.slice];
    slices_ = std::max(slices_, static_cast<size_t>(segment.slice) + 1);
    parts_ =
        std::max(parts_, static_cast<size_t>(slice.first_part) + static_cast<size_t>(slice.parts));
    const auto bytes = static_cast<size_t>(segment.hi - segment.lo) * sizeof(float);
    const auto reads = [&](const float* first) {
      PP_ASSERT(first != nullptr && reach_.can_read(first + segment.lo, bytes));
      PP_ASSERT(slice.aligned == 0 || reinterpret_cast<uintptr_t>(first) % 16 == 0);
    };
    for (int p = 0; p < slice.parts; ++p) {
      reads(batch_.parts[slice.first_part + p].floats);
    }
    if (slice.before == nullptr) return;  // squares of the gradient only
    reads(slice.before);
    for (int s = 0; s < slice.states; ++s) reads(slice.state_before[s]);
    if (slice.after == nullptr) return;  // squares only
    reads(slice.after);
    PP_ASSERT(reach_.can_write(slice.after + segment.lo, bytes));
    for (int s = 0; s < slice.states; ++s) {
      reads(slice.state[s]);
      PP_ASSERT(reach_.can_write(slice.state[s] + segment.lo, bytes));
    }
    if (segment.rule.compensates) reads(slice.read);
  }

  void sum_left_to_right() {
    changed_parts_.assign(batch_.parts, batch_.parts + parts_);
    for (size_t s = 0; s < slices_; ++s) {
      const SliceMove& slice = batch_.slices[s];
      for (int p = 0; p < slice.parts; ++p) {
        changed_parts_[static_cast<size_t>(slice.first_part) + static_cast<size_t>(p)].merges =
            p == 0 ? 0 : 1;
      }
    }
    batch_.parts = changed_parts_.data();
  }

  void forget_held_state() {
    changed_slices_.assign(batch_.slices, batch_.slices + slices_);
    for (SliceMove& slice : changed_slices_) {
      if (slice.after == nullptr) continue;
      for (int s = 0; s < 2; ++s) slice.state_before[s] = slice.state[s];
    }
    batch_.slices = changed_slices_.data();
  }

  SliceBatch batch_;
  const FakeReach& reach_;
  size_t slices_ = 0;
  size_t parts_ = 0;
  std::vector<SlicePart> changed_parts_;
  std::vector<SliceMove> changed_slices_;
};

// Exactly as large as the stacks of a block's threads.
std::vector<Floats<kWide>> stacks_of(const SliceBatch& batch) {
  return std::vector<Floats<kWide>>(static_cast<size_t>(batch.depth) * kThreads);
}

}  // namespace

void fake_update(const SliceBatch& given, const FakeReach& reach, Fault fault) {
  const Checked checked(given, reach, fault);
  const SliceBatch& batch = checked.batch();
  auto stacks = stacks_of(batch);
  auto* of_block = reinterpret_cast<float*>(stacks.data());
  for (int64_t tile = 0; tile < batch.tile_count; ++tile) {
    for (int thread = 0; thread < kThreads; ++thread) {
      if (tile % 2 == 0) {
        update_tile<kWide>(batch, tile, thread, kThreads, of_block);
      } else {
        update_tile<1>(batch, tile, thread, kThreads, of_block);
      }
    }
  }
}

void fake_square(const SliceBatch& given, float divisor, double* squares, const FakeReach& reach,
                 Fault fault) {
  const Checked checked(given, reach, fault);
  const SliceBatch& batch = checked.batch();
  PP_ASSERT(reach.can_write(squares, static_cast<size_t>(batch.tile_count) * sizeof(double)));
  auto stacks = stacks_of(batch);
  auto* of_block = reinterpret_cast<float*>(stacks.data());
  std::vector<float> means(kNormBlock);
  for (int64_t tile = 0; tile < batch.tile_count; ++tile) {
    PP_ASSERT(batch.tiles[tile].elements <= kNormBlock);
    for (int thread = 0; thread < kThreads; ++thread) {
      if (tile % 2 == 0) {
        mean_gradient<kWide>(batch, tile, divisor, thread, kThreads, means.data(),
                             {of_block, thread, kThreads, kWide});
      } else {
        mean_gradient<1>(batch, tile, divisor, thread, kThreads, means.data(),
                         {of_block, thread, kThreads, 1});
      }
    }
    std::array<double, kNormSums> sums{};
    for (int index = 0; index < kNormSums; ++index) {
      sums[static_cast<size_t>(index)] =
          running_sum_of_squares(means.data(), batch.tiles[tile].elements, index);
    }
    squares[tile] = sum_of_running_sums(sums.data());
  }
}

void fake_measure(const SliceBatch& given, double* squares, const FakeReach& reach, Fault fault) {
  const Checked checked(given, reach, fault);
  const SliceBatch& batch = checked.batch();
  PP_ASSERT(reach.can_write(squares, 2 * static_cast<size_t>(batch.tile_count) * sizeof(double)));
  auto stacks = stacks_of(batch);
  auto* of_block = reinterpret_cast<float*>(stacks.data());
  std::array<std::vector<float>, 2> floats;  // weights, directions
  for (std::vector<float>& f : floats) f.resize(kNormBlock);
  for (int64_t tile = 0; tile < batch.tile_count; ++tile) {
    PP_ASSERT(batch.tiles[tile].elements <= kNormBlock);
    for (int thread = 0; thread < kThreads; ++thread) {
      trust_tile(batch, tile, thread, kThreads, floats[0].data(), floats[1].data(),
                 {of_block, thread, kThreads, 1});
    }
    for (size_t of = 0; of < 2; ++of) {
      std::array<double, kNormSums> sums{};
      for (int index = 0; index < kNormSums; ++index) {
        sums[static_cast<size_t>(index)] =
            running_sum_of_squares(floats[of].data(), batch.tiles[tile].elements, index);
      }
      squares[2 * static_cast<size_t>(tile) + of] = sum_of_running_sums(sums.data());
    }
  }
}

}  // namespace pushpull::device
