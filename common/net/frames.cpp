#include "common/net/frames.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "common/base/error.h"

namespace pushpull {

namespace {

// "PUSHPL", then the version in network byte order.
constexpr size_t kPreambleBytes = 8;
constexpr char kMagic[6] = {'P', 'U', 'S', 'H', 'P', 'L'};
constexpr size_t kCopyBelowBytes = 4096;
constexpr size_t kMaxStates = 3;  // vectors of a slice beside its weights: kMaxStateVectors

// Counts the entries with a payload: those without a segment (common/shm/references.h).
template <class Entries>
size_t with_payload(const Entries& entries) {
  return static_cast<size_t>(std::count_if(entries.begin(), entries.end(),
                                           [](const auto& entry) { return entry.segment() == 0; }));
}

size_t expected_payloads_min(const wire::Header& header) {
  switch (header.body_case()) {
    case wire::Header::kExchange:
      return with_payload(header.exchange().push().parts());
    case wire::Header::kWeights:
      return with_payload(header.weights().slices());
    case wire::Header::kLoad:
    case wire::Header::kFetched:
    case wire::Header::kStore:
    case wire::Header::kPeerChunk:
    case wire::Header::kOwnWeights:
      return 1;
    case wire::Header::kStagePart:
      return header.stage_part().kind() == wire::StagePart::KIND_START ||
                     header.stage_part().has_segment()
                 ? 0
                 : 1;
    default:
      return 0;
  }
}

// Load, Fetched and Store carry the optimizer's state vectors after the weights. Ping and Pong may
// carry bytes to be measured.
size_t expected_payloads_max(const wire::Header& header) {
  const size_t least = expected_payloads_min(header);
  const bool with_state = header.has_load() || header.has_fetched() || header.has_store();
  if (header.has_ping() || header.has_pong()) return least + 1;
  return with_state ? least + kMaxStates : least;
}

void free_owner(void* /*data*/, void* hint) {
  delete static_cast<std::shared_ptr<const void>*>(hint);
}

// Writes the preamble and the header, whose size has been computed.
void put_head(const wire::Header& header, std::byte* out) {
  auto* bytes = reinterpret_cast<unsigned char*>(out);
  std::memcpy(bytes, kMagic, sizeof kMagic);
  bytes[6] = kProtocolVersion >> 8;
  bytes[7] = kProtocolVersion & 0xff;
  header.SerializeWithCachedSizesToArray(bytes + kPreambleBytes);
}

Decoded refuse(std::string why, uint16_t version = 0) {
  Decoded out;
  out.why = std::move(why);
  out.version = version;
  return out;
}

}  // namespace

Payload payload_of(zmq::message_t frame) {
  // libzmq places small frames at any offset of its receive buffer, but floats must be aligned
  if (reinterpret_cast<uintptr_t>(frame.data()) % alignof(float) != 0) {
    const size_t bytes = frame.size();
    auto copy =
        std::make_shared_for_overwrite<float[]>((bytes + sizeof(float) - 1) / sizeof(float));
    std::memcpy(copy.get(), frame.data(), bytes);
    const auto* first = reinterpret_cast<const std::byte*>(copy.get());
    return {std::move(copy), {first, bytes}};
  }
  auto owner = std::make_shared<zmq::message_t>(std::move(frame));
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(owner->data()),
                                         owner->size());
  return {std::move(owner), bytes};
}

namespace {

// Decodes the header of a message with so many payloads.
Decoded decode_head(std::span<const std::byte> head, size_t payloads) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(head.data());
  if (head.size() < kPreambleBytes || std::memcmp(bytes, kMagic, sizeof kMagic) != 0) {
    return refuse("not a pushpull message");
  }
  const auto version = static_cast<uint16_t>(bytes[6] << 8 | bytes[7]);
  if (version != kProtocolVersion) {
    return refuse("protocol version " + std::to_string(version) + ", this program speaks " +
                      std::to_string(kProtocolVersion),
                  version);
  }
  if (head.size() > kMaxHeaderBytes) return refuse("header too large", version);
  Decoded out;
  out.version = version;
  Message message;
  if (!message.header.ParseFromArray(bytes + kPreambleBytes,
                                     static_cast<int>(head.size() - kPreambleBytes))) {
    return refuse("header is not protobuf", version);
  }
  if (message.header.body_case() == wire::Header::BODY_NOT_SET) {
    return refuse("header without a body", version);
  }
  if (payloads > kMaxParts || payloads < expected_payloads_min(message.header) ||
      payloads > expected_payloads_max(message.header)) {
    return refuse("number of payloads does not fit the header", version);
  }
  message.payloads.reserve(payloads);
  out.message = std::move(message);
  return out;
}

}  // namespace

Decoded decode(std::vector<zmq::message_t> frames) {
  if (frames.empty()) return refuse("no frame");
  const std::span head(static_cast<const std::byte*>(frames[0].data()), frames[0].size());
  Decoded out = decode_head(head, frames.size() - 1);
  for (size_t i = 1; i < frames.size() && out.message; ++i) {
    if (frames[i].size() % sizeof(float) != 0)
      return refuse("payload is not a whole number of floats", out.version);
    out.message->payloads.push_back(payload_of(std::move(frames[i])));
  }
  return out;
}

Decoded decode(std::span<const std::byte> head, std::vector<Payload> payloads) {
  Decoded out = decode_head(head, payloads.size());
  for (Payload& payload : payloads) {
    if (!out.message) break;
    if (payload.bytes.size() % sizeof(float) != 0)
      return refuse("payload is not a whole number of floats", out.version);
    out.message->payloads.push_back(std::move(payload));
  }
  return out;
}

std::vector<std::byte> encode_head(const wire::Header& header) {
  const size_t body = header.ByteSizeLong();
  PP_ASSERT(body + kPreambleBytes <= kMaxHeaderBytes);
  std::vector<std::byte> out(kPreambleBytes + body);
  put_head(header, out.data());
  return out;
}

std::vector<zmq::message_t> encode(const Message& message) {
  const size_t body = message.header.ByteSizeLong();
  PP_ASSERT(body + kPreambleBytes <= kMaxHeaderBytes);
  std::vector<zmq::message_t> frames;
  frames.reserve(1 + message.payloads.size());
  zmq::message_t head(kPreambleBytes + body);
  put_head(message.header, static_cast<std::byte*>(head.data()));
  frames.push_back(std::move(head));
  for (const Payload& payload : message.payloads) {
    PP_ASSERT(!payload.on_device);
    if (payload.bytes.size() < kCopyBelowBytes) {
      frames.emplace_back(payload.bytes.data(), payload.bytes.size());
    } else {
      auto* hint = new std::shared_ptr<const void>(payload.owner);
      frames.emplace_back(const_cast<std::byte*>(payload.bytes.data()), payload.bytes.size(),
                          &free_owner, hint);
    }
  }
  return frames;
}

namespace {

std::atomic<int64_t> bytes_sent = 0;
std::atomic<int64_t> bytes_received = 0;

}  // namespace

Traffic traffic_of_this_process() {
  return {bytes_sent.load(std::memory_order_relaxed),
          bytes_received.load(std::memory_order_relaxed)};
}

void count_traffic(int64_t sent, int64_t received) {
  bytes_sent.fetch_add(sent, std::memory_order_relaxed);
  bytes_received.fetch_add(received, std::memory_order_relaxed);
}

void put_traffic(wire::Stats& stats) {
  const Traffic traffic = traffic_of_this_process();
  stats.set_bytes_sent(traffic.sent);
  stats.set_bytes_received(traffic.received);
}

std::vector<zmq::message_t> receive_frames(zmq::socket_t& socket) {
  std::vector<zmq::message_t> frames;
  int64_t bytes = 0;
  bool more = true;
  while (more) {
    zmq::message_t frame;
    if (!uninterrupted([&] { return socket.recv(frame, zmq::recv_flags::dontwait); })) break;
    more = frame.more();
    bytes += static_cast<int64_t>(frame.size());
    // bounds memory: a message of endless frames costs its sender more than us
    if (frames.size() <= kMaxParts + 2) frames.push_back(std::move(frame));
  }
  bytes_received.fetch_add(bytes, std::memory_order_relaxed);
  return frames;
}

bool send_message(zmq::socket_t& socket, const Message& message, const PeerId& peer) {
  std::vector<zmq::message_t> frames = encode(message);
  int64_t bytes = 0;
  for (const zmq::message_t& frame : frames) bytes += static_cast<int64_t>(frame.size());
  if (!peer.empty()) frames.insert(frames.begin(), zmq::message_t(peer.data(), peer.size()));
  for (size_t i = 0; i < frames.size(); ++i) {
    const auto flags = i + 1 < frames.size() ? zmq::send_flags::dontwait | zmq::send_flags::sndmore
                                             : zmq::send_flags::dontwait;
    if (!uninterrupted([&] { return socket.send(frames[i], flags); })) return false;
  }
  bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
  return true;
}

}  // namespace pushpull
