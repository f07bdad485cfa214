// The cost of a message apart from its bytes: encoding and decoding its frames. Covers a push of
// slices, and weights in answer to a pull. Payloads are sent without a copy, so their size must not
// matter.
#include <benchmark/benchmark.h>

#include <utility>
#include <vector>

#include "common/net/frames.h"

namespace pushpull {
namespace {

Payload payload(size_t bytes) {
  auto floats = std::make_shared<std::vector<float>>(bytes / sizeof(float), 1e-3F);
  return {floats, std::as_bytes(std::span<const float>(*floats))};
}

// Returns a push of one share with `slices` slices, and the pull of the same message.
Message push_of(int slices, size_t bytes) {
  Message message;
  wire::Exchange* exchange = message.header.mutable_exchange();
  exchange->mutable_sender()->set_term_id(7);
  exchange->mutable_sender()->set_incarnation(8);
  wire::Push* push = exchange->mutable_push();
  push->set_number(100);
  push->set_step(100);
  push->set_hi(2);
  push->set_parts_total(slices);
  for (int i = 0; i < slices; ++i) {
    wire::Part* part = push->add_parts();
    part->set_slice(i);
    part->set_hi(2);
    message.payloads.push_back(payload(bytes));
  }
  exchange->mutable_pull()->set_number(101);
  exchange->mutable_pull()->set_clock(101);
  return message;
}

Message weights_of(int slices, size_t bytes) {
  Message message;
  wire::Weights* weights = message.header.mutable_weights();
  weights->set_pull(101);
  weights->set_pushes_through(100);
  for (int i = 0; i < slices; ++i) {
    wire::SliceVersion* slice = weights->add_slices();
    slice->set_slice(i);
    slice->set_version(100);
    message.payloads.push_back(payload(bytes));
  }
  return message;
}

using Make = Message (*)(int, size_t);

void encode_frames(benchmark::State& state, Make make) {
  const Message message =
      make(static_cast<int>(state.range(0)), static_cast<size_t>(state.range(1)));
  while (state.KeepRunning()) {
    std::vector<zmq::message_t> frames = encode(message);
    benchmark::DoNotOptimize(frames.data());
  }
  state.SetItemsProcessed(state.iterations());
}

void decode_frames(benchmark::State& state, Make make) {
  const Message message =
      make(static_cast<int>(state.range(0)), static_cast<size_t>(state.range(1)));
  std::vector<zmq::message_t> sent = encode(message);
  while (state.KeepRunning()) {
    std::vector<zmq::message_t> frames(sent.size());  // decode consumes its frames
    for (size_t i = 0; i < sent.size(); ++i) frames[i].copy(sent[i]);
    const Decoded decoded = decode(std::move(frames));
    if (!decoded.message) state.SkipWithError(decoded.why.c_str());
  }
  state.SetItemsProcessed(state.iterations());
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"slices", "bytes"})->Unit(benchmark::kNanosecond);
  bench->Args({1, 256})->Args({1, 4 << 10})->Args({1, 1 << 20})->Args({16, 1 << 20});
  bench->Args({100, 256})->Args({100, 4 << 10})->Args({100, 1 << 20});
}

BENCHMARK_CAPTURE(encode_frames, push, push_of)->Apply(shapes);
BENCHMARK_CAPTURE(encode_frames, weights, weights_of)->Apply(shapes);
BENCHMARK_CAPTURE(decode_frames, push, push_of)->Apply(shapes);
BENCHMARK_CAPTURE(decode_frames, weights, weights_of)->Apply(shapes);

}  // namespace
}  // namespace pushpull

BENCHMARK_MAIN();
