// The arithmetic of a Shard and the memory of its vectors: on the host (host_engine.h) or on a
// device (device_engine.h). Both give the same bits. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "common/base/buffer_pool.h"
#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "common/update/optimizer_options.h"

namespace pushpull {

// A part of a slice's gradient, as servers hold it until its sum is complete. Plain data.
//
// The sum of the gradients of micro-batches `range` over one slice, encoded by the slice's codec.
struct PartialSum {
  Range range;
  Payload payload;
  bool kept = false;  // see SliceEngine::keep
};

class Parallel;
class RangeUpdate;
class SliceCodec;
struct TrustSquares;
struct UpdateInfo;

// One slice of a batch. Borrows everything; pointers are to its first element in the engine's
// memory.
struct SliceWork {
  const RangeUpdate* rules = nullptr;
  const SliceCodec* codec = nullptr;  // of the parts
  std::span<const PartialSum> parts;
  int64_t updates = 0;  // updates of the slice, this one included
  const float* before = nullptr;
  float* after = nullptr;
  std::array<const float*, kMaxStateVectors>
      state_before{};  // differs from `state` if the state is held
  std::array<float*, kMaxStateVectors> state{};
  // The weights that the gradient was computed on, for delay compensation, or null.
  const float* read = nullptr;
  double* squares = nullptr;      // in host memory: one for each block of the slice
  TrustSquares* trust = nullptr;  // in host memory: one for each of the slice's trust_pieces
};

class SliceEngine {
 public:
  virtual ~SliceEngine() = default;

  // Returns true if the engine's memory is a device's, which the host must not touch.
  virtual bool on_device() const = 0;
  // Allocates generations of weights; their contents are undefined.
  virtual const FloatAllocator& weights() const = 0;
  // Allocates state vectors; new memory is zero.
  virtual const FloatAllocator& state() const = 0;

  // These return when the work is done: any process may then read the results.

  // Fills a range by the tensors' init rules.
  virtual void initialise(const RangeUpdate& rules, uint64_t seed, float* to) = 0;
  // from: floats, on the host or on the engine's device.
  virtual void write(const Payload& from, float* to) = 0;
  // Copies parts in the device memory of another process into the engine's own memory.
  virtual void keep(std::span<PartialSum* const> parts) = 0;
  // Sums the parts of each slice (see TreeSum; `leaves` micro-batches make a step) and updates it.
  virtual void apply(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
                     Parallel& parallel) = 0;
  // Computes the squares of the gradient (sum / divisor) over each block, without running
  // statistics.
  virtual void square(std::span<const SliceWork> work, int64_t leaves, double divisor,
                      Parallel& parallel) = 0;
  // Computes the squares of the slices' pieces (RangeUpdate::trust_squares) for the update that
  // `apply` would make. Changes nothing.
  virtual void measure(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
                       Parallel& parallel) = 0;
};

}  // namespace pushpull
