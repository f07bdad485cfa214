// The result of a comparison: one entry per run, and its origin. Filled by the compare command,
// written as compare.json and compare.csv, drawn by the report. Plain data; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/layout/metric.h"

namespace pushpull {

// One evaluation of the test split during a run.
struct CurvePoint {
  double seconds = 0.0;  // since training began
  int64_t samples = 0;
  int64_t step = 0;
  double test_value = 0.0;  // of the metric
  std::optional<double> test_loss;
  std::optional<double> train_loss;
  std::optional<double> target_value = {};  // of the target's measure
};

// The average worker's seconds per step, by activity.
struct StepSplit {
  double compute = 0.0;
  double push = 0.0;
  double wait = 0.0;  // from the last byte pushed to the first byte pulled
  double pull = 0.0;
};

// The target of a comparison, which counts time and samples until an evaluation has this value of a
// measure, or a better one.
struct Target {
  MeasureName name;
  double value = 0.0;
};

struct CompareRun {
  std::string strategy;
  int64_t workers = 1;
  int64_t servers = 1;
  uint64_t seed = 0;
  std::string link;    // "100mbit,5ms", as given; empty = this machine's loopback
  std::string codec;   // from --codecs: "int8"; empty = the job's
  int64_t stages = 0;  // from --stages; 0 = the job's
  std::string tuned;   // "lr=0.5", chosen by --tune; empty = the job's
  std::string out;     // folder, relative to the comparison's

  // Empty if the run succeeded. Otherwise one line, and the fields below are invalid.
  std::string failure;
  int exit_code = 0;

  int64_t model_parameters = 0;  // 0 in files of older programs
  std::string initial_weights_sha256;
  std::string data_order_sha256;
  std::string weights_sha256;
  int64_t steps = 0;
  int64_t samples = 0;
  double seconds = 0.0;
  double samples_per_second = 0.0;
  std::optional<double> train_loss;
  std::optional<double> test_loss;
  std::string metric;                       // of the model's first head; "" if not evaluated
  std::vector<HeadInfo> heads;              // of the model, as far as the run's files name them
  std::optional<double> test_value;         // of that metric; accuracy from 0 to 1
  std::optional<double> seconds_to_target;  // empty if never reached, or without a target
  std::optional<int64_t> samples_to_target;
  StepSplit split;
  std::map<int64_t, int64_t> staleness;  // staleness -> number of updates
  int64_t bytes_pushed = 0;
  int64_t bytes_pulled = 0;
  int64_t pushes_applied = 0;
  int64_t pushes_dropped = 0;
  std::map<std::string, double> cpu_seconds;  // by role: "server", "worker"; sums
  std::map<std::string, double> peak_mib;     // by role; of the largest process
  std::optional<double> other_cores;  // cores that processes outside of the run kept busy, mean
  std::vector<CurvePoint> curve;
};

// A link as requested, and as measured between two hosts of the lab.
struct LinkMeasured {
  std::string asked;  // "100mbit,5ms"
  double bytes_per_second = 0.0;
  double round_trip_ms = 0.0;
  std::string how;  // "network namespaces, tbf; delay by proxy"
};

struct CompareResult {
  std::string command;  // exactly as typed
  std::string commit;   // commit of the programs; empty = unknown
  std::string version;
  std::string machine;  // processor, cores, memory, kernel; with `over` of the nodes that ran
  std::string over;  // "slurm" or "mpi", which has started the tasks of each run; "": this machine
  int64_t cores = 0;
  std::string congestion_control;                // TCP's
  std::map<std::string, std::string> libraries;  // "libzmq" -> "4.3.4"
  std::string job_ini;                           // the part of the job that all runs share
  std::string began;                             // ISO 8601, UTC
  double seconds = 0.0;                          // of the whole comparison
  int64_t model_parameters = 0;                  // trainable, as in summary.json; 0: not known yet
  std::string metric;                            // of all runs; "" until it is known
  std::optional<double> target;                  // value of the metric, or of target_measure
  std::string target_measure;                    // "f1/value"; "" = the metric of the first head
  std::string straggler;                         // "0:4"; empty = none
  std::string worker;         // command of the workers, as typed; empty = pushpull-worker
  std::string device;         // of the workers, as typed; empty = the CPU
  std::string server_device;  // of the servers, likewise
  std::vector<LinkMeasured> links;
  std::vector<std::string> strategies;  // in the order given
  std::vector<std::string> codecs;      // from --codecs, likewise; empty = the job's
  std::vector<int64_t> stages;          // from --stages, likewise; empty = the job's
  std::vector<int64_t> workers;
  std::vector<std::string> notes;  // "more processes than cores: ..." and similar
  std::vector<CompareRun> runs;    // in the order of execution
  std::vector<CompareRun> tuning;  // the tries of --tune, likewise; not in the tables
};

// The runs of one cell of the table, summarised.
struct Spread {
  double median = 0.0;
  double min = 0.0;
  double max = 0.0;
  int64_t count = 0;
};

// Returns empty if there are no values. The median of an even number of values is the mean of the
// middle two.
std::optional<Spread> spread(std::vector<double> values);

// Returns the name of a row in tables and charts: "sync", with --codecs "sync int8", with --stages "sync, 2 stages".
std::string row_name(const std::string& strategy, const std::string& codec, int64_t stages);
std::string row_name(const CompareRun& run);
// Returns the rows in the order given, followed by others that occur in the runs.
std::vector<std::string> row_names(const CompareResult& result);

// Returns the speed relative to one worker with the same strategy, codec, stages, seed and link. Empty if
// either run failed or does not exist.
std::optional<double> scaling(const CompareResult& result, const CompareRun& run);

// Returns the processor seconds, and the bytes pushed and pulled, until the target: the run's, by the
// share of its samples, as neither is recorded at each evaluation. Empty if it was not reached.
std::optional<double> cpu_seconds_to_target(const CompareRun& run);
std::optional<double> bytes_to_target(const CompareRun& run);

// Returns the run of sync with the same seed, workers, codec, stages and link, or null if it failed or does
// not exist.
const CompareRun* sync_beside(const CompareResult& result, const CompareRun& run);

// Returns the target as tables and notes name it: "0.97", "f1/value 0.9".
std::string target_label(const CompareResult& result);

// Returns false if the strategy's data order legitimately differs: backup:B drops pushes.
bool shares_data_order(const CompareRun& run);

// Returns false if the run did not measure the split.
bool is_measured(const StepSplit& split);

// Returns the bytes pushed and pulled by all workers per step; 0 if no step was done.
double bytes_per_step(const CompareRun& run);
double bytes_pushed_per_step(const CompareRun& run);

struct StalenessSummary {
  double mean = 0.0;
  int64_t max = 0;
};
StalenessSummary summarize(const std::map<int64_t, int64_t>& staleness);

// Returns "sync, 2 workers", or "ssp:4, 1 worker over 100mbit,5ms".
//   row: row_name.
std::string variant_name(const std::string& row, int64_t workers, const std::string& link);
std::string variant_name(const CompareRun& run);

}  // namespace pushpull
