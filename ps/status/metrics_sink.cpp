#include "ps/status/metrics_sink.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "common/io/json.h"

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

void MetricsLines::moment(const Moment& m) {
  nlohmann::ordered_json j;
  j["seconds"] = m.seconds;
  j["step"] = m.step;
  j["epoch"] = m.step / m.steps_per_epoch;
  j["samples"] = m.samples;
  j["samples_per_second"] = json_number(m.samples_per_second);
  j["learning_rate"] = json_number(m.learning_rate);
  j["loss"] = json_number(m.loss);
  j["staleness_mean"] = json_number(m.staleness_mean);
  j["staleness_max"] = m.staleness_max;
  if (m.evaluation) {
    j["test_step"] = m.evaluation->step;
    j["test_seconds"] = json_number(m.test_seconds);
    j["test_samples"] = m.test_samples;
    add_heads(j, m.evaluation->heads);
  }
  write(j.dump() + "\n");
}

}  // namespace pushpull
