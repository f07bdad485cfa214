#include "ps/report/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/base/unique_fd.h"
#include "common/io/file.h"
#include "ps/report/metrics_sink.h"

namespace pushpull {

namespace {

constexpr double kPlainEverySeconds = 2.0;
constexpr int64_t kFlushMetricsMs = 5000;
// ECMA-48 EL, and the private mode DECAWM of the VT100.
constexpr char kStartOfLine[] = "\r\033[K";
constexpr char kNoWrap[] = "\033[?7l";
constexpr char kWrap[] = "\033[?7h";

Error io_error(const std::string& path) {
  return {ErrorCode::kIo, "[out] cannot write " + path + ": " + std::strerror(errno)};
}

}  // namespace

std::string summary_json(const RunFigures& figures) {
  return json_text(figures_json(figures, Figure::kSummary), 2) + "\n";
}

std::string summary_table(const RunFigures& figures, const std::string& out_dir) {
  Figure::Rows rows;
  for (const Figure* row : shown_figures(figures, Figure::kTable)) {
    std::ranges::move(row->shown.table(figures), std::back_inserter(rows));
  }
  rows.emplace_back("written to", out_dir);
  size_t width = 12;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  std::string out = "finished\n";
  if (figures.stopped_by) {
    out = "stopped at " + std::to_string(figures.end_step) + " of " +
          plural(figures.total_steps, "step") + "\n";
  }
  for (const auto& [name, value] : rows) {
    out.append("  ").append(name).append(width + 2 - name.size(), ' ').append(value).append("\n");
  }
  return out;
}

Report::Report(std::string dir, ProgressStyle style, const WatchOptions& watch)
    : dir_(std::move(dir)), style_(style), members_(members_path()) {
  std::error_code error;
  std::filesystem::create_directories(dir_, error);
  if (error) {
    throw Error(ErrorCode::kIo, "[out] cannot make the folder " + dir_ + ": " + error.message());
  }
  if (access(dir_.c_str(), W_OK | X_OK) != 0) throw io_error(dir_);
  const std::string path = metrics_path();
  if (const UniqueFd file(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
      file.get() < 0 && errno != ENOENT) {
    throw io_error(path);
  }
  if (!watch.tensorboard_dir.empty()) {
    sinks_.push_back(std::make_unique<TensorBoard>(watch.tensorboard_dir));
  }
  if (watch.metrics_listen) open_page(*watch.metrics_listen);
}

UniqueFd Report::open_files(const std::string& job_ini, bool append, const Waits& waits) const {
  std::error_code ignored;
  waits("remove", summary_path());
  std::filesystem::remove(summary_path(), ignored);
  waits("write", dir_ + "/job.ini");
  write_file(dir_ + "/job.ini", job_ini);
  const std::string path = metrics_path();
  waits("open", path);
  UniqueFd file(
      open(path.c_str(), O_WRONLY | O_CREAT | (append ? 0 : O_TRUNC) | O_APPEND | O_CLOEXEC, 0644));
  if (file.get() < 0) throw io_error(path);
  return file;
}

void Report::open_page(const Address& listen) {
  const Log log("server 0");
  try {
    page_ = std::make_unique<WatchPage>(listen);
    log.info("metrics on " + page_->url() + "/metrics, status on /status" +
             (listen.is_loopback() ? "" : "; any host that reaches this port can read them"));
  } catch (const Error& e) {
    log.warn(std::string(e.what()) + "; training goes on without /metrics and /status");
  }
}

void Report::begin(UniqueFd metrics, int64_t step) {
  if (!std::exchange(began_, true)) {
    sinks_.push_back(std::make_unique<MetricsLines>(std::move(metrics), metrics_path()));
    if (!members_before_.empty()) members(members_before_);
  }
  for (const auto& sink : sinks_) sink->begin(step);
}

Report::~Report() {
  finish_sinks(kFlushMetricsMs);
  members_.flush(kFlushMetricsMs);
  explain_members();
}

void Report::members(const std::string& json) {
  if (!began_) {
    members_before_ = json;
    return;
  }
  members_.write(json);
  explain_members();
}

void Report::explain_members() {
  const int error = members_.error();
  if (members_explained_ || error == 0) return;
  members_explained_ = true;
  end_line();
  Log("server 0")
      .warn("[out] cannot write " + members_path() + ": " + std::strerror(error) +
            "; training goes on, the file is out of date");
}

void Report::end_line() {
  if (!line_open_) return;
  print(STDOUT_FILENO, "\n");
  line_open_ = false;
}

void Report::progress(const RunFigures& m) {
  const bool terminal = style_ == ProgressStyle::kTerminal;
  const int64_t step = m.step.value_or(0);
  const bool last = step >= m.end_step;
  if (!terminal && !last && m.seconds - last_plain_s_ < kPlainEverySeconds) return;
  if (!line_open_ && step == last_whole_step_ && !m.evaluation) return;
  last_whole_step_ = step;
  last_plain_s_ = m.seconds;
  std::string line;
  for (const Figure* row : shown_figures(m, Figure::kProgress)) {
    const std::string text = row->shown.progress(m);
    if (!text.empty()) line += (line.empty() ? "" : "  ") + text;
  }
  if (terminal) {
    // A narrow window cuts the line off: a wrapped line could not be overwritten.
    print(STDOUT_FILENO, kStartOfLine + (kNoWrap + line) + kWrap);
    line_open_ = true;
    if (m.evaluation) end_line();
  } else {
    print(STDOUT_FILENO, line + "\n");
  }
}

void Report::moment(const RunFigures& m) {
  for (const auto& sink : sinks_) sink->moment(m);
  explain_sinks();
  progress(m);
}

void Report::status(const MembersView& view, const RunFigures& figures) {
  if (page_) page_->publish(status_json(view, figures), prometheus_text(view, figures));
}

void Report::explain_sinks() {
  for (const auto& sink : sinks_) {
    const std::string line = sink->take_warning();
    if (line.empty()) continue;
    end_line();
    Log("server 0").warn(line);
  }
}

void Report::finish_sinks(int64_t max_ms) {
  for (const auto& sink : sinks_) sink->flush(max_ms);
  explain_sinks();
}

void Report::write_summary(const RunFigures& summary, const Waits& waits) const {
  waits("write", metrics_path());
  for (const auto& sink : sinks_) sink->flush(kFlushMetricsMs);
  waits("write", summary_path());
  write_file(summary_path(), summary_json(summary));
}

void Report::show_summary(const RunFigures& summary) {
  finish_sinks(0);
  end_line();
  print(STDOUT_FILENO, summary_table(summary, dir_));
}

}  // namespace pushpull
