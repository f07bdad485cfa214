#include "cli/eval_command.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/base/error.h"
#include "common/help/program_help.h"
#include "common/io/head_json.h"
#include "common/job/command_line.h"
#include "common/job/external_job.h"
#include "common/job/job.h"
#include "common/job/key_help.h"
#include "common/layout/tensor_table.h"
#include "worker/compute/evaluate.h"
#include "worker/program/devices.h"

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
      takes("fp32|tf32|bf16|fp16", {"precision", "the job's", "arithmetic of a GPU"}),
      takes(kDeviceWords, {"device", "cpu", "device to compute on: cpu, auto, cuda, cuda:N"}),
      {"json", "", "print one JSON object", "", false},
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
  replaced.erase("device");
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
  std::cout << "checkpoint  " << path << ", step " << checkpoint.state.step << " of "
            << checkpoint.state.total_steps << "\n"
            << "model       " << job.model << "\n"
            << "dataset     " << job.dataset << ", test split\n"
            << std::fixed << std::setprecision(4);
  for (const HeadResult& head : heads) {
    const bool only = heads.size() == 1;
    const std::string of = only ? "" : " of " + head.info.name;
    const std::string metric = to_string(head.info.metric) + of;
    std::cout << std::left << std::setw(kNameWidth) << metric << " " << head.value().value_or(NAN);
    if (counts_targets(head.info.metric)) {
      std::cout << " (" << correct_targets(head) << " of " << head.sums.counted << " correct)";
    }
    std::cout << "\n"
              << std::setw(kNameWidth) << "loss" + of << " " << head.loss().value_or(NAN) << "\n";
  }
}

void print_json(const std::string& path, const Checkpoint& checkpoint, const Job& job,
                const std::vector<HeadResult>& heads) {
  nlohmann::ordered_json out;
  out["checkpoint"] = path;
  out["step"] = checkpoint.state.step;
  out["model"] = job.model;
  out["dataset"] = job.dataset;
  add_heads(out, heads);
  std::cout << out.dump() << "\n";
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
      .usage = {"pushpull eval --checkpoint DIR [--data-dir DIR] [--json]"},
      .options = eval_options()};
  return help;
}

int eval_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, eval_options(), JobFlags::kRefuse);
  if (print_help(line, eval_help(), PUSHPULL_VERSION)) return 0;
  const auto folder = line.local.find("checkpoint");
  if (folder == line.local.end() || !line.positional.empty()) {
    throw Error(ErrorCode::kUsage, "[eval] a folder is needed: --checkpoint DIR");
  }
  const std::string& path = folder->second;
  const Checkpoint checkpoint = read_checkpoint(path);
  const Job job = job_of(checkpoint, line, path);
  refuse_external(job, "[eval] " + path,
                  "load model.safetensors there; the run's own evaluations are in summary.json");
  const std::unique_ptr<Dataset> dataset = open_dataset(job, "", checkpoint.state.tokenizer);
  const auto flag = line.local.find("device");
  const device::DeviceName device =
      choose_device(flag == line.local.end() ? "" : flag->second,
                    [](const std::string& text) { std::cerr << "[eval] " << text << std::endl; });
  const std::unique_ptr<Model> model = make_model(job, dataset->fields(), device);
  const std::vector<float> weights = weights_for(checkpoint, model->table(), path);
  const std::vector<HeadResult> heads = evaluate_all(job, *dataset, *model, weights);
  if (line.local.contains("json")) {
    print_json(path, checkpoint, job, heads);
  } else {
    print_table(path, checkpoint, job, heads);
  }
  return 0;
}

}  // namespace pushpull
