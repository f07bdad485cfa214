// The destinations of the figures of a running job: metrics.jsonl, event files for TensorBoard, and
// the text that Prometheus reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/background_writer.h"
#include "common/base/unique_fd.h"
#include "ps/report/member_document.h"
#include "ps/report/run_figures.h"
#include "ps/report/run_totals.h"

namespace pushpull {

// A destination of the figures of a running job: a file, or another program. Used by the
// coordinator's thread.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;

  // Notes that training starts at this step, for the first time or once more after a lost server.
  // Does not block.
  virtual void begin(int64_t step) = 0;
  // Passes on a moment. Does not block. If it cannot be passed on, it is lost.
  virtual void moment(const RunFigures& moment) = 0;
  // Waits at most this long until all moments are passed on. Any thread.
  virtual void flush(int64_t max_ms) = 0;
  // Returns a line, once, if moments are lost; "" otherwise.
  virtual std::string take_warning() = 0;
};

// A sink that appends to a file on a thread of its own: a disk that is full or hangs costs metrics
// and one line. Base class of the sinks that write files. Used by the coordinator's thread.
class FileSink : public MetricsSink {
 public:
  void flush(int64_t max_ms) override;
  std::string take_warning() override;

 protected:
  //   path: for messages.
  FileSink(std::unique_ptr<BackgroundWriter> writer, std::string path)
      : writer_(std::move(writer)), path_(std::move(path)) {}

  void write(std::string text);

 private:
  std::unique_ptr<BackgroundWriter> writer_;
  const std::string path_;
  std::atomic<bool> lost_ = false;
  bool warned_ = false;
};

// metrics.jsonl: one JSON object per moment (docs/output.md). Used by the coordinator's thread.
class MetricsLines : public FileSink {
 public:
  //   file: opened for appending. path: for messages.
  MetricsLines(UniqueFd file, const std::string& path)
      : FileSink(std::make_unique<BackgroundWriter>(file.get()), path) {}

  void begin(int64_t /*step*/) override {}
  void moment(const RunFigures& moment) override;
};

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

// An event file for TensorBoard (--tensorboard DIR). It is created on the writing thread, with the first event: a folder
// that cannot be used costs one line. Used by the coordinator's thread.
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

// The figures of a job in Prometheus' text format, version 0.0.4 (docs/watching.md). Plain function;
// any thread.
std::string prometheus_text(const MembersView& view, const RunFigures& figures);

}  // namespace pushpull
