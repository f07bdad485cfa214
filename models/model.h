// A model: forward, loss and backward of one micro-batch over the flat parameter vector, and its
// tensor table in canonical order. Not thread-safe: one object per group of compute threads.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/device/device_name.h"
#include "common/layout/fields.h"
#include "common/layout/metric.h"
#include "common/layout/tensor_table.h"

namespace pushpull {

struct Job;

namespace ops {
struct BackendOptions;
}

// Called with the index of a tensor when its gradient (or reported running statistic) is final:
// exactly once per tensor and call of `train`, in backward order (last layer first).
using GradientReady = std::function<void(size_t tensor)>;

// Called with the index of each tensor before forward reads it, in forward order (first layer
// first). Returns once its weights have arrived. May throw; `train` is then abandoned.
using WeightsNeeded = std::function<void(size_t tensor)>;

class DeviceStep;
class GroupStage;
class Pipeline;

// The progress of a job, for models that are a program of the user's.
struct StepProgress {
  int64_t steps = 0;                         // complete ones
  std::optional<double> loss = {};           // mean of the last one, over all workers
  std::optional<double> learning_rate = {};  // lr-schedule = external: of the last one

  friend bool operator==(const StepProgress&, const StepProgress&) = default;
};

class Model {
 public:
  virtual ~Model() = default;

  // Returns shapes, update rules and init rules of all tensors. Names and order are those of
  // PyTorch's state_dict (with running statistics, without num_batches_tracked).
  const TensorTable& table() const { return table_; }

  // Returns what the heads of the model measure. The first drives charts and targets.
  const std::vector<HeadInfo>& heads() const { return heads_; }

  // Computes one micro-batch in training mode and returns its mean loss: the sum of its heads' mean
  // losses, weighted by head-weights.
  //   weights: table().total floats.
  //   samples: of job.micro_batch samples.
  //   gradients: table().total floats, overwritten. kOptimizer tensors: gradient of the *mean* loss
  //   of the micro-batch. kAverage tensors: the batch's statistic (mean or unbiased variance).
  //   needed: empty if all weights are present.
  virtual float train(std::span<const float> weights, const Samples& samples,
                      std::span<float> gradients, const GradientReady& ready,
                      const WeightsNeeded& needed = {}) = 0;

  // Returns an upper bound of the absolute values of a tensor's gradient in the latest `train`, once
  // it is ready, if the model knows one without reading it; otherwise infinity or NaN.
  virtual double gradient_bound(size_t /*tensor*/) const {
    return std::numeric_limits<double>::infinity();
  }

  // Computes one chunk in evaluation mode. The block always has job.micro_batch samples: those with
  // indices count, the rest is padding.
  //   sums: heads().size() sums over the chunk, overwritten.
  virtual void evaluate(std::span<const float> weights, const Samples& samples,
                        std::span<HeadSums> sums) = 0;

  // Returns the sums of the latest `evaluate` that the model's program has named.
  virtual NamedSums named_sums() const { return {}; }

  // Takes the weights after the last step of the job, if the worker has them when it is done.
  virtual void keep_final(std::span<const float> /*weights*/) {}

  // Takes the progress of the job at the weights of the next task, once they are all here.
  virtual void note_progress(const StepProgress& /*progress*/) {}
  // Returns the learning rate that the model's program had said when it ended its first micro-batch of the
  // latest step; nothing if the job has the rates.
  virtual std::optional<double> learning_rate() const { return {}; }

  // Returns the weights that a new run starts from, of all tensors in order; empty if the servers
  // draw them by the init rules. They do not change.
  virtual std::span<const float> own_weights() const { return {}; }

  // Returns the scores of the first head in the latest `evaluate`, one row for each target; empty on
  // a device and in bf16. Valid until the next call.
  virtual std::span<const float> scores() const { return {}; }

  // Returns the memory of values, gradients of values and what operations keep for backward, and the
  // number of micro-batches that it has room for; 0 if the model does not plan them.
  virtual size_t arena_bytes() const { return 0; }
  virtual size_t slots() const { return 0; }

  // Returns the interface that runs the model on a device without waiting, or null if the model
  // computes on the CPU.
  virtual DeviceStep* device_step() { return nullptr; }
  // Returns one DeviceStep per device.
  virtual std::vector<DeviceStep*> device_steps() {
    DeviceStep* const step = device_step();
    return step == nullptr ? std::vector<DeviceStep*>{} : std::vector<DeviceStep*>{step};
  }

  // Returns the interface that runs stages of the model at the same time, or null if it is not
  // divided.
  virtual Pipeline* pipeline() { return nullptr; }
  // Returns the interface of a model that a group of workers divides, or null.
  virtual GroupStage* group_stage() { return nullptr; }

  // Returns, as text, everything that must match between workers for equal bits (P1): device,
  // instruction set, libraries.
  virtual std::string numerics() const = 0;
  // Returns the algorithms in use, as text, if a library offers several, because bits depend on
  // them; "" if there is no choice. `choose` adopts those of a worker with equal numerics: it
  // rebuilds all plans and invalidates device_step(); "" changes nothing. Throws Error(kProtocol)
  // for an invalid text.
  virtual std::string choices() const { return {}; }
  virtual void choose(const std::string& choices) = 0;

 protected:
  TensorTable table_;
  std::vector<HeadInfo> heads_;
};

// A model that a job can name.
struct ModelInfo {
  std::string name;
  std::string data;               // that it learns from
  std::vector<std::string> keys;  // of the job that shape it, beside micro-batch and threads
};
std::vector<ModelInfo> model_list();

// The cost of a job's model.
struct ModelFigures {
  TensorTable table;
  std::vector<HeadInfo> heads;
  int64_t sample_flops = 0;  // of forward and backward of one sample, see ops::Spec::flops
  int64_t arena_bytes = 0;   // of a micro-batch: values, gradients of values, kept for backward
};

// Plans the model on the CPU with the checks of make_model, and allocates neither arena nor weights.
// It is planned in bf16 if the job says so and this processor has it, otherwise in fp32. Throws as
// make_model does.
ModelFigures figures_of_model(const Job& job, const FieldTable& fields);

// The cost of a stage of a job's model.
struct StagePlan {
  int64_t pieces = 0;      // between the cuts of the model
  int64_t layers = 0;      // operations with parameters
  int64_t parameters = 0;  // that are trained; of a tensor that several stages read, in the first
  int64_t flops = 0;       // of forward and backward of a micro-batch
  int64_t weights_bytes = 0;  // of all tensors that it reads
  int64_t slots = 0;          // most micro-batches between forward and backward
  int64_t arena_bytes = 0;    // of all slots
  int64_t bytes_out = 0;      // to the next stage, of a micro-batch
  // The share of a step in which it waits, if time is proportional to FLOP and the worker computes
  // the whole step.
  double bubble = 0.0;
};

// Plans the model in stages as figures_of_model does. Throws as make_staged_model does.
std::vector<StagePlan> plan_stages(const Job& job, const FieldTable& fields, int64_t stages);

// Returns the options of the backend that make_model creates: the keys of the job that set its
// arithmetic.
ops::BackendOptions backend_options(const Job& job, const device::DeviceName& device);

// Creates the model divided into stages. If the job has as many, to replay what its groups did, the table says where
// stages begin.
//   devices: of each stage, or one for all, on which each stage has a stream of its own; empty: the
//   CPU, with job.threads compute threads for each stage.
// Throws Error as make_model does; Error(kUsage) for a number of stages that does not fit, and for
// devices of different kinds.
std::unique_ptr<Model> make_staged_model(const Job& job, const FieldTable& fields, int64_t stages,
                                         std::span<const device::DeviceName> devices = {});

// Creates the model divided among a group of job.stages workers, for one of them, which divides its own stage again.
//   devices: of the local stages, as in make_staged_model.
// Its table says where stages of the job begin. Throws Error as make_staged_model does.
std::unique_ptr<Model> make_group_model(const Job& job, const FieldTable& fields,
                                        int64_t local_stages = 1,
                                        std::span<const device::DeviceName> devices = {});

// Creates the model named by job.model for samples with these fields, with micro-batches of
// job.micro_batch.
//   device: the CPU with job.threads compute threads, or one GPU.
// Throws Error(kUsage) for an unknown model or fields that do not fit it, Error(kDevice) for a
// device that cannot be used.
std::unique_ptr<Model> make_model(const Job& job, const FieldTable& fields,
                                  const device::DeviceName& device = {});

}  // namespace pushpull
