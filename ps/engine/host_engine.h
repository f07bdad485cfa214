// The arithmetic of a Shard on the processor, in one pass over memory. Runs in one thread, and in
// those of the `Parallel` passed to it.
#pragma once

#include <memory>
#include <vector>

#include "common/update/range_update.h"
#include "ps/engine/slice_engine.h"

namespace pushpull {

class HostEngine : public SliceEngine {
 public:
  //   weights: allocates generations, for instance in memory that other processes map.
  explicit HostEngine(FloatAllocator weights = heap_floats);

  bool on_device() const override { return false; }
  const FloatAllocator& weights() const override { return weights_; }
  const FloatAllocator& state() const override { return state_; }
  void initialise(const RangeUpdate& rules, uint64_t seed, float* to) override;
  void write(const Payload& from, float* to) override;
  void keep(std::span<PartialSum* const> parts) override;
  // The bits do not depend on `parallel`.
  void apply(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
             Parallel& parallel) override;
  void square(std::span<const SliceWork> work, int64_t leaves, double divisor,
              Parallel& parallel) override;
  void measure(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
               Parallel& parallel) override;

 private:
  // A piece of one slice of a batch, the unit of work of a thread.
  struct Piece {
    const SliceWork* work = nullptr;
    Range elements;
  };

  // Cuts the batch into pieces_. Returns the number of elements.
  int64_t split(std::span<const SliceWork> work);
  // Calls task(piece, sum of its slice's parts) for each of pieces_.
  template <class Task>
  void for_pieces(int64_t elements, int64_t leaves, Parallel& parallel, const Task& task);
  static void apply_piece(const Piece& piece, const UpdateInfo& info, TreeSum& sum);

  const FloatAllocator weights_;
  const FloatAllocator state_;
  // Reused by every batch.
  std::vector<Piece> pieces_;
  std::vector<TreeSum> sums_;  // by thread
};

// Returns the default engine of a Shard.
std::shared_ptr<SliceEngine> host_engine(FloatAllocator weights = heap_floats);

}  // namespace pushpull
