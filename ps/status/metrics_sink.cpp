#include "ps/status/metrics_sink.h"

#include <cstring>
#include <nlohmann/json.hpp>

namespace pushpull {

void FileSink::write(std::string text) {
  if (!writer_->write(std::move(text))) lost_ = true;
}

void FileSink::flush(int64_t max_ms) {
  if (!writer_->flush(max_ms)) lost_ = true;
}

std::string FileSink::take_warning() {
  if (!lost_ || std::exchange(warned_, true)) return "";
  const int error = writer_->error();
  return "[out] cannot write " + path_ + ": " +
         (error != 0 ? std::strerror(error) : "the file system does not answer") +
         "; training goes on, lines of metrics are lost";
}

void MetricsLines::moment(const RunFigures& moment) {
  write(figures_json(moment, Figure::kMetrics).dump() + "\n");
}

}  // namespace pushpull
