// What a comparison has found: one entry per run, and where and how it was made. Filled by the
// compare command, written as compare.json and compare.csv, drawn by the report. Plain data; any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pushpull {

// A moment of a run at which the test split was evaluated.
struct CurvePoint {
  double seconds = 0.0;  // since training began
  int64_t samples = 0;
  int64_t step = 0;
  double test_accuracy = 0.0;  // 0 to 1
  std::optional<double> test_loss;
  std::optional<double> train_loss;
};

// Seconds of a mean worker's mean step, by what it did.
struct StepSplit {
  double compute = 0.0;
  double push = 0.0;
  double wait = 0.0;  // for others: between the last byte pushed and the first byte pulled
  double pull = 0.0;
};

struct CompareRun {
  std::string strategy;
  int64_t workers = 1;
  int64_t servers = 1;
  uint64_t seed = 0;
  std::string link;   // "100mbit,5ms" as it was asked for; empty: this machine's own loopback
  std::string codec;  // of --codecs: "int8"; empty: the job's own
  std::string tuned;  // "lr=0.5", chosen by --tune; empty: the job's own
  std::string out;    // its folder, below the comparison's

  // Empty: it went well. Otherwise one line, and nothing below is to be trusted.
  std::string failure;
  int exit_code = 0;

  std::string initial_weights_sha256;
  std::string data_order_sha256;
  std::string weights_sha256;
  int64_t steps = 0;
  int64_t samples = 0;
  double seconds = 0.0;
  double samples_per_second = 0.0;
  std::optional<double> train_loss;
  std::optional<double> test_loss;
  std::optional<double> test_accuracy;      // 0 to 1
  std::optional<double> seconds_to_target;  // empty: never reached, or no target
  std::optional<int64_t> samples_to_target;
  StepSplit split;
  std::map<int64_t, int64_t> staleness;  // updates by staleness
  int64_t bytes_pushed = 0;
  int64_t bytes_pulled = 0;
  int64_t pushes_applied = 0;
  int64_t pushes_dropped = 0;
  std::map<std::string, double> cpu_seconds;  // by role: "server", "worker"; sums
  std::map<std::string, double> peak_mib;     // by role; the largest process
  std::vector<CurvePoint> curve;
};

// A link as it was asked for and as it was measured between two hosts of the lab.
struct LinkMeasured {
  std::string asked;  // "100mbit,5ms"
  double bytes_per_second = 0.0;
  double round_trip_ms = 0.0;
  std::string how;  // "network namespaces, tbf; delay by proxy"
};

struct CompareResult {
  std::string command;  // exactly as it was typed
  std::string commit;   // of the programs; empty: unknown
  std::string version;
  std::string machine;  // processor, cores, memory, kernel
  int64_t cores = 0;
  std::string congestion_control;                // of TCP
  std::map<std::string, std::string> libraries;  // "libzmq" -> "4.3.4"
  std::string job_ini;                           // what all runs share
  std::string began;                             // ISO 8601, UTC
  double seconds = 0.0;                          // of everything
  int64_t model_parameters = 0;
  std::optional<double> target_accuracy;
  std::string straggler;      // "0:4"; empty: none
  std::string device;         // of the workers, as typed; empty: the processor
  std::string server_device;  // likewise
  std::vector<LinkMeasured> links;
  std::vector<std::string> strategies;  // in the order asked for
  std::vector<std::string> codecs;      // of --codecs, likewise; empty: the job's own
  std::vector<int64_t> workers;
  std::vector<std::string> notes;  // "more processes than cores: ..." and the like
  std::vector<CompareRun> runs;    // in the order in which they ran
  std::vector<CompareRun> tuning;  // the tries of --tune, likewise; they are no runs of the table
};

// The median run of a cell of the table.
struct Spread {
  double median = 0.0;
  double min = 0.0;
  double max = 0.0;
  int64_t count = 0;
};

// Empty where there are no values. The median of an even number is the mean of the middle two.
std::optional<Spread> spread(std::vector<double> values);

// What a row of tables and charts is called: "sync", and with --codecs "sync int8".
std::string row_name(const std::string& strategy, const std::string& codec);
std::string row_name(const CompareRun& run);
// The rows in the order asked for; what only the runs know comes behind.
std::vector<std::string> row_names(const CompareResult& result);

// Speed over that of one worker under the same strategy, codec, seed and link; empty where no such
// run went well, or where this one failed.
std::optional<double> scaling(const CompareResult& result, const CompareRun& run);

// False: its data order is its own, and says nothing against it. backup:B drops pushes.
bool shares_data_order(const CompareRun& run);

// False: the run did not measure it.
bool is_told(const StepSplit& split);

// Pushed and pulled, by all workers; 0 where no step was done.
double bytes_per_step(const CompareRun& run);
double bytes_pushed_per_step(const CompareRun& run);

struct StalenessSummary {
  double mean = 0.0;
  int64_t max = 0;
};
StalenessSummary summarize(const std::map<int64_t, int64_t>& staleness);

// "sync, 2 workers", "ssp:4, 1 worker over 100mbit,5ms".
//   row: row_name.
std::string variant_name(const std::string& row, int64_t workers, const std::string& link);
std::string variant_name(const CompareRun& run);

}  // namespace pushpull
