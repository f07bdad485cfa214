#include "tests/cuda_on_host/streams.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace cuda_on_host {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Streams::Streams(uint64_t seed) : order_(seed), mood_(static_cast<unsigned>(seed % 4)) {
  legacy_ = create(true);
}

void Streams::restart(uint64_t seed) {
  drop_all();
  order_ = Order(seed);
  mood_ = static_cast<unsigned>(seed % 4);
}

cudaStream_t Streams::create(bool is_blocking) {
  streams_.push_back(std::make_unique<CUstream_st>());
  streams_.back()->is_blocking = is_blocking;
  return streams_.back().get();
}

cudaError_t Streams::destroy(cudaStream_t stream) {
  if (stream->capture) return cudaErrorStreamCaptureUnsupported;
  stream->is_destroyed = true;  // deleted after its work is done
  return cudaSuccess;
}

cudaStream_t Streams::find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return legacy_;
  for (const auto& stream : streams_) {
    if (stream.get() == handle) return stream->is_destroyed ? nullptr : handle;
  }
  return nullptr;
}

cudaEvent_t Streams::create_event(bool is_timed) {
  auto* const event = new CUevent_st;
  event->is_timed = is_timed;
  events_.insert(event);
  return event;
}

cudaError_t Streams::destroy(cudaEvent_t event) {
  if (events_.erase(event) == 0) return cudaErrorInvalidResourceHandle;
  delete event;
  return cudaSuccess;
}

Step Streams::step_of(const std::shared_ptr<Record>& record) {
  return {nullptr, [record] {
            record->seconds = now();
            record->done = true;
          }};
}

std::shared_ptr<Record> Streams::mark(cudaStream_t stream) {
  auto record = std::make_shared<Record>();
  stream->steps.push_back(step_of(record));
  return record;
}

// The legacy stream waits for every blocking stream, and they wait for it.
void Streams::order_with_legacy(cudaStream_t stream) {
  if (!stream->is_blocking) return;
  for (const auto& other : streams_) {
    if (other.get() == stream || !other->is_blocking || other->steps.empty()) continue;
    if (stream == legacy_ || other.get() == legacy_) {
      stream->steps.push_back({mark(other.get()), [] {}});
    }
  }
}

void Streams::push(cudaStream_t stream, Node node) {
  if (stream->capture) {
    stream->capture->nodes.push_back(std::move(node));
    return;
  }
  order_with_legacy(stream);
  stream->steps.push_back(node());
  run_some();
}

void Streams::launch(GraphExec& graph, cudaStream_t stream) {
  order_with_legacy(stream);
  if (graph.latest && !graph.latest->done) stream->steps.push_back({graph.latest, [] {}});
  for (const Node& node : graph.nodes) stream->steps.push_back(node());
  graph.latest = mark(stream);
  run_some();
}

bool Streams::forbids_unsafe() {
  bool forbidden = false;
  for (const auto& stream : streams_) {
    Capture* const capture = stream->capture.get();
    if (capture == nullptr || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool mine = capture->thread == std::this_thread::get_id();
    if (!mine && capture->mode != cudaStreamCaptureModeGlobal) continue;
    capture->is_broken = true;
    forbidden = true;
  }
  return forbidden;
}

bool Streams::forbids_legacy() {
  bool forbidden = false;
  for (const auto& stream : streams_) {
    if (!stream->capture || !stream->is_blocking) continue;
    stream->capture->is_broken = true;
    forbidden = true;
  }
  return forbidden;
}

bool Streams::run_one() {
  std::vector<CUstream_st*> ready;
  for (const auto& stream : streams_) {
    if (stream->steps.empty()) continue;
    const Step& first = stream->steps.front();
    if (!first.after || first.after->done) ready.push_back(stream.get());
  }
  if (ready.empty()) return false;
  CUstream_st* const chosen = ready[order_.below(ready.size())];
  const Step step = std::move(chosen->steps.front());
  chosen->steps.pop_front();
  step.run();
  std::erase_if(streams_,
                [](const auto& stream) { return stream->is_destroyed && stream->steps.empty(); });
  return true;
}

void Streams::run_until(const std::function<bool()>& done, const char* what) {
  while (!done()) {
    if (run_one()) continue;
    std::fprintf(stderr, "cuda_on_host: nothing is ready that %s waits for\n", what);
    std::abort();
  }
}

void Streams::run_all() {
  while (run_one()) {
  }
}

// Moods: run nothing before a wait, run everything at once, and two in between.
void Streams::run_some() {
  if (mood_ == 0) return;
  if (mood_ == 1) return run_all();
  for (uint64_t i = order_.below(mood_ == 2 ? 2 : 4); i > 0; --i) {
    if (!run_one()) return;
  }
}

void Streams::drop_all() {
  for (const auto& stream : streams_) {
    for (const Step& step : stream->steps) {
      if (step.after) step.after->done = true;
    }
    stream->steps.clear();
  }
}

}  // namespace cuda_on_host
