// `pushpull eval`.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/commands.h"
#include "cli/eval_follow.h"
#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/io/checkpoint.h"
#include "common/io/json.h"
#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/layout/tensor_table.h"
#include "worker/compute/evaluate.h"
#include "worker/devices.h"

namespace pushpull {
namespace {

constexpr int kNameWidth = 11;

const std::vector<KeyHelp>& eval_options() {
  static const std::vector<KeyHelp> options = {
      takes("DIR", {"checkpoint", "",
                    "folder of checkpoints (the newest is used), or one step-... folder"}),
      {"dataset", "the job's", "another dataset of the same shape"},
      takes("DIR", {"data-dir", "the job's", "folder of the data on this machine"}),
      {"threads", "the job's", "compute threads"},
      takes("fp32|tf32|bf16|fp16", {"precision", "the job's", "arithmetic"}),
      takes(kDeviceWords, {"device", "cpu", "device to compute on: cpu, auto, cuda, cuda:N"}),
      {"ema", "", "evaluate the averaged weights (ema.safetensors)", "", false},
      {"json", "", "print one JSON object", "", false},
      {"follow", "",
       "evaluate each new checkpoint of a running job, until its run has ended; --checkpoint is "
       "OUT/checkpoints",
       "", false},
      takes("FILE", {"metrics", "OUT/eval.jsonl",
                     "with --follow: file that gets one JSON object a checkpoint"}),
      {"follow-timeout", "3600", "with --follow: seconds to wait for the next checkpoint"},
  };
  return options;
}

// Returns the checkpoint's job with the values that flags replace. Builds the job as text, so that
// the job parser checks the new values.
Job job_of(const Checkpoint& checkpoint, const CommandLine& line, const std::string& path) {
  const Job job = parse_job_text(checkpoint.state.job_ini, path);
  std::map<std::string, std::string> replaced = line.local;
  replaced.erase("checkpoint");
  replaced.erase("json");
  for (const char* own : {"device", "ema", "follow", "metrics", "follow-timeout"})
    replaced.erase(own);
  if (const auto dataset = replaced.find("dataset");
      dataset != replaced.end() && dataset->second != job.dataset) {
    replaced.try_emplace("data-dir", "");
    replaced.try_emplace("train-samples", "0");  // these limit the training run's dataset
    replaced.try_emplace("test-samples", "0");
  }
  std::string text;
  std::istringstream lines(to_ini(job));
  for (std::string one; std::getline(lines, one);) {
    if (!replaced.contains(one.substr(0, one.find_first_of(" =")))) {
      text.append(one).append("\n");
    }
  }
  for (const auto& [key, value] : replaced) {
    text.append(key).append(" = ").append(value).append("\n");
  }
  return parse_job_text(text, "flags of eval");
}

void print_table(const std::string& path, const Checkpoint& checkpoint, const Job& job,
                 const std::vector<HeadResult>& heads) {
  std::cout << "checkpoint  " << printable(path, kMaxPathBytes) << ", step "
            << checkpoint.state.step << " of " << checkpoint.state.total_steps << "\n"
            << "model       " << job.model << "\n"
            << "dataset     " << job.dataset << ", test split\n"
            << std::fixed << std::setprecision(4);
  for (const HeadResult& head : heads) {
    const bool only = heads.size() == 1;
    const std::string of = only ? "" : " of " + printable(head.info.name);
    const std::string metric = to_string(head.info.metric) + of;
    std::cout << std::left << std::setw(kNameWidth) << metric << " " << head.text();
    if (counts_targets(head.info.metric)) {
      std::cout << " (" << correct_targets(head) << " of " << head.sums.counted << " correct)";
    }
    std::cout << "\n"
              << std::setw(kNameWidth) << "loss" + of << " " << head.loss().value_or(NAN) << "\n";
  }
}

std::string json_of(const std::string& path, const Checkpoint& checkpoint, const Job& job,
                    const std::vector<HeadResult>& heads) {
  nlohmann::ordered_json out;
  out["checkpoint"] = path;
  out["step"] = checkpoint.state.step;
  out["model"] = job.model;
  out["dataset"] = job.dataset;
  add_heads(out, heads);
  return json_text(out);
}

// Evaluates checkpoints of one job: keeps the data set and the model between them.
class CheckpointEvaluator {
 public:
  explicit CheckpointEvaluator(const CommandLine& line) : line_(line) {}

  struct Result {
    Checkpoint checkpoint;
    Job job;
    std::vector<HeadResult> heads;
  };
  //   path: a store of checkpoints, or one of them.
  Result run(const std::string& path);

 private:
  void open(const Checkpoint& checkpoint, const std::string& path);

  const CommandLine& line_;
  std::string job_ini_;  // of the checkpoint that the rest was opened for
  Job job_;
  std::unique_ptr<Dataset> dataset_;
  std::unique_ptr<Model> model_;
};

void CheckpointEvaluator::open(const Checkpoint& checkpoint, const std::string& path) {
  job_ = job_of(checkpoint, line_, path);
  refuse_external(job_, "[eval] " + path,
                  "load model.safetensors there; the run's own evaluations are in summary.json");
  model_.reset();
  dataset_ = open_dataset(job_, "", checkpoint.state.tokenizer);
  const auto flag = line_.local.find("device");
  const device::DeviceName device =
      choose_device(flag == line_.local.end() ? "" : flag->second,
                    [](const std::string& text) { std::cerr << "[eval] " << text << std::endl; });
  model_ = make_model(job_, dataset_->fields(), device);
  job_ini_ = checkpoint.state.job_ini;
}

// Puts the averaged weights in the place of the others.
void take_average(Checkpoint& checkpoint, const std::string& path) {
  const auto found = std::ranges::find(checkpoint.slot_names, kEmaName);
  if (found == checkpoint.slot_names.end()) {
    throw Error(ErrorCode::kData,
                "[eval] " + printable(path, kMaxPathBytes) +
                    " has no averaged weights: its job has ema = 0; leave out --ema");
  }
  checkpoint.weights =
      std::move(checkpoint.slots[static_cast<size_t>(found - checkpoint.slot_names.begin())]);
}

CheckpointEvaluator::Result CheckpointEvaluator::run(const std::string& path) {
  Checkpoint checkpoint = read_checkpoint(path);
  if (line_.local.contains("ema")) take_average(checkpoint, path);
  if (model_ == nullptr || checkpoint.state.job_ini != job_ini_) open(checkpoint, path);
  const std::vector<float> weights = weights_for(checkpoint, model_->table(), path);
  std::vector<HeadResult> heads = evaluate_all(job_, *dataset_, *model_, weights);
  return {std::move(checkpoint), job_, std::move(heads)};
}

constexpr int64_t kLookMs = 500;  // between looks at the folder

EvalFollow::Sight sight_of(const std::filesystem::path& store) {
  std::error_code ignored;
  EvalFollow::Sight sight;
  sight.running = std::filesystem::exists(store.parent_path() / "term.json", ignored);
  sight.summary = std::filesystem::exists(store.parent_path() / "summary.json", ignored);
  // After the two files: a run that has ended has written its last checkpoint.
  if (std::filesystem::is_directory(store, ignored)) sight.checkpoints = whole_checkpoints(store);
  return sight;
}

// Evaluates the checkpoint and appends a line. A checkpoint that the run deletes meanwhile, because it
// keeps only the newest, is left out.
void follow_one(CheckpointEvaluator& evaluator, const EvalFollow::Next& next,
                const std::string& metrics) {
  std::optional<CheckpointEvaluator::Result> result;
  try {
    result = evaluator.run(next.path);
  } catch (const Error& error) {
    std::error_code ignored;
    if (error.code() != ErrorCode::kData || std::filesystem::exists(next.path, ignored)) throw;
    std::cerr << "[eval] " << next.path << " was deleted before it was evaluated" << std::endl;
    return;
  }
  const std::string text = json_of(next.path, result->checkpoint, result->job, result->heads);
  std::ofstream file(metrics, std::ios::app);
  file << text << "\n" << std::flush;
  if (!file)
    throw Error(ErrorCode::kIo, "[eval] cannot write " + printable(metrics, kMaxPathBytes));
  const HeadResult& first = result->heads.front();
  std::cout << "step " << next.step << "  " << to_string(first.info.metric) << " " << first.text()
            << "  loss " << std::fixed << std::setprecision(4) << first.loss().value_or(NAN)
            << std::endl;
}

int follow(const CommandLine& line, const std::string& store) {
  std::error_code error;
  const auto folder = std::filesystem::absolute(store, error).lexically_normal();
  if (error) {
    throw Error(ErrorCode::kData, "[eval] the working directory of " +
                                      printable(store, kMaxPathBytes) +
                                      " cannot be read: " + error.message());
  }
  const auto clean = folder.has_filename() ? folder : folder.parent_path();
  const std::string metrics = line.own("metrics", clean.parent_path() / "eval.jsonl");
  const double timeout_s = seconds_of(line, "follow-timeout", 3600);
  CheckpointEvaluator evaluator(line);
  EvalFollow follower(static_cast<int64_t>(timeout_s * 1000), now_ms());
  while (true) {
    const EvalFollow::Next next = follower.next(sight_of(clean), now_ms());
    switch (next.what) {
      case EvalFollow::Do::kEvaluate:
        follow_one(evaluator, next, metrics);
        follower.done(next.step, now_ms());
        break;
      case EvalFollow::Do::kWait:
        std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
        break;
      case EvalFollow::Do::kEnd:
        return 0;
      case EvalFollow::Do::kGiveUp:
        throw Error(ErrorCode::kUnreachable, "[eval] no new checkpoint in " + store + " for " +
                                                 std::to_string(static_cast<int64_t>(timeout_s)) +
                                                 " s, and its run has " +
                                                 (follower.saw_run() ? "not ended" : "not begun") +
                                                 "; --follow-timeout sets how long to wait");
    }
  }
}

}  // namespace

std::vector<HeadResult> evaluate_all(const Job& job, const Dataset& dataset, Model& model,
                                     std::span<const float> weights) {
  if (dataset.size(Split::kTest) == 0) {
    throw Error(ErrorCode::kData, "[eval] the test split of " + job.dataset + " has no samples");
  }
  Evaluator evaluator(job, dataset, model);
  std::vector<HeadResult> heads;
  for (const HeadInfo& head : model.heads()) heads.push_back({head, {}});
  for (int64_t chunk = 0; chunk < evaluator.chunks(); ++chunk) {
    const std::span<const HeadSums> sums = evaluator.run(weights, chunk);
    for (size_t i = 0; i < heads.size(); ++i) heads[i].sums.add(sums[i]);
  }
  return heads;
}

std::vector<float> weights_for(const Checkpoint& checkpoint, const TensorTable& table,
                               const std::string& path) {
  std::map<std::string, const TensorInfo*> stored;
  for (const TensorInfo& tensor : checkpoint.table.tensors) {
    stored[tensor.name] = &tensor;
  }
  std::vector<float> weights(static_cast<size_t>(table.total));
  for (const TensorInfo& wanted : table.tensors) {
    const auto found = stored.find(wanted.name);
    if (found == stored.end()) {
      throw Error(ErrorCode::kData, "[checkpoint] " + path + ": no tensor " + wanted.name + " " +
                                        shape_text(wanted.shape) + ", which the model needs");
    }
    const TensorInfo& tensor = *found->second;
    if (tensor.shape != wanted.shape) {
      throw Error(ErrorCode::kData, "[checkpoint] " + path + ": tensor " + wanted.name +
                                        " has shape " + shape_text(tensor.shape) +
                                        ", the model needs " + shape_text(wanted.shape) +
                                        ": is it another dataset or model?");
    }
    std::copy_n(checkpoint.weights.begin() + tensor.offset, tensor.size,
                weights.begin() + wanted.offset);
    stored.erase(found);
  }
  if (!stored.empty()) {
    throw Error(ErrorCode::kData, "[checkpoint] " + path + ": tensor " + stored.begin()->first +
                                      " is unknown to the model");
  }
  return weights;
}

const ProgramHelp& eval_help() {
  static const ProgramHelp help = {
      .name = "pushpull eval",
      .summary = "metrics of a checkpoint on the test split",
      .usage = {"pushpull eval OUT [--data-dir DIR] [--json]", "pushpull eval --checkpoint DIR",
                "pushpull eval --follow --checkpoint OUT/checkpoints"},
      .options = eval_options()};
  return help;
}

std::string checkpoint_path(const CommandLine& line, const std::string& tag) {
  const auto flag = line.local.find("checkpoint");
  if (line.positional.size() + (flag == line.local.end() ? 0 : 1) != 1) {
    throw Error(ErrorCode::kUsage,
                "[" + tag + "] a folder is needed: an output folder of a run, or --checkpoint DIR");
  }
  const std::string path = flag == line.local.end() ? line.positional.front() : flag->second;
  std::error_code error;
  const std::string inside = path + "/checkpoints";
  return std::filesystem::is_directory(inside, error) ? inside : path;
}

int eval_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, eval_options(), JobFlags::kRefuse);
  if (print_help(line, eval_help(), PUSHPULL_VERSION)) return 0;
  const std::string path = checkpoint_path(line, "eval");
  if (line.local.contains("follow")) return follow(line, path);
  for (const char* flag : {"metrics", "follow-timeout"}) {
    if (!line.local.contains(flag)) continue;
    throw Error(ErrorCode::kUsage, std::string("[eval] --") + flag + " belongs to --follow");
  }
  CheckpointEvaluator evaluator(line);
  const CheckpointEvaluator::Result result = evaluator.run(path);
  if (line.local.contains("json")) {
    std::cout << json_of(path, result.checkpoint, result.job, result.heads) << "\n";
  } else {
    print_table(path, result.checkpoint, result.job, result.heads);
  }
  return 0;
}

}  // namespace pushpull
