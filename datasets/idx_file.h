// Reads one IDX file, the format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, a
// type byte, the rank, big-endian 32-bit dimensions, then the values in C order. Unsigned bytes
// only. The header is not trusted: memory grows with the bytes actually read, never with the sizes
// that it states. Thread-safe.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace pushpull {

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
