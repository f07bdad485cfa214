// A stream of bytes, plain or decompressed from gzip (zlib, RFC 1952). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <span>
#include <string>

namespace pushpull {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills `out` from the front and returns the number of bytes; a smaller number than requested
  // means the end of the data. Throws Error(kData) if the stream cannot be read or its gzip data is
  // damaged.
  virtual size_t read(std::span<uint8_t> out) = 0;
};

// in, name: must outlive the source. `name` is used in messages.
std::unique_ptr<ByteSource> plain_source(std::istream& in, const std::string& name);
std::unique_ptr<ByteSource> gzip_source(std::istream& in, const std::string& name);

}  // namespace pushpull
