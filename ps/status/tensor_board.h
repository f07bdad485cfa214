// An event file for TensorBoard (--tensorboard DIR). It is created on the writing thread, with the first event: a folder
// that cannot be used costs one line. Used by the coordinator's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "ps/record/run_totals.h"
#include "ps/status/metrics_sink.h"

namespace pushpull {

// Records of TensorBoard's event files. Source: TFRecord, tensorflow/core/lib/io/record_writer.cc:
//   length (8 bytes), masked CRC-32C of the length (4), data, masked CRC-32C of the data (4);
// little-endian. Plain functions; any thread.

// Returns CRC-32C (Castagnoli) in the form that TFRecord stores: rotated, plus a constant, so that a
// checksum of data that contain checksums stays meaningful.
uint32_t masked_crc32c(std::string_view bytes);

// Returns the record that holds `data`.
std::string event_record(std::string_view data);

namespace events {
class Event;
class Summary;
}  // namespace events

class TensorBoard : public FileSink {
 public:
  explicit TensorBoard(const std::string& dir);

  void begin(int64_t step) override;
  void moment(const RunFigures& moment) override;

 private:
  TensorBoard(const std::string& dir, const std::string& path);
  void add_tasks(const RunTotals& totals, events::Summary& summary);
  void add_staleness(const std::map<int64_t, int64_t>& staleness, events::Summary& summary);
  void write_event(events::Event& event);

  bool opened_ = false;
  // of the previous moment
  RunTotals totals_;
  std::map<int64_t, int64_t> staleness_;
};

}  // namespace pushpull
