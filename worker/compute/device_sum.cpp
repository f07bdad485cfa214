#include "worker/compute/device_sum.h"

#include <cstring>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/device/device_floats.h"
#include "worker/compute/device_memory.h"

namespace pushpull {

namespace {

// Far longer than a step takes, even on a shared device.
constexpr int64_t kDeadlineMs = 300'000;

FloatAllocator copied_to(const std::shared_ptr<device::Device>& device, FloatAllocator memory) {
  return device::registered(device, std::move(memory), [device](const std::string& why) {
    Log("worker").warn("copying from " + device->name() + " takes longer: " + why);
  });
}

// Allocates a few bytes per slice. They hardly gain from registration, so a refusal is not logged.
std::shared_ptr<float[]> flags_on_host(const std::shared_ptr<device::Device>& device, size_t n) {
  return device::registered(device, heap_floats, [](const std::string&) {})(n);
}

// Two streams: the step's `compute` writes gradients, and `out` adds and copies them. `out` reads a
// tensor after that tensor's event; `compute` reuses a buffer after the reads that `out` had
// enqueued.
class DeviceSum final : public GradientSum {
 public:
  DeviceSum(DeviceStep& step, const TensorTable& table, const SliceMap& map, PushedMemory memory)
      : GradientSum(table, map),
        step_(step),
        device_(step.device()),
        gradients_(total(), device::device_floats(device_)),
        sent_(total(), copied_to(device_, std::move(memory.host))),
        shared_(std::move(memory.device)),
        flags_(device_->allocate(static_cast<size_t>(map.slices()) * sizeof(int32_t))),
        host_flags_(flags_on_host(device_, static_cast<size_t>(map.slices()))),
        read_(device_->event()),
        out_(device_->stream()) {
    for (int i = 0; i < map.slices(); ++i) copied_.push_back(device_->event());
  }

  ~DeviceSum() override {
    try {
      step_.wait();
      out_->synchronize(kDeadlineMs);
    } catch (const Error& e) {
      Log("worker").warn(e.what());
    }
  }

  bool give_next(const SliceReady& ready) override {
    if (given_ == done_.size()) return false;
    const int slice = done_[given_++];
    copied_[static_cast<size_t>(slice)]->wait(kDeadlineMs);
    const Range s = map().elements(slice);
    const std::span<const float> part(sum_.get() + s.lo, static_cast<size_t>(s.size()));
    ready(slice, {sum_, std::as_bytes(part), stays_});
    return true;
  }

  void keep_times() override {
    for (auto& event : copied_) event = device_->event(true);
    for (int i = 0; i < map().slices(); ++i) copying_.push_back(device_->event(true));
  }

  Copied copied(int slice, const device::Event& clock) const override {
    const auto i = static_cast<size_t>(slice);
    return {copying_.at(i)->seconds_since(clock), copied_[i]->seconds_since(clock)};
  }

  std::span<const float> sum() const override {
    PP_ASSERT(!stays_);
    return {sum_.get(), total()};
  }
  Payload on_host(const Payload& part) const override {
    return stays_ ? copy_to_host(*device_, part) : part;
  }

  bool finite(int slice, const Payload& /*part*/) const override {
    int32_t flag = 0;
    std::memcpy(&flag, host_flags_.get() + slice, sizeof flag);
    return flag == 0;
  }

 private:
  void begin_node() override {
    done_.clear();
    given_ = 0;
    if (shared_) {
      FloatAllocator memory = std::exchange(shared_, nullptr)();
      stays_ = memory != nullptr;
      if (stays_) gradients_ = BufferPool(total(), std::move(memory));
    }
    sum_ = stays_ ? nullptr : sent_.get();
  }

  std::shared_ptr<float[]> take() override {
    out_->record(*read_);
    step_.write_after(*read_);
    return gradients_.get();
  }

  void begin_tensor(size_t tensor) override { out_->wait(step_.gradient(tensor)); }

  void add(const float* left, float* right, Range range) override {
    out_->add(left + range.lo, right + range.lo, static_cast<size_t>(range.size()));
  }

  void slice_done(int slice, const std::shared_ptr<float[]>& sum,
                  const SliceReady& /*ready*/) override {
    const Range s = map().elements(slice);
    const auto n = static_cast<size_t>(s.size());
    int32_t* flag = static_cast<int32_t*>(flags_.data()) + slice;
    out_->find_non_finite(sum.get() + s.lo, n, flag);
    out_->copy_out(flag, sizeof *flag, host_flags_.get() + slice);
    if (!copying_.empty()) out_->record(*copying_[static_cast<size_t>(slice)]);
    if (stays_) {
      sum_ = sum;
    } else {
      out_->copy_out(sum.get() + s.lo, n * sizeof(float), sum_.get() + s.lo);
    }
    out_->record(*copied_[static_cast<size_t>(slice)]);
    done_.push_back(slice);
  }

  DeviceStep& step_;
  std::shared_ptr<device::Device> device_;
  BufferPool gradients_;                    // on the device
  BufferPool sent_;                         // on the host
  std::function<FloatAllocator()> shared_;  // PushedMemory::device, until it was called
  bool stays_ = false;                      // sums stay on the device
  std::shared_ptr<float[]> sum_;
  device::Memory flags_;  // per slice: non-zero if not finite
  std::shared_ptr<float[]> host_flags_;
  std::unique_ptr<device::Event> read_;  // reads of gradients enqueued so far are done
  std::vector<std::unique_ptr<device::Event>> copied_;   // by slice
  std::vector<std::unique_ptr<device::Event>> copying_;  // by slice; empty unless times are kept
  std::vector<int> done_;                                // slices, in the order of their copies
  size_t given_ = 0;                                     // how many of done_ were passed on
  std::unique_ptr<device::Stream> out_;
};

}  // namespace

std::unique_ptr<GradientSum> make_device_sum(DeviceStep& step, const TensorTable& table,
                                             const SliceMap& map, PushedMemory memory) {
  return std::make_unique<DeviceSum>(step, table, map, std::move(memory));
}

}  // namespace pushpull
