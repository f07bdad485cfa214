// Puts a stand-in's work on the stream, like the real library's kernels. A program with streams
// exports cuda_on_host_enqueue; in a program without it the work runs at once.
#pragma once

#include <driver_types.h>

#include <utility>

// Runs `work` in the stream's order, or at each launch of the graph that captures the stream. Calls
// `destroy` afterwards, or at once on a refusal (a result other than 0).
extern "C" [[gnu::weak]] int cuda_on_host_enqueue(cudaStream_t stream, void (*work)(void*),
                                                  void* argument, void (*destroy)(void*));

namespace pushpull::cuda_on_host {

// Returns false if the stream refuses the work.
template <class Work>
bool enqueue(cudaStream_t stream, Work work) {
  auto* const kept = new Work(std::move(work));
  const auto run = [](void* argument) { (*static_cast<Work*>(argument))(); };
  const auto destroy = [](void* argument) { delete static_cast<Work*>(argument); };
  if (cuda_on_host_enqueue != nullptr) {
    return cuda_on_host_enqueue(stream, run, kept, destroy) == 0;
  }
  run(kept);
  destroy(kept);
  return true;
}

}  // namespace pushpull::cuda_on_host
