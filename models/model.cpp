#include "models/model.h"

#include <array>
#include <iterator>
#include <sstream>
#include <utility>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/graph_model.h"
#include "models/models.h"

namespace pushpull {

namespace {

void check_positive(const char* what, int64_t value) {
  if (value > 0 && value <= INT32_MAX) return;
  throw Error(ErrorCode::kUsage, std::string("[models] ") + what +
                                     " must be from 1 to 2147483647, got " + std::to_string(value));
}

// Throws Error(kUsage) if the dataset has no images with a label.
void check_image_fields(const Job& job, const FieldTable& fields) {
  const std::optional<size_t> pixels = fields.find("pixels");
  const std::optional<size_t> label = fields.find("label");
  if (!pixels || !label || fields.fields[*pixels].shape.size() != 3) {
    throw Error(ErrorCode::kUsage,
                "[models] model = " + job.model + " needs the fields pixels, label; dataset = " +
                    job.dataset + " has " + fields.names() + ": choose another dataset or model");
  }
  const std::vector<int64_t>& shape = fields.fields[*pixels].shape;
  check_positive("classes", fields.fields[*label].limit);
  check_positive("input channels", shape[0]);
  check_positive("input height", shape[1]);
  check_positive("input width", shape[2]);
  if (shape[0] > INT32_MAX / shape[1] / shape[2]) {
    throw Error(ErrorCode::kUsage, "[models] a sample of input " + std::to_string(shape[0]) + "x" +
                                       std::to_string(shape[1]) + "x" + std::to_string(shape[2]) +
                                       " has more than 2^31 elements; use a smaller one");
  }
  for (const int64_t width : job.hidden) check_positive("a width in hidden", width);
}

struct ModelEntry {
  const char* name;
  Graph (*graph)(const Job& job, const FieldTable& fields);
  bool has_images;
  const char* data = "";  // for `pushpull models`
  const char* keys = "";  // of the job, separated by spaces
};

constexpr const char* kImages = "images with a label";

constexpr auto kModels = std::to_array<ModelEntry>({
    {"mlp", mlp_graph, true, kImages, "hidden"},
    {"convnet", convnet_graph, true, kImages},
    {"gpt", gpt_graph, false, "tokens of a text",
     "layers heads embed ffn sequence positions dropout attention-dropout tie-embeddings norm"},
    {"bert", bert_graph, false, "questions about a text",
     "layers heads embed ffn sequence positions dropout attention-dropout"},
    {"resnet18", resnet18_graph, true, kImages, "stem"},
    {"resnet50", resnet50_graph, true, kImages, "stem"},
});

// Called before a backend is created, since opening a device is slow.
Graph graph_of(const Job& job, const FieldTable& fields) {
  check_positive("micro-batch", job.micro_batch);
  check_positive("threads", job.threads);
  std::string names;
  for (const ModelEntry& model : kModels) {
    if (job.model == model.name) {
      if (model.has_images) check_image_fields(job, fields);
      Graph graph = model.graph(job, fields);
      set_head_options(graph, job.head_weights, job.label_smoothing);
      return graph;
    }
    names += (names.empty() ? "" : ", ") + std::string(model.name);
  }
  if (job.model == "external") {
    throw Error(ErrorCode::kUsage,
                "[models] model = external: the model belongs to a program that is the worker "
                "itself; start that program, or choose one of " +
                    names);
  }
  throw Error(ErrorCode::kUsage, "[models] unknown model '" + job.model + "'; there are " + names);
}

std::unique_ptr<Model> make_on(std::unique_ptr<ops::Backend> backend, Graph graph, const Job& job) {
  return std::make_unique<GraphModel>(
      std::make_unique<PlannedGraph>(std::move(backend), std::move(graph)), job.seed);
}

}  // namespace

std::vector<ModelInfo> model_list() {
  std::vector<ModelInfo> list;
  for (const ModelEntry& model : kModels) {
    std::istringstream keys(model.keys);
    list.push_back({model.name, model.data, {std::istream_iterator<std::string>(keys), {}}});
  }
  return list;
}

ModelFigures figures_of_model(const Job& job, const FieldTable& fields) {
  const bool is_short = job.precision == "bf16" && ops::cpu_has_bf16();
  // A graph without slots is planned as any other, and allocates no arena.
  const PlannedGraph planned(
      ops::make_cpu_backend(static_cast<int>(job.threads),
                            is_short ? ops::Precision::kBf16 : ops::Precision::kFp32),
      graph_of(job, fields), 0);
  const Graph& graph = planned.graph();
  ModelFigures figures;
  figures.table = graph.table;
  figures.heads = head_infos(graph);
  figures.arena_bytes = static_cast<int64_t>(planned.memory_plan().bytes);
  int64_t flops = 0;
  for (const GraphNode& node : graph.nodes) flops += node.spec->flops();
  figures.sample_flops = flops / graph.samples;
  return figures;
}

std::unique_ptr<Model> make_model_on(std::unique_ptr<ops::Backend> backend, const Job& job,
                                     const FieldTable& fields) {
  return make_on(std::move(backend), graph_of(job, fields), job);
}

ops::BackendOptions backend_options(const Job& job, const device::DeviceName& device) {
  const ops::Precision precision = ops::parse_precision(job.precision);
  const bool is_scaled = precision == ops::Precision::kFp16;
  return {.device = device,
          .threads = static_cast<int>(job.threads),
          .precision = precision,
          .loss_scale = is_scaled ? static_cast<float>(job.loss_scale) : 1.0F,
          .measure = job.timed_algorithms};
}

std::unique_ptr<Model> make_model(const Job& job, const FieldTable& fields,
                                  const device::DeviceName& device) {
  Graph graph = graph_of(job, fields);
  return make_on(ops::make_backend(backend_options(job, device)), std::move(graph), job);
}

}  // namespace pushpull
