#include "models/model.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "common/base/error.h"
#include "common/job/job.h"
#include "models/graph_model.h"
#include "models/group_model.h"
#include "models/models.h"
#include "models/ops/choices.h"
#include "models/staged_model.h"
#include "models/stages.h"

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

std::unique_ptr<ops::Backend> planning_backend(const Job& job) {
  const bool is_short = job.precision == "bf16" && ops::cpu_has_bf16();
  return ops::make_cpu_backend(static_cast<int>(job.threads),
                               is_short ? ops::Precision::kBf16 : ops::Precision::kFp32);
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
  // A graph without slots is planned as any other, and allocates no arena.
  const PlannedGraph planned(planning_backend(job), graph_of(job, fields), 0);
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

namespace {

// A forward pass takes a third of a stage's FLOP, a backward pass the rest.
void set_bubbles(const Job& job, std::vector<StagePlan>& stages) {
  std::vector<PassCosts> costs;
  for (const StagePlan& stage : stages) {
    const auto flops = static_cast<double>(stage.flops);
    costs.push_back({flops / 3.0, flops * 2.0 / 3.0});
  }
  const std::vector<double> bubbles = stage_bubbles(job.stage_schedule, costs, job.micro_batches());
  for (size_t s = 0; s < stages.size(); ++s) stages[s].bubble = bubbles[s];
}

}  // namespace

std::vector<StagePlan> plan_stages(const Job& job, const FieldTable& fields, int64_t stages) {
  const Graph graph = graph_of(job, fields);
  const std::vector<Range> nodes = stage_nodes(graph, stages, Balance::parse(job.balance));
  const std::vector<int64_t> pieces = pieces_in(graph, nodes);
  std::vector<StagePlan> out;
  for (int64_t s = 0; s < stages; ++s) {
    const PlannedGraph planned(planning_backend(job),
                               stage_graph(graph, nodes, static_cast<size_t>(s)), 0);
    const StageCost cost = cost_of(planned.graph());
    StagePlan plan;
    plan.pieces = pieces[static_cast<size_t>(s)];
    plan.layers = cost.layers;
    plan.parameters = cost.parameters;
    plan.flops = cost.flops;
    std::set<int32_t> read;
    for (const GraphNode& node : planned.graph().nodes) {
      read.insert(node.params.begin(), node.params.end());
    }
    for (const int32_t tensor : read) {
      plan.weights_bytes += graph.table.tensors[static_cast<size_t>(tensor)].size *
                            static_cast<int64_t>(sizeof(float));
    }
    plan.slots = stage_slots(job.stage_schedule, stages, s, job.micro_batches());
    plan.arena_bytes = plan.slots * static_cast<int64_t>(planned.memory_plan().bytes);
    plan.bytes_out = static_cast<int64_t>(planned.output_bytes());
    out.push_back(plan);
  }
  set_bubbles(job, out);
  return out;
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

// Each stage takes the algorithms of those before, so that equal operations have equal bits.
std::unique_ptr<Model> make_staged_model_on(
    const std::function<std::unique_ptr<ops::Backend>(int64_t stage)>& backend, const Job& job,
    const FieldTable& fields, int64_t stages) {
  Graph graph = graph_of(job, fields);
  const std::vector<Range> nodes = stage_nodes(graph, stages, Balance::parse(job.balance));
  if (stages == job.stages) mark_stages(graph.table, tensors_read_by(graph, nodes));
  std::vector<std::unique_ptr<PlannedStage>> planned;
  ops::Choices choices;
  for (int64_t s = 0; s < stages; ++s) {
    const int64_t slots = stage_slots(job.stage_schedule, stages, s, job.micro_batches());
    std::unique_ptr<ops::Backend> its_own = backend(s);
    if (!choices.empty()) its_own->choose(choices.text());
    planned.push_back(
        make_planned_stage(std::move(its_own), stage_graph(graph, nodes, static_cast<size_t>(s)),
                           static_cast<size_t>(slots), {job.stage_schedule, stages, s}, job.seed));
    choices.add(ops::Choices::parse(planned.back()->graph().backend().choices()));
  }
  return std::make_unique<StagedModel>(std::move(planned));
}

namespace {

// Returns what makes the backend of each stage: on its device, or on the one for all.
GroupModel::MakeBackend backends_of_stages(const Job& job, int64_t stages,
                                           std::span<const device::DeviceName> devices) {
  PP_ASSERT(devices.size() <= 1 || std::ssize(devices) == stages);
  std::vector<ops::BackendOptions> options;
  for (const device::DeviceName& device : devices) options.push_back(backend_options(job, device));
  if (options.empty()) options.push_back(backend_options(job, {}));
  return [options](int64_t stage) {
    return ops::make_backend(options.size() > 1 ? options[static_cast<size_t>(stage)]
                                                : options.front());
  };
}

}  // namespace

std::unique_ptr<Model> make_staged_model(const Job& job, const FieldTable& fields, int64_t stages,
                                         std::span<const device::DeviceName> devices) {
  return make_staged_model_on(backends_of_stages(job, stages, devices), job, fields, stages);
}

namespace {

// Refuses what workers of groups cannot agree on, as they know neither each other's algorithms nor devices.
void check_agreement(const GroupModel& model, const Job& job) {
  if (!model.is_on_device()) return;
  if (job.timed_algorithms) {
    throw Error(ErrorCode::kUsage,
                "[usage] algorithms = timed: with stages = " + std::to_string(job.stages) +
                    " each group on GPUs would choose others; use algorithms = library");
  }
  const bool may_differ = !job.strategy.traits().same_bits || job.mixed_numerics;
  if (may_differ && model.passes_images()) {
    throw Error(ErrorCode::kUsage,
                "[usage] --device: stages of model = " + job.model +
                    " pass images in the layout of their device, and the devices of a group may "
                    "differ in this job; use strategy = sync with numerics = same, or --stages of "
                    "one worker");
  }
}

}  // namespace

std::unique_ptr<Model> make_group_model_on(GroupModel::MakeBackend backend, const Job& job,
                                           const FieldTable& fields, int64_t local_stages) {
  Graph graph = graph_of(job, fields);
  const Balance balance = Balance::parse(job.balance);
  std::vector<Range> nodes = stage_nodes(graph, job.stages, balance);
  auto model = std::make_unique<GroupModel>(std::move(graph), std::move(nodes), std::move(backend),
                                            job.stage_schedule, job.seed,
                                            LocalStages{local_stages, balance});
  check_agreement(*model, job);
  return model;
}

std::unique_ptr<Model> make_group_model(const Job& job, const FieldTable& fields,
                                        int64_t local_stages,
                                        std::span<const device::DeviceName> devices) {
  return make_group_model_on(backends_of_stages(job, local_stages, devices), job, fields,
                             local_stages);
}

std::unique_ptr<Model> make_model(const Job& job, const FieldTable& fields,
                                  const device::DeviceName& device) {
  Graph graph = graph_of(job, fields);
  return make_on(ops::make_backend(backend_options(job, device)), std::move(graph), job);
}

}  // namespace pushpull
