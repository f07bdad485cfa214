// libFuzzer's entry to the parser of key files: build/fuzz/tests/key_text_fuzz
// tests/fuzz/corpus/key_text.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/common/net/key_text_check.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::check_key_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
