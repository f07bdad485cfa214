// A model as a static graph of operations: values, parameters, the fields of a sample, and heads
// whose losses add up. Plain data, made once by a GraphBuilder; models/planned_graph.h runs
// it on a backend.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/layout/fields.h"
#include "common/layout/metric.h"
#include "common/layout/tensor_table.h"
#include "models/ops/operation.h"

namespace pushpull {

struct Value {
  int32_t index = -1;
};

// A tensor of the table.
struct Param {
  int32_t index = -1;
};

struct Init {
  InitKind kind = InitKind::kConstant;
  float value = 0.0F;
};
Init constant(float value);
// Uniform in +-1/sqrt(fan_in): the reset_parameters() of torch.nn's Linear and Conv2d.
Init uniform_of(int64_t fan_in);

// Normal with mean 0 and this standard deviation.
Init normal_of(double deviation);

enum class Loss { kCrossEntropy, kSquaredError };

// A loss over an output of the graph.
struct Head {
  std::string name;  // as in HeadInfo
  Loss loss = Loss::kCrossEntropy;
  Metric metric = Metric::kAccuracy;
  float weight = 1.0F;                  // of its loss in the sum
  std::optional<int32_t> ignored = {};  // label that does not count
  float smoothing = 0.0F;               // in training
  // In training; the mean divides by their sum over the counted targets, as torch. Empty: all 1.
  std::vector<float> class_weights = {};
  std::string partner = {};  // kExactMatch: the head that must be right, too
};

struct GraphNode {
  std::string name;  // for messages
  std::shared_ptr<const ops::Spec> spec;
  std::vector<int32_t> inputs;  // values
  std::vector<int32_t> params;  // tensors, as the specification orders them
  int32_t output = -1;          // value
};

struct GraphHead {
  Head head;
  std::shared_ptr<const ops::Spec> spec;
  int32_t scores = -1;  // value
  int32_t target = -1;  // value of a field
  int64_t targets = 1;  // of one sample
};

// The values and tensors that a stage of a pipeline (models/stages.h) shares with its neighbours. An
// undivided graph shares none. Tensors are indices of the table, which is that of the whole model.
struct StageEdges {
  int32_t input = -1;       // value that the stage before computes
  int32_t output = -1;      // value that the stage behind reads
  size_t random_nodes = 0;  // in all stages before
  std::vector<int32_t> before =
      {};  // tensors that a stage before reads, too: it finishes their gradients
  std::vector<int32_t> behind =
      {};  // tensors that a stage behind reads, too: it has begun their gradients
};

struct Graph {
  int64_t samples = 0;  // per micro-batch
  FieldTable fields;    // of the dataset
  TensorTable table;
  std::vector<ops::ValueType> values;
  std::vector<int32_t> field_of_value;  // -1: computed
  std::vector<GraphNode> nodes;         // in the order of computation
  std::vector<GraphHead> heads;
  std::vector<size_t> cuts;  // nodes before which a pipeline stage may begin
  StageEdges edges = {};
};

class GraphBuilder {
 public:
  // model, dataset: their names, for messages.
  GraphBuilder(std::string model, std::string dataset, int64_t samples, const FieldTable& fields);

  int64_t samples() const { return graph_.samples; }
  // Throws Error(kUsage) that lists the fields of the dataset, if it has no such field.
  const FieldInfo& field(const std::string& name) const;
  // Returns the field as a value: floats as activations, ints as they are.
  Value input(const std::string& field);

  // decay: TensorInfo::decay.
  Param param(const std::string& name, std::vector<int64_t> shape, const Init& init,
              bool decay = true);
  // A running statistic with torch's momentum of 0.1, see UpdateRule::kAverage.
  Param statistic(const std::string& name, int64_t size, float value);

  // Appends an operation. Throws Error(kUsage) that names it, if its inputs do not fit.
  Value add(const std::string& name, std::shared_ptr<const ops::Spec> spec,
            const std::vector<Value>& inputs, const std::vector<Param>& params = {});
  // Adds a loss of `scores`: [..., classes] for cross-entropy, whose target is an int field.
  void head(const Head& head, Value scores, const std::string& target_field);
  void cut() { graph_.cuts.push_back(graph_.nodes.size()); }

  const ops::ValueType& type(Value value) const;
  const ops::Shape& shape(Value value) const { return type(value).shape; }
  const std::vector<int64_t>& shape(Param param) const;
  // Returns the graph. It must have a head, and each parameter a reader.
  Graph take();

 private:
  int32_t add_value(ops::ValueType type, int32_t field);
  // Returns the value of the field as it is in the block.
  int32_t raw(const std::string& field);

  std::string model_;
  std::string dataset_;
  Graph graph_;
};

// Sets what a job chooses for its heads: the factors of their losses, and the smoothing of those
// with cross-entropy. Throws Error(kUsage) that lists the heads, if a weight names none of them.
void set_head_options(Graph& graph, const HeadWeights& weights, double smoothing);

// Returns the index of a head's first result: all heads have one per target of a micro-batch, one
// head after the other. The number of heads gives the number of all results.
size_t first_result(const Graph& graph, size_t head);

// Returns the tensors that operations of the graph read and no stage before does, ascending: those
// whose gradients it finishes.
std::vector<size_t> own_tensors(const Graph& graph);

// Returns what the heads measure.
std::vector<HeadInfo> head_infos(const Graph& graph);

}  // namespace pushpull
