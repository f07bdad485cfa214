#include "ps/files/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/base/unique_fd.h"
#include "common/io/file.h"
#include "common/io/json.h"
#include "ps/status/metrics_sink.h"
#include "ps/status/prometheus_text.h"
#include "ps/status/tensor_board.h"

namespace pushpull {

namespace {

using nlohmann::ordered_json;

constexpr double kPlainEverySeconds = 2.0;
constexpr int64_t kFlushMetricsMs = 5000;
// ECMA-48 EL, and the private mode DECAWM of the VT100.
constexpr char kStartOfLine[] = "\r\033[K";
constexpr char kNoWrap[] = "\033[?7l";
constexpr char kWrap[] = "\033[?7h";

Error io_error(const std::string& path) {
  return {ErrorCode::kIo, "[out] cannot write " + path + ": " + std::strerror(errno)};
}

std::string fixed(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::pair<double, int64_t> mean_and_max(const std::map<int64_t, int64_t>& histogram) {
  double sum = 0.0;
  double count = 0.0;
  int64_t most = 0;
  for (const auto& [value, times] : histogram) {
    sum += static_cast<double>(value * times);
    count += static_cast<double>(times);
    most = std::max(most, value);
  }
  return {count > 0 ? sum / count : 0.0, most};
}

double mib(int64_t kib) { return static_cast<double>(kib) / 1024.0; }

std::string list(const std::vector<int64_t>& values) {
  std::string out;
  for (const int64_t value : values) out += (out.empty() ? "" : " ") + std::to_string(value);
  return out;
}

// Returns null if there is no best evaluation.
ordered_json best_json(const EvaluationRecord& evaluation) {
  if (evaluation.best_step == 0) return nullptr;
  return {{"measure", evaluation.measure},
          {"step", evaluation.best_step},
          {"value", json_number(evaluation.best)},
          {"evaluations_since", evaluation.since_best}};
}

}  // namespace

std::string summary_json(const Summary& s) {
  const RunTotals& t = s.totals;
  const RunTotals::Split split = t.mean_split();
  const auto [mean, most] = mean_and_max(s.staleness);
  ordered_json histogram = ordered_json::object();
  for (const auto& [staleness, updates] : s.staleness) {
    histogram[std::to_string(staleness)] = updates;
  }
  ordered_json j;
  j["strategy"] = s.strategy;
  j["workers"] = s.workers;
  j["servers"] = s.servers;
  j["steps"] = s.steps;
  j["resumed_from_step"] = s.resumed_from_step ? ordered_json(*s.resumed_from_step) : nullptr;
  j["samples"] = s.samples;
  j["samples_per_worker"] = s.samples_per_worker;
  j["pushes_applied"] = s.pushes_applied;
  j["pushes_dropped"] = s.pushes_dropped;
  j["pushes_dropped_per_worker"] = s.pushes_dropped_per_worker;
  j["seconds"] = json_number(s.seconds);
  j["recoveries"] = s.recoveries;
  j["steps_repeated"] = s.steps_repeated;
  j["stopped_early"] = s.stopped_early;
  j["best_evaluation"] = best_json(s.evaluation);
  j["stopped_by"] = s.stopped_by ? ordered_json(*s.stopped_by) : nullptr;
  j["checkpoints_failed"] = s.checkpoints_failed;
  j["bad_gradients"] = s.bad_gradients;
  j["samples_per_second"] = json_number(s.samples_per_second);
  j["train_loss"] = json_number(s.train_loss);
  add_heads(j, s.heads);
  j["model_parameters"] = s.model_parameters;
  j["arena_bytes"] = s.arena_bytes;
  j["slots"] = s.slots;
  j["initial_weights_sha256"] = s.initial_weights_sha256;
  j["drawn_tensors"] = s.drawn_tensors;
  j["unused_tensors"] = s.unused_tensors;
  j["data_digest"] = s.data_digest;
  j["numerics"] = s.numerics;
  j["data_order_sha256"] = s.data_order_sha256;
  j["weights_sha256"] = s.weights_sha256;
  j["slices_per_server"] = s.slices_per_server;
  j["staleness"] = {
      {"max", most}, {"mean", mean}, {"histogram", histogram}, {"clock_gap_max", t.clock_gap_max}};
  j["bytes_pushed"] = t.bytes_pushed;
  j["bytes_pulled"] = t.bytes_pulled;
  j["rejected_frames"] = t.rejected_frames;
  j["rejected_by_reason"] = t.refusals;
  j["refused_peers"] = t.refused_peers;
  j["split"] = {{"compute", json_number(split.compute)},
                {"push", json_number(split.push)},
                {"wait", json_number(split.wait)},
                {"pull", json_number(split.pull)}};
  j["cpu_seconds"] = {{"server", json_number(t.servers.cpu_seconds)},
                      {"worker", json_number(t.workers.cpu_seconds)}};
  j["peak_rss_mib"] = {{"server", mib(t.servers.peak_rss_kib)},
                       {"worker", mib(t.workers.peak_rss_kib)}};
  return j.dump(2) + "\n";
}

std::string summary_table(const Summary& s, const std::string& out_dir) {
  const RunTotals& t = s.totals;
  const RunTotals::Split split = t.mean_split();
  std::ostringstream out;
  const auto row = [&](const std::string& name, const std::string& value) {
    out << "  " << name << std::string(name.size() < 14 ? 14 - name.size() : 1, ' ') << value
        << "\n";
  };
  const auto or_none = [](std::optional<double> v) { return v ? fixed(*v, 4) : std::string("-"); };
  const auto [mean, most] = mean_and_max(s.staleness);
  out << "finished\n";
  row("strategy",
      s.strategy + ", " + plural(s.workers, "worker") + ", " + plural(s.servers, "server"));
  row("steps", std::to_string(s.steps) +
                   (s.resumed_from_step ? ", resumed at " + std::to_string(*s.resumed_from_step)
                                        : std::string()) +
                   (s.stopped_early ? ", stopped early" : ""));
  if (s.evaluation.best_step > 0) {
    row("best", s.evaluation.measure + " " + fixed(s.evaluation.best, 4) + " at step " +
                    std::to_string(s.evaluation.best_step));
  }
  row("samples", std::to_string(s.samples) + " (per worker: " + list(s.samples_per_worker) + ")");
  row("pushes",
      std::to_string(s.pushes_applied) + " applied, " + std::to_string(s.pushes_dropped) +
          " dropped" +
          (s.pushes_dropped > 0 ? " (per worker: " + list(s.pushes_dropped_per_worker) + ")"
                                : std::string()));
  row("time", fixed(s.seconds, 2) + " s, " + fixed(s.samples_per_second, 0) + " samples/s");
  if (s.recoveries > 0) {
    row("recoveries", plural(s.recoveries, "lost server") + ", " +
                          plural(s.steps_repeated, "step") + " repeated");
  }
  if (s.checkpoints_failed > 0)
    row("checkpoints", std::to_string(s.checkpoints_failed) + " failed");
  if (s.bad_gradients > 0) row("bad gradients", std::to_string(s.bad_gradients));
  row("train loss", or_none(s.train_loss));
  row("test loss", or_none(s.heads.empty() ? std::nullopt : s.heads.front().loss()));
  for (const HeadResult& head : s.heads) {
    if (head.sums.counted == 0) continue;
    const bool first = &head == &s.heads.front();
    row((first ? "" : head.info.name + " ") + to_string(head.info.metric),
        head.text() + (counts_targets(head.info.metric)
                           ? " (" + std::to_string(correct_targets(head)) + " of " +
                                 std::to_string(head.sums.counted) + ")"
                           : std::string()));
  }
  row("staleness", "mean " + fixed(mean, 2) + ", max " + plural(most, "update"));
  row("traffic", fixed(static_cast<double>(t.bytes_pushed) / 1e6, 1) + " MB pushed, " +
                     fixed(static_cast<double>(t.bytes_pulled) / 1e6, 1) + " MB pulled");
  row("mean task", "compute " + fixed(1e3 * split.compute, 2) + ", push " +
                       fixed(1e3 * split.push, 2) + ", wait " + fixed(1e3 * split.wait, 2) +
                       ", pull " + fixed(1e3 * split.pull, 2) + " ms");
  row("CPU time", fixed(t.servers.cpu_seconds, 2) + " s servers, " +
                      fixed(t.workers.cpu_seconds, 2) + " s workers");
  row("memory", fixed(mib(t.servers.peak_rss_kib), 0) + " MiB server, " +
                    fixed(mib(t.workers.peak_rss_kib), 0) + " MiB worker (peak)");
  row("weights", s.weights_sha256);
  row("written to", out_dir);
  return out.str();
}

std::optional<double> seconds_left(const Moment& m) {
  if (m.samples <= 0 || m.samples_per_second <= 0) return std::nullopt;
  const double samples_of_step =
      static_cast<double>(m.samples) / std::max<double>(1.0, static_cast<double>(m.step_done));
  return static_cast<double>(m.end_step - m.step) * samples_of_step /
         std::max(m.samples_per_second, 1e-9);
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

void Report::progress(const Moment& m) {
  const bool terminal = style_ == ProgressStyle::kTerminal;
  const bool last = m.step >= m.end_step;
  if (!terminal && !last && m.seconds - last_plain_s_ < kPlainEverySeconds) return;
  if (!terminal && m.step == last_plain_step_ && !m.evaluation) return;
  last_plain_step_ = m.step;
  last_plain_s_ = m.seconds;
  std::ostringstream line;
  line << "step " << m.step << "/" << m.end_step << "  epoch " << m.step / m.steps_per_epoch
       << "  loss " << (m.loss ? fixed(*m.loss, 4) : "-") << "  " << fixed(m.samples_per_second, 0)
       << " samples/s  ETA " << clock_text(seconds_left(m).value_or(NAN)) << "  staleness "
       << fixed(m.staleness_mean, 1) << " (max " << m.staleness_max << ")";
  if (m.evaluation && !m.evaluation->heads.empty()) {
    const HeadResult& head = m.evaluation->heads.front();
    line << "  " << to_string(head.info.metric) << " " << head.text();
  }
  if (terminal) {
    // A narrow window cuts the line off: a wrapped line could not be overwritten.
    print(STDOUT_FILENO, kStartOfLine + (kNoWrap + line.str()) + kWrap);
    line_open_ = true;
  } else {
    print(STDOUT_FILENO, line.str() + "\n");
  }
}

void Report::moment(const Moment& m) {
  for (const auto& sink : sinks_) sink->moment(m);
  explain_sinks();
  progress(m);
}

void Report::status(const MembersView& view, const JobFacts& facts) {
  if (page_) page_->publish(status_json(view, facts), prometheus_text(view, facts));
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

void Report::write_summary(const Summary& summary, const Waits& waits) const {
  waits("write", metrics_path());
  for (const auto& sink : sinks_) sink->flush(kFlushMetricsMs);
  waits("write", summary_path());
  write_file(summary_path(), summary_json(summary));
}

void Report::show_summary(const Summary& summary) {
  finish_sinks(0);
  end_line();
  print(STDOUT_FILENO, summary_table(summary, dir_));
}

}  // namespace pushpull
