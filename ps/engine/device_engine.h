// The arithmetic of a Shard on a device: weights and optimizer state lie in its memory, sums and
// updates are kernels (common/device/slice_update.h), with the bits of the host. One thread, which
// is the device's.
//
// A batch is described once, in one upload. Parts that lie on the host are copied in before the
// kernel that sums them, into staging memory; a batch with more of them than it holds is cut into
// groups, one after the other on the stream.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/device/device.h"
#include "common/update/tree_sum.h"
#include "ps/engine/slice_engine.h"

namespace pushpull {

struct DeviceEngineSetup {
  std::shared_ptr<device::Device> device;
  // Memory of the device for generations of weights, for instance what other processes can open;
  // null: as for state.
  FloatAllocator weights;
  // Memory of the host that the device copies to and from directly (device::registered).
  FloatAllocator pinned;
  size_t staging_bytes = size_t{64} << 20;  // a slice's parts may need more
};

class DeviceEngine : public SliceEngine {
 public:
  explicit DeviceEngine(DeviceEngineSetup setup);

  bool on_device() const override { return true; }
  const FloatAllocator& weights() const override { return setup_.weights; }
  const FloatAllocator& state() const override { return state_; }
  void initialise(const RangeUpdate& rules, uint64_t seed, float* to) override;
  void write(const Payload& from, float* to) override;
  void keep(std::span<PartialSum* const> parts) override;
  // Both throw Error(kDevice) that names the device where it has failed or takes too long. Parts
  // are plain floats: a job with a codec computes on the host (PP_ASSERT).
  void apply(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
             Parallel& parallel) override;
  void square(std::span<const SliceWork> work, int64_t leaves, double divisor,
              Parallel& parallel) override;

 private:
  // A part that lies on the host.
  struct Copy {
    const Payload* from;
    size_t part;  // in parts_
    size_t to;    // in staging memory, in floats
  };
  // Ends, in copies_ and tiles_, of what is staged and launched together.
  struct Group {
    size_t copies;
    size_t tiles;
  };
  enum class Purpose { kUpdate, kNorm };

  // Fills the batch and uploads it.
  device::SliceBatch describe(std::span<const SliceWork> work, int64_t leaves,
                              const UpdateInfo& info, Purpose purpose);
  void add_slice(const SliceWork& work, int64_t leaves, Purpose purpose, size_t& staged);
  void add_tiles(const SliceWork& work, const UpdateInfo& info, int64_t elements, Purpose purpose);
  device::SliceBatch upload();
  // launch(batch, number of its first tile) for each group, behind the copies of its parts.
  template <class Launch>
  void run(const device::SliceBatch& all, const Launch& launch);

  const DeviceEngineSetup setup_;
  FloatAllocator state_;
  std::map<size_t, BufferPool> kept_;  // of so many floats: slices have two sizes at most
  device::Memory staging_;
  device::Memory described_;  // the descriptors, there
  device::Memory squares_;
  std::shared_ptr<float[]> host_;  // the descriptors, here; then the squares
  size_t host_floats_ = 0;
  // the batch; used again by every one
  MergePlan plan_;
  std::vector<RuleSegment> rules_;
  std::vector<device::SlicePart> parts_;
  std::vector<device::SliceMove> slices_;
  std::vector<device::SliceSegment> segments_;
  std::vector<device::SliceTile> tiles_;
  std::vector<Copy> copies_;
  std::vector<Group> groups_;
  int depth_ = 0;
  std::unique_ptr<device::Stream> stream_;  // ends first: work on it uses what is above
};

}  // namespace pushpull
