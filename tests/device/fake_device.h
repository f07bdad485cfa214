// A device without hardware, to test code that drives a device: its memory is on the host, its
// streams are queues. Work runs in an order, drawn from the seed, that the events allow, and
// sometimes only when the host waits for it: a missing wait gives wrong values under some seeds.
// Unlike a Device it is thread-safe, since all backends of a program have one FakeDevice where they have a
// CUDA device each.
//
// Only work on a stream can access device memory. A host access kills the process with SIGSEGV, as
// with a real device, and so does an access to memory of another process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/device/device.h"
#include "common/device/registered_pages.h"

namespace pushpull::device {

// A deliberate fault, for tests that must detect it.
enum class Fault {
  kNone,
  kStreamsDoNotWait,      // Stream::wait does nothing
  kHostDoesNotWait,       // Event::wait and Stream::synchronize return at once
  kRecordsAreIgnored,     // an event keeps its first record
  kSumsLeftToRight,       // the parts of a slice are summed in their order, not along the tree
  kHeldStateIsForgotten,  // the state of slices is read where it is written
};

struct FakeOptions {
  uint64_t seed = 0;
  Fault fault = Fault::kNone;
  size_t memory_bytes = size_t{256} << 20;  // all memory of the device
  int64_t lost_after = -1;         // the device is lost after this many pieces of work; -1: never
  bool captures = true;            // if false, Stream::capture returns null
  bool registers = true;           // if false, register_pages refuses
  int index = 0;                   // fake:INDEX
  size_t max_pageable = SIZE_MAX;  // bytes of one copy of unregistered memory
  int deaf = -1;     // Stream::wait does nothing on this stream, in the order of creation; -1: none
  int unheard = -1;  // Event::wait does nothing on this event, in the order of creation; -1: none
  // Registered pages, shared by the devices of a process as with CUDA. Null: this device's own.
  std::shared_ptr<RegisteredPages> pages = nullptr;
};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(FakeOptions options = {});
  ~FakeDevice() override;

  std::string name() const override;
  Memory allocate(size_t bytes) override;
  // All fakes of one index are the same device, also in several processes.
  std::string id() const override { return name(); }
  Memory allocate_shared(size_t bytes, std::string& handle) override;
  std::shared_ptr<const void> open_shared(const std::string& handle, size_t bytes) override;
  std::unique_ptr<Stream> stream() override;
  std::unique_ptr<Event> event(bool timed = false) override;
  std::shared_ptr<void> register_pages(std::byte* first, size_t bytes, Access access,
                                       std::string& why) override;

  // Number of work pieces that ran, of graph launches, of events and of registered ranges, for tests.
  int64_t runs() const;
  int64_t launches() const;
  int events() const;
  size_t registrations() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// Enqueues a test's own work, which may access device memory, on a stream of a FakeDevice.
void enqueue(Stream& stream, std::function<void()> work);

}  // namespace pushpull::device
