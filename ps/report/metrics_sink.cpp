#include "ps/report/metrics_sink.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <boost/crc.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/base/parse_json.h"
#include "common/base/process.h"
#include "common/base/unique_fd.h"
#include "ps/report/event.pb.h"

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
  write(json_text(figures_json(moment, Figure::kMetrics)) + "\n");
}

namespace {

constexpr uint32_t kMaskDelta = 0xa282ead8U;

template <typename Number>
std::string little_endian(Number number) {
  std::string out;
  for (size_t byte = 0; byte < sizeof(number); ++byte) {
    out += static_cast<char>((number >> (8U * byte)) & 0xffU);
  }
  return out;
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  // RFC 3720, appendix B.4
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return std::rotr(static_cast<uint32_t>(crc.checksum()), 15) + kMaskDelta;
}

std::string event_record(std::string_view data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  std::string out = length + little_endian(masked_crc32c(length));
  out += data;
  return out + little_endian(masked_crc32c(data));
}

namespace {

// TensorBoard finds files by "tfevents" in their names, and reads those of a folder in that order.
std::string file_name() {
  return "events.out.tfevents." + std::to_string(utc_ms() / 1000) + "." + host_name() + "." +
         std::to_string(getpid()) + ".0";
}

UniqueFd create_file(const std::string& dir, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) {
    errno = error.value();
    return {};
  }
  return UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
}

void add(events::Summary& summary, const std::string& tag, std::optional<double> value) {
  if (!value) return;
  events::Summary::Value* out = summary.add_value();
  out->set_tag(tag);
  out->set_simple_value(static_cast<float>(*value));
}

// Names of metrics may have spaces, tags had better not.
std::string tag_of(Metric metric) {
  std::string name = to_string(metric);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

void add_heads(const std::vector<HeadResult>& heads, events::Summary& summary) {
  for (const HeadResult& head : heads) {
    const std::string prefix = "test/" + (heads.size() > 1 ? head.info.name + "/" : std::string());
    add(summary, prefix + "loss", head.loss());
    add(summary, prefix + tag_of(head.info.metric), head.value());
  }
}

}  // namespace

TensorBoard::TensorBoard(const std::string& dir)
    : TensorBoard(dir, std::filesystem::path(dir) / file_name()) {}

TensorBoard::TensorBoard(const std::string& dir, const std::string& path)
    : FileSink(std::make_unique<BackgroundWriter>([dir, path] { return create_file(dir, path); }),
               path) {}

void TensorBoard::begin(int64_t step) {
  if (!opened_) {
    events::Event version;
    version.set_file_version("brain.Event:2");
    write_event(version);
  }
  opened_ = true;
  events::Event start;
  start.set_step(step);
  start.mutable_session_log()->set_status(events::SessionLog::START);
  write_event(start);
}

void TensorBoard::moment(const RunFigures& m) {
  events::Event event;
  event.set_step(m.step.value_or(0));
  events::Summary& summary = *event.mutable_summary();
  for (const Figure* row : shown_figures(m, Figure::kTensorBoard)) {
    const Figure::Value value = row->value(m);
    if (!value.is_null()) add(summary, row->shown.tensor_board, value.get<double>());
  }
  for (const auto& [name, mean] : m.logged) add(summary, "logged/" + name, mean);
  add_tasks(m.totals, summary);
  add_staleness(m.staleness, summary);
  write_event(event);
  if (!m.evaluation) return;
  events::Event test;
  test.set_step(m.evaluation->step);
  add_heads(m.evaluation->heads, *test.mutable_summary());
  write_event(test);
}

// A mean task since the previous moment. Workers report once a heartbeat: not every moment has one.
void TensorBoard::add_tasks(const RunTotals& totals, events::Summary& summary) {
  const int64_t tasks = totals.tasks - totals_.tasks;
  const auto mean_ms = [&](double now, double before) {
    return 1e3 * std::max(0.0, now - before) / static_cast<double>(tasks);
  };
  if (tasks > 0) {
    add(summary, "task_ms/compute", mean_ms(totals.split.compute, totals_.split.compute));
    add(summary, "task_ms/push", mean_ms(totals.split.push, totals_.split.push));
    add(summary, "task_ms/wait", mean_ms(totals.split.wait, totals_.split.wait));
    add(summary, "task_ms/pull", mean_ms(totals.split.pull, totals_.split.pull));
  }
  if (tasks != 0) totals_ = totals;
}

// The updates since the previous moment. Each staleness has a bucket around it.
void TensorBoard::add_staleness(const std::map<int64_t, int64_t>& staleness,
                                events::Summary& summary) {
  events::Histogram histogram;
  double edge = -HUGE_VAL;
  for (const auto& [value, times] : staleness) {
    const auto before = staleness_.find(value);
    const auto updates =
        static_cast<double>(times - (before == staleness_.end() ? 0 : before->second));
    if (updates <= 0) continue;
    const auto v = static_cast<double>(value);
    if (histogram.num() == 0) {
      histogram.set_min(v);
    } else if (edge < v - 0.5) {
      histogram.add_bucket_limit(v - 0.5);
      histogram.add_bucket(0);
    }
    edge = v + 0.5;
    histogram.add_bucket_limit(edge);
    histogram.add_bucket(updates);
    histogram.set_max(v);
    histogram.set_num(histogram.num() + updates);
    histogram.set_sum(histogram.sum() + v * updates);
    histogram.set_sum_squares(histogram.sum_squares() + v * v * updates);
  }
  staleness_ = staleness;
  if (histogram.num() == 0) return;
  events::Summary::Value* out = summary.add_value();
  out->set_tag("staleness/updates");
  *out->mutable_histo() = std::move(histogram);
}

void TensorBoard::write_event(events::Event& event) {
  event.set_wall_time(static_cast<double>(utc_ms()) / 1000.0);
  write(event_record(event.SerializeAsString()));
}

}  // namespace pushpull
