// libFuzzer's entry to the job parser: the text is refused, or a job that does not change when it
// is written and parsed again.
#include <cstddef>
#include <cstdint>

#include "common/job/job.h"
#include "tests/fuzz/fuzzed.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull;
  may_refuse(ErrorCode::kUsage, [&] {
    const Job job = parse_job_text(text_of(data, size), "fuzzed.ini");
    require(parse_job_text(to_ini(job), "again.ini") == job, "another job after a second reading");
  });
  return 0;
}
