// Streams and the work enqueued on them. A call into the runtime runs ready work of any stream,
// more or less of it depending on the seed; only a stream's own order and events hold work back.
//
// Guarded by the runtime's lock.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda_on_host/order.h"

// targets of CUDA's handles, which are pointers to these names
struct CUevent_st;

namespace cuda_on_host {

// A record of an event, or of the end of a graph.
struct Record {
  bool done = false;
  double seconds = 0.0;
};

// A stream's next work. It may run once `after` is done.
struct Step {
  std::shared_ptr<Record> after;
  std::function<void()> run;
};

// Makes a step when it is enqueued: now, or at each launch of the graph that captured it.
using Node = std::function<Step()>;

struct Capture {
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  bool is_broken = false;
  std::vector<Node> nodes;
};

struct Graph {
  std::vector<Node> nodes;
};

struct GraphExec {
  std::vector<Node> nodes;
  std::shared_ptr<Record> latest;  // launches of one graph run one after another
};

}  // namespace cuda_on_host

struct CUstream_st {
  bool is_blocking = false;  // ordered with the legacy stream
  bool is_destroyed = false;
  std::deque<cuda_on_host::Step> steps;
  std::unique_ptr<cuda_on_host::Capture> capture;
};

struct CUevent_st {
  bool is_timed = false;
  std::shared_ptr<cuda_on_host::Record> latest;  // null if it was never recorded
  const cuda_on_host::Capture* captured = nullptr;
};

namespace cuda_on_host {

class Streams {
 public:
  explicit Streams(uint64_t seed);
  // Drops enqueued work; streams and events stay.
  void restart(uint64_t seed);

  cudaStream_t create(bool is_blocking);
  cudaError_t destroy(cudaStream_t stream);
  // Returns null if there is no such stream. 0 and cudaStreamLegacy name the legacy stream.
  cudaStream_t find(cudaStream_t handle);
  bool is_legacy(cudaStream_t stream) const { return stream == legacy_; }

  cudaEvent_t create_event(bool is_timed);
  cudaError_t destroy(cudaEvent_t event);
  bool knows(cudaEvent_t event) const { return events_.count(event) != 0; }

  // Appends to the stream, or to its capture.
  void push(cudaStream_t stream, Node node);
  void launch(GraphExec& graph, cudaStream_t stream);
  // Returns a record that is done once all work enqueued so far is done.
  std::shared_ptr<Record> mark(cudaStream_t stream);
  static Step step_of(const std::shared_ptr<Record>& record);

  // Returns whether a capture of this thread, or a global one, forbids a call that graphs cannot
  // record. Such a call breaks the capture.
  bool forbids_unsafe();
  // Returns whether a blocking stream is captured, so that the legacy stream may not be used.
  bool forbids_legacy();

  // Runs one piece of ready work of some stream. Returns false if none is ready.
  bool run_one();
  void run_until(const std::function<bool()>& done, const char* what);
  void run_all();
  // Runs as much as the seed's mood says.
  void run_some();
  // Drops enqueued work after a failure of the device.
  void drop_all();

  Order& order() { return order_; }

 private:
  void order_with_legacy(cudaStream_t stream);

  Order order_;
  unsigned mood_;
  CUstream_st* legacy_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::set<cudaEvent_t> events_;
};

double now();

}  // namespace cuda_on_host
