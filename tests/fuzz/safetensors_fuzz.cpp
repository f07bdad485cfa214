// libFuzzer's entry to the safetensors parser, for files of floats and of integers. The files are in
// memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/io/safetensors.h"
#include "tests/fuzz/fuzzed.h"

namespace pushpull {
namespace {

template <class T>
void check_tensors(const TensorFile<T>& read) {
  size_t elements = 0;
  for (const auto& [name, entry] : read.tensors) {
    uint64_t count = 1;
    for (const int64_t dim : entry.shape) count *= static_cast<uint64_t>(dim);
    require(count == entry.count, "other values than dimensions");
    require(entry.first + entry.count <= read.data.size(), "a tensor beyond the data");
    elements += entry.count;
  }
  require(elements == read.data.size(), "data of no tensor");
}

}  // namespace
}  // namespace pushpull

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull;
  static const int file = memfd_create("fuzzed", MFD_CLOEXEC);
  require(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == static_cast<ssize_t>(size),
          "no memory for a file");
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  may_refuse(ErrorCode::kData, [&] { check_tensors(read_safetensors(path)); });
  may_refuse(ErrorCode::kData, [&] { check_tensors(read_int_tensors(path)); });
  return 0;
}
