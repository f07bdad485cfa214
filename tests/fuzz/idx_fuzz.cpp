// libFuzzer's entry to the IDX parser. If the first byte of an input is 'z', the rest is
// compressed.
#include <cstddef>
#include <cstdint>
#include <sstream>

#include "datasets/idx_file.h"
#include "tests/fuzz/fuzzed.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull;
  if (size == 0) return 0;
  may_refuse(ErrorCode::kData, [&] {
    std::istringstream in(text_of(data + 1, size - 1));
    const IdxArray array = parse_idx(in, size - 1, data[0] == 'z', "fuzzed");
    uint64_t values = 1;
    for (const int64_t dim : array.dims) {
      require(dim > 0, "a dimension without values");
      values *= static_cast<uint64_t>(dim);
    }
    require(!array.dims.empty() && array.data.size() == values, "other values than dimensions");
  });
  return 0;
}
