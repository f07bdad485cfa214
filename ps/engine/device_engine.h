// A server's device: opens it, and keeps weights and optimizer state on it.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/device/device.h"
#include "common/device/slice_update.h"
#include "common/host/cores.h"
#include "common/update/optimizer.h"
#include "common/update/range_update.h"
#include "ps/engine/slice_engine.h"

namespace pushpull {

struct Job;

// Opens the device named by `pushpull-server --device`. Startup only. Returns the device, or null for
// the host.
//   text: cpu, cuda, cuda:N, or auto, which is the task's GPU if it can be used.
//   task: place of this process on its host; only for `auto`.
//   say: receives one line that says why `auto` uses no device.
// Throws Error(kUsage | kDevice).
std::shared_ptr<device::Device> open_server_device(
    const std::string& text, const TaskOnHost& task,
    const std::function<void(const std::string&)>& say);

// Returns why servers of this job keep their weights in host memory on any device, or "".
std::string why_not_on_device(const Job& job);

// The arithmetic of a Shard on a device: weights and optimizer state are in device memory; sums and
// updates are kernels (common/device/slice_update.h) that give the same bits as the host. Used by
// the device's thread.
//
// A batch is described once, in one upload. Parts in host memory are copied to staging memory
// before the kernel that sums them. If they do not fit, the batch is cut into groups that run one
// after the other on the stream.
struct DeviceEngineSetup {
  std::shared_ptr<device::Device> device;
  // Allocates generations of weights on the device, for instance in memory that other processes can
  // open. Default: device memory, as for the state.
  FloatAllocator weights;
  // Allocates host memory that the device can copy to and from directly (device::registered).
  FloatAllocator pinned;
  size_t staging_bytes = size_t{64} << 20;  // exceeded if one slice's parts need more
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
  // These throw Error(kDevice) naming the device if it fails or takes longer than 60 s. Parts must
  // be plain floats: a job with a codec computes on the host (PP_ASSERT).
  void apply(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
             Parallel& parallel) override;
  void square(std::span<const SliceWork> work, int64_t leaves, double divisor,
              Parallel& parallel) override;
  void measure(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
               Parallel& parallel) override;

 private:
  // A part in host memory.
  struct Copy {
    const Payload* from;
    size_t part;  // index in parts_
    size_t to;    // offset in staging memory, in floats
  };
  // Ends, in copies_ and tiles_, of the entries that are staged and launched together.
  struct Group {
    size_t copies;
    size_t tiles;
  };
  enum class Purpose { kUpdate, kNorm, kTrust };

  // Fills the batch and uploads it.
  device::SliceBatch describe(std::span<const SliceWork> work, int64_t leaves,
                              const UpdateInfo& info, Purpose purpose);
  void add_slice(const SliceWork& work, int64_t leaves, Purpose purpose, size_t& staged);
  void add_tiles(const SliceWork& work, const UpdateInfo& info, int64_t elements, Purpose purpose);
  device::SliceBatch upload();
  // Returns memory on the device for sums of squares, `each` of every tile.
  double* squares(size_t each);
  // Copies them to the host memory that it returns; waits for the stream.
  const double* fetch_squares(size_t each);
  // Calls launch(batch, index of its first tile) for each group, after the copies of its parts.
  template <class Launch>
  void run(const device::SliceBatch& all, const Launch& launch);

  const DeviceEngineSetup setup_;
  FloatAllocator state_;
  std::map<size_t, BufferPool> kept_;  // by number of floats: slices have at most two sizes
  device::Memory staging_;
  device::Memory described_;  // the descriptors on the device
  device::Memory squares_;
  std::shared_ptr<float[]> host_;  // the descriptors on the host; later the squares
  size_t host_floats_ = 0;
  // The batch; reused by every batch.
  MergePlan plan_;
  std::vector<RuleSegment> rules_;
  std::vector<device::SlicePart> parts_;
  std::vector<device::SliceMove> slices_;
  std::vector<device::SliceSegment> segments_;
  std::vector<device::SliceTile> tiles_;
  std::vector<Copy> copies_;
  std::vector<Group> groups_;
  int depth_ = 0;
  std::unique_ptr<device::Stream> stream_;  // destroyed first: its work uses the members above
};

}  // namespace pushpull
