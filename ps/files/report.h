// The output of a run for people: progress lines, metrics.jsonl, summary.json and its table.
// Written by the coordinator's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/background_writer.h"
#include "common/job/job.h"
#include "ps/files/run_totals.h"
#include "ps/work/evaluations.h"

namespace pushpull {

struct Summary {
  std::string strategy;
  int64_t workers = 0;
  int64_t servers = 0;
  int64_t steps = 0;  // of the job that are done, earlier runs included
  std::optional<int64_t> resumed_from_step;
  int64_t samples = 0;
  std::vector<int64_t> samples_per_worker;
  int64_t pushes_applied = 0;
  int64_t pushes_dropped = 0;  // backup:B
  std::vector<int64_t> pushes_dropped_per_worker;
  double seconds = 0.0;
  int64_t recoveries = 0;  // servers that were lost and came back
  int64_t steps_repeated = 0;
  int64_t checkpoints_failed = 0;
  int64_t bad_gradients = 0;  // that were skipped, or whose worker was
  double samples_per_second = 0.0;
  std::optional<double> train_loss;  // mean over the newest epoch, of this run's steps only
  std::optional<double> test_loss;
  int64_t test_correct = 0;
  int64_t test_total = 0;
  std::optional<std::string> stopped_by;  // the signal, and the process that got it
  std::string initial_weights_sha256;
  std::string data_order_sha256;  // of the samples that this run has drawn
  std::string weights_sha256;
  std::vector<int64_t> slices_per_server;
  std::map<int64_t, int64_t> staleness;  // updates by staleness
  RunTotals totals;
};

// summary.json, and the table that is printed.
std::string summary_json(const Summary& summary);
std::string summary_table(const Summary& summary, const std::string& out_dir);

// One moment of a run.
struct Moment {
  double seconds = 0.0;  // since training began
  int64_t step = 0;
  int64_t end_step = 0;
  int64_t steps_per_epoch = 1;
  int64_t step_done = 0;  // steps of this run
  int64_t samples = 0;    // of this run
  double samples_per_second = 0.0;
  double learning_rate = 0.0;
  std::optional<double> loss;
  double staleness_mean = 0.0;
  int64_t staleness_max = 0;
  std::optional<Evaluation> evaluation;  // new since the moment before
  double test_seconds = 0.0;             // since training began, when its weights came to be
  int64_t test_samples = 0;              // of this run, that are in these weights
};

// Until `end_step` at this rate; empty: nobody knows.
std::optional<double> seconds_left(const Moment& moment);

enum class ProgressStyle { kTerminal, kPlain };

class Report {
 public:
  // Makes `dir`. What an earlier run has left there stays as it is until training begins: a run that
  // ends before its first step costs nobody a result. Throws Error(kIo) naming a file that begin() could
  // not write.
  Report(std::string dir, ProgressStyle style);
  // Waits some seconds for the last metrics and members.
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  // Training begins: writes job.ini, removes an earlier run's summary and opens metrics.jsonl, anew or,
  // for a run that goes on, where it ended. Later calls do nothing. Throws Error(kIo) naming the file.
  void begin(const std::string& job_ini, bool goes_on);
  // After begin(): a line of metrics, and the progress line where it is time for one. Waits for neither; metrics that
  // cannot be written are lost, and one line says so.
  void moment(const Moment& moment);
  // members.json, whole or as it was: from begin() on. Does not wait either; one line says where it cannot
  // be written.
  void members(const std::string& json);
  // Ends the progress line, so that something else can be printed.
  void end_line();
  void write_summary(const Summary& summary);

  const std::string& dir() const { return dir_; }

 private:
  void progress(const Moment& moment);
  void explain_metrics();
  void finish_metrics();
  std::string metrics_path() const { return dir_ + "/metrics.jsonl"; }
  std::string members_path() const { return dir_ + "/members.json"; }
  void explain_members();

  std::string dir_;
  ProgressStyle style_;
  std::unique_ptr<BackgroundWriter> metrics_;  // null before begin()
  int64_t metrics_left_out_ = 0;
  bool metrics_explained_ = false;
  BackgroundWriter members_;
  std::string members_before_;  // the newest text before begin()
  bool members_explained_ = false;
  double last_plain_s_ = -1e9;
  int64_t last_plain_step_ = -1;
  bool line_open_ = false;
};

}  // namespace pushpull
