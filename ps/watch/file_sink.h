// A sink that appends to a file on a thread of its own: a disk that is full or hangs costs metrics
// and one line. Base class of the sinks that write files. Used by the coordinator's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/base/background_writer.h"
#include "ps/watch/metrics_sink.h"

namespace pushpull {

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

}  // namespace pushpull
