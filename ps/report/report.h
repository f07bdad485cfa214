// The output of a run for users: progress lines, metrics.jsonl, summary.json and its table. Used by
// the coordinator's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/background_writer.h"
#include "common/base/unique_fd.h"
#include "ps/report/member_document.h"
#include "ps/report/metrics_sink.h"
#include "ps/report/run_figures.h"
#include "ps/report/watch_page.h"

namespace pushpull {

// The contents of summary.json, and the table printed at the end.
std::string summary_json(const RunFigures& figures);
std::string summary_table(const RunFigures& figures, const std::string& out_dir);

enum class ProgressStyle { kTerminal, kPlain };

class Report {
 public:
  // Tells which file the next call waits for: "write", "out/job.ini".
  using Waits = std::function<void(const std::string& verb, const std::string& path)>;

  // Creates `dir`. Leaves an earlier run's files until training begins, so that a run that fails
  // before its first step loses no results. Throws Error(kIo) naming a file that open_files() could
  // not write. If the page cannot listen, one line says so.
  Report(std::string dir, ProgressStyle style, const WatchOptions& watch = {});
  // Waits up to 5 s each for the sinks of metrics and for members.json.
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // Waits for the file system; any thread. Call before training begins: removes an earlier run's
  // summary, writes job.ini and opens metrics.jsonl, empty or, if the run continues (`append`), at
  // its end. Returns metrics.jsonl. Throws Error(kIo) naming the file.
  UniqueFd open_files(const std::string& job_ini, bool append, const Waits& waits) const;
  // Call when training begins at `step`, and again after a lost server; `metrics` is used once.
  void begin(UniqueFd metrics, int64_t step);
  // After begin(): passes the moment to all sinks, and prints the progress line if one is due. Does
  // not block. Metrics that cannot be written are lost; one line of each sink says so.
  void moment(const RunFigures& moment);
  // After begin(): replaces members.json, atomically. Does not block. If the file cannot be
  // written, one line says so.
  void members(const std::string& json);
  // Renews the page, if there is one. Does not block.
  void status(const MembersView& view, const RunFigures& figures);
  // Ends the progress line so that other text can be printed.
  void end_line();
  // Waits for the file system; any thread. Waits up to 5 s for the metrics, then writes
  // summary.json. Throws Error(kIo) naming the file.
  void write_summary(const RunFigures& summary, const Waits& waits) const;
  // Prints the summary.
  void show_summary(const RunFigures& summary);

  const std::string& dir() const { return dir_; }

 private:
  void progress(const RunFigures& moment);
  void open_page(const Address& listen);
  void explain_sinks();
  void finish_sinks(int64_t max_ms);
  std::string metrics_path() const { return dir_ + "/metrics.jsonl"; }
  std::string summary_path() const { return dir_ + "/summary.json"; }
  std::string members_path() const { return dir_ + "/members.json"; }
  void explain_members();

  std::string dir_;
  ProgressStyle style_;
  bool began_ = false;
  std::vector<std::unique_ptr<MetricsSink>> sinks_;  // metrics.jsonl comes with begin()
  std::unique_ptr<WatchPage> page_;                  // null if there is none
  BackgroundWriter members_;
  std::string members_before_;  // the newest text before begin()
  bool members_explained_ = false;
  double last_plain_s_ = -1e9;
  int64_t last_whole_step_ = -1;  // of the newest line that stays
  bool line_open_ = false;
};

}  // namespace pushpull
