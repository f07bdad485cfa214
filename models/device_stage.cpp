#include "models/device_stage.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "common/base/buffer_pool.h"
#include "common/base/console.h"
#include "common/base/error.h"
#include "models/batch_results.h"

namespace pushpull {

namespace {

constexpr int64_t kPassDeadlineMs = 60'000;

std::set<size_t> tensors_read(const Graph& graph) {
  std::set<size_t> read;
  for (const GraphNode& node : graph.nodes) read.insert(node.params.begin(), node.params.end());
  return read;
}

// Returns the graph with a table in which the tensors that it reads lie one behind the other.
Graph packed(Graph graph) {
  graph.table.total = 0;
  for (const size_t tensor : tensors_read(graph)) {
    TensorInfo& info = graph.table.tensors[tensor];
    info.offset = graph.table.total;
    graph.table.total += info.size;
  }
  return graph;
}

}  // namespace

DeviceStage::DeviceStage(std::unique_ptr<ops::Backend> backend, const Graph& description,
                         size_t slots, Place place, uint64_t seed)
    : PlannedStage(std::make_unique<PlannedGraph>(std::move(backend), packed(description), slots),
                   description.table, std::move(place), seed),
      tensors_(description.table.tensors.size()),
      before_(description.edges.before.begin(), description.edges.before.end()) {
  ops::Backend& backend_here = graph().backend();
  const ops::Backend::Scope scope(backend_here);
  const std::shared_ptr<device::Device> device = backend_here.device();
  for (const size_t i : tensors_read(description)) {
    const TensorInfo& info = table().tensors[i];
    tensors_[i] = {.is_read = true,
                   .is_statistic = info.rule == UpdateRule::kAverage,
                   .on_host = static_cast<size_t>(info.offset),
                   .on_device = static_cast<size_t>(graph().table().tensors[i].offset),
                   .floats = static_cast<size_t>(info.size)};
    if (tensors_[i].is_statistic) statistics_.push_back(i);
  }
  for (const size_t i : tensors()) {
    if (!tensors_[i].is_statistic) tensors_[i].copied = device->event();
  }
  keys_at_ = (graph().layout().words() + 1) / 2 * 2;  // a key has two words
  scales_at_ = keys_at_ + 2 * graph().random_nodes();
  input_words_ = scales_at_ + description.heads.size();
  const auto words = static_cast<size_t>(graph().table().total);
  weights_ = backend_here.allocate(words);
  gradients_ = backend_here.allocate(words);
  for (size_t i = 0; i < slots; ++i) inputs_.push_back(backend_here.allocate(input_words_));
  const FloatAllocator pinned =
      device::registered(device, heap_floats, [device](const std::string& why) {
        Log("worker").warn("copying inputs to " + device->name() + " takes longer: " + why);
      });
  const size_t boundary = std::max(input_floats(), output_floats());
  host_inputs_ = pinned(input_words_);
  host_in_ = pinned(boundary);
  host_out_ = pinned(boundary);
  host_gradients_ = pinned(words);
  results_ = pinned(2 * slots * graph().result_words());
  forward_done_ = device->event();
  if (input_floats() > 0) backward_done_ = device->event();
  evaluated_ = device->event();
}

void DeviceStage::new_weights() {
  for (Tensor& tensor : tensors_) tensor.is_here = false;
}

PlannedGraph::Batch DeviceStage::view(const Pass& pass) const {
  const float* const inputs = inputs_of(pass.slot);
  return {.weights = {weights_.data(), weights_.size()},
          .block = inputs,
          .keys = reinterpret_cast<const uint64_t*>(inputs + keys_at_),
          .scales = inputs + scales_at_,
          .gradients = {gradients_.data(), gradients_.size()},
          .slot = pass.slot};
}

void DeviceStage::copy_weights(Tensor& tensor, std::span<const float> weights) {
  stream().copy_in(weights.data() + tensor.on_host, tensor.floats * sizeof(float),
                   weights_.data() + tensor.on_device);
}

void DeviceStage::copy_batch(const Prepared& batch, size_t slot) {
  float* const host = host_inputs_.get();
  const std::span<const uint64_t> keys = keys_of(batch);
  std::ranges::copy(batch.block, host);
  if (!keys.empty()) std::memcpy(host + keys_at_, keys.data(), keys.size_bytes());
  std::ranges::copy(batch.scales, host + scales_at_);
  stream().copy_in(host, input_words_ * sizeof(float), inputs_of(slot));
}

void DeviceStage::copy_in(const float* from, size_t bytes, void* to) {
  std::memcpy(host_in_.get(), from, bytes);
  stream().copy_in(host_in_.get(), bytes, to);
}

void DeviceStage::copy_out(const Tensor& tensor) {
  stream().copy_out(gradients_.data() + tensor.on_device, tensor.floats * sizeof(float),
                    host_gradients_.get() + tensor.on_device);
}

void DeviceStage::give(const Tensor& tensor, std::span<float> gradients) const {
  std::copy_n(host_gradients_.get() + tensor.on_device, tensor.floats,
              gradients.data() + tensor.on_host);
}

void DeviceStage::finish(device::Event& event) {
  stream().record(event);
  event.wait(kPassDeadlineMs);
}

DeviceStage::~DeviceStage() {
  const ops::Backend::Scope scope(graph().backend());
  drain();
}

void DeviceStage::drain() noexcept {
  try {
    stream().synchronize(kPassDeadlineMs);
  } catch (const Error&) {  // a failed device does no more work
    return;
  }
}

// Runs a pass; if it throws, its work ends first.
template <class Do>
void DeviceStage::pass(Do&& enqueue) {
  const ops::Backend::Scope scope(graph().backend());
  try {
    enqueue();
  } catch (...) {
    drain();
    throw;
  }
}

void DeviceStage::forward(const Pass& of, const float* input, float* output,
                          const WeightsNeeded& needed) {
  PP_ASSERT(of.weights.size() == static_cast<size_t>(table().total));
  const PlannedGraph::TensorHook here = [&](size_t index) {
    if (needed) needed(index);
    Tensor& tensor = tensors_[index];
    if (!tensor.is_read || std::exchange(tensor.is_here, true)) return;
    copy_weights(tensor, of.weights);
  };
  pass([&] {
    copy_batch(prepared(of), of.slot);
    if (input != nullptr) copy_in(input, graph().input_bytes(), graph().input(of.slot));
    planned().forward(view(of), here);
    if (output != nullptr) {
      stream().copy_out(graph().output(of.slot), graph().output_bytes(), host_out_.get());
    } else {
      stream().copy_out(graph().losses(of.slot), graph().result_words() * sizeof(float),
                        results_of(of.slot));
    }
    for (const size_t statistic : statistics_) copy_out(tensors_[statistic]);
    finish(*forward_done_);
  });
  if (output != nullptr) std::memcpy(output, host_out_.get(), graph().output_bytes());
  for (const size_t statistic : statistics_) give(tensors_[statistic], of.gradients);
}

// Statistics have returned in forward; gradients_ may have those of a later micro-batch.
void DeviceStage::backward(const Pass& of, const float* output_gradient, float* input_gradient,
                           const GradientReady& ready) {
  PP_ASSERT(of.gradients.size() == static_cast<size_t>(table().total));
  std::vector<size_t> order;
  pass([&] {
    if (output_gradient != nullptr) {
      copy_in(output_gradient, graph().output_bytes(), graph().output_gradient(of.slot));
    }
    for (const int32_t index : graph().graph().edges.behind) {
      const Tensor& tensor = tensors_[static_cast<size_t>(index)];
      float* const host = host_gradients_.get() + tensor.on_device;
      std::copy_n(of.gradients.data() + tensor.on_host, tensor.floats, host);
      stream().copy_in(host, tensor.floats * sizeof(float), gradients_.data() + tensor.on_device);
    }
    planned().backward(view(of), [&](size_t index) {
      order.push_back(index);
      const Tensor& tensor = tensors_[index];
      if (!tensor.copied) return;
      copy_out(tensor);
      stream().record(*tensor.copied);
    });
    for (const size_t tensor : before_) copy_out(tensors_[tensor]);
    if (input_gradient != nullptr) {
      stream().copy_out(graph().input_gradient(of.slot), graph().input_bytes(), host_out_.get());
      stream().record(*backward_done_);
    }
    for (const size_t index : order) {
      const Tensor& tensor = tensors_[index];
      if (tensor.copied) {
        tensor.copied->wait(kPassDeadlineMs);
        give(tensor, of.gradients);
      }
      ready(index);
    }
    // in the first stage the last tensor ends the pass
    if (input_gradient != nullptr) backward_done_->wait(kPassDeadlineMs);
  });
  for (const size_t tensor : before_) give(tensors_[tensor], of.gradients);
  if (input_gradient != nullptr) {
    std::memcpy(input_gradient, host_out_.get(), graph().input_bytes());
  }
}

float DeviceStage::loss(const Pass& of) const { return mean_loss(results_of(of.slot), of); }

void DeviceStage::evaluate(std::span<const float> weights, const Samples& samples,
                           const float* input, float* output, std::span<HeadSums> sums) {
  const Graph& description = graph().graph();
  PP_ASSERT(sums.size() == description.heads.size());
  const int64_t valid = std::ssize(samples.indices);
  check_samples(description, graph().layout(), samples, valid);
  new_weights();  // those of the next pass are others
  const size_t words = graph().result_words();
  float* const results = results_of(0);
  pass([&] {
    for (Tensor& tensor : tensors_) {
      if (tensor.is_read) copy_weights(tensor, weights);
    }
    std::ranges::copy(samples.block, host_inputs_.get());
    stream().copy_in(host_inputs_.get(), samples.block.size_bytes(), inputs_of(0));
    if (input != nullptr) copy_in(input, graph().input_bytes(), graph().input());
    planned().evaluate({weights_.data(), weights_.size()}, inputs_of(0), valid);
    if (output != nullptr) {
      stream().copy_out(graph().output(), graph().output_bytes(), host_out_.get());
    } else {
      stream().copy_out(graph().losses(), words * sizeof(float), results);
      stream().copy_out(graph().predictions(), words * sizeof(float), results + words);
    }
    finish(*evaluated_);
  });
  if (output != nullptr) std::memcpy(output, host_out_.get(), graph().output_bytes());
  batch_sums(description, graph().layout(), samples, {results, words},
             {reinterpret_cast<const int32_t*>(results + words), words}, sums);
}

}  // namespace pushpull
