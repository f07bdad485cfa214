#include <gtest/gtest.h>

#include <string>

#include "ps/status/tensor_board.h"

namespace pushpull {
namespace {

// Undoes the rotation and the constant of TFRecord.
uint32_t crc_of(std::string_view bytes) {
  const uint32_t masked = masked_crc32c(bytes) - 0xa282ead8U;
  return masked >> 17U | masked << 15U;
}

// The examples of RFC 3720, B.4, and the check value of the algorithm.
TEST(EventRecord, ChecksumIsThatOfTheExamples) {
  EXPECT_EQ(crc_of("123456789"), 0xe3069283U);
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62a8ab43U);
  std::string up;
  for (char c = 0; c < 32; ++c) up += c;
  EXPECT_EQ(crc_of(up), 0x46dd794eU);
}

TEST(EventRecord, LengthAndChecksumsSurroundTheData) {
  const std::string data = "abc";
  const std::string record = event_record(data);
  ASSERT_EQ(record.size(), 8U + 4U + 3U + 4U);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  const auto number_at = [&](size_t at) {
    uint32_t out = 0;
    for (size_t i = 4; i-- > 0;) out = out << 8U | static_cast<unsigned char>(record[at + i]);
    return out;
  };
  EXPECT_EQ(number_at(8), masked_crc32c(record.substr(0, 8)));
  EXPECT_EQ(record.substr(12, 3), data);
  EXPECT_EQ(number_at(15), masked_crc32c(data));
}

TEST(EventRecord, HoldsNoDataToo) { EXPECT_EQ(event_record("").size(), 16U); }

}  // namespace
}  // namespace pushpull
