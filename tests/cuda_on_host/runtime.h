// What the stand-in of CUDA's runtime keeps: one device, its memory and streams, registered host
// memory, and the errors. As strict as the real one where its documentation says what it demands
// (CUDA Runtime API, v13.0).
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
    uintptr_t last;  // one past
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
  cudaError_t broken = cudaSuccess;  // by work that failed; every call gives it from then on
  std::string fault;                 // in words

  // Work has failed: what was enqueued is lost, as all that comes.
  void fail(cudaError_t status, const std::string& why);
  // Runs work of a step, which alone may touch the device's memory.
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

// Of the calling thread.
cudaError_t& latest_error();

// Every function of the API: under the lock, not at all once the device has failed, and what fails
// is the thread's latest error. Not being ready is no error (CUDA C++ Programming Guide, "Error
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

// As after a start with this seed: nothing is enqueued, nothing has failed. Memory stays.
void restart(uint64_t seed);
// What broke the device, in words.
std::string latest_fault();

}  // namespace cuda_on_host
