// libFuzzer's entry to the parser of run records. If the first byte of an input is 0, the rest is a
// whole file. Otherwise the rest is a body, which gets a valid frame: magic, version, length and
// checksum.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/io/record.h"
#include "common/io/sha256.h"
#include "tests/fuzz/fuzzed.h"

namespace {

constexpr uint64_t kVersion = 1;

void append_number(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

std::string framed(const std::string& body) {
  std::string file = "pushpull-record\n";
  append_number(file, kVersion, 4);
  append_number(file, body.size(), 8);
  file += body;
  pushpull::Sha256 sum;
  sum.update(std::as_bytes(std::span(file)));
  const auto digest = sum.digest();
  return file.append(reinterpret_cast<const char*>(digest.data()), digest.size());
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull;
  if (size == 0) return 0;
  const std::string text = text_of(data + 1, size - 1);
  may_refuse(ErrorCode::kData, [&] {
    const RunRecord record = decode_record(data[0] == 0 ? text : framed(text), "fuzzed");
    require(decode_record(encode_record(record), "again") == record,
            "another record after a second reading");
  });
  return 0;
}
