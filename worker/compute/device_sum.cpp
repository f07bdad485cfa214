#include "worker/compute/device_sum.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/device/device.h"
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
std::shared_ptr<float[]> marks_on_host(const std::shared_ptr<device::Device>& device, size_t n) {
  const size_t floats = n * sizeof(int64_t) / sizeof(float);
  auto marks = device::registered(device, heap_floats, [](const std::string&) {})(floats);
  std::fill_n(marks.get(), floats, 0.0F);
  return marks;
}

// Three streams: the step's `compute` writes gradients, `sums` adds and checks them, and `out`
// copies them to the host. `sums` reads a tensor after that tensor's event; `out` reads a run of
// adjacent slices after their check; `compute` reuses a buffer after the reads that `sums` had
// enqueued. `compute` need not wait for `out`: the host has waited for all copies of a node, or the
// node was abandoned and its copies are discarded.
//
// Words: the check writes the number of the node as the *mark* of a slice that is not finite. Marks
// of earlier nodes are smaller, so they need not be cleared.
class DeviceSum final : public GradientSum {
 public:
  DeviceSum(DeviceStep& step, const TensorTable& table, const SliceMap& map, PushedMemory memory)
      : GradientSum(elements_of(table), map),
        step_(step),
        device_(step.device()),
        gradients_(total(), device::device_floats(device_)),
        sent_(total(), copied_to(device_, std::move(memory.host))),
        shared_(std::move(memory.device)),
        marks_(device_->allocate(static_cast<size_t>(map.slices()) * sizeof(int64_t))),
        host_marks_(marks_on_host(device_, static_cast<size_t>(map.slices()))),
        read_(device_->event()),
        checked_(device_->event()),
        event_of_(static_cast<size_t>(map.slices())),
        sums_(device_->stream()),
        out_(device_->stream()) {
    PP_ASSERT(map.stages() == 1);  // `check` counts slices of one size
    for (int i = 0; i < map.slices(); ++i) copied_.push_back(device_->event());
  }

  ~DeviceSum() override {
    try {
      step_.wait();
      sums_->synchronize(kDeadlineMs);
      out_->synchronize(kDeadlineMs);
    } catch (const Error& e) {
      Log("worker").warn(e.what());
    }
  }

  std::shared_ptr<float[]> take() override {
    sums_->record(*read_);
    step_.write_after(*read_);
    return gradients_.get();
  }

  bool give_next(const SliceReady& ready) override {
    if (given_ == done_.size()) return false;
    const int slice = done_[given_++];
    copied_[event_of_[static_cast<size_t>(slice)]]->wait(kDeadlineMs);
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
    const size_t i = event_of_[static_cast<size_t>(slice)];
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
    int64_t mark = 0;
    std::memcpy(&mark, host_mark(slice), sizeof mark);
    return mark != node_;
  }

 private:
  void begin_node() override {
    done_.clear();
    given_ = 0;
    ++node_;
    if (shared_) {
      FloatAllocator memory = std::exchange(shared_, nullptr)();
      stays_ = memory != nullptr;
      if (stays_) gradients_ = BufferPool(total(), std::move(memory));
    }
    sum_ = stays_ ? nullptr : sent_.get();
  }

  void begin_tensor(size_t tensor) override { sums_->wait(step_.gradient(tensor)); }

  void add(const float* left, float* right, Range range) override {
    sums_->add(left + range.lo, right + range.lo, static_cast<size_t>(range.size()));
  }

  void slices_done(Range slices, const std::shared_ptr<float[]>& sum,
                   const SliceReady& /*ready*/) override {
    check(slices, sum.get());
    if (stays_) sum_ = sum;
    const auto first = static_cast<size_t>(slices.lo);
    for (size_t i = first; i < static_cast<size_t>(slices.hi); ++i) {
      event_of_[i] = stays_ ? first : i;  // slices that stay are done together
      if (event_of_[i] == i && !copying_.empty()) out_->record(*copying_[i]);
      if (!stays_) {
        const Range s = map().elements(static_cast<int>(i));
        out_->copy_out(sum.get() + s.lo, static_cast<size_t>(s.size()) * sizeof(float),
                       sum_.get() + s.lo);
      }
      if (event_of_[i] == i) out_->record(*copied_[i]);
      done_.push_back(static_cast<int>(i));
    }
  }

  // Checks adjacent slices in one kernel and copies their marks out.
  void check(Range slices, const float* sum) {
    const auto first = static_cast<int>(slices.lo);
    const int64_t lo = map().elements(first).lo;
    const int64_t hi = map().elements(static_cast<int>(slices.hi) - 1).hi;
    auto* marks = static_cast<int64_t*>(marks_.data()) + first;
    sums_->find_non_finite(sum + lo, static_cast<size_t>(hi - lo),
                           static_cast<size_t>(map().slice_elements()), node_, marks);
    sums_->record(*checked_);
    out_->wait(*checked_);
    out_->copy_out(marks, static_cast<size_t>(slices.size()) * sizeof *marks, host_mark(first));
  }

  std::byte* host_mark(int slice) const {
    return reinterpret_cast<std::byte*>(host_marks_.get()) +
           static_cast<size_t>(slice) * sizeof(int64_t);
  }

  DeviceStep& step_;
  std::shared_ptr<device::Device> device_;
  BufferPool gradients_;                    // on the device
  BufferPool sent_;                         // on the host
  std::function<FloatAllocator()> shared_;  // PushedMemory::device, until it was called
  bool stays_ = false;                      // sums stay on the device
  std::shared_ptr<float[]> sum_;
  int64_t node_ = 0;      // number of the node, from 1
  device::Memory marks_;  // by slice, int64_t
  std::shared_ptr<float[]> host_marks_;
  std::unique_ptr<device::Event> read_;     // reads of gradients enqueued so far are done
  std::unique_ptr<device::Event> checked_;  // the latest check is done
  std::vector<std::unique_ptr<device::Event>> copied_;   // by slice
  std::vector<std::unique_ptr<device::Event>> copying_;  // by slice; empty unless times are kept
  std::vector<size_t> event_of_;                         // by slice: index of its events
  std::vector<int> done_;                                // slices, in the order of their copies
  size_t given_ = 0;                                     // how many of done_ were passed on
  std::unique_ptr<device::Stream> sums_;
  std::unique_ptr<device::Stream> out_;
};

}  // namespace

std::unique_ptr<GradientSum> make_device_sum(DeviceStep& step, const TensorTable& table,
                                             const SliceMap& map, PushedMemory memory) {
  return std::make_unique<DeviceSum>(step, table, map, std::move(memory));
}

}  // namespace pushpull
