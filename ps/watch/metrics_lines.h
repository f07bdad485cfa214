// metrics.jsonl: one JSON object per moment (docs/output.md). Used by the coordinator's thread.
#pragma once

#include <string>

#include "common/base/unique_fd.h"
#include "ps/watch/file_sink.h"

namespace pushpull {

class MetricsLines : public FileSink {
 public:
  //   file: opened for appending. path: for messages.
  MetricsLines(UniqueFd file, const std::string& path)
      : FileSink(std::make_unique<BackgroundWriter>(file.get()), path) {}

  void begin(int64_t /*step*/) override {}
  void moment(const Moment& moment) override;
};

}  // namespace pushpull
