// libFuzzer's entry to the parser of tokenizer.json. A file that is read is written, read again and
// used for a text.
#include <cstddef>
#include <cstdint>

#include "datasets/tokenizer_json.h"
#include "tests/fuzz/fuzzed.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull;
  may_refuse(ErrorCode::kData, [&] {
    const auto tokenizer = tokenizer_from_json(text_of(data, size), "fuzzed");
    require(tokenizer->size() > 0, "an empty vocabulary");
    const std::string json = tokenizer->to_json();
    require(tokenizer_from_json(json, "copy")->to_json() == json, "another file when read again");
    std::vector<int32_t> ids;
    tokenizer->try_encode("the cat's 12 caf\xc3\xa9  \n<|endoftext|>", ids);
    for (const int32_t id : ids) require(id >= 0 && id < tokenizer->size(), "an id out of range");
    tokenizer->decode(ids);
  });
  return 0;
}
