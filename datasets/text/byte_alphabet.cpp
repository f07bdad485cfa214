#include "datasets/text/byte_alphabet.h"

#include <algorithm>

#include "datasets/text/utf8.h"

namespace pushpull {
namespace {

constexpr uint32_t kLastCharacter = 0x100 + 67;  // 68 bytes are not printable

// The character of each byte and the byte of each character; -1 where there is none.
struct Alphabet {
  std::array<uint32_t, 256> characters{};
  std::array<int, kLastCharacter + 1> bytes{};
  std::array<uint8_t, 256> order{};

  Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      characters[byte] = printable ? byte : next++;
      bytes[characters[byte]] = static_cast<int>(byte);
      order[byte] = static_cast<uint8_t>(byte);
    }
    std::sort(order.begin(), order.end(),
              [this](uint8_t a, uint8_t b) { return characters[a] < characters[b]; });
  }
};

const Alphabet& alphabet() {
  static const Alphabet made;
  return made;
}

}  // namespace

const std::array<uint8_t, 256>& bytes_in_order() { return alphabet().order; }

std::string to_alphabet(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) {
    append_utf8(out, alphabet().characters[static_cast<unsigned char>(byte)]);
  }
  return out;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint code = first_code_point(text);
    const int byte =
        code.bytes == 0 || code.value > kLastCharacter ? -1 : alphabet().bytes[code.value];
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    text.remove_prefix(code.bytes);
  }
  return out;
}

}  // namespace pushpull
