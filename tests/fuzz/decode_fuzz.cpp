// libFuzzer's entry to the decoder of network messages, the first code that a peer reaches:
// build/fuzz/tests/decode_fuzz [CORPUS]. An input is a sequence of frames, each after its length in
// two bytes, so that one mutation can move the end of a frame. Version 0 stands for the present one, so that
// inputs pass that check after each change of the protocol.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/net/frames.h"
#include "tests/common/net/decode_check.h"

namespace {

void set_version(zmq::message_t& frame) {
  constexpr std::array<char, 8> kVersion0 = {'P', 'U', 'S', 'H', 'P', 'L', 0, 0};
  if (frame.size() < kVersion0.size()) return;
  auto* const bytes = static_cast<unsigned char*>(frame.data());
  if (std::memcmp(bytes, kVersion0.data(), kVersion0.size()) != 0) return;
  bytes[6] = pushpull::kProtocolVersion >> 8;
  bytes[7] = pushpull::kProtocolVersion & 0xff;
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<zmq::message_t> frames;
  while (size >= 2) {
    const size_t length = std::min(size - 2, static_cast<size_t>(data[0] << 8 | data[1]));
    frames.emplace_back(data + 2, length);
    set_version(frames.back());
    data += 2 + length;
    size -= 2 + length;
  }
  pushpull::check_decoding(std::move(frames));
  return 0;
}
