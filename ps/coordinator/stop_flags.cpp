#include "ps/coordinator/stop_flags.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <ctime>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"

namespace pushpull {

namespace {

constexpr int64_t kMaxUtcSeconds = 253'402'300'799;  // the end of the year 9999
constexpr double kMinGraceSeconds = 1.0;

// Signals that nothing else in these programs uses. A shell and schedulers can send all of them.
constexpr std::array kCheckpointSignals = {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF,
                                           SIGURG,  SIGIO,   SIGPWR,  SIGWINCH,  SIGXCPU};

[[noreturn]] void refuse_signal(const std::string& text, const std::string& why) {
  throw Error(ErrorCode::kUsage, "[usage] --checkpoint-signal " + printable(text) + ": " + why +
                                     "; USR1, USR2, a real-time signal's number or none is usual");
}

int number_of(const std::string& text) {
  if (const std::optional<int64_t> number = parse_int64(text)) {
    return *number > 0 && *number < NSIG ? static_cast<int>(*number) : 0;
  }
  const std::string name = text.starts_with("SIG") ? text : "SIG" + text;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal_name(signal) == name) return signal;
  }
  return 0;
}

std::string utc_text(int64_t utc_ms) {
  const std::time_t seconds = utc_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

int64_t ms_of(double seconds) { return std::llround(seconds * 1000.0); }

}  // namespace

std::vector<KeyHelp> with_stop_flags(std::vector<KeyHelp> flags) {
  const std::vector<KeyHelp> stops = {
      {"checkpoint-signal", "USR1",
       "signal that writes a checkpoint while training goes on: a name or number, or none"},
      {"grace", "25",
       "seconds from SIGTERM to the end; after them the job ends with its newest checkpoint"},
      {"stop-before", "",
       "stop this many seconds before the end of the allocation (Slurm), with a checkpoint"},
      {"stop-at", "",
       "stop at this time, with a checkpoint: 2026-01-31T23:59:59Z, or seconds since 1970"},
  };
  flags.insert(flags.end(), stops.begin(), stops.end());
  return flags;
}

int parse_checkpoint_signal(const std::string& text) {
  if (text == "none") return 0;
  const int signal = number_of(text);
  if (signal == 0) refuse_signal(text, "is no signal");
  const bool realtime = signal >= SIGRTMIN && signal <= SIGRTMAX;
  if (realtime || std::ranges::find(kCheckpointSignals, signal) != kCheckpointSignals.end()) {
    return signal;
  }
  refuse_signal(text, signal_name(signal) + " has another meaning");
}

std::optional<int64_t> parse_utc_ms(std::string_view text) {
  if (const std::optional<int64_t> seconds = parse_int64(text)) {
    const bool fits = *seconds >= 0 && *seconds <= kMaxUtcSeconds;
    return fits ? std::optional(*seconds * 1000) : std::nullopt;
  }
  const std::string copy(text);
  for (const char* format : {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%MZ"}) {
    std::tm parts{};
    const char* end = strptime(copy.c_str(), format, &parts);
    if (end == nullptr || *end != '\0') continue;
    const std::tm read = parts;
    const std::time_t seconds = timegm(&parts);  // changes the 31st of June to the 1st of July
    if (seconds < 0 || parts.tm_mday != read.tm_mday || parts.tm_sec != read.tm_sec) continue;
    return int64_t{seconds} * 1000;
  }
  return std::nullopt;
}

StopOptions stop_options(const CommandLine& line) {
  StopOptions options;
  options.checkpoint_signal = parse_checkpoint_signal(line.own("checkpoint-signal", "USR1"));
  const double grace = seconds_of(line, "grace", static_cast<double>(options.grace_ms) / 1000.0);
  if (grace < kMinGraceSeconds) {
    throw Error(ErrorCode::kUsage,
                "[usage] --grace " + line.own("grace", "") + ": must be at least 1 second");
  }
  options.grace_ms = ms_of(grace);
  if (!line.local.contains("stop-at")) {
    options.stop_before_ms = ms_of(seconds_of(line, "stop-before", 0.0));
    return options;
  }
  if (line.local.contains("stop-before")) {
    throw Error(ErrorCode::kUsage, "[usage] --stop-before and --stop-at: give one of them");
  }
  const std::string text = line.local.at("stop-at");
  const std::optional<int64_t> time = parse_utc_ms(text);
  if (!time) {
    throw Error(ErrorCode::kUsage, "[usage] --stop-at " + printable(text) +
                                       ": must be a time in UTC, as 2026-01-31T23:59:59Z, or "
                                       "seconds since 1970");
  }
  options.stop_at_utc_ms = *time;
  options.stop_reason = "--stop-at " + utc_text(*time) + " has come";
  return options;
}

StopOptions with_limit(StopOptions options, const CommandLine& line, const AllocationSource& source,
                       const std::function<bool()>& unfinished) {
  std::string why = "[stop] --stop-at " + line.own("stop-at", "") + ": this time has passed";
  if (options.stop_before_ms > 0) {
    const int64_t end = allocation_end(source);
    options.stop_at_utc_ms = end - options.stop_before_ms;
    options.stop_reason = "the allocation ends at " + utc_text(end) + ", in " +
                          print_real(static_cast<double>(options.stop_before_ms) / 1000.0) + " s";
    why = "[stop] --stop-before " + line.own("stop-before", "") + ": the allocation ends in " +
          std::to_string((end - source.now_utc_ms) / 1000) +
          " s, so nothing can be trained; ask for more time, or lower --stop-before";
  }
  const bool passed = options.stop_at_utc_ms <= source.now_utc_ms;
  if (passed && !unfinished()) throw Error(ErrorCode::kUsage, why);
  return options;
}

}  // namespace pushpull
