// A destination of the figures of a running job: a file, or another program. Used by the
// coordinator's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/base/background_writer.h"
#include "common/base/unique_fd.h"
#include "ps/status/run_figures.h"

namespace pushpull {

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

}  // namespace pushpull
