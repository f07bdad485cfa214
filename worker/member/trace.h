// A Chrome trace of a worker: a JSON array of complete events ("Trace Event Format", Google 2016)
// that chrome://tracing and Perfetto show. Keeps the newest kMax events in memory allocated by the
// constructor; the destructor writes them. Single-threaded.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/layout/tensor_table.h"

namespace pushpull {

class Trace {
 public:
  // Kinds that begin with kDevice are events of a device, which works while the host waits or
  // pushes.
  enum Kind : uint8_t {
    kForward,   // micro-batch `number`, until the last layer's first gradient is finished
    kBackward,  // micro-batch `number`, after kForward
    kPush,      // slice `number` goes to the socket; -1 for the end of the push
    kPull,      // slice `number` is received from the socket
    kWait,      // wait for the weights of tensor `number`, or kFirstWeights, kLastWeights
    kEvaluate,  // chunk `number`
    kPart,  // part of a device or of stages from micro-batch `number` on: first call to last loss
    kDeviceForward,
    kDeviceBackward,
    kDeviceBoth,     // if the end of forward is unknown
    kDeviceInputs,   // micro-batch `number` is copied in
    kDeviceWeights,  // tensor `number`, and perhaps tensors after it, are copied in
    kDeviceSlice,    // slice `number` is copied out
  };
  static constexpr size_t kMax = size_t{1} << 18;
  // Wait from the end of a push until the next task begins.
  static constexpr int64_t kFirstWeights = -1;
  // Wait until all weights and the acknowledgements of all pushes have arrived, so that a push may
  // begin.
  static constexpr int64_t kLastWeights = -2;

  // Keeps no events if `file` is empty. Throws Error(kIo) if the file cannot be written.
  //   most: events kept.
  explicit Trace(std::string file, size_t most = kMax);
  // Writes the file. Logs an error if that fails.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  bool on() const { return !file_.empty(); }
  // Sets the names of tensors for wait events, and their offsets in the flat vector.
  void set_tensors(const TensorTable& table) { tensors_ = table.tensors; }
  // Sets the size of a slice of the flat vector, so that readers of the trace can map tensors to
  // slices.
  void set_slice_elements(int64_t elements) { slice_elements_ = elements; }
  void set_rank(int rank) { rank_ = rank; }
  // Sets the names of several devices; each gets its own rows. A single device needs no name.
  void set_devices(std::vector<std::string> names) { devices_ = std::move(names); }
  // Adds an event. Does nothing if the trace is off.
  //   begin_s, end_s: from now_seconds, so that traces of one host line up.
  //   bytes: size of a slice on the wire; 0 = not shown.
  //   device: index among set_devices, for events of a device.
  void add(Kind kind, int64_t step, int64_t number, double begin_s, double end_s, int64_t bytes = 0,
           uint8_t device = 0);

  std::string to_json() const;

 private:
  struct Event {
    Kind kind;
    uint8_t device;
    int64_t step;
    int64_t number;
    double begin_s;
    double end_s;
    int64_t bytes;
  };
  std::string name_of(const Event& event) const;
  std::string row_name(size_t row) const;

  const std::string file_;
  const size_t most_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> devices_;
  int64_t slice_elements_ = 0;
  int rank_ = -1;
  std::vector<Event> events_;  // ring buffer once it is full
  size_t oldest_ = 0;
  int64_t added_ = 0;
};

}  // namespace pushpull
