// The figures of a run, and the one table of them: what each is called, how its value is found, and
// which outputs show it. A new figure is a field and a row. Plain data and functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/io/run_counts.h"
#include "common/net/message.h"
#include "ps/members/evaluations.h"
#include "ps/report/run_totals.h"

namespace pushpull {

struct RunFigures {
  // ---- the job ----
  wire::Phase phase = wire::PHASE_GATHERING;
  std::string waiting_for;  // while members are missing, else ""
  std::string failure;      // why the job failed, or ""
  uint64_t run_id = 0;      // shown as a digest only: it is a secret of the members
  std::string version;      // of the program
  std::string strategy;
  int servers = 0;  // number at the start of the job
  int workers = 0;
  std::string host;  // of the coordinator
  int64_t pid = 0;
  std::string out;             // absolute path of its output folder
  int64_t up_ms = 0;           // since the coordinator began
  int64_t recoveries = 0;      // lost servers that the run has gone on without
  int64_t steps_repeated = 0;  // because of them
  int64_t workers_lost = 0;    // during training
  int64_t checkpoints_failed = 0;
  std::optional<int64_t> resumed_from_step;
  int exit_code = 0;  // of the job, if it has failed

  // ---- set once the job trains ----
  std::optional<int64_t> step;  // steps that are complete at server 0
  int64_t end_step = 0;         // end of this run, or the step at which it was stopped
  int64_t total_steps = 0;      // of the job
  int64_t steps_per_epoch = 1;
  int64_t step_done = 0;  // steps of this run
  double seconds = 0.0;   // since training began
  RunCounts counts;       // of this run; bad_gradients includes quarantined workers
  double samples_per_second = 0.0;
  double learning_rate = 0.0;
  std::optional<double> loss;            // of the newest step
  std::map<int64_t, int64_t> staleness;  // updates so far by their staleness
  RunTotals totals;                      // of all members, as they have reported
  // Means of the values that the workers' programs have logged: in a moment since the previous one, else over the run.
  std::map<std::string, double> logged;
  // The newest one. In a moment, only if it is new since the previous moment; test_seconds and
  // test_samples come with it there.
  std::optional<Evaluation> evaluation;
  double test_seconds = 0.0;  // since training began, for the evaluated weights
  int64_t test_samples = 0;   // of this run, contained in the evaluated weights
  // In a moment: what has happened since the previous moment.
  std::vector<std::string> lost;        // "server 0", "worker 1"
  std::optional<int64_t> back_to_step;  // of the checkpoint that all members went back to

  // ---- set at the end ----
  std::optional<double> train_loss;       // mean over the newest epoch, this run's steps only
  bool stopped_early = false;             // by stop-when
  EvaluationRecord best;                  // without a measure if the job follows none
  std::optional<std::string> stopped_by;  // the signal, and the process that received it
  int64_t model_parameters = 0;           // trainable
  int64_t arena_bytes = 0;                // of the worker that declared first
  int64_t slots = 0;                      // of the same worker
  std::string initial_weights_sha256;
  std::vector<std::string> drawn_tensors;   // that init-from lacks
  std::vector<std::string> unused_tensors;  // of init-from
  std::string data_digest;                  // as the workers have declared it
  std::string numerics;                     // of the worker that declared first
  std::vector<std::string> other_numerics;  // of workers with others, if the job takes them
  std::string weights_sha256;
  std::vector<int64_t> slices_per_server;
};

// A row of the table.
struct Figure {
  enum Output : unsigned {
    kMetrics = 1,  // metrics.jsonl
    kStatus = 2,   // the document of `pushpull status`
    kSummary = 4,  // summary.json
    kPrometheus = 8,
    kTensorBoard = 16,
    kProgress = 32,  // the progress line
    kTable = 64,     // the table at the end
    kMembers = 128,  // members.json
  };
  enum When { kAlways, kTraining, kEvaluated, kIfAny };  // kIfAny: if the value is not null
  using Value = nlohmann::ordered_json;                  // null: there is none
  using Rows = std::vector<std::pair<std::string, std::string>>;

  // A metric of Prometheus' text format.
  struct Metric {
    const char* name = nullptr;  // null: not shown
    const char* type = "gauge";
    const char* help = "";
    const char* label = nullptr;  // of the fields of a value that is an object
    double factor = 1.0;          // from the value's unit to the one shown
  };
  struct Shown {
    When when = kTraining;  // the end shows all
    bool spread = false;    // documents have the fields of the value, an object, for it
    Metric prometheus = {};
    const char* tensor_board = nullptr;                    // a tag
    std::string (*progress)(const RunFigures&) = nullptr;  // "": nothing now
    Rows (*table)(const RunFigures&) = nullptr;
  };

  const char* name;  // in JSON documents
  unsigned json;     // those that have it: kMetrics, kStatus, kSummary, kMembers
  Value (*value)(const RunFigures&);
  Shown shown = {};

  bool shown_in(Output output) const;
};

std::span<const Figure> all_figures();
// Returns the rows that the output shows now, in its order.
std::vector<const Figure*> shown_figures(const RunFigures& figures, Figure::Output output);
// Returns them as a JSON object.
Figure::Value figures_json(const RunFigures& figures, Figure::Output output);
// Returns the name of a phase in the documents: "training".
const char* phase_name(wire::Phase phase);

}  // namespace pushpull
