// Where a stand-in's work goes: on the stream, as the real library's kernels do. The program that
// has streams exports cuda_on_host_enqueue; in one that has none the work runs at once.
#pragma once

#include <driver_types.h>

#include <utility>

// Runs `work` in the stream's order, or at each launch of the graph that the stream is captured
// into; then, or where it refuses (not 0), `destroy`.
extern "C" [[gnu::weak]] int cuda_on_host_enqueue(cudaStream_t stream, void (*work)(void*),
                                                  void* argument, void (*destroy)(void*));

namespace pushpull::cuda_on_host {

// False where the stream refuses it.
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
