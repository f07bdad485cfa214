#include "common/direct/direct_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/net/frames.h"

namespace pushpull {

namespace {

constexpr size_t kAheadBytes = size_t{16} << 10;
constexpr size_t kMaxFrames = 4096;
constexpr size_t kPooledFloats = size_t{4} << 10;  // smaller buffers cost no page faults
constexpr size_t kMaxPools = 4;
constexpr size_t kMaxPieces = 64;  // of one system call

std::span<std::byte> bytes_of(std::vector<uint32_t>& numbers) {
  return std::as_writable_bytes(std::span(numbers));
}

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

DirectConnection::DirectConnection(Rings& rings, UniqueFd socket)
    : rings_(rings), socket_(std::move(socket)), counts_(2), ahead_(kAheadBytes) {
  rings_.add(*this);
}

DirectConnection::~DirectConnection() { rings_.remove(*this); }

void DirectConnection::set_lost() {
  lost_ = true;
  full_ = true;
  unsent_.clear();
  unsent_bytes_ = 0;
}

// ---- writing ----

bool DirectConnection::send(int connection, const Message& message) {
  if (full_) return false;
  const std::vector<std::byte> header = encode_head(message.header);
  std::vector<uint32_t> numbers = {static_cast<uint32_t>(1 + message.payloads.size()),
                                   static_cast<uint32_t>(connection),
                                   static_cast<uint32_t>(header.size())};
  size_t bytes = header.size();
  for (const Payload& payload : message.payloads) {
    PP_ASSERT(!payload.on_device);
    bytes += payload.bytes.size();
    if (bytes > kMaxMessageBytes) break;
    numbers.push_back(static_cast<uint32_t>(payload.bytes.size()));
  }
  if (message.payloads.size() >= kMaxFrames || bytes > kMaxMessageBytes ||
      unsent_bytes_ + bytes > kMaxUnsentBytes) {
    write_no_more();
    return false;
  }
  Unsent& unsent = unsent_.emplace_back();
  unsent.head.reserve(numbers.size() * sizeof(uint32_t) + header.size());
  append(unsent.head, bytes_of(numbers));
  append(unsent.head, header);
  unsent.payloads = message.payloads;
  unsent.bytes = bytes + numbers.size() * sizeof(uint32_t);
  unsent_bytes_ += unsent.bytes;
  flush();
  return true;
}

// Two zeros instead of the counts of a message.
void DirectConnection::write_no_more() {
  if (std::exchange(full_, true)) return;
  Unsent& last = unsent_.emplace_back();
  last.head.resize(counts_.size() * sizeof(uint32_t));
  last.bytes = last.head.size();
  unsent_bytes_ += last.bytes;
  flush();
}

void DirectConnection::flush() {
  while (!unsent_.empty()) {
    std::array<iovec, kMaxPieces> pieces{};
    size_t count = 0;
    size_t offered = 0;
    const auto add = [&](std::span<const std::byte> bytes, size_t& skip) {
      const size_t skipped = std::min(skip, bytes.size());
      skip -= skipped;
      if (skipped == bytes.size() || count == kMaxPieces) return;
      pieces[count++] = {const_cast<std::byte*>(bytes.data()) + skipped, bytes.size() - skipped};
      offered += bytes.size() - skipped;
    };
    for (const Unsent& unsent : unsent_) {
      size_t skip = unsent.sent;
      add(unsent.head, skip);
      for (const Payload& payload : unsent.payloads) add(payload.bytes, skip);
      if (count == kMaxPieces) break;
    }
    msghdr all{};
    all.msg_iov = pieces.data();
    all.msg_iovlen = count;
    const ssize_t sent = sendmsg(socket_.get(), &all, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return set_lost();
    if (sent < 0) return;
    count_traffic(sent, 0);
    unsent_bytes_ -= static_cast<size_t>(sent);
    for (auto left = static_cast<size_t>(sent); left > 0;) {
      Unsent& first = unsent_.front();
      const size_t part = std::min(left, first.bytes - first.sent);
      first.sent += part;
      left -= part;
      if (first.sent == first.bytes) unsent_.pop_front();
    }
    if (static_cast<size_t>(sent) < offered) return;  // the socket is full
  }
}

// ---- reading ----

// Receives bytes of the part that is read until it is complete. Returns whether it is.
bool DirectConnection::fill(std::span<std::byte> to) {
  while (have_ < to.size()) {
    if (ahead_begin_ < ahead_end_) {
      const size_t bytes = std::min(to.size() - have_, ahead_end_ - ahead_begin_);
      std::memcpy(to.data() + have_, ahead_.data() + ahead_begin_, bytes);
      have_ += bytes;
      ahead_begin_ += bytes;
      continue;
    }
    if (lost_) return false;
    std::array<iovec, 2> pieces{
        {{to.data() + have_, to.size() - have_}, {ahead_.data(), ahead_.size()}}};
    msghdr all{};
    all.msg_iov = pieces.data();
    all.msg_iovlen = pieces.size();
    const ssize_t got = recvmsg(socket_.get(), &all, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      set_lost();
      return false;
    }
    count_traffic(0, got);
    const size_t bytes = std::min(static_cast<size_t>(got), to.size() - have_);
    have_ += bytes;
    ahead_begin_ = 0;
    ahead_end_ = static_cast<size_t>(got) - bytes;
  }
  have_ = 0;
  return true;
}

// Receives the part that is next. Returns false if that takes more bytes than have arrived, or they are
// no message.
bool DirectConnection::read_part() {
  switch (part_) {
    case Part::kCounts:
      if (!fill(bytes_of(counts_))) return false;
      if (counts_[0] == 0 && counts_[1] == 0) {
        closed_ = true;
        write_no_more();
        return false;
      }
      if (counts_[0] == 0 || counts_[0] > kMaxFrames || counts_[1] > 255) {
        bad_ = std::to_string(counts_[0]) + " frames on connection " + std::to_string(counts_[1]);
        return false;
      }
      sizes_.resize(counts_[0]);
      part_ = Part::kSizes;
      return true;
    case Part::kSizes: {
      if (!fill(bytes_of(sizes_))) return false;
      size_t bytes = 0;
      for (size_t i = 0; i < sizes_.size(); ++i) {
        bytes += sizes_[i];
        if (bytes <= kMaxMessageBytes && (i == 0 || sizes_[i] % sizeof(float) == 0)) continue;
        bad_ = "a frame of " + std::to_string(sizes_[i]) + " bytes";
        return false;
      }
      header_.resize(sizes_.front());
      part_ = Part::kHeader;
      return true;
    }
    case Part::kHeader:
      if (!fill(header_)) return false;
      part_ = Part::kPayloads;
      begin_payload();
      return true;
    case Part::kPayloads:
      if (!fill(payload_)) return false;
      begin_payload();
      return true;
  }
  return false;
}

// Returns memory for so many floats: of a pool, if there are many. Slices have one size, and two at most.
std::shared_ptr<float[]> DirectConnection::memory_for(size_t floats) {
  if (floats < kPooledFloats) return heap_floats(std::max<size_t>(1, floats));
  auto pool = std::ranges::find(pools_, floats, &BufferPool::floats);
  if (pool == pools_.end()) {
    if (pools_.size() == kMaxPools) pools_.erase(pools_.begin());
    pool = pools_.emplace(pools_.end(), floats);
  }
  return pool->get();
}

// Allocates memory for the next payload, not before the bytes ahead of it are here. Ends the message
// if there is none.
void DirectConnection::begin_payload() {
  if (payloads_.size() + 1 == sizes_.size()) return finish();
  const size_t bytes = sizes_[payloads_.size() + 1];
  const std::shared_ptr<float[]> floats = memory_for(bytes / sizeof(float));
  payload_ = std::as_writable_bytes(std::span(floats.get(), bytes / sizeof(float)));
  payloads_.push_back({floats, payload_});
}

void DirectConnection::finish() {
  Decoded decoded = decode(header_, std::exchange(payloads_, {}));
  part_ = Part::kCounts;
  if (!decoded.message) {
    bad_ = "bytes that are no message: " + decoded.why;
    return;
  }
  ready_ = RingPair::Received{static_cast<int>(counts_[1]), std::move(*decoded.message)};
}

// Returns whether a message waits, or the bytes are no message.
bool DirectConnection::read() {
  while (!ready_ && !bad_ && !closed_) {
    if (!read_part()) break;
  }
  return ready_ || bad_;
}

bool DirectConnection::look() {
  if (!unsent_.empty()) flush();
  return read() || is_over();
}

std::optional<RingPair::Received> DirectConnection::receive() {
  look();
  if (bad_) throw Error(ErrorCode::kProtocol, "a direct connection has " + *bad_);
  return std::exchange(ready_, std::nullopt);
}

pollfd DirectConnection::poll_item() const {
  return {socket_.get(), static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
}

}  // namespace pushpull
