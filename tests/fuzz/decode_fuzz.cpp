// libFuzzer's entry to the decoder of network messages, the first code that a peer reaches:
// build/fuzz/tests/decode_fuzz [CORPUS]. An input is a sequence of frames, each after its length in
// two bytes, so that one mutation can move the end of a frame.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/common/net/decode_check.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<zmq::message_t> frames;
  while (size >= 2) {
    const size_t length = std::min(size - 2, static_cast<size_t>(data[0] << 8 | data[1]));
    frames.emplace_back(data + 2, length);
    data += 2 + length;
    size -= 2 + length;
  }
  pushpull::check_decoding(std::move(frames));
  return 0;
}
