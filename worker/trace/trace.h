// The work of a worker over time, as a Chrome trace: a JSON array of complete events ("Trace Event
// Format", Google 2016) that chrome://tracing and Perfetto show. The newest kMost events are kept
// in memory that is taken at the start, and written at the end. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/layout/tensor_table.h"

namespace pushpull {

class Trace {
 public:
  // Those that begin with Device are of a device, which works while the host waits or pushes.
  enum Kind : uint8_t {
    kForward,   // of micro-batch `number`, up to the last layer's first finished gradient
    kBackward,  // from there
    kPush,      // slice `number` goes to the socket; -1: the end of the push
    kPull,      // slice `number` is taken from the socket
    kWait,      // for weights: of tensor `number`, or kFirstWeights, kLastWeights
    kEvaluate,  // chunk `number`
    kPart,      // on a device: micro-batches from `number` on, from the first call to the last loss
    kDeviceForward,
    kDeviceBackward,
    kDeviceBoth,     // where nobody knows the border
    kDeviceInputs,   // micro-batch `number` is copied in
    kDeviceWeights,  // tensor `number` is, maybe with those behind it
    kDeviceSlice,    // slice `number` is copied out
  };
  static constexpr size_t kMost = size_t{1} << 18;
  // From the end of a push until the next task can begin.
  static constexpr int64_t kFirstWeights = -1;
  // Until all are here, and what says that all pushes have arrived: only then may one begin.
  static constexpr int64_t kLastWeights = -2;

  // file: "" keeps nothing and costs nothing. Throws Error(kIo) where it cannot be written.
  explicit Trace(std::string file, size_t most = kMost);
  // Writes what is kept.
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  bool on() const { return !file_.empty(); }
  // Names wait events, and says where each tensor lies in the flat vector.
  void set_tensors(const TensorTable& table) { tensors_ = table.tensors; }
  // Size of a slice of the flat vector, so that a reader knows which slices a tensor lies in.
  void set_slice_elements(int64_t elements) { slice_elements_ = elements; }
  void set_rank(int rank) { rank_ = rank; }
  // Names of several devices, each of which has rows of its own; one device needs no name.
  void set_devices(std::vector<std::string> names) { devices_ = std::move(names); }
  // begin_s, end_s: of now_seconds, so that traces of one host fit together.
  // bytes: of a slice on the wire.
  // device: which of several, where it is of a device.
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
  std::vector<Event> events_;  // a ring once it is full
  size_t oldest_ = 0;
  int64_t added_ = 0;
};

}  // namespace pushpull
