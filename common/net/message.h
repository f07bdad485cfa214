// A message in memory: the protobuf header and its raw payloads. State machines use it; frames.h
// encodes it for a socket. Payloads are shared, never copied: each holder keeps the memory alive.
// Plain data.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/net/wire.pb.h"

namespace pushpull {

// A connection as the receiver sees it (ZeroMQ's routing id). Not an identity: a peer that
// reconnects gets a new one.
using PeerId = std::string;

struct Payload {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  // The bytes are on a GPU, ours or another process's: the host must not read them.
  bool on_device = false;

  // Returns the bytes as floats. The size must be a multiple of 4 and the address aligned
  // (frames.cpp ensures both). Host memory only.
  const float* floats() const {
    PP_ASSERT(!on_device);
    return address();
  }
  // Returns the same address without reading it, for host and device memory.
  const float* address() const { return reinterpret_cast<const float*>(bytes.data()); }
  size_t float_count() const { return bytes.size() / sizeof(float); }
};

struct Message {
  wire::Header header;
  std::vector<Payload> payloads;
};

}  // namespace pushpull
