// The slices that one server owns: weights, optimizer state, versions. Knows no socket, clock or
// worker. One thread.
//
// Weights are never changed in place: an update writes a new buffer, so that what is being sent
// stays as it was, and the version before the newest stays readable (a replacement worker may need
// it).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/buffer_pool.h"
#include "common/codec_map.h"
#include "common/net/message.h"
#include "common/norm.h"
#include "common/optimizer.h"
#include "common/range_update.h"
#include "common/slice_map.h"
#include "common/tensor_table.h"
#include "common/tree_sum.h"

namespace pushpull {

// The sum of the gradients of micro-batches `range` over one slice, as the slice's codec makes it.
struct PartialSum {
  Range range;
  Payload payload;
};

class Shard {
 public:
  Shard(const SliceMap& map, int server, const TensorTable& table,
        const OptimizerOptions& optimizer, const CodecMap& codecs = {});

  const std::vector<int>& slices() const { return slices_; }
  bool owns(int slice) const;
  int64_t elements(int slice) const;
  size_t state_vectors() const;
  // What partial sums of the slice have gone through.
  const SliceCodec& codec(int slice) const { return data(slice).codec; }

  // Fills every slice by the tensors' init rules.
  void initialise(uint64_t seed);
  // payloads: weights, then each state vector. Sizes must fit (PP_ASSERT: callers check).
  void load(int slice, std::span<const Payload> payloads);
  // What a worker has kept (all-reduce): weights, then each state vector; sizes must fit.
  void store(int slice, std::span<const Payload> payloads, int64_t version, int64_t updates);
  // Version and update count that all slices start from.
  void set_start(int64_t version, int64_t updates);

  // Decodes and sums `parts` (see TreeSum; `leaves` micro-batches make a step) and moves the slice
  // by one update: one fused pass. Its version moves by `versions`: a round of local:H is several
  // steps.
  //   read: the slice's weights that the gradient was computed on, for delay compensation; null:
  //   none.
  void apply(int slice, const std::vector<PartialSum>& parts, int64_t leaves,
             const UpdateInfo& info, int64_t versions = 1, const float* read = nullptr);

  // Squares of the gradient (sum / divisor) over the slice's blocks; running statistics do not
  // count.
  std::vector<NormPart> norms(int slice, const std::vector<PartialSum>& parts, int64_t leaves,
                              double divisor);

  int64_t version(int slice) const { return data(slice).version; }
  int64_t updates(int slice) const { return data(slice).updates; }
  Payload weights(int slice) const;
  // The version before, empty (no owner) and -1 before the first update.
  Payload previous(int slice) const;
  int64_t previous_version(int slice) const { return data(slice).previous_version; }
  // Copies of the optimizer's state vectors.
  std::vector<Payload> copy_state(int slice) const;

 private:
  struct SliceData {
    Range elements;
    Range blocks;
    RangeUpdate update;
    SliceCodec codec;
    std::shared_ptr<float[]> current;
    std::shared_ptr<float[]> previous;
    std::vector<std::vector<float>> state;
    int64_t version = 0;
    int64_t previous_version = -1;
    int64_t updates = 0;
  };

  const SliceData& data(int slice) const;
  SliceData& data(int slice);
  static std::vector<TreePart> tree_parts(const SliceData& d, const std::vector<PartialSum>& parts);
  Payload payload(const std::shared_ptr<float[]>& buffer, int64_t elements) const;

  SliceMap map_;
  int server_;
  OptimizerOptions optimizer_;
  std::vector<int> slices_;
  std::vector<SliceData> data_;  // of slices_[i]
  BufferPool pool_;
};

}  // namespace pushpull
