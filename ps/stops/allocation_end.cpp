#include "ps/stops/allocation_end.h"

#include <array>
#include <cstdlib>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "ps/stops/program_output.h"

namespace pushpull {

namespace {

constexpr int64_t kSlurmMs = 20'000;
constexpr int64_t kMaxSeconds = int64_t{100} * 366 * 86'400;
constexpr const char* kWayOut = "; give the time with --stop-at, or leave --stop-before out";

[[noreturn]] void no_end(const std::string& why) {
  throw Error(ErrorCode::kUsage, "[stop] --stop-before: " + why + kWayOut);
}

// Returns a number of one to four digits.
std::optional<int64_t> small_number(std::string_view text) {
  constexpr size_t kMaxDigits = 4;
  if (text.empty() || text.size() > kMaxDigits) return std::nullopt;
  const std::optional<int64_t> value = parse_int64(text);
  return value && *value >= 0 ? value : std::nullopt;
}

}  // namespace

std::optional<int64_t> parse_time_left(std::string_view text) {
  constexpr std::array<int64_t, 3> kUnits{1, 60, 3600};  // from the right
  constexpr int64_t kDay = 86'400;
  int64_t seconds = 0;
  const size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    const std::optional<int64_t> days = small_number(text.substr(0, dash));
    if (!days) return std::nullopt;
    seconds = *days * kDay;
    text = text.substr(dash + 1);
  }
  size_t parts = 0;
  for (bool more = true; more; ++parts) {
    const size_t colon = text.rfind(':');
    more = colon != std::string_view::npos;
    const std::optional<int64_t> value = small_number(more ? text.substr(colon + 1) : text);
    if (!value || parts == kUnits.size()) return std::nullopt;
    seconds += *value * kUnits[parts];
    text = more ? text.substr(0, colon) : text;
  }
  if (parts < 2 || (dash != std::string_view::npos && parts < kUnits.size())) return std::nullopt;
  return seconds;
}

int64_t allocation_end(const AllocationSource& source) {
  if (const auto end = source.variable("SLURM_JOB_END_TIME")) {
    const std::optional<int64_t> seconds = parse_int64(*end);
    if (seconds && *seconds > 0 && *seconds < kMaxSeconds) return *seconds * 1000;
    no_end("SLURM_JOB_END_TIME is '" + printable(*end) + "': must be the seconds since 1970");
  }
  const std::optional<std::string> job = source.variable("SLURM_JOB_ID");
  if (!job) {
    no_end("this is no allocation of Slurm: neither SLURM_JOB_ID nor SLURM_JOB_END_TIME is set");
  }
  if (!parse_uint64(*job)) no_end("SLURM_JOB_ID is '" + printable(*job) + "': must be a number");
  std::string why;
  const std::optional<std::string> answer =
      source.run({"squeue", "--noheader", "--format=%L", "--jobs=" + *job}, why);
  if (!answer) no_end("the end of Slurm's job " + *job + " is unknown: " + why);
  const std::string_view left = trim(std::string_view(*answer).substr(0, answer->find('\n')));
  const std::optional<int64_t> seconds = parse_time_left(left);
  if (!seconds) {
    no_end("squeue says '" + printable(left) + "' for the time left of job " + *job +
           ": it has no end");
  }
  return source.now_utc_ms + *seconds * 1000;
}

AllocationSource this_allocation() {
  AllocationSource source;
  source.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): no setenv
    if (value == nullptr) return std::nullopt;
    return value;
  };
  source.run = [](const std::vector<std::string>& words, std::string& why) {
    return output_of(words, kSlurmMs, why);
  };
  source.now_utc_ms = utc_ms();
  return source;
}

}  // namespace pushpull
