// The job: all settings that the members of a run share. The coordinator reads it from an INI file,
// flags and PUSHPULL_... variables (Boost.Program_options) and sends it to the other members as
// text. docs/job-file.md is the reference. Plain data after parsing; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/job/strategy.h"
#include "common/layout/metric.h"
#include "common/update/codec.h"
#include "common/update/optimizer_options.h"

namespace pushpull {

// The datasets that a job can name: a row for each. Constant; any thread.
struct DatasetName {
  const char* name;
  const char* about;  // for the help
  bool needs_files;   // which data-dir names
  bool has_classes;   // a sample has one class, the field `class` or `label`
};

// Returns null if there is no such dataset.
const DatasetName* find_dataset_name(const std::string& name);

// Returns all names: "dummy, digits or text".
std::string dataset_names();

// Returns all names with a few words about each.
std::string dataset_help();

// The rule for early stopping: `stop-when = [HEAD/]METRIC:PATIENCE`. Plain value; any thread.
//
// Ends a run once `patience` evaluations in a row have brought no better value of a measure.
struct StopWhen {
  MeasureName name;
  int64_t patience = 0;  // 0: the run never stops early

  bool on() const { return patience > 0; }
  // Returns the measure as the key names it: "loss", "start/exact-match"; "metric" without a rule.
  std::string measure() const;

  // Reads "loss:3", "start/exact-match:5" or "none". Throws Error(kUsage).
  static StopWhen parse(const std::string& text);
  std::string to_string() const;
  friend bool operator==(const StopWhen&, const StopWhen&) = default;
};

// Completes "must be ..." for a wrong rule.
extern const char* const kStopWhenWords;

// Makes one worker compute `factor` times slower, to study the effect.
struct Straggler {
  int64_t rank = -1;  // -1 if there is none
  double factor = 1.0;

  // Reads "0:4" or "none". Throws Error(kUsage).
  static Straggler parse(const std::string& text);
  std::string to_string() const;
  friend bool operator==(const Straggler&, const Straggler&) = default;
};

enum class OnServerLoss {
  kRestart,
  kAbort,
};

// The source of a lost server's weights.
enum class Recovery {
  kCheckpoint,  // all members go back to the newest checkpoint
  kPeers,       // server 0 has a copy, and workers keep their pushes since then
};

// The reaction if a checkpoint cannot be written.
enum class OnCheckpointFailure {
  kAbort,
  kContinue,  // the failure is counted, and training continues
};

// The reaction if a loss or gradient of a micro-batch is not finite.
enum class OnBadGradient {
  kAbort,
  kSkip,        // the micro-batch counts as zeros
  kQuarantine,  // its worker ends, and another worker recomputes it
};

enum class OnWorkerLoss {
  kAbort,     // the job ends and names the worker
  kWait,      // its share waits for a spare or new worker, up to replacement-timeout
  kContinue,  // the other workers take over its share
};

// How workers and servers communicate.
enum class Transport {
  kAuto,  // shared memory between processes of one host, else tcp
  kShm,   // as kAuto, with a warning if memory cannot be shared
  kIpc,   // unix sockets between processes of one host, else tcp
  kTcp,   // small messages over sockets of their own (common/direct), large ones over ZeroMQ
  kZmq,   // tcp over ZeroMQ alone
};

// How a thread waits for messages in shared memory or on direct connections.
enum class Wait {
  kAuto,   // spins while that is of use and nobody else wants the core
  kSpin,   // spins for a millisecond
  kSleep,  // sleeps at once
};

enum class Resume { kFalse, kTrue, kAuto };

// Shape of one sample: channels, height, width. A vector input "784" is {784, 1, 1}.
struct InputShape {
  int64_t channels = 1;
  int64_t height = 1;
  int64_t width = 1;
  int64_t size() const { return channels * height * width; }
  friend bool operator==(const InputShape&, const InputShape&) = default;
};

// How the samples of an epoch are chosen: each once, or each class equally often.
enum class SamplerKind { kUniform, kWeighted };

// Normalisation of a transformer's blocks.
enum class Norm { kLayer, kRms };

struct Job {
  std::string model = "mlp";            // mlp | convnet | gpt | bert | resnet18 | resnet50
  std::vector<int64_t> hidden = {128};  // widths of mlp's hidden layers; empty if there are none
  int64_t stages = 1;                   // of the model, in a group of that many workers
  std::string stage_schedule = "1f1b";  // 1f1b | gpipe
  std::string balance = "auto";         // see Balance of models/stages.h
  std::string stem = "imagenet";        // cifar | imagenet: the first layers of resnet18 and 50
  int64_t layers = 4;                   // of gpt and bert
  int64_t heads = 4;                    // of each attention; divides embed
  int64_t embed = 128;                  // width of a token
  int64_t ffn = 0;                      // width of the feed-forward layers; 0 = 4 embed
  double dropout = 0.0;                 // share of elements set to 0 in training
  double attention_dropout = 0.0;       // share of attention weights
  bool tie_embeddings = true;           // the output layer uses the embedding's weights
  Norm norm = Norm::kLayer;
  int64_t positions = 0;          // rows of the table of positions; 0 = sequence
  HeadWeights head_weights;       // factors of the heads' losses; 1 where none is given
  double label_smoothing = 0.0;   // of cross-entropy, in training
  std::string dataset = "dummy";  // a name in the table of data sets
  std::string data_dir;           // files of the dataset; "" if it has none
  int64_t train_samples = 0;      // first N of the training split; 0 = all
  int64_t test_samples = 0;       // first N of the test split; 0 = all
  bool shuffle = true;            // permute each epoch by seed
  SamplerKind sampler = SamplerKind::kUniform;
  InputShape input{1, 28, 28};     // dummy only
  int64_t classes = 10;            // dummy only
  std::string tokenizer = "char";  // char | bpe: the tokens of text
  std::string tokenizer_file;      // tokenizer.json; "": made from the text
  int64_t sequence = 64;           // tokens of a sample
  int64_t vocab = 0;               // tokens of a BPE that is trained; 0: the dataset's default
  int64_t epochs = 0;              // one of epochs and steps is > 0
  int64_t steps = 0;
  int64_t stop_after = 0;          // end after this step with a checkpoint; 0 = never
  int64_t global_batch = 64;       // samples of one step
  int64_t micro_batch = 8;         // samples computed at once; divides global_batch
  int64_t threads = 1;             // compute threads per worker
  std::string precision = "fp32";  // fp32 | tf32 | bf16 | fp16: arithmetic of workers
  int64_t loss_scale = 1024;       // for fp16; a power of two
  bool timed_algorithms = false;   // on GPUs; false: `algorithms` = library; true: timed
  OptimizerOptions optimizer;
  ScheduleOptions schedule;
  double clip_norm = 0.0;  // 0 = no clipping
  uint64_t seed = 1;
  Strategy strategy;
  double outer_lr = 0.7;            // local:H: rate of the outer optimizer (DiLoCo)
  double outer_momentum = 0.9;      // local:H: its Nesterov momentum; 0 = none
  bool staleness_aware = false;     // async, ssp: lr / (1 + staleness)
  double delay_compensation = 0.0;  // async, ssp: lambda of DC-ASGD; 0 = off
  Straggler straggler;
  std::string record;             // path of the run's record, if the strategy has one; "" = none
  int64_t slice_bytes = 1 << 20;  // maximum; rounded up to 4 KiB
  Transport transport = Transport::kAuto;
  Wait wait = Wait::kAuto;
  bool encrypt_data = false;     // false: `encrypt` = control; true: all
  int64_t connections = 1;       // data connections from each worker to each server
  int64_t server_threads = 0;    // threads per server for updates; 0 = one per core
  Codec codec;                   // of gradients
  TensorCodecs codec_tensors;    // exceptions to `codec` for some tensors
  Codec pull_codec;              // of weights: fp32 or bf16
  int64_t eval_every = 0;        // steps; 0 = at the end only
  bool eval_ema = false;         // false: `eval-weights` = model; true: ema, the averaged weights
  StopWhen stop_when;            // the run ends early if evaluations bring nothing better
  bool checkpoint_best = false;  // keep the checkpoint of the best evaluation
  std::string checkpoint_dir;    // "" = OUT/checkpoints
  int64_t checkpoint_every = 0;  // steps; 0 = at the end only
  bool checkpoint_auto = false;  // the coordinator chooses when; checkpoint_every is 0
  int64_t checkpoint_keep = 3;
  int64_t keep_runs = 1;  // earlier runs of the output folder whose checkpoints stay
  OnCheckpointFailure on_checkpoint_failure = OnCheckpointFailure::kAbort;
  Resume resume = Resume::kFalse;
  std::string init_from;           // safetensors file with initial weights; "" = init rules
  bool mixed_numerics = false;     // under sync workers may have other arithmetic than each other
  bool init_from_missing = false;  // tensors that it lacks come from the init rules
  // Default: continue if the strategy can be recorded, or if on-bad-gradient = quarantine and the
  // strategy is not allreduce; else abort.
  OnWorkerLoss on_worker_loss = OnWorkerLoss::kAbort;
  int64_t min_workers = 1;  // on-worker-loss = continue: training pauses with fewer
  int64_t max_workers = 0;  // on-worker-loss = continue: more wait as spares; 0 = no limit
  OnServerLoss on_server_loss = OnServerLoss::kRestart;
  Recovery recovery = Recovery::kCheckpoint;
  int64_t copy_every = 16;  // steps; recovery = peers
  OnBadGradient on_bad_gradient = OnBadGradient::kAbort;
  double replacement_timeout_s = 60.0;
  double heartbeat_timeout_s = 10.0;
  double progress_timeout_s = 600.0;  // seconds; 0 = none
  double task_timeout_s = 0.0;        // seconds, of a task; model = external; 0 = none

  int64_t micro_batches() const { return global_batch / micro_batch; }
  // Returns the steps between two copies of the servers' weights and state, or 0 if the job makes
  // none. Copies need updates that take every push of a step, so that workers can send those pushes
  // again.
  int64_t copy_distance() const;
  // Returns true if the best evaluation matters: training then waits for each result.
  bool follows_evaluations() const { return stop_when.on() || checkpoint_best; }
  // Returns true if at least some gradients are encoded.
  bool encodes_pushes() const { return codec != Codec{} || !codec_tensors.rules.empty(); }
  friend bool operator==(const Job&, const Job&) = default;
};

// Reads the file `path` (unless it is ""), then the environment (`PUSHPULL_<KEY>`), then `flags`
// (key without dashes -> value); later sources override earlier ones. Checks every value, and all
// combinations that do not depend on data. Throws Error(kUsage) with one line that names key,
// value, source and the allowed values: "[job] lr = -1 (job.ini:3): must be a number > 0".
Job parse_job(const std::string& path, const std::map<std::string, std::string>& flags);

// Reads the job that a worker's program has given, as INI text, then the environment and `flags`, as
// parse_job does. A job without a model has model = external.
Job parse_programs_job(const std::string& ini, const std::map<std::string, std::string>& flags);

// Checks the keys of a worker's program, as INI text, against the job that it has joined. Throws Error(kUsage)
// that names the first key with another value, or that is not valid.
void check_programs_keys(const std::string& ini, const Job& job);

// Returns the resolved job as INI text; parse_job_text() reads it back to an equal Job.
std::string to_ini(const Job& job);
Job parse_job_text(const std::string& ini, const std::string& source);

// Checks the data's size against batch and epochs. Throws Error(kUsage).
void check_job_against_data(const Job& job, int64_t train_samples);

// Return the steps of one epoch (an incomplete last batch is dropped) and of the whole job.
int64_t steps_per_epoch(const Job& job, int64_t train_samples);
int64_t total_steps(const Job& job, int64_t train_samples);

// Returns the keys that differ but may not change at a resume.
std::vector<std::string> keys_that_forbid_resume(const Job& before, const Job& now);

// Jobs with model = external, for the commands that compute a job's model themselves. Any thread.

// Throws Error(kUsage) if only the workers' program has the job's model.
//   where: the command's tag and the file, such as "[eval] out/checkpoints".
//   instead: how to reach the goal with that program.
void refuse_external(const Job& job, const std::string& where, const std::string& instead);

}  // namespace pushpull
