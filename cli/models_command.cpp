// `pushpull models`.

#include <bit>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/commands.h"
#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/text.h"
#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/layout/tensor_table.h"
#include "datasets/dataset.h"

namespace pushpull {
namespace {

using nlohmann::ordered_json;

constexpr int kModelWidth = 12;
constexpr int kDataWidth = 22;

const std::vector<KeyHelp>& models_options() {
  static const std::vector<KeyHelp> options = {
      takes("FILE",
            {"job", "", "job file (INI) whose model is described; keys as flags do as well"}),
      {"tensors", "", "also print a line for each tensor", "", false},
      {"json", "", "print JSON", "", false},
  };
  return options;
}

std::string field_text(const FieldInfo& field) {
  std::string text = field.name + (field.shape.empty() ? "" : " " + shape_text(field.shape));
  if (field.type == FieldType::kInt) {
    text += " from " + std::to_string(field.least) + " to " + std::to_string(field.limit - 1);
  }
  return text;
}

std::string mib(int64_t bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << static_cast<double>(bytes) / (1 << 20) << " MiB";
  return text.str();
}

const char* use_of(const TensorInfo& tensor) {
  if (tensor.rule == UpdateRule::kAverage) return "statistic";
  return tensor.decay ? "trained" : "trained without weight decay";
}

void print_row(std::ostream& out, const char* name, const std::string& value) {
  out << std::left << std::setw(kModelWidth) << name << " " << value << "\n";
}

}  // namespace

WorkerMemory worker_memory(const Job& job, const ModelFigures& figures) {
  WorkerMemory memory;
  memory.weights_bytes = figures.table.total * static_cast<int64_t>(sizeof(float));
  // The stack of GradientSum is deepest at the last leaf of the largest power of two.
  memory.gradient_buffers = std::bit_width(static_cast<uint64_t>(job.micro_batches()));
  memory.gradients_bytes = memory.gradient_buffers * memory.weights_bytes;
  memory.arena_bytes = figures.arena_bytes;
  return memory;
}

void list_models(std::ostream& out, bool json) {
  const std::vector<ModelInfo> models = model_list();
  if (json) {
    ordered_json list = ordered_json::array();
    for (const ModelInfo& model : models) {
      list.push_back({{"model", model.name}, {"data", model.data}, {"keys", model.keys}});
    }
    out << json_text(list) << "\n";
    return;
  }
  out << std::left << std::setw(kModelWidth) << "model"
      << " " << std::setw(kDataWidth) << "data"
      << " keys\n";
  for (const ModelInfo& model : models) {
    std::string keys;
    for (const std::string& key : model.keys) keys += (keys.empty() ? "" : ", ") + key;
    out << std::setw(kModelWidth) << model.name << " " << std::setw(kDataWidth) << model.data << " "
        << (keys.empty() ? "-" : keys) << "\n";
  }
  out << "docs/job-file.md explains the keys; --job FILE describes the model of a job\n";
}

void describe_model(std::ostream& out, const Job& job, const FieldTable& fields, bool tensors) {
  const ModelFigures figures = figures_of_model(job, fields);
  const WorkerMemory memory = worker_memory(job, figures);
  const int64_t parameters = figures.table.trainable();
  const int64_t statistics = figures.table.total - parameters;
  std::string data;
  for (const FieldInfo& field : fields.fields)
    data += (data.empty() ? "" : ", ") + field_text(field);
  std::string heads;
  for (const HeadInfo& head : figures.heads) {
    heads += (heads.empty() ? "" : ", ") + head.name + " (" + to_string(head.metric) + ")";
  }
  print_row(out, "model", job.model);
  print_row(out, "dataset", job.dataset + ": " + data);
  print_row(out, "heads", heads);
  print_row(out, "parameters",
            std::to_string(parameters) + " trained" +
                (statistics > 0 ? ", and " + std::to_string(statistics) + " statistics" : ""));
  print_row(out, "FLOP",
            std::to_string(figures.sample_flops) + " for forward and backward of a sample");
  print_row(out, "memory",
            mib(memory.total()) + " in a worker: weights " + mib(memory.weights_bytes) +
                ", gradients " + std::to_string(memory.gradient_buffers) + " x " +
                mib(memory.weights_bytes) + ", arena " + mib(memory.arena_bytes));
  if (!tensors) return;
  for (const TensorInfo& tensor : figures.table.tensors) {
    out << tensor.name << " " << shape_text(tensor.shape) << " " << use_of(tensor) << "\n";
  }
}

void describe_model_json(std::ostream& out, const Job& job, const FieldTable& fields) {
  const ModelFigures figures = figures_of_model(job, fields);
  const WorkerMemory memory = worker_memory(job, figures);
  ordered_json j;
  j["model"] = job.model;
  j["dataset"] = job.dataset;
  j["parameters"] = figures.table.trainable();
  j["statistics"] = figures.table.total - figures.table.trainable();
  j["flops"] = figures.sample_flops;
  j["memory_bytes"] = memory.total();
  j["weights_bytes"] = memory.weights_bytes;
  j["gradient_buffers"] = memory.gradient_buffers;
  j["gradients_bytes"] = memory.gradients_bytes;
  j["arena_bytes"] = memory.arena_bytes;
  j["micro_batch"] = job.micro_batch;
  j["heads"] = ordered_json::array();
  for (const HeadInfo& head : figures.heads) {
    j["heads"].push_back(
        {{"name", head.name}, {"metric", to_string(head.metric)}, {"targets", head.targets}});
  }
  j["fields"] = ordered_json::array();
  for (const FieldInfo& field : fields.fields) {
    ordered_json one = {{"name", field.name}, {"shape", field.shape}};
    one["type"] = field.type == FieldType::kInt ? "i32" : "f32";
    if (field.type == FieldType::kInt) {
      one["least"] = field.least;
      one["limit"] = field.limit;
    }
    j["fields"].push_back(one);
  }
  j["tensors"] = ordered_json::array();
  for (const TensorInfo& tensor : figures.table.tensors) {
    j["tensors"].push_back({{"name", tensor.name},
                            {"shape", tensor.shape},
                            {"trained", tensor.rule == UpdateRule::kOptimizer},
                            {"decay", tensor.decay}});
  }
  out << json_text(j) << "\n";
}

const ProgramHelp& models_help() {
  static const ProgramHelp help = {
      .name = "pushpull models",
      .summary = "the models, and what the model of a job costs",
      .usage = {"pushpull models [--json]",
                "pushpull models --job FILE [--KEY VALUE ...] [--tensors] [--json]"},
      .options = models_options(),
      .job_flags = JobFlags::kAccept};
  return help;
}

int models_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, models_options());
  if (print_help(line, models_help(), PUSHPULL_VERSION)) return 0;
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage, "[models] '" + printable(line.positional.front()) +
                                       "' is not a flag; give the job file as --job FILE");
  }
  const bool json = line.local.contains("json");
  const bool tensors = line.local.contains("tensors");
  if (!line.local.contains("job") && line.keys.empty()) {
    if (tensors) {
      throw Error(ErrorCode::kUsage, "[models] --tensors: a job is needed; give it as --job FILE");
    }
    list_models(std::cout, json);
    return 0;
  }
  const Job job = parse_job(line.own("job", ""), line.keys);
  refuse_external(job, "[models] " + line.own("job", "the job"),
                  "summary.json of a run has the number of its parameters");
  // The data give the shape of the fields, the number of classes and the vocabulary.
  const std::unique_ptr<Dataset> dataset = open_dataset(job);
  if (json) {
    describe_model_json(std::cout, job, dataset->fields());
  } else {
    describe_model(std::cout, job, dataset->fields(), tensors);
  }
  return 0;
}

}  // namespace pushpull
