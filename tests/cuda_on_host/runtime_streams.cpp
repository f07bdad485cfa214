// The runtime's functions for streams, events and graphs.
#include "tests/cuda_on_host/runtime.h"

using namespace cuda_on_host;  // NOLINT(google-build-using-namespace)

// the targets of CUDA's handles
struct CUgraph_st : Graph {};
struct CUgraphExec_st : GraphExec {};

namespace {

// Calls body(stream), unless there is no such stream or a capture forbids it.
template <class Body>
cudaError_t on_stream(cudaStream_t handle, const Body& body) {
  return call([&](Runtime& all) {
    const cudaStream_t stream = all.streams.find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (all.streams.is_legacy(stream) && all.streams.forbids_legacy()) {
      return cudaErrorStreamCaptureImplicit;
    }
    return body(all, stream);
  });
}

cudaError_t broken(Capture& capture, cudaError_t status) {
  capture.is_broken = true;
  return status;
}

std::shared_ptr<Record> renewed(cudaEvent_t event) {
  event->captured = nullptr;
  event->latest = std::make_shared<Record>();
  return event->latest;
}

cudaError_t record(cudaEvent_t event, cudaStream_t handle, unsigned flags) {
  return on_stream(handle, [&](Runtime& all, cudaStream_t stream) {
    if (!all.streams.knows(event)) return cudaErrorInvalidResourceHandle;
    const bool is_external = flags == cudaEventRecordExternal;
    if ((flags != cudaEventRecordDefault && !is_external) || (is_external && !stream->capture)) {
      return cudaErrorInvalidValue;
    }
    if (stream->capture && !is_external) {
      event->captured = stream->capture.get();
      return cudaSuccess;
    }
    all.streams.push(stream, [event] { return Streams::step_of(renewed(event)); });
    return cudaSuccess;
  });
}

// A stream that is not captured would join the other's capture. No caller does this, so it is not
// supported.
cudaError_t wait(cudaStream_t handle, cudaEvent_t event, unsigned flags) {
  return on_stream(handle, [&](Runtime& all, cudaStream_t stream) {
    if (!all.streams.knows(event)) return cudaErrorInvalidResourceHandle;
    const bool is_external = flags == cudaEventWaitExternal;
    if ((flags != cudaEventWaitDefault && !is_external) || (is_external && !stream->capture)) {
      return cudaErrorInvalidValue;
    }
    if (event->captured != nullptr && !is_external) {
      if (event->captured == stream->capture.get()) return cudaSuccess;  // already in its own order
      return stream->capture ? broken(*stream->capture, cudaErrorStreamCaptureIsolation)
                             : cudaErrorNotSupported;
    }
    if (stream->capture && !is_external) {
      return broken(*stream->capture, cudaErrorStreamCaptureIsolation);
    }
    if (!stream->capture && !event->latest) return cudaSuccess;
    all.streams.push(stream, [event] { return Step{event->latest, [] {}}; });
    return cudaSuccess;
  });
}

// Calls body for a function that queries an event or waits for it.
template <class Body>
cudaError_t on_event(cudaEvent_t event, const Body& body) {
  return call([&](Runtime& all) {
    if (!all.streams.knows(event)) return cudaErrorInvalidResourceHandle;
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    if (event->captured != nullptr) return cudaErrorCapturedEvent;
    return body(all);
  });
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&](Runtime& all) {
    if (flags != cudaStreamDefault && flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *stream = all.streams.create(flags == cudaStreamDefault);
    return cudaSuccess;
  });
}

// Its pending work still runs.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call([&](Runtime& all) {
    const cudaStream_t stream = all.streams.find(handle);
    if (stream == nullptr || all.streams.is_legacy(stream)) return cudaErrorInvalidResourceHandle;
    return all.streams.destroy(stream);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return on_stream(handle, [&](Runtime& all, cudaStream_t stream) {
    if (stream->capture) return broken(*stream->capture, cudaErrorStreamCaptureUnsupported);
    if (stream->steps.empty()) return cudaSuccess;
    all.streams.run_one();
    return stream->steps.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return on_stream(handle, [&](Runtime& all, cudaStream_t stream) {
    if (stream->capture) return broken(*stream->capture, cudaErrorStreamCaptureUnsupported);
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    all.streams.run_until([&] { return stream->steps.empty(); }, "cudaStreamSynchronize");
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([&](Runtime& all) {
    if (all.streams.forbids_unsafe()) return cudaErrorStreamCaptureUnsupported;
    all.streams.run_all();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return wait(stream, event, flags);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call([&](Runtime& all) {
    const cudaStream_t stream = all.streams.find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (all.streams.is_legacy(stream)) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorIllegalState;
    stream->capture = std::make_unique<Capture>();
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->mode = mode;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call([&](Runtime& all) {
    const cudaStream_t stream = all.streams.find(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *graph = nullptr;
    if (!stream->capture) return cudaErrorIllegalState;
    if (stream->capture->mode != cudaStreamCaptureModeRelaxed &&
        stream->capture->thread != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    const std::unique_ptr<Capture> capture = std::move(stream->capture);
    if (capture->is_broken) return cudaErrorStreamCaptureInvalidated;
    *graph = new CUgraph_st{{capture->nodes}};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags) {
  return call([&](Runtime&) {
    if (graph == nullptr || flags != 0) return cudaErrorInvalidValue;
    *exec = new CUgraphExec_st{{graph->nodes, nullptr}};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return on_stream(handle, [&](Runtime& all, cudaStream_t stream) {
    if (exec == nullptr) return cudaErrorInvalidValue;
    if (stream->capture) return broken(*stream->capture, cudaErrorNotSupported);
    all.streams.launch(*exec, stream);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&](Runtime&) {
    delete graph;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call([&](Runtime&) {
    delete exec;
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&](Runtime& all) {
    constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming;
    if ((flags & ~kKnown) != 0) return cudaErrorInvalidValue;
    *event = all.streams.create_event((flags & cudaEventDisableTiming) == 0);
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&](Runtime& all) { return all.streams.destroy(event); });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return record(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return record(event, stream, flags);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return on_event(event, [&](Runtime& all) {
    const std::shared_ptr<Record> latest = event->latest;
    if (!latest || latest->done) return cudaSuccess;
    all.streams.run_one();
    return latest->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return on_event(event, [&](Runtime& all) {
    const std::shared_ptr<Record> latest = event->latest;
    all.streams.run_until([&] { return !latest || latest->done || all.broken != cudaSuccess; },
                          "cudaEventSynchronize");
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call([&](Runtime& all) {
    if (!all.streams.knows(begin) || !all.streams.knows(end) || !begin->is_timed ||
        !end->is_timed || !begin->latest || !end->latest) {
      return cudaErrorInvalidResourceHandle;
    }
    if (!begin->latest->done || !end->latest->done) return cudaErrorNotReady;
    *milliseconds = static_cast<float>((end->latest->seconds - begin->latest->seconds) * 1e3);
    return cudaSuccess;
  });
}

}  // extern "C"
