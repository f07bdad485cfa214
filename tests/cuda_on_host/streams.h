// Streams and what is recorded of them. Nothing runs by itself: a call into the runtime runs work
// that is ready, more or less of it as the seed says, of any stream; only a stream's own order and
// events hold it back.
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

// behind CUDA's handles, which are pointers to these names
struct CUevent_st;

namespace cuda_on_host {

// One record of an event, or of the end of a graph.
struct Record {
  bool done = false;
  double seconds = 0.0;
};

// What a stream does next, as soon as `after` is done.
struct Step {
  std::shared_ptr<Record> after;
  std::function<void()> run;
};

// Makes a step when it is enqueued: now, or at each launch of the graph that it was captured into.
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
  std::shared_ptr<Record> latest;  // launches of one run one after another
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
  std::shared_ptr<cuda_on_host::Record> latest;  // null: never recorded
  const cuda_on_host::Capture* captured = nullptr;
};

namespace cuda_on_host {

class Streams {
 public:
  explicit Streams(uint64_t seed);
  // Drops what is enqueued; streams and events stay.
  void restart(uint64_t seed);

  cudaStream_t create(bool is_blocking);
  cudaError_t destroy(cudaStream_t stream);
  // Null: no such stream. The legacy one where it is 0 or cudaStreamLegacy.
  cudaStream_t find(cudaStream_t handle);
  bool is_legacy(cudaStream_t stream) const { return stream == legacy_; }

  cudaEvent_t create_event(bool is_timed);
  cudaError_t destroy(cudaEvent_t event);
  bool knows(cudaEvent_t event) const { return events_.count(event) != 0; }

  // Into the stream's order, or into its capture.
  void push(cudaStream_t stream, Node node);
  void launch(GraphExec& graph, cudaStream_t stream);
  // The record that is done once all is that the stream has so far.
  std::shared_ptr<Record> mark(cudaStream_t stream);
  static Step step_of(const std::shared_ptr<Record>& record);

  // Whether a capture of this thread, or a global one, forbids what graphs would not see; it is
  // broken then.
  bool forbids_unsafe();
  // A blocking stream is captured, so that the legacy one may not be used.
  bool forbids_legacy();

  // Runs something of some stream; false: nothing is ready.
  bool run_one();
  void run_until(const std::function<bool()>& done, const char* what);
  void run_all();
  // As much as the seed's mood wants.
  void run_some();
  // What was enqueued is dropped: the device has failed.
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
