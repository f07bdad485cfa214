// Records of TensorBoard's event files. Source: TFRecord, tensorflow/core/lib/io/record_writer.cc:
//   length (8 bytes), masked CRC-32C of the length (4), data, masked CRC-32C of the data (4);
// little-endian. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pushpull {

// Returns CRC-32C (Castagnoli) in the form that TFRecord stores: rotated, plus a constant, so that a
// checksum of data that contain checksums stays meaningful.
uint32_t masked_crc32c(std::string_view bytes);

// Returns the record that holds `data`.
std::string event_record(std::string_view data);

}  // namespace pushpull
