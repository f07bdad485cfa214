#include "tests/simulation/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <new>
#include <span>
#include <vector>

namespace pushpull::sim {

namespace {

void copy(Payload& payload) {
  auto bytes = std::make_shared<std::vector<std::byte>>(payload.bytes.begin(), payload.bytes.end());
  payload.bytes = std::span<const std::byte>(*bytes);
  payload.owner = std::move(bytes);
}

// Whole pages, as in segments, that can be mapped a second time.
std::shared_ptr<float[]> shared_floats(size_t floats) {
  const size_t bytes = std::max<size_t>(1, floats) * sizeof(float);
  void* first = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (first == MAP_FAILED) throw std::bad_alloc();
  std::fill_n(static_cast<float*>(first), floats, std::numeric_limits<float>::quiet_NaN());
  return {static_cast<float*>(first), [bytes](float* pages) { munmap(pages, bytes); }};
}

}  // namespace

FloatAllocator SharedMemory::allocator() {
  return [this](size_t floats) {
    std::shared_ptr<float[]> pages = shared_floats(floats);
    buffers_[reinterpret_cast<const std::byte*>(pages.get())] = {floats * sizeof(float), pages};
    return pages;
  };
}

int64_t SharedMemory::refer(Message& message) const {
  int64_t references = 0;
  for (Payload& payload : message.payloads) {
    const auto next = buffers_.upper_bound(payload.bytes.data());
    if (next == buffers_.begin()) {
      copy(payload);
      continue;
    }
    const auto& [first, buffer] = *std::prev(next);
    const bool inside = payload.bytes.data() + payload.bytes.size() <= first + buffer.bytes;
    auto pages = inside ? buffer.pages.lock() : nullptr;
    if (pages) {
      payload.owner = std::move(pages);
      ++references;
    } else {
      copy(payload);
    }
  }
  return references;
}

void copy_payloads(Message& message) {
  for (Payload& payload : message.payloads) copy(payload);
}

void ServerPages::on_message(const PeerId& peer, const Message& message) {
  if (!message.header.has_exchange() || !message.header.exchange().has_pull()) return;
  const wire::Exchange& exchange = message.header.exchange();
  peers_[peer] = exchange.sender().incarnation();
  Worker& worker = workers_[exchange.sender().incarnation()];
  if (exchange.pull().number() < worker.pull) return;
  worker = {exchange.pull().number(), exchange.pull().in_place()};
}

int64_t ServerPages::on_send(Outgoing& out) const {
  const auto peer = peers_.find(out.to);
  const bool refers = out.message.header.has_weights() && peer != peers_.end() &&
                      workers_.at(peer->second).in_place;
  if (refers) return memory_.refer(out.message);
  copy_payloads(out.message);
  return 0;
}

}  // namespace pushpull::sim
