// Checks of this host: clock, limit of open files, shared memory, disk of the output folder. Plain
// functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/finding.h"

namespace pushpull {

// Returns bytes with a unit: "1.5 GB".
std::string with_unit(double bytes);
std::string with_unit(int64_t bytes);

// Compares two clocks. The difference is accurate to half of the round trip.
Finding check_clock(int64_t theirs_ms, int64_t ours_ms, double round_trip_ms);
// soft, hard: limits of open files. needed: open files of this job's largest process.
Finding check_files(int64_t soft, int64_t hard, int64_t needed);
Finding check_files_here(int64_t needed);
// Checks the size of /dev/shm, in bytes.
Finding check_shm(int64_t bytes, int64_t free_bytes);
Finding check_shm_here();
// Checks free space (bytes) and write speed of the disk under `folder`.
Finding check_disk(const std::string& folder, int64_t free_bytes, double bytes_per_second);
// Writes 8 MiB to a temporary file in `folder` and removes it. Waits at most 10 s.
Finding check_disk_here(const std::string& folder);

}  // namespace pushpull
