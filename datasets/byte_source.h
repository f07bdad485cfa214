// Bytes of a stream, plain or inflated (zlib, RFC 1952), as many as are asked for at a time. One
// thread per object.
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

  // Fills `out` from the front; fewer bytes than asked for mean the end of the data.
  // Throws Error(kData) where the stream cannot be read or its gzip data is damaged.
  virtual size_t read(std::span<uint8_t> out) = 0;
};

// `in` and `name` (for messages) must outlive the source.
std::unique_ptr<ByteSource> plain_source(std::istream& in, const std::string& name);
std::unique_ptr<ByteSource> gzip_source(std::istream& in, const std::string& name);

}  // namespace pushpull
