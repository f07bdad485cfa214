// A device without hardware, to test whoever drives one: its memory lies on the host, its streams
// are queues. What is enqueued runs in some order that the events allow, drawn from the seed, some
// of it as late as when the host waits for it: a wait that is missing shows as wrong values under
// some seeds. One thread for a device and what it has made, but where device.h says "any thread".
//
// Device memory can be touched by what runs on a stream only; the host that reaches for it is
// killed by SIGSEGV, as it would be with a real device. So is whoever reaches for memory of another
// process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/device/device.h"
#include "common/device/registered_pages.h"

namespace pushpull::device {

// What is broken on purpose, for tests that must see it.
enum class Fault {
  kNone,
  kStreamsDoNotWait,      // Stream::wait does nothing
  kHostDoesNotWait,       // Event::wait and Stream::synchronize return at once
  kRecordsAreIgnored,     // an event stands where it first stood
  kSumsLeftToRight,       // parts of a slice are summed in their order, not along the tree
  kHeldStateIsForgotten,  // state of slices is read where it is written
};

struct FakeOptions {
  uint64_t seed = 0;
  Fault fault = Fault::kNone;
  size_t memory_bytes = size_t{256} << 20;  // all that there is
  int64_t lost_after = -1;                  // so many pieces of work; -1: never
  bool captures = true;                     // else Stream::capture gives null
  bool registers = true;                    // else register_pages refuses
  int index = 0;                            // fake:INDEX
  size_t most_pageable = SIZE_MAX;          // bytes of one copy of memory that is not registered
  // What is registered with one device is for all that share this, as with CUDA. Null: its own.
  std::shared_ptr<RegisteredPages> pages = nullptr;
};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(FakeOptions options = {});
  ~FakeDevice() override;

  std::string name() const override;
  Memory allocate(size_t bytes) override;
  // All fakes of one index stand for one device, also in several processes.
  std::string id() const override { return name(); }
  Memory allocate_shared(size_t bytes, std::string& handle) override;
  std::shared_ptr<const void> open_shared(const std::string& handle, size_t bytes) override;
  std::unique_ptr<Stream> stream() override;
  std::unique_ptr<Event> event(bool timed = false) override;
  std::shared_ptr<void> register_pages(std::byte* first, size_t bytes, Access access,
                                       std::string& why) override;

  // Pieces of work that have run, launches of graphs, ranges that are registered: for tests.
  int64_t runs() const;
  int64_t launches() const;
  size_t registrations() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// Work of a test's own on a stream of a FakeDevice, which may touch device memory.
void enqueue(Stream& stream, std::function<void()> work);

}  // namespace pushpull::device
