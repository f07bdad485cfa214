// The slices that one server owns: weights, optimizer state, versions. Knows no socket, clock or
// worker, and touches no float: memory and arithmetic are those of its engine (slice_engine.h). One
// thread.
//
// Weights lie in generations: one buffer holds one version of all slices, one after the other. They
// are never changed in place: an update writes the next generation, so that what is being sent
// stays as it was, and the generation before stays readable (a replacement worker may need it)
// until the next one is begun. So a steady run goes to and fro between two buffers.
//
// The optimizer's state changes in place, until somebody holds it: then each slice's first update
// takes it along to other memory, on its way through the cache, and what is held stays as it was.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/base/parallel.h"
#include "common/codec/codec_map.h"
#include "common/layout/slice_map.h"
#include "common/layout/tensor_table.h"
#include "common/net/message.h"
#include "common/update/norm.h"
#include "common/update/optimizer.h"
#include "common/update/range_update.h"
#include "ps/engine/host_engine.h"
#include "ps/engine/slice_engine.h"

namespace pushpull {

// One slice's part in a batch of updates.
struct SliceUpdate {
  int slice = 0;
  std::span<const PartialSum> parts;
  // The slice's weights that the gradient was computed on (Shard::weights, its address), for delay
  // compensation; null: none.
  const float* read = nullptr;
};

class Shard {
 public:
  // engine: of this shard alone where it is a device's.
  Shard(const SliceMap& map, int server, const TensorTable& table,
        const OptimizerOptions& optimizer, std::shared_ptr<SliceEngine> engine = host_engine(),
        const CodecMap& codecs = {});

  const std::vector<int>& slices() const { return slices_; }
  bool owns(int slice) const;
  int64_t elements(int slice) const;
  // Index of an owned slice in slices().
  size_t place(int slice) const { return static_cast<size_t>(slice / map_.servers()); }
  // Offset of the slice in a generation, in floats.
  int64_t offset(int slice) const { return data(slice).offset; }
  size_t state_vectors() const;
  // The codec that partial sums of the slice are encoded with.
  const SliceCodec& codec(int slice) const { return data(slice).codec; }

  // Fills every slice by the tensors' init rules.
  void initialise(uint64_t seed);
  // Before the first update, once for a slice.
  //   payloads: weights, then each state vector. Sizes must fit (PP_ASSERT: callers check).
  void load(int slice, std::span<const Payload> payloads);
  // Takes over what a worker has kept (all-reduce): weights, then each state vector. Sizes must
  // fit.
  void store(int slice, std::span<const Payload> payloads, int64_t version, int64_t updates);
  // Makes memory for so many generations beside the first one.
  void reserve(int generations) { pool_.reserve(generations); }
  // Version and update count that all slices start from.
  void set_start(int64_t version, int64_t updates);

  // Decodes and sums `parts` (see TreeSum; `leaves` micro-batches make a step) and moves the slice
  // by one update, which is done when this returns. Its version moves by `versions`: a round of
  // local:H is several steps. All slices take their turn before one is moved again. The bits do not
  // depend on `parallel`.
  void apply(std::span<const SliceUpdate> updates, int64_t leaves, const UpdateInfo& info,
             int64_t versions, Parallel& parallel);
  // One slice alone, in the caller's thread.
  void apply(int slice, const std::vector<PartialSum>& parts, int64_t leaves,
             const UpdateInfo& info, int64_t versions = 1, const float* read = nullptr);

  // On a device, parts that wait for others may lie in memory of a process that ends meanwhile:
  // `keep` copies them into memory of this process.
  bool keeps_parts() const { return engine_->on_device(); }
  void keep(std::span<PartialSum* const> parts) { engine_->keep(parts); }

  // Squares of the gradient (sum / divisor) over the slices' blocks; running statistics do not
  // count.
  std::vector<NormPart> norms(std::span<const SliceUpdate> slices, int64_t leaves, double divisor,
                              Parallel& parallel);

  int64_t version(int slice) const { return data(slice).version; }
  int64_t updates(int slice) const { return data(slice).updates; }
  Payload weights(int slice) const;
  // The version before; empty (no owner) and -1 before the first update, and where another slice
  // has begun the next one.
  Payload previous(int slice) const;
  int64_t previous_version(int slice) const;
  // From here on the optimizer's state of all slices stays where and as it is as long as anybody
  // has a payload of it. Between two calls all slices have been moved, or none.
  void hold_state();
  // The state vectors where they lie. Without hold_state the next update changes them.
  std::vector<Payload> state(int slice) const;

 private:
  struct SliceData {
    Range elements;
    Range blocks;
    RangeUpdate update;
    SliceCodec codec;
    int64_t offset = 0;  // in a generation
    bool ahead = false;  // lies in the next generation already
    bool held = false;   // its state lies in held_state_ still
    int64_t version = 0;
    int64_t previous_version = -1;
    int64_t updates = 0;
  };

  const SliceData& data(int slice) const;
  SliceData& data(int slice);
  Payload payload(const std::shared_ptr<float[]>& generation, const SliceData& d) const;
  // The engine's description of a slice and its parts.
  SliceWork work_of(const SliceUpdate& update) const;
  void write(const Payload& from, const SliceData& d, float* to);
  void load_state(SliceData& d, std::span<const Payload> payloads);
  // Begins and ends the update of a slice's state, which moves where it is held.
  void begin_state(const SliceData& d);
  void end_state(SliceData& d);
  // Returns where to write the slice's next version; `end_next` publishes it.
  float* begin_next(const SliceData& d);
  void end_next(SliceData& d, int64_t version, int64_t updates);

  SliceMap map_;
  int server_;
  OptimizerOptions optimizer_;
  std::shared_ptr<SliceEngine> engine_;
  std::vector<int> slices_;
  std::vector<SliceData> data_;  // of slices_[i]
  BufferPool pool_;
  std::shared_ptr<float[]> previous_;
  std::shared_ptr<float[]> current_;
  std::shared_ptr<float[]> next_;  // while slices take their turn
  size_t ahead_ = 0;               // slices that lie in next_
  // in the order of a generation; empty from hold_state to the next update
  BufferPool state_pool_;
  std::vector<std::shared_ptr<float[]>> state_;
  std::vector<std::shared_ptr<float[]>> held_state_;  // of slices not moved since hold_state
  size_t held_ = 0;                                   // slices that lie there
  // used again by every batch
  std::vector<SliceWork> work_;
  std::vector<double> squares_;
};

}  // namespace pushpull
