#include "tests/common/net/decode_check.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "common/base/error.h"
#include "common/layout/tensor_table.h"
#include "common/net/frames.h"
#include "common/net/model_wire.h"

namespace pushpull {

namespace {

void require(bool condition, const char* text) {
  if (condition) return;
  std::fprintf(stderr, "decode: %s\n", text);
  std::abort();
}

void read_all(const Message& message) {
  volatile float sum = 0.0F;
  for (const Payload& payload : message.payloads) {
    require(payload.bytes.size() % sizeof(float) == 0, "part of a float");
    const float* floats = payload.floats();
    require(reinterpret_cast<uintptr_t>(floats) % alignof(float) == 0, "misaligned payload");
    for (size_t i = 0; i < payload.float_count(); ++i) sum = sum + floats[i];
  }
}

// Counts the parts, or slices, that have a payload of their own.
size_t without_segment(const auto& entries) {
  return static_cast<size_t>(std::count_if(entries.begin(), entries.end(),
                                           [](const auto& entry) { return entry.segment() == 0; }));
}

void read_tensors(const WireTensors& tensors) {
  try {
    const TensorTable table = from_wire(tensors);
    require(table.total > 0, "a model without elements");
  } catch (const Error& e) {
    require(e.code() == ErrorCode::kProtocol, e.what());
  }
}

}  // namespace

bool check_decoding(std::vector<zmq::message_t> frames) {
  const size_t payloads = frames.empty() ? 0 : frames.size() - 1;
  const Decoded decoded = decode(std::move(frames));
  if (!decoded.message) {
    require(!decoded.why.empty(), "refused without a reason");
    return false;
  }
  const Message& message = *decoded.message;
  const wire::Header& header = message.header;
  require(decoded.version == kProtocolVersion, "another version accepted");
  require(header.body_case() != wire::Header::BODY_NOT_SET, "no body");
  require(message.payloads.size() == payloads, "payloads lost");
  if (header.has_exchange()) {
    require(without_segment(header.exchange().push().parts()) == payloads, "parts");
  } else if (header.has_weights()) {
    require(without_segment(header.weights().slices()) == payloads, "slices");
  } else if (header.has_load() || header.has_fetched() || header.has_store()) {
    require(payloads >= 1 && payloads <= 4, "state vectors");
  } else if (header.has_peer_chunk() || header.has_own_weights()) {
    require(payloads == 1, "a chunk");
  } else if (header.has_stage_part()) {
    const wire::StagePart& part = header.stage_part();
    const bool none = part.kind() == wire::StagePart::KIND_START || part.has_segment();
    require(payloads == (none ? 0 : 1), "a part of a stage");
  } else if (header.has_ping() || header.has_pong()) {
    require(payloads <= 1, "bytes to measure");
  } else {
    require(payloads == 0, "payloads behind control");
  }
  read_all(message);
  if (header.has_declare()) read_tensors(header.declare().tensors());
  if (header.has_state()) read_tensors(header.state().tensors());
  return true;
}

}  // namespace pushpull
