#include "ps/engine/host_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/simd.h"
#include "common/base/thread_pool.h"
#include "common/layout/slice_map.h"
#include "common/update/optimizer.h"

namespace pushpull {

namespace {

// Smaller work is done before another thread has woken up.
constexpr int64_t kInlineElements = int64_t{64} << 10;
constexpr int64_t kPieceElements = 16 * kBlockElements;
// In larger batches the first weights have left the caches by the time the last ones are written.
constexpr int64_t kStreamElements = int64_t{2} << 20;

std::shared_ptr<float[]> zeroed_floats(size_t floats) {
  std::shared_ptr<float[]> out = heap_floats(floats);
  std::fill_n(out.get(), floats, 0.0F);
  return out;
}

}  // namespace

HostEngine::HostEngine(FloatAllocator weights)
    : weights_(std::move(weights)), state_(zeroed_floats) {}

void HostEngine::initialise(const RangeUpdate& rules, uint64_t seed, float* to) {
  rules.initialise(seed, to);
}

void HostEngine::write(const Payload& from, float* to) {
  if (!from.bytes.empty()) std::memcpy(to, from.floats(), from.bytes.size());
}

int64_t HostEngine::split(std::span<const SliceWork> work) {
  pieces_.clear();
  int64_t elements = 0;
  for (const SliceWork& slice : work) {
    const int64_t size = slice.rules->size();
    for (int64_t lo = 0; lo < size; lo += kPieceElements) {
      pieces_.push_back({&slice, {lo, std::min(lo + kPieceElements, size)}});
    }
    elements += size;
  }
  return elements;
}

template <class Task>
void HostEngine::for_pieces(int64_t elements, int64_t leaves, Parallel& parallel,
                            const Task& task) {
  Serial serial;
  Parallel& chosen = elements < kInlineElements ? serial : parallel;
  if (sums_.size() < static_cast<size_t>(chosen.threads())) {
    sums_.resize(static_cast<size_t>(chosen.threads()));
  }
  chosen.run(std::ssize(pieces_), [&](int64_t index, int thread) {
    const Piece& piece = pieces_[static_cast<size_t>(index)];
    TreeSum& sum = sums_[static_cast<size_t>(thread)];
    const SliceCodec* codec = piece.work->codec->plain() ? nullptr : piece.work->codec;
    sum.begin();
    for (const PartialSum& part : piece.work->parts) {
      sum.add({part.range, part.payload.floats(), codec});
    }
    sum.reset(leaves);
    task(piece, sum);
  });
}

// Device memory cannot reach this engine.
void HostEngine::keep(std::span<PartialSum* const> parts) { PP_ASSERT(parts.empty()); }

void HostEngine::apply(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
                       Parallel& parallel) {
  const int64_t elements = split(work);
  UpdateInfo how = info;
  // an average reads the weights again
  how.stream = elements >= kStreamElements && !work.front().rules->averages();
  for_pieces(elements, leaves, parallel,
             [&](const Piece& piece, TreeSum& sum) { apply_piece(piece, how, sum); });
}

void HostEngine::apply_piece(const Piece& piece, const UpdateInfo& info, TreeSum& sum) {
  const SliceWork& work = *piece.work;
  const auto state = std::span(work.state).first(work.rules->state_vectors());
  const Range elements = piece.elements;
  for (int64_t lo = elements.lo; lo < elements.hi; lo += TreeSum::kStride) {
    const Range stride{lo, std::min(lo + TreeSum::kStride, elements.hi)};
    for (size_t s = 0; s < state.size(); ++s) {
      // Copied just before it is read, so that it passes through the cache once.
      if (work.state_before[s] == state[s]) continue;
      std::copy_n(work.state_before[s] + lo, stride.size(), state[s] + lo);
    }
    work.rules->apply(stride, info, work.updates, work.before, sum.halves(stride.lo, stride.size()),
                      state, work.after, work.read);
  }
  if (info.stream) end_streams();
}

void HostEngine::square(std::span<const SliceWork> work, int64_t leaves, double divisor,
                        Parallel& parallel) {
  for_pieces(split(work), leaves, parallel, [&](const Piece& piece, TreeSum& sum) {
    for (int64_t lo = piece.elements.lo; lo < piece.elements.hi; lo += kBlockElements) {
      const Range block{lo, std::min(lo + kBlockElements, piece.elements.hi)};
      piece.work->squares[lo / kBlockElements] =
          piece.work->rules->squares(block, sum.block(lo, block.size()), divisor);
    }
  });
}

void HostEngine::measure(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
                         Parallel& parallel) {
  for_pieces(split(work), leaves, parallel, [&](const Piece& piece, TreeSum& sum) {
    const SliceWork& slice = *piece.work;
    for (int64_t lo = piece.elements.lo; lo < piece.elements.hi; lo += kBlockElements) {
      const Range block{lo, std::min(lo + kBlockElements, piece.elements.hi)};
      slice.rules->trust_squares(block, info, slice.updates, slice.before,
                                 sum.block(lo, block.size()), slice.state_before, slice.trust);
    }
  });
}

std::shared_ptr<SliceEngine> host_engine(FloatAllocator weights) {
  return std::make_shared<HostEngine>(std::move(weights));
}

}  // namespace pushpull
