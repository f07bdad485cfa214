// Runs a kernel on the processor: its blocks one after another in a shuffled order, the threads of
// a block as fibers, which switch at barriers and shuffles only. One launch at a time in the
// process.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace cuda_on_host {

// The place of a launch, for messages.
struct Place {
  const char* file;
  int line;
  const char* kernel;
};

std::string text_of(const Place& place);

struct Launch {
  Place place;
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  std::function<void()> thread;  // the body of one thread
};

constexpr unsigned kWarpThreads = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr size_t kMaxSharedBytes = size_t{48} << 10;

// Runs a launch. Returns a line that describes its fault, or "".
std::string run(const Launch& launch, uint64_t seed);

// Returns "add_kernel (kernels.cu:57), block 3,0,0" while a launch runs, else "". For signal
// handlers.
const char* running_now();

// ---- called by threads of a kernel ----

// The source line of a barrier or shuffle.
struct Site {
  const char* file;
  int line;
};

// Waits for the whole block. Returns whether `predicate` was true for any thread.
bool barrier(Site site, bool predicate);

// Offers `value`, at most 16 bytes, to the other lanes named in `mask` and receives the value of
// lane `this ^ reach`.
void exchange(Site site, uint32_t mask, uint32_t reach, void* value, size_t bytes);

// The block's shared memory. A variable is a function and a line in it; all threads get the same
// address.
void* shared_variable(const char* function, int line, size_t bytes, size_t align);
void* shared_of_launch(size_t align);

}  // namespace cuda_on_host
