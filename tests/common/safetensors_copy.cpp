// Copies a safetensors file: safetensors_copy IN OUT. safetensors_python_test.py checks both files
// with independent readers.
#include <cstdio>
#include <exception>
#include <vector>

#include "common/io/safetensors.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const pushpull::SafetensorsFile file = pushpull::read_safetensors(argv[1]);
    std::vector<pushpull::NamedTensor> tensors;
    for (const auto& [name, entry] : file.tensors) {
      tensors.push_back(
          {name, entry.shape, std::span(file.data).subspan(entry.first, entry.count)});
    }
    pushpull::write_safetensors(argv[2], tensors, file.metadata);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
