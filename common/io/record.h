// The record of a run: the updates that each server applied, in order, and the weights that each
// push was computed on. `pushpull replay` recomputes the run from it. Any thread.
//
// File: "pushpull-record\n", format version (u32), length of the body (u64), body
// (common/io/record.proto), SHA-256 of everything before it in hexadecimal. Numbers are
// little-endian.
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
  Range range;  // micro-batches
  // Number of updates in the weights that were read, per server; with stages, of all servers for each stage, and -1 for
  // a server of which the stage has read nothing.
  std::vector<int64_t> reads;

  // clang-tidy 14 takes the zero in the compiler's own comparison for a null pointer
  friend auto operator<=>(const RecordedPush&,
                          const RecordedPush&) = default;  // NOLINT(modernize-use-nullptr)
};

// One push applied by one server: an update of the weights, or a part of one.
struct RecordedUpdate {
  int server = 0;
  size_t push = 0;             // index in RunRecord::pushes
  bool uncompensated = false;  // the base for delay compensation had already been dropped
  bool more = false;           // the next push at this server is part of the same update

  friend bool operator==(const RecordedUpdate&, const RecordedUpdate&) = default;
};

enum class StartKind { kInitRules, kInitFrom, kResumed };

struct RecordedStart {
  StartKind kind = StartKind::kInitRules;
  int64_t step = 0;
  int64_t updates = 0;  // already applied by each server
  std::string weights_sha256;
  std::string state_sha256;  // of the optimizer's state vectors; "" if all are zero

  friend bool operator==(const RecordedStart&, const RecordedStart&) = default;
};

struct RunRecord {
  std::string job_ini;
  std::string numerics;
  std::string choices;  // GPU workers' choice of algorithms; "" if there are none
  std::string data_digest;
  std::string table_sha256;
  int servers = 1;
  int stages = 1;           // of a group of workers
  int64_t total_steps = 0;  // horizon of the schedule
  RecordedStart start;
  std::string weights_sha256;          // after the last update; "" if the run ended earlier
  std::string incomplete;              // why the record is incomplete; "" if it is complete
  std::optional<RecordedPush> failed;  // the push with a loss or gradient that was not finite
  std::vector<RecordedPush> pushes;
  std::vector<RecordedUpdate> updates;  // each one after all updates that its push had read

  friend bool operator==(const RunRecord&, const RunRecord&) = default;
};

// Writes under a temporary name and renames, so that the file is complete or absent. Throws
// Error(kIo) naming it.
void write_record(const std::string& path, const RunRecord& record);

// Throws Error(kData) "[record] PATH: REASON". Allocates at most a small multiple of the
// file's size.
RunRecord read_record(const std::string& path);

// Convert between a record and the bytes of its file. decode_record throws as read_record does.
//   name: of the file, for messages.
std::string encode_record(const RunRecord& record);
RunRecord decode_record(const std::string& bytes, const std::string& name);

}  // namespace pushpull
