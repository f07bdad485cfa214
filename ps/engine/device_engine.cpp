#include "ps/engine/device_engine.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/base/thread_pool.h"
#include "common/device/device.h"
#include "common/device/local_gpu.h"
#include "common/job/job.h"
#include "common/layout/slice_map.h"

namespace pushpull {

namespace {

constexpr int64_t kDeadlineMs = 60'000;

// A tile is a block of threads: small tiles let a small model fill a device, large ones keep their
// number low.
constexpr int64_t kSmallTile = 1024;
constexpr int64_t kLargeTile = 8192;
constexpr int64_t kManyElements = int64_t{8} << 20;

constexpr size_t kAlignment = 16;  // size of the widest load, in bytes

static_assert(device::kNormBlock == kBlockElements);

bool is_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

size_t rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Grows `memory` to at least `bytes`; its contents are lost.
void grow(device::Device& device, size_t bytes, device::Memory& memory) {
  if (memory.size() >= bytes) return;
  const size_t size = std::max(bytes, memory.size() + memory.size() / 2);
  memory = {};
  memory = device.allocate(size);
}

// Packs arrays of descriptors one after the other into host memory.
class Packer {
 public:
  Packer(std::byte* host, std::byte* there) : host_(host), there_(there) {}
  // Returns the array's address on the device.
  template <class T>
  const T* add(const std::vector<T>& all) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    const auto* out = reinterpret_cast<const T*>(there_ + used_);
    if (!all.empty()) std::memcpy(host_ + used_, all.data(), all.size() * sizeof(T));
    used_ += rounded(all.size() * sizeof(T));
    return out;
  }

 private:
  std::byte* host_;
  std::byte* there_;
  size_t used_ = 0;
};

}  // namespace

DeviceEngine::DeviceEngine(DeviceEngineSetup setup)
    : setup_([&] {
        if (!setup.weights) setup.weights = device::device_floats(setup.device);
        return std::move(setup);
      }()),
      state_(device::device_floats(setup_.device)),
      stream_(setup_.device->stream()) {}

void DeviceEngine::initialise(const RangeUpdate& rules, uint64_t seed, float* to) {
  std::vector<float> floats(static_cast<size_t>(rules.size()));
  rules.initialise(seed, floats.data());
  write({nullptr, std::as_bytes(std::span<const float>(floats))}, to);
}

void DeviceEngine::write(const Payload& from, float* to) {
  stream_->copy_in(from.address(), from.bytes.size(), to);
  stream_->synchronize(kDeadlineMs);
}

void DeviceEngine::keep(std::span<PartialSum* const> parts) {
  std::vector<Payload> ours;
  for (const PartialSum* part : parts) {
    const Payload& theirs = part->payload;
    const auto pool = kept_.try_emplace(theirs.float_count(), theirs.float_count(), state_).first;
    const std::shared_ptr<float[]> here = pool->second.get();
    stream_->copy_in(theirs.address(), theirs.bytes.size(), here.get());
    ours.push_back({here, std::as_bytes(std::span(here.get(), theirs.float_count())), true});
  }
  stream_->synchronize(kDeadlineMs);
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i]->payload = std::move(ours[i]);
    parts[i]->kept = true;
  }
}

void DeviceEngine::apply(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
                         Parallel& /*parallel*/) {
  if (work.empty()) return;
  run(describe(work, leaves, info, Purpose::kUpdate),
      [&](const device::SliceBatch& batch, size_t /*first*/) { stream_->update(batch); });
  stream_->synchronize(kDeadlineMs);
}

void DeviceEngine::square(std::span<const SliceWork> work, int64_t leaves, double divisor,
                          Parallel& /*parallel*/) {
  if (work.empty()) return;
  const device::SliceBatch all = describe(work, leaves, {}, Purpose::kNorm);
  double* const there = squares(1);
  run(all, [&](const device::SliceBatch& batch, size_t first) {
    stream_->square(batch, static_cast<float>(divisor), there + first);
  });
  const double* here = fetch_squares(1);
  for (const SliceWork& slice : work) {
    const int64_t blocks = (slice.rules->size() + kBlockElements - 1) / kBlockElements;
    std::copy_n(here, blocks, slice.squares);
    here += blocks;
  }
}

void DeviceEngine::measure(std::span<const SliceWork> work, int64_t leaves, const UpdateInfo& info,
                           Parallel& /*parallel*/) {
  if (work.empty()) return;
  const device::SliceBatch all = describe(work, leaves, info, Purpose::kTrust);
  double* const there = squares(2);
  run(all, [&](const device::SliceBatch& batch, size_t first) {
    stream_->measure(batch, there + 2 * first);
  });
  const double* here = fetch_squares(2);
  for (const SliceWork& slice : work) {
    for (int64_t piece = 0; piece < slice.rules->trust_pieces(); ++piece, here += 2) {
      slice.trust[piece] = {here[0], here[1]};
    }
  }
}

double* DeviceEngine::squares(size_t each) {
  grow(*setup_.device, std::max<size_t>(1, each * tiles_.size()) * sizeof(double), squares_);
  return static_cast<double*>(squares_.data());
}

// On the stream this follows the descriptors' upload, so their host memory is free by then.
const double* DeviceEngine::fetch_squares(size_t each) {
  const size_t bytes = each * tiles_.size() * sizeof(double);
  if (bytes > 0) stream_->copy_out(squares_.data(), bytes, host_.get());
  stream_->synchronize(kDeadlineMs);
  return reinterpret_cast<const double*>(host_.get());
}

template <class Launch>
void DeviceEngine::run(const device::SliceBatch& all, const Launch& launch) {
  size_t copy = 0;
  size_t tile = 0;
  for (const Group& group : groups_) {
    for (; copy < group.copies; ++copy) {
      const Payload& from = *copies_[copy].from;
      stream_->copy_in(from.floats(), from.bytes.size(), staging_.floats() + copies_[copy].to);
    }
    device::SliceBatch batch = all;
    batch.tiles += tile;
    batch.tile_count = static_cast<int64_t>(group.tiles - tile);
    launch(batch, tile);
    tile = group.tiles;
  }
}

device::SliceBatch DeviceEngine::describe(std::span<const SliceWork> work, int64_t leaves,
                                          const UpdateInfo& info, Purpose purpose) {
  parts_.clear();
  slices_.clear();
  segments_.clear();
  tiles_.clear();
  copies_.clear();
  groups_.clear();
  depth_ = 0;
  int64_t elements = 0;
  for (const SliceWork& slice : work) elements += slice.rules->size();
  size_t staged = 0;  // floats in the group
  size_t most = 0;
  for (const SliceWork& slice : work) {
    const Group before{copies_.size(), tiles_.size()};
    const size_t then = staged;
    add_slice(slice, leaves, purpose, staged);
    if (then > 0 && staged * sizeof(float) > setup_.staging_bytes) {
      groups_.push_back(before);
      for (size_t c = before.copies; c < copies_.size(); ++c) copies_[c].to -= then;
      staged -= then;
    }
    most = std::max(most, staged);
    add_tiles(slice, info, elements, purpose);
  }
  groups_.push_back({copies_.size(), tiles_.size()});
  grow(*setup_.device, most * sizeof(float), staging_);
  for (const Copy& copy : copies_) parts_[copy.part].floats = staging_.floats() + copy.to;
  return upload();
}

//   staged: floats in the group so far.
void DeviceEngine::add_slice(const SliceWork& work, int64_t leaves, Purpose purpose,
                             size_t& staged) {
  PP_ASSERT(work.codec->plain());  // why_not_on_device
  plan_.begin();
  for (const PartialSum& part : work.parts) plan_.add(part.range);
  plan_.make(leaves);
  device::SliceMove slice{};
  slice.first_part = static_cast<int32_t>(parts_.size());
  slice.parts = static_cast<int32_t>(work.parts.size());
  bool aligned = true;
  int waiting = -1;  // sums on the stack, without the newest
  for (size_t p = 0; p < work.parts.size(); ++p) {
    const Payload& payload = work.parts[p].payload;
    PP_ASSERT(payload.float_count() == static_cast<size_t>(work.rules->size()));
    depth_ = std::max(depth_, ++waiting);
    waiting -= plan_.merges()[p];
    if (payload.on_device) {
      aligned &= is_aligned(payload.address());
    } else {
      copies_.push_back({&payload, parts_.size(), staged});
      staged += rounded(payload.bytes.size()) / sizeof(float);
    }
    parts_.push_back({payload.address(), plan_.merges()[p]});
  }
  if (purpose != Purpose::kNorm) {  // `after` and `state` are null for kTrust
    slice.states = static_cast<int32_t>(work.rules->state_vectors());
    slice.before = work.before;
    slice.after = work.after;
    slice.read = work.read;
    aligned &= is_aligned(slice.before) && is_aligned(slice.after) && is_aligned(slice.read);
    for (size_t s = 0; s < work.rules->state_vectors(); ++s) {
      slice.state_before[s] = work.state_before[s];
      slice.state[s] = work.state[s];
      aligned &= is_aligned(slice.state_before[s]) && is_aligned(slice.state[s]);
    }
  }
  slice.aligned = aligned ? 1 : 0;
  slices_.push_back(slice);
}

//   elements: of the batch.
void DeviceEngine::add_tiles(const SliceWork& work, const UpdateInfo& info, int64_t elements,
                             Purpose purpose) {
  const bool moves = purpose == Purpose::kUpdate;
  const int64_t tile = moves && elements >= kManyElements ? kLargeTile : kSmallTile;
  rules_.clear();
  work.rules->add_rules(info, work.updates, work.read != nullptr, rules_);
  int64_t lo = 0;  // of the next tile
  for (const RuleSegment& rule : rules_) {
    const Range of = rule.elements;
    const auto number = static_cast<int32_t>(segments_.size());
    segments_.push_back({of.lo, of.hi, static_cast<int32_t>(slices_.size()) - 1,
                         static_cast<int32_t>(rule.counts), rule.rule});
    if (purpose == Purpose::kTrust) lo = rule.scaled ? of.lo : of.hi;
    // A norm's tiles are the slice's blocks, no matter which segments they contain.
    while (lo < of.hi) {
      const int64_t next = lo / tile * tile + tile;
      const int64_t hi = std::min(next, purpose != Purpose::kNorm ? of.hi : work.rules->size());
      tiles_.push_back({lo, static_cast<int32_t>(hi - lo), number});
      lo = hi;
    }
  }
  PP_ASSERT(lo == work.rules->size());
}

device::SliceBatch DeviceEngine::upload() {
  const size_t bytes =
      rounded(parts_.size() * sizeof(parts_[0])) + rounded(slices_.size() * sizeof(slices_[0])) +
      rounded(segments_.size() * sizeof(segments_[0])) + rounded(tiles_.size() * sizeof(tiles_[0]));
  grow(*setup_.device, bytes, described_);
  const size_t here = std::max(bytes, 2 * tiles_.size() * sizeof(double));
  if (host_floats_ * sizeof(float) < here) {
    host_floats_ = 2 * here / sizeof(float) + 1;
    host_ = setup_.pinned(host_floats_);
  }
  auto* host = reinterpret_cast<std::byte*>(host_.get());
  Packer packer(host, static_cast<std::byte*>(described_.data()));
  device::SliceBatch batch{};
  batch.parts = packer.add(parts_);
  batch.slices = packer.add(slices_);
  batch.segments = packer.add(segments_);
  batch.tiles = packer.add(tiles_);
  batch.tile_count = std::ssize(tiles_);
  batch.segment_count = static_cast<int32_t>(segments_.size());
  batch.depth = depth_;
  stream_->copy_in(host, bytes, described_.data());
  return batch;
}

using device::DeviceName;

std::shared_ptr<device::Device> open_server_device(
    const std::string& text, const TaskOnHost& task,
    const std::function<void(const std::string&)>& say) {
  const bool automatic = text == "auto";
  DeviceName name;
  if (automatic) {
    name = device::take_local_gpu(task, say);
  } else {
    const std::vector<DeviceName> names = device::parse_devices(text, 0);
    if (names.size() > 1) {
      throw Error(ErrorCode::kUsage,
                  "[device] --device " + text + ": a server uses one; start more servers");
    }
    name = names.front();
  }
  if (name.kind == DeviceName::kCpu) return nullptr;
  try {
    return device::open(name);
  } catch (const Error& e) {
    if (!automatic) throw;
    say(std::string("keeps weights in host memory: ") + e.what());
    return nullptr;
  }
}

std::string why_not_on_device(const Job& job) {
  if (job.strategy.traits().workers_update) {
    return "strategy = " + job.strategy.to_string() + " updates them in the workers";
  }
  if (job.optimizer.ema > 0.0) {
    return "ema = " + print_real(job.optimizer.ema) + " averages them there";
  }
  if (job.codec != Codec{}) return "codec = " + job.codec.to_string() + " is decoded there";
  if (!job.codec_tensors.rules.empty()) {
    return "codec-tensors = " + job.codec_tensors.to_string() + " is decoded there";
  }
  if (job.pull_codec != Codec{}) {
    return "pull-codec = " + job.pull_codec.to_string() + " is encoded there";
  }
  return "";
}

}  // namespace pushpull
