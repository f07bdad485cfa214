// The flags of stops and of checkpoints by a signal, of the first server and of `pushpull run`. Any
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "ps/coordinator/allocation_end.h"
#include "ps/coordinator/stop_options.h"

namespace pushpull {

// The names of these flags, which `pushpull run` passes to the first server.
inline constexpr const char* kStopFlags[] = {"checkpoint-signal", "grace", "stop-before",
                                             "stop-at"};

// Returns `flags` with those of stops.
std::vector<KeyHelp> with_stop_flags(std::vector<KeyHelp> flags);

// Returns the signal that `text` names: "USR1", "SIGUSR1" or "10"; 0 for "none". Throws Error(kUsage)
// for a name or number of no signal, and for a signal that ends, stops or reports a fault of a
// process.
int parse_checkpoint_signal(const std::string& text);

// Returns the time in milliseconds since 1970, or nothing. Accepts "2026-01-31T23:59:59Z" (UTC; the
// seconds may be absent) and seconds since 1970.
std::optional<int64_t> parse_utc_ms(std::string_view text);

// Returns what the flags say. Does not ask for the allocation's end. Throws Error(kUsage).
StopOptions stop_options(const CommandLine& line);

// Adds the time at which the job stops by itself, from --stop-at or from the allocation's end. Throws
// Error(kUsage) if --stop-before finds no end, or if that time has passed.
//   unfinished: returns true if the process goes on with a run that another one has left, which then
//   stops at once.
StopOptions with_limit(StopOptions options, const CommandLine& line, const AllocationSource& source,
                       const std::function<bool()>& unfinished);

}  // namespace pushpull
