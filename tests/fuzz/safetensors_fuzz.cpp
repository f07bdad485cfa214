// libFuzzer's entry to the safetensors parser. The files are in memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/io/safetensors.h"
#include "tests/fuzz/fuzzed.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull;
  static const int file = memfd_create("fuzzed", MFD_CLOEXEC);
  require(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == static_cast<ssize_t>(size),
          "no memory for a file");
  may_refuse(ErrorCode::kData, [&] {
    const SafetensorsFile read = read_safetensors("/proc/self/fd/" + std::to_string(file));
    size_t floats = 0;
    for (const auto& [name, entry] : read.tensors) {
      uint64_t count = 1;
      for (const int64_t dim : entry.shape) count *= static_cast<uint64_t>(dim);
      require(count == entry.count, "other values than dimensions");
      require(entry.first + entry.count <= read.data.size(), "a tensor beyond the data");
      floats += entry.count;
    }
    require(floats == read.data.size(), "data of no tensor");
  });
  return 0;
}
