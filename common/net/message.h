// A message in memory: the protobuf header and its raw payloads. State machines speak in these;
// frames.h puts them on a socket. Payloads are shared, never copied: whoever holds one keeps its
// memory alive.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/net/wire.pb.h"

namespace pushpull {

// A connection as the receiving side sees it (ZeroMQ's routing id). Not an identity: a peer that
// reconnects gets another one.
using PeerId = std::string;

struct Payload {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  // The bytes are memory of a device, or of another process's device: the host must not read them.
  bool on_device = false;

  // The bytes as floats; size must be a multiple of 4 and the address aligned (frames.cpp sees to
  // both). Host memory only.
  const float* floats() const {
    PP_ASSERT(!on_device);
    return address();
  }
  // The same wherever they lie, for who does not read them here.
  const float* address() const { return reinterpret_cast<const float*>(bytes.data()); }
  size_t float_count() const { return bytes.size() / sizeof(float); }
};

struct Message {
  wire::Header header;
  std::vector<Payload> payloads;
};

}  // namespace pushpull
