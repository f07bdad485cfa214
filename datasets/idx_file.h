// Reads one IDX file, the format of MNIST (http://yann.lecun.com/exdb/mnist): two zero bytes, a
// type byte, the rank, big-endian 32-bit dimensions, then the values in C order. Only unsigned
// bytes. Nothing in the file is trusted: memory follows the bytes that are really there, never a
// header's promise. Any thread.
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

// "60000x28x28", for messages.
std::string dims_text(const std::vector<int64_t>& dims);

// Reads `path`, through gzip where the name ends with .gz. Throws Error(kData) naming it, what was
// expected, what was seen and the way out.
IdxArray read_idx(const std::string& path);

// The same from an open stream that holds file_bytes bytes; `name` is for messages.
IdxArray parse_idx(std::istream& in, uint64_t file_bytes, bool gzip, const std::string& name);

}  // namespace pushpull
