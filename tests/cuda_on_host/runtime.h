// The state of the stand-in for CUDA's runtime: one device, its memory and streams, registered host
// memory, and errors. As strict as the documentation of the real one (CUDA Runtime API, v13.0).
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "tests/cuda_on_host/arena.h"
#include "tests/cuda_on_host/streams.h"

namespace cuda_on_host {

class HostPages {
 public:
  enum class Kind { kPageable, kRegistered, kReadOnly, kPartly };

  cudaError_t add(void* first, size_t bytes, unsigned flags);
  cudaError_t remove(void* first);
  Kind kind(const void* first, size_t bytes) const;

 private:
  struct Range {
    uintptr_t last;  // one past the end
    uintptr_t last_page;
    unsigned flags;
  };
  std::map<uintptr_t, Range> all_;
};

struct Runtime {
  Runtime();

  std::recursive_mutex mutex;
  Arena arena;
  Streams streams;
  HostPages host;
  cudaError_t broken = cudaSuccess;  // set by failed work; every later call returns it
  std::string fault;                 // a description of the failure

  // Breaks the device: all enqueued and all later work is dropped.
  void fail(cudaError_t status, const std::string& why);
  // Runs the work of a step. Only there may device memory be accessed.
  template <class Work>
  void run_work(const std::string& what, const Work& work) {
    is_running = true;
    work();
    is_running = false;
    if (const std::string beside = arena.shut(); !beside.empty() && broken == cudaSuccess) {
      fail(cudaErrorIllegalAddress, what + ": " + beside);
    }
  }
  bool is_running = false;
};

Runtime& runtime();

// The calling thread's latest error.
cudaError_t& latest_error();

// Wraps every function of the API: takes the lock, refuses if the device has failed, and stores an
// error as the thread's latest. "Not ready" is no error (CUDA C++ Programming Guide, "Error
// Checking").
template <class Body>
cudaError_t call(const Body& body) {
  Runtime& all = runtime();
  const std::lock_guard lock(all.mutex);
  cudaError_t status = all.broken;
  if (status == cudaSuccess) status = body(all);
  if (status == cudaSuccess && all.broken != cudaSuccess) status = all.broken;
  if (status != cudaSuccess && status != cudaErrorNotReady) latest_error() = status;
  return status;
}

// ---- for tests of the stand-in itself ----

// Resets to the state after a start with this seed: no enqueued work, no failure. Memory stays.
void restart(uint64_t seed);
// Returns a description of the failure that broke the device.
std::string latest_fault();

}  // namespace cuda_on_host
