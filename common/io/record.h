// The record of a run: what every server has applied, in which order, and on which weights each
// push was computed. `pushpull replay` recomputes the run from it. Any thread.
//
// File: "pushpull-record\n", format version (u32), length of the body (u64), body
// (common/io/record.proto), SHA-256 of all before it. Numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/layout/fixed_tree.h"

namespace pushpull {

struct RecordedPush {
  int rank = -1;  // of the worker
  int64_t step = 0;
  Range range;                 // micro-batches
  std::vector<int64_t> reads;  // by server: updates that it had had in the weights that were read

  // clang-tidy 14 takes the zero in the compiler's own comparison for a null pointer
  friend auto operator<=>(const RecordedPush&,
                          const RecordedPush&) = default;  // NOLINT(modernize-use-nullptr)
};

// One push at one server: an update of the weights, or a part of one.
struct RecordedUpdate {
  int server = 0;
  size_t push = 0;             // index in RunRecord::pushes
  bool uncompensated = false;  // delay compensation had no base any more
  // The next push at this server is part of the same update of the weights.
  bool more = false;

  friend bool operator==(const RecordedUpdate&, const RecordedUpdate&) = default;
};

enum class StartKind { kInitRules, kInitFrom, kResumed };

struct RecordedStart {
  StartKind kind = StartKind::kInitRules;
  int64_t step = 0;
  int64_t updates = 0;  // that each server had had
  std::string weights_sha256;
  std::string state_sha256;  // of the optimizer's state vectors; empty: zero

  friend bool operator==(const RecordedStart&, const RecordedStart&) = default;
};

struct RunRecord {
  std::string job_ini;
  std::string numerics;
  std::string choices;  // algorithms of GPU workers; "": none to choose
  std::string data_digest;
  std::string table_sha256;
  int servers = 1;
  int64_t total_steps = 0;  // the schedule's horizon
  RecordedStart start;
  std::string weights_sha256;          // after the last update; empty: the run did not get there
  std::string incomplete;              // why; empty: whole
  std::optional<RecordedPush> failed;  // its loss or gradient was not finite
  std::vector<RecordedPush> pushes;
  std::vector<RecordedUpdate> updates;  // each after all that its push has read

  friend bool operator==(const RunRecord&, const RunRecord&) = default;
};

// Writes through a temporary name, so that the file is whole or absent. Throws Error(kIo) naming
// it.
void write_record(const std::string& path, const RunRecord& record);

// Throws Error(kData): "[record] PATH: what is wrong". Allocates at most a small multiple of the
// file's size.
RunRecord read_record(const std::string& path);

// The bytes of a file, and back; `name` is for messages.
std::string encode_record(const RunRecord& record);
RunRecord decode_record(const std::string& bytes, const std::string& name);

}  // namespace pushpull
