// Runs a kernel on the processor: its blocks one after another in a shuffled order, the threads of
// a block as fibers, which change at barriers and shuffles only. One launch at a time in the
// process.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace cuda_on_host {

// Of a launch, for what is said of it.
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
  std::function<void()> thread;  // what one thread does
};

constexpr unsigned kWarpThreads = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr size_t kMaxSharedBytes = size_t{48} << 10;

// What the launch did wrong, in one line; empty: nothing.
std::string run(const Launch& launch, uint64_t seed);

// "add_kernel (kernels.cu:57), block 3,0,0" while a launch runs, else empty: for whoever
// handles a signal.
const char* running_now();

// ---- what threads of a kernel call ----

// Where in the source a thread waits for others.
struct Site {
  const char* file;
  int line;
};

// Waits for the whole block; whether `predicate` was true for any thread of it.
bool barrier(Site site, bool predicate);

// Gives `value`, at most 16 bytes, to the other lanes named in `mask` and gets that of lane
// `this ^ reach`.
void exchange(Site site, uint32_t mask, uint32_t reach, void* value, size_t bytes);

// The block's own memory: for each variable (a function and a line in it) the same for all threads.
void* shared_variable(const char* function, int line, size_t bytes, size_t align);
void* shared_of_launch(size_t align);

}  // namespace cuda_on_host
