#include "ps/watch/event_record.h"

#include <bit>
#include <boost/crc.hpp>

namespace pushpull {

namespace {

constexpr uint32_t kMaskDelta = 0xa282ead8U;

template <typename Number>
std::string little_endian(Number number) {
  std::string out;
  for (size_t byte = 0; byte < sizeof(number); ++byte) {
    out += static_cast<char>((number >> (8U * byte)) & 0xffU);
  }
  return out;
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  // RFC 3720, appendix B.4
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<uint32_t>(crc.checksum()), 15) + kMaskDelta;
}

std::string event_record(std::string_view data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  std::string out = length + little_endian(masked_crc32c(length));
  out += data;
  return out + little_endian(masked_crc32c(data));
}

}  // namespace pushpull
