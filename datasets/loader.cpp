#include "datasets/loader.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "common/base/error.h"
#include "common/host/cores.h"
#include "common/job/job.h"

namespace pushpull {
namespace {

// Smaller micro-batches are read in `get`, without the thread. On two x86-64 cores a hand-over
// costs 5 to 8 us, and reading 256 KiB from memory takes 10 us.
constexpr size_t kSmallBytes = size_t{256} << 10;
// That decode. More would find no announced micro-batches.
constexpr int kMostThreads = 4;
// The announced micro-batches, the micro-batch that the trainer holds, and those dropped mid-read.
constexpr size_t kSlots = Loader::kMaxHints + 1 + kMostThreads;

enum class SlotState {
  kFree,
  kQueued,   // announced, not started
  kReading,  // only the thread touches `batch`, which it fills
  kDropped,  // as kReading, but no longer wanted
  kReady,    // filled, or `error` is set
  kTaken,    // the trainer holds it
};

struct Slot {
  SlotState state = SlotState::kFree;
  uint64_t order = 0;  // of its announcement
  MicroBatch batch;
  std::exception_ptr error;

  bool is_hint() const {
    return state == SlotState::kQueued || state == SlotState::kReading ||
           state == SlotState::kReady;
  }
};

}  // namespace

struct Loader::Impl {
  Impl(const Job& job, const Dataset& data)
      : dataset(data), sampler(job, data), layout(data.fields(), job.micro_batch) {
    const bool small = layout.words() * sizeof(float) < kSmallBytes;
    if (small && !dataset.decodes()) return;
    const int count = dataset.decodes() ? std::min(own_cores().count(), kMostThreads) : 1;
    for (int i = 0; i < count; ++i) threads.emplace_back([this] { run(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Allocates only when a buffer is first used.
  void make_buffer(MicroBatch& batch) const { batch.block.resize(layout.words()); }

  // Reads the samples with the batch's indices into the batch.
  void read(MicroBatch& batch, int64_t step) const {
    batch.epoch = epoch_of(step);
    dataset.read({Split::kTrain, batch.epoch, batch.indices, layout}, batch.block.data());
  }

  int64_t epoch_of(int64_t step) const { return step / sampler.steps_per_epoch(); }

  // A thread of the loader: repeatedly reads the oldest queued micro-batch.
  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      Slot* slot = nullptr;
      changed.wait(lock,
                   [&] { return stopping || (slot = oldest(SlotState::kQueued)) != nullptr; });
      if (stopping) return;
      slot->state = SlotState::kReading;
      lock.unlock();
      std::exception_ptr error;
      try {
        read(slot->batch, slot->batch.step);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      slot->error = error;
      slot->state = slot->state == SlotState::kDropped ? SlotState::kFree : SlotState::kReady;
      changed.notify_all();
    }
  }

  Slot* oldest(SlotState state) {
    Slot* found = nullptr;
    for (Slot& slot : slots) {
      if (slot.state == state && (found == nullptr || slot.order < found->order)) found = &slot;
    }
    return found;
  }

  Slot* find_hint(int64_t step, int64_t index) {
    for (Slot& slot : slots) {
      if (slot.is_hint() && slot.batch.step == step && slot.batch.index == index) return &slot;
    }
    return nullptr;
  }

  // Drops the oldest announcement if kMaxHints are kept.
  void make_room() {
    size_t hints = 0;
    Slot* first = nullptr;
    for (Slot& slot : slots) {
      if (!slot.is_hint()) continue;
      ++hints;
      if (first == nullptr || slot.order < first->order) first = &slot;
    }
    if (hints < kMaxHints) return;
    first->state = first->state == SlotState::kReading ? SlotState::kDropped : SlotState::kFree;
  }

  void hint(int64_t step, int64_t index) {
    const std::span<const int64_t> samples = sampler.indices(step, index);
    {
      const std::lock_guard lock(mutex);
      ++hints_given;
      if (Slot* known = find_hint(step, index); known != nullptr) {
        known->order = hints_given;
        return;
      }
      make_room();
      Slot* slot = oldest(SlotState::kFree);
      PP_ASSERT(slot != nullptr);
      make_buffer(slot->batch);
      slot->batch.indices.assign(samples.begin(), samples.end());
      slot->batch.step = step;
      slot->batch.index = index;
      slot->order = hints_given;
      slot->error = nullptr;
      slot->state = SlotState::kQueued;
    }
    changed.notify_all();
  }

  bool ready(int64_t step, int64_t index) {
    const std::lock_guard lock(mutex);
    const Slot* slot = find_hint(step, index);
    return slot != nullptr && slot->state == SlotState::kReady;
  }

  // Returns the slot of a micro-batch once it is filled, if its reading has started, or null. A
  // queued micro-batch is withdrawn: reading it here is faster than waiting for its turn.
  Slot* take(int64_t step, int64_t index) {
    std::unique_lock lock(mutex);
    if (Slot* held = oldest(SlotState::kTaken); held != nullptr) held->state = SlotState::kFree;
    Slot* slot = find_hint(step, index);
    if (slot == nullptr) return nullptr;
    if (slot->state == SlotState::kQueued) {
      slot->state = SlotState::kFree;
      return nullptr;
    }
    changed.wait(lock, [&] { return slot->state == SlotState::kReady; });
    slot->state = SlotState::kTaken;
    return slot;
  }

  // Constant after construction.
  const Dataset& dataset;
  Sampler sampler;  // used by the trainer only
  const BatchLayout layout;
  MicroBatch direct;  // used by the trainer only: read without the thread

  std::mutex mutex;  // guards the members below, except `batch` of kReading and kTaken slots
  std::condition_variable changed;
  std::array<Slot, kSlots> slots;
  uint64_t hints_given = 0;
  bool stopping = false;

  std::vector<std::thread> threads;  // none for small micro-batches
};

Loader::Loader(const Job& job, const Dataset& dataset)
    : impl_(std::make_unique<Impl>(job, dataset)) {}

Loader::~Loader() = default;

void Loader::hint(int64_t step, int64_t index) {
  if (!impl_->threads.empty()) impl_->hint(step, index);
}

void Loader::announce(int64_t step, std::span<const Range> micro_batches) {
  if (impl_->layout.words() > 0) return;
  const int64_t epoch = impl_->epoch_of(step);
  for (const Range& range : micro_batches) {
    for (int64_t m = range.lo; m < range.hi; ++m) {
      impl_->dataset.announce({Split::kTrain, step, m, epoch, impl_->sampler.indices(step, m)});
    }
  }
}

bool Loader::ready(int64_t step, int64_t index) const {
  return impl_->threads.empty() || impl_->ready(step, index);
}

const MicroBatch& Loader::get(int64_t step, int64_t index) {
  if (!impl_->threads.empty()) {
    if (const Slot* slot = impl_->take(step, index); slot != nullptr) {
      if (slot->error) std::rethrow_exception(slot->error);
      return slot->batch;
    }
  }
  MicroBatch& batch = impl_->direct;
  batch.step = -1;  // if reading fails, the old content must not be mistaken for it
  impl_->make_buffer(batch);
  const std::span<const int64_t> samples = impl_->sampler.indices(step, index);
  batch.indices.assign(samples.begin(), samples.end());
  impl_->read(batch, step);
  batch.step = step;
  batch.index = index;
  return batch;
}

}  // namespace pushpull
