// Reads one IDX file, the format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, a
// type byte, the rank, big-endian 32-bit dimensions, then the values in C order. Unsigned bytes
// only. The header is not trusted: memory grows with the bytes actually read, never with the sizes
// that it states. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pushpull {

// A stream of bytes, plain or decompressed from gzip (zlib, RFC 1952). Not thread-safe.
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

struct IdxArray {
  std::vector<int64_t> dims;  // 1 to 4, each at least 1
  std::vector<uint8_t> data;  // product of dims
};

// Returns "60000x28x28", for messages.
std::string dims_text(const std::vector<int64_t>& dims);

// Reads `path`, decompressing it if the name ends in .gz. Throws Error(kData) naming the file, the
// expected and the actual content, and the fix.
IdxArray read_idx(const std::string& path);

// The same from an open stream.
//   file_bytes: size of the stream.
//   name: for messages.
IdxArray parse_idx(std::istream& in, uint64_t file_bytes, bool gzip, const std::string& name);

}  // namespace pushpull
