// The slices that one server owns: weights, optimizer state, versions. Does no I/O and no
// arithmetic: its engine (slice_engine.h) allocates the memory and computes. Not thread-safe.
//
// Weights are stored in generations: one buffer holds one version of all slices, one after the
// other. A generation never changes in place: an update writes the next one, so that a transfer in
// progress sends consistent weights. The previous generation stays readable until the next one is
// begun, since a replacement worker may need it. A steady run therefore alternates between two
// buffers.
//
// The optimizer's state changes in place until it is held. Each slice's first update after that
// writes the state to other memory, in the same pass, and the held state stays unchanged.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/base/thread_pool.h"
#include "common/layout/slice_map.h"
#include "common/net/message.h"
#include "common/update/codec.h"
#include "common/update/optimizer_options.h"
#include "common/update/range_update.h"
#include "ps/engine/host_engine.h"
#include "ps/engine/slice_engine.h"

namespace pushpull {

struct NormPart;
struct TensorTable;

// One slice's part of a batch of updates.
struct SliceUpdate {
  int slice = 0;
  std::span<const PartialSum> parts;
  // Address of the slice's weights that the gradient was computed on (Shard::weights), for delay
  // compensation, or null.
  const float* read = nullptr;
};

class Shard {
 public:
  //   engine: an engine of a device must not be shared with another shard.
  Shard(const SliceMap& map, int server, const TensorTable& table,
        const OptimizerOptions& optimizer, std::shared_ptr<SliceEngine> engine = host_engine(),
        const CodecMap& codecs = {});

  const SliceMap& map() const { return map_; }
  const std::vector<int>& slices() const { return slices_; }
  int server() const { return server_; }
  // Returns the number of the model's tensors.
  size_t tensors() const { return tensors_; }
  bool owns(int slice) const;
  int64_t elements(int slice) const;
  // Index of an owned slice in slices().
  size_t place(int slice) const { return static_cast<size_t>(slice / map_.servers()); }
  // Offset of the slice in a generation, in floats.
  int64_t offset(int slice) const { return data(slice).offset; }
  size_t state_vectors() const;
  // The codec of the slice's partial sums.
  const SliceCodec& codec(int slice) const { return data(slice).codec; }

  // Fills every slice by the tensors' init rules.
  void initialise(uint64_t seed);
  // Sets a slice before the first update, once.
  //   payloads: weights, then each state vector. Sizes must match (PP_ASSERT: callers check).
  void load(int slice, std::span<const Payload> payloads);
  // Takes a slice from a worker (all-reduce): weights, then each state vector. Sizes must match.
  void store(int slice, std::span<const Payload> payloads, int64_t version, int64_t updates);
  // Allocates memory for this many generations beside the current one.
  void reserve(int generations) { pool_.reserve(generations); }
  // Sets the version and the update count of all slices at the start.
  void set_start(int64_t version, int64_t updates);

  // Decodes and sums `parts` (see TreeSum; `leaves` micro-batches make a step) and updates the
  // slice once; the update is complete on return. The version grows by `versions`: a round of
  // local:H is several steps. Each slice must be updated once before any slice is updated again.
  // The bits do not depend on `parallel`.
  void apply(std::span<const SliceUpdate> updates, int64_t leaves, const UpdateInfo& info,
             int64_t versions, Parallel& parallel);
  // Updates one slice in the caller's thread.
  void apply(int slice, const std::vector<PartialSum>& parts, int64_t leaves,
             const UpdateInfo& info, int64_t versions = 1, const float* read = nullptr);

  // On a device, waiting parts may be in the memory of a process that exits meanwhile: `keep`
  // copies them into this process's memory.
  bool keeps_parts() const { return engine_->on_device(); }
  void keep(std::span<PartialSum* const> parts) { engine_->keep(parts); }

  // Returns the squares of the gradient (sum / divisor) over the slices' blocks, without running
  // statistics.
  std::vector<NormPart> norms(std::span<const SliceUpdate> slices, int64_t leaves, double divisor,
                              Parallel& parallel);

  // Returns the parts of the trust ratios of the update that `apply` would make, over these slices.
  std::vector<TrustPart> trust_parts(std::span<const SliceUpdate> slices, int64_t leaves,
                                     const UpdateInfo& info, Parallel& parallel);

  int64_t version(int slice) const { return data(slice).version; }
  int64_t updates(int slice) const { return data(slice).updates; }
  Payload weights(int slice) const;
  // The previous version. Empty (no owner) and -1 before the first update, and once another slice
  // has begun the next version.
  Payload previous(int slice) const;
  int64_t previous_version(int slice) const;
  // Holds the optimizer's state: the state of all slices stays in place and unchanged while a
  // payload of it exists. Between two calls either all slices must be updated or none.
  void hold_state();
  // Returns the state vectors, without a copy. The next update changes them unless they are held.
  std::vector<Payload> state(int slice) const;

 private:
  struct SliceData {
    Range elements;
    Range blocks;
    RangeUpdate update;
    SliceCodec codec;
    int64_t offset = 0;  // in a generation
    bool ahead = false;  // already in the next generation
    bool held = false;   // its state is still in held_state_
    int64_t version = 0;
    int64_t previous_version = -1;
    int64_t updates = 0;
  };

  const SliceData& data(int slice) const;
  SliceData& data(int slice);
  Payload payload(const std::shared_ptr<float[]>& generation, const SliceData& d) const;
  // Returns the engine's description of a slice and its parts.
  SliceWork work_of(const SliceUpdate& update) const;
  void write(const Payload& from, const SliceData& d, float* to);
  void load_state(SliceData& d, std::span<const Payload> payloads);
  // Begin and end the update of a slice's state, which moves to other memory if it is held.
  void begin_state(const SliceData& d);
  void end_state(SliceData& d);
  // Points `work` to the slice's present weights and state.
  void add_present(const SliceData& d, SliceWork& work) const;
  // Returns where to write the slice's next version; `end_next` publishes it.
  float* begin_next(const SliceData& d);
  void end_next(SliceData& d, int64_t version, int64_t updates);

  SliceMap map_;
  int server_;
  size_t tensors_;
  OptimizerOptions optimizer_;
  std::shared_ptr<SliceEngine> engine_;
  std::vector<int> slices_;
  std::vector<SliceData> data_;  // of slices_[i]
  BufferPool pool_;
  std::shared_ptr<float[]> previous_;
  std::shared_ptr<float[]> current_;
  std::shared_ptr<float[]> next_;  // while only some slices are updated
  size_t ahead_ = 0;               // slices in next_
  // In the order of a generation; empty from hold_state to the next update.
  BufferPool state_pool_;
  std::vector<std::shared_ptr<float[]>> state_;
  std::vector<std::shared_ptr<float[]>> held_state_;  // of slices not updated since hold_state
  size_t held_ = 0;                                   // number of these slices
  // Reused by every batch.
  std::vector<SliceWork> work_;
  std::vector<double> squares_;
  std::vector<TrustSquares> trust_;
};

}  // namespace pushpull
