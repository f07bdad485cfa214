// What on this host can get into a job's way: its clock, limits of files, memory that processes
// share, the disk of the output folder. Plain functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "cli/doctor/finding.h"

namespace pushpull {

// Difference of two clocks, known to half of the time that the question took.
Finding check_clock(int64_t theirs_ms, int64_t ours_ms, double round_trip_ms);
// soft, hard: limits of open files. needed: by this job's largest process.
Finding check_files(int64_t soft, int64_t hard, int64_t needed);
Finding check_files_here(int64_t needed);
// Space of /dev/shm.
Finding check_shm(int64_t bytes, int64_t free_bytes);
Finding check_shm_here();
// Space and speed of the disk under `folder`.
Finding check_disk(const std::string& folder, int64_t free_bytes, double bytes_per_second);
// Writes some MiB there, under a name of its own, and removes them. Waits some seconds at most.
Finding check_disk_here(const std::string& folder);

}  // namespace pushpull
