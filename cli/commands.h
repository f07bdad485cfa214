// The commands of `pushpull`, one section each: the help of its flags, its main function, and what tests
// and other commands use of it. Main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/doctor/host_facts.h"
#include "cli/run/launcher.h"
#include "common/io/checkpoint.h"
#include "common/io/record.h"
#include "common/job/command_line.h"
#include "common/layout/fields.h"
#include "common/net/flat_state.h"
#include "datasets/dataset.h"
#include "models/model.h"

namespace pushpull {

struct ProgramHelp;
struct KeyHelp;

// `pushpull run`: runs a whole job on this machine. Turns flags into launcher options. Main thread.
const std::vector<KeyHelp>& run_options();

// Returns the launcher options for these flags. Checks the job first: no process starts for a job
// that cannot run.
//   terminal: the progress line may overwrite itself.
//   program_dir: folder of the programs.
// Throws Error(kUsage) with the flag or the job key.
LauncherOptions plan_run(const CommandLine& line, const std::string& program_dir, bool terminal);

const ProgramHelp& run_help();

// argv[0] is "run". Returns the exit code; throws Error.
int run_command(int argc, const char* const* argv);

// `pushpull task`: one task of `pushpull run --over`, which starts it by srun or mpirun. Runs a worker
// and perhaps a server beside it, passes their output on with the task's name, and replaces them. Not
// for users. Main thread.

// argv[0] is "task". Returns the exit code; throws Error.
int task_command(int argc, const char* const* argv);

// `pushpull status`: prints members and progress of a running job. Main thread.
const ProgramHelp& status_help();

// argv[0] is "status". Returns the exit code; throws Error.
int status_command(int argc, const char* const* argv);

// `pushpull top`: the members and progress of a running job, live in a terminal. Main thread.
const ProgramHelp& top_help();

// argv[0] is "top". Returns the exit code; throws Error.
int top_command(int argc, const char* const* argv);

// `pushpull selftest`: runs small jobs that show whether this installation works. Main thread.
const ProgramHelp& selftest_help();

// argv[0] is "selftest". Returns the exit code; throws Error.
int selftest_command(int argc, const char* const* argv);

// `pushpull doctor`: finds out why this host cannot take part in a job. Main thread.

// Returns one aligned line per finding and a last line with their counts.
std::string doctor_text(const std::vector<Finding>& findings);
// Returns 0 without an error, otherwise the code of the first error.
int doctor_exit_code(const std::vector<Finding>& findings);

// Returns a host's row of the table of all hosts, and a line for each warning.
std::string host_lines(const HostFacts& facts);

const ProgramHelp& doctor_help();

// argv[0] is "doctor". Returns the exit code; throws Error.
int doctor_command(int argc, const char* const* argv);

// `pushpull compare`: runs the same job under several strategies and numbers of workers, repeated
// and interleaved, with real processes; then prints tables and writes compare.json and compare.csv.
// Main thread.

// argv[0] is "compare". Returns the exit code: 0 if at least one run succeeded, else that of the
// first failure; 128 + signal after Ctrl-C. Throws Error.
int compare_command(int argc, const char* const* argv);

// `pushpull report`: writes one run's report.html from the files in its folder. Main thread.
const ProgramHelp& report_help();

// argv[0] is "report". Returns the exit code; throws Error.
int report_command(int argc, const char* const* argv);

// Returns the page about the run in a folder. A run may go on, or may have died at any instruction:
// what is missing or damaged is left out. Throws Error(kData) if job.ini cannot be read,
// Error(kUsage) if it is no job.
std::string run_page(const std::string& folder);

struct Job;
struct TensorTable;

// `pushpull replay`: recomputes a recorded run and compares its weights with the run's. Main
// thread.

// Returns the job to replay: the record's, with the paths and local settings of `given` (empty
// without --job). Throws Error(kUsage) with the keys that determine the weights and differ.
Job job_to_replay(const RunRecord& record, const std::optional<Job>& given,
                  const std::string& given_name);

// Returns the state that the run started from, or null for init rules.
//   checkpoint: folder; empty if none was given.
// Throws Error(kUsage | kData) if it is missing or is not what the run started from.
std::shared_ptr<const FlatState> start_to_replay(const RunRecord& record, const Job& job,
                                                 const TensorTable& table,
                                                 const std::string& checkpoint);

const ProgramHelp& replay_help();

// argv[0] is "replay". Returns the exit code; throws Error.
int replay_command(int argc, const char* const* argv);

// `pushpull eval`: computes the metrics of a checkpoint on a test split, in one process. Main
// thread.

// Evaluates each sample of the test split exactly once, and returns the results of all heads. Throws
// Error(kData) for an empty split.
std::vector<HeadResult> evaluate_all(const Job& job, const Dataset& dataset, Model& model,
                                     std::span<const float> weights);

// Returns the checkpoint's weights in the model's order. Throws Error(kData) that names `path` and
// a tensor that is missing, unknown or of another shape.
std::vector<float> weights_for(const Checkpoint& checkpoint, const TensorTable& table,
                               const std::string& path);

const ProgramHelp& eval_help();

// Returns the folder of checkpoints that `pushpull eval` and `pushpull generate` read: --checkpoint DIR, or their only word;
// of an output folder of a run its checkpoints. Throws Error(kUsage) with `tag` if there is none.
std::string checkpoint_path(const CommandLine& line, const std::string& tag);

// argv[0] is "eval". Returns the exit code; throws Error.
int eval_command(int argc, const char* const* argv);

class Model;

// `pushpull generate`: lets a language model of a checkpoint go on with a text. Main thread.

// How the next token is drawn from the scores.
struct Sampling {
  double temperature = 1.0;  // 0: the largest score
  int64_t top_k = 0;         // only the tokens with the K largest scores; 0: all
  uint64_t seed = 1;
};

// Draws the token at place `place` of the generated ones. A pure function of its arguments; among
// equal scores the lower token comes first.
int32_t draw_token(std::span<const float> scores, const Sampling& sampling, int64_t place);

// Appends `count` tokens to `ids`, each drawn from the scores after at most `sequence` tokens
// before it.
//   model: with the fields ids and target [sequence], for micro-batches of one sample, on the CPU.
//   vocabulary: ids are below it.
//   each: called with each new token.
void generate_tokens(Model& model, std::span<const float> weights, int64_t sequence,
                     int64_t vocabulary, const Sampling& sampling, int64_t count,
                     std::vector<int32_t>& ids, const std::function<void(int32_t)>& each);

const ProgramHelp& generate_help();

// argv[0] is "generate". Returns the exit code; throws Error.
int generate_command(int argc, const char* const* argv);

// `pushpull models`: lists the models, and says what the model of a job costs. Main thread.

// The memory of a worker that computes whole steps alone, without the buffers of messages.
struct WorkerMemory {
  int64_t weights_bytes = 0;     // one copy
  int64_t gradient_buffers = 0;  // sums along the fixed tree that exist at a time
  int64_t gradients_bytes = 0;   // of all buffers
  int64_t arena_bytes = 0;       // of one micro-batch
  int64_t total() const { return weights_bytes + gradients_bytes + arena_bytes; }
};
WorkerMemory worker_memory(const Job& job, const ModelFigures& figures);

// Writes the table of the models, or one JSON list.
void list_models(std::ostream& out, bool json);
// Writes what the job's model costs, as a table or as one JSON object.
//   tensors: also a line for each tensor.
void describe_model(std::ostream& out, const Job& job, const FieldTable& fields, bool tensors);
void describe_model_json(std::ostream& out, const Job& job, const FieldTable& fields);

const ProgramHelp& models_help();

// argv[0] is "models". Returns the exit code; throws Error.
int models_command(int argc, const char* const* argv);

const ProgramHelp& plan_help();

// argv[0] is "plan". Returns the exit code; throws Error.
int plan_command(int argc, const char* const* argv);

// `pushpull submit`: writes the batch script of a job for Slurm, or the manifest of a JobSet for
// Kubernetes, and submits the script. Main thread.
const ProgramHelp& submit_help();

// argv[0] is "submit". Returns the exit code; throws Error.
int submit_command(int argc, const char* const* argv);

// `pushpull bench`: measures an exchange (push, update, pull) on this machine or cluster with real
// processes, next to the floor: the fastest that the same machine allows at the same time. Main
// thread.

// argv[0] is "bench". Returns the exit code: 0, or 128 + signal after Ctrl-C. Throws Error.
int bench_command(int argc, const char* const* argv);

const ProgramHelp& keygen_help();

// argv[0] is "keygen". Returns the exit code; throws Error.
int keygen_command(int argc, const char* const* argv);

}  // namespace pushpull
