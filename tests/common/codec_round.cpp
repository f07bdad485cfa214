// Encodes and decodes floats, for codec_torch_test.py to compare with PyTorch: codec_round CODEC.
// Reads raw floats from stdin and writes the decoded ones to stdout.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "common/update/block_codec.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const pushpull::Codec codec = pushpull::Codec::parse(argv[1]);
  float x = 0.0F;
  while (std::cin.read(reinterpret_cast<char*>(&x), sizeof x)) {
    std::vector<std::byte> bytes(pushpull::encoded_block_bytes(codec, 1));
    pushpull::encode_block(codec, &x, 1, bytes.data());
    pushpull::decode_block(codec, bytes.data(), 1, &x);
    std::cout.write(reinterpret_cast<const char*>(&x), sizeof x);
  }
  return 0;
}
