// Overlaps three activities: copies to the device, on a separate stream; the network, on its
// backend's stream; and the host, which waits only for its own staging memory and for the end of a
// step. A slot of inputs is refilled after the run that read it; the copy of the weights is reused
// once the step has ended.
#include "models/device_step.h"

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/random.h"
#include "models/batch_results.h"
#include "models/planned_graph.h"

namespace pushpull {

namespace {

using device::Event;

constexpr int64_t kDeadlineMs = 60'000;

// Holds the inputs of a micro-batch on the host and on the device: the block, the keys of random
// operations, and the scales of the heads' gradients.
struct Slot {
  std::shared_ptr<float[]> host;
  ops::Buffer device;
  std::unique_ptr<Event> copied;
  std::unique_ptr<Event> used;       // recorded after the run that reads it
  std::vector<double> denominators;  // of the heads, for the loss
};

// The words of a slot. Keys of two words lie at an even word.
struct SlotLayout {
  SlotLayout(size_t block_words, size_t random_nodes, size_t heads)
      : block(block_words),
        keys((block_words + 1) / 2 * 2),
        scales(keys + 2 * random_nodes),
        words(scales + heads) {}
  size_t block;   // words; they come first
  size_t keys;    // first word
  size_t scales;  // first word
  size_t words;   // in all
};

using Place = DeviceTimes::Place;

// Nodes of forward that start together, once all their weights are on the device. The last part is
// followed by the heads and by backward.
struct Part {
  size_t begin = 0;  // nodes [begin, end)
  size_t end = 0;
  size_t tensors = 0;  // it and the parts before it read tensors [0, tensors)
};

// Splits forward into parts that have at least this many parameters each, but for the last one.
std::vector<Part> parts_of(const Graph& graph, int64_t parameters) {
  std::vector<Part> parts(1);
  int64_t floats = 0;  // of the last part
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    size_t tensors = parts.back().tensors;
    int64_t more = 0;
    for (const int32_t param : graph.nodes[i].params) {
      for (; tensors <= static_cast<size_t>(param); ++tensors) {
        more += graph.table.tensors[tensors].size;
      }
    }
    if (more > 0 && floats > 0 && floats >= parameters) {
      parts.push_back({.begin = i});
      floats = 0;
    }
    parts.back().end = i + 1;
    parts.back().tensors = tensors;
    floats += more;
  }
  return parts;
}

class GraphStep final : public DeviceStep {
 public:
  GraphStep(PlannedGraph& graph, uint64_t seed, const DeviceStepLimits& limits);
  ~GraphStep() override { drain(); }
  GraphStep(const GraphStep&) = delete;
  GraphStep& operator=(const GraphStep&) = delete;

  std::shared_ptr<device::Device> device() const override { return device_; }
  void begin(std::span<const float> weights) override;
  void stage(const Samples& samples) override;
  void unstage() override { staged_ = ran_; }  // a slot's copies run in order
  void run(float* gradients, const GradientReady& enqueued, const WeightsNeeded& needed) override;
  const Event& gradient(size_t tensor) const override { return *gradients_.at(tensor); }
  void write_after(const Event& event) override { compute_.wait(event); }
  std::span<const float> wait() override;
  void keep_times() override;
  std::span<const DeviceSpan> spans() const override { return spans_; }
  const Event& clock() const override { return times_->clock(); }

 private:
  void enqueue(const Place& place, const GradientReady& enqueued, const WeightsNeeded& needed);
  // Enqueues a part of a run; `ready` and `forward_done` are called in the last one.
  void compute(const Place& place, const Part& part, const GradientReady& ready,
               const std::function<void()>& forward_done);
  // The graphs of all parts, in order.
  using Graphs = std::vector<std::unique_ptr<device::Graph>>;
  const Graphs* graphs_at(const Place& place);
  void need(size_t end, const WeightsNeeded& needed);
  void upload(size_t end);
  int64_t begin_of(size_t tensor) const;
  void fill(Slot& slot, const Samples& samples) const;
  void take_loss();
  void drain() noexcept;

  const DeviceStepLimits limits_;
  PlannedGraph& graph_;
  const TensorTable& table_;
  const std::shared_ptr<device::Device> device_;
  device::Stream& compute_;
  const uint64_t seed_;
  const size_t results_;  // losses of a micro-batch
  const SlotLayout layout_;
  const std::vector<Part> parts_;

  ops::Buffer weights_;
  std::vector<std::unique_ptr<Event>> gradients_;  // one per tensor
  std::array<Slot, 2> slots_;
  std::shared_ptr<float[]> losses_;                // of limits_.losses runs, one per sample
  std::vector<std::vector<double>> denominators_;  // of the heads of these runs
  std::vector<std::unique_ptr<Event>> losses_copied_;
  std::unique_ptr<Event> uploaded_;
  std::unique_ptr<DeviceTimes> times_;  // null unless requested
  std::vector<DeviceSpan> spans_;

  std::span<const float> host_weights_;
  size_t tensors_here_ = 0;  // tensors of host_weights_ copied to the device
  size_t staged_ = 0;        // micro-batches since the start
  size_t ran_ = 0;
  size_t taken_ = 0;  // runs with losses in means_ or already returned
  std::vector<float> means_;
  std::vector<float> handed_out_;

  bool has_graphs_ = true;
  std::map<Place, Graphs> graphs_;  // of places with a complete run; empty after only one
  std::vector<size_t> order_;       // tensors in backward order, from the first complete run

  std::unique_ptr<device::Stream> in_;  // destroyed first: ends all copies
};

GraphStep::GraphStep(PlannedGraph& graph, uint64_t seed, const DeviceStepLimits& limits)
    : limits_(limits),
      graph_(graph),
      table_(graph.table()),
      device_(graph.backend().device()),
      compute_(graph.backend().stream()),
      seed_(seed),
      results_(graph.result_words()),
      layout_(graph.layout().words(), graph.random_nodes(), graph.graph().heads.size()),
      parts_(parts_of(graph.graph(), limits.graph_parameters)) {
  const ops::Backend::Scope scope(graph.backend());
  const FloatAllocator pinned =
      device::registered(device_, heap_floats, [this](const std::string& why) {
        Log("worker").warn("copying inputs to " + device_->name() + " takes longer: " + why);
      });
  weights_ = graph.backend().allocate(static_cast<size_t>(table_.total));
  for (size_t i = 0; i < table_.tensors.size(); ++i) gradients_.push_back(device_->event());
  for (Slot& slot : slots_) {
    slot = {pinned(layout_.words),
            graph.backend().allocate(layout_.words),
            device_->event(),
            device_->event(),
            {}};
  }
  losses_ = pinned(limits_.losses * results_);
  denominators_.resize(limits_.losses);
  for (size_t i = 0; i < limits_.losses; ++i) losses_copied_.push_back(device_->event());
  uploaded_ = device_->event();
  in_ = device_->stream();
}

void GraphStep::keep_times() {
  if (times_) return;
  PP_ASSERT(staged_ == 0);
  times_ = std::make_unique<DeviceTimes>(device_, limits_.losses + slots_.size());
}

void GraphStep::begin(std::span<const float> weights) {
  PP_ASSERT(weights.size() == static_cast<size_t>(table_.total));
  wait();
  host_weights_ = weights;
  tensors_here_ = 0;
}

void GraphStep::stage(const Samples& samples) {
  PP_ASSERT(staged_ - ran_ < slots_.size());
  const Graph& description = graph_.graph();
  check_samples(description, graph_.layout(), samples, description.samples);
  Slot& slot = slots_.at(staged_ % slots_.size());
  slot.copied->wait(kDeadlineMs);
  fill(slot, samples);
  const size_t bytes = layout_.words * sizeof(float);
  in_->wait(*slot.used);
  if (times_) times_->begin_inputs(*in_, staged_, static_cast<int64_t>(bytes));
  in_->copy_in(slot.host.get(), bytes, slot.device.data());
  if (times_) times_->end_inputs(*in_, staged_);
  in_->record(*slot.copied);
  ++staged_;
}

void GraphStep::fill(Slot& slot, const Samples& samples) const {
  float* host = slot.host.get();
  std::memcpy(host, samples.block.data(), samples.block.size_bytes());
  for (size_t i = 0; i < graph_.random_nodes(); ++i) {
    const uint64_t key =
        random_key(seed_, samples.step, samples.micro_batch, static_cast<uint32_t>(i));
    std::memcpy(host + layout_.keys + 2 * i, &key, sizeof key);
  }
  const Graph& graph = graph_.graph();
  slot.denominators.clear();
  for (size_t h = 0; h < graph.heads.size(); ++h) {
    slot.denominators.push_back(denominator_of(graph, h, graph_.layout(), samples));
    host[layout_.scales + h] = scale_of(graph.heads[h], slot.denominators[h]);
  }
}

void GraphStep::run(float* gradients, const GradientReady& enqueued, const WeightsNeeded& needed) {
  PP_ASSERT(ran_ < staged_ && host_weights_.data() != nullptr);
  const ops::Backend::Scope scope(graph_.backend());
  try {
    if (ran_ - taken_ == limits_.losses) {
      losses_copied_[taken_ % limits_.losses]->wait(kDeadlineMs);
      take_loss();
    }
    enqueue({ran_ % slots_.size(), gradients}, enqueued, needed);
  } catch (...) {
    drain();
    ran_ = taken_ = staged_;
    means_.clear();
    host_weights_ = {};
    if (times_) times_->drop();
    throw;
  }
}

void GraphStep::enqueue(const Place& place, const GradientReady& enqueued,
                        const WeightsNeeded& needed) {
  Slot& slot = slots_.at(place.first);
  compute_.wait(*slot.copied);
  if (times_) times_->begin_run(*in_, compute_, ran_);
  const Graphs* const graphs = graphs_at(place);
  std::vector<size_t> order;
  const GradientReady ready = [&](size_t tensor) {
    order.push_back(tensor);
    compute_.record(*gradients_[tensor]);
    enqueued(tensor);
  };
  const auto forward_done = [this] {
    if (times_) times_->end_forward(compute_, ran_);
  };
  for (size_t i = 0; i < parts_.size(); ++i) {
    need(parts_[i].tensors, needed);
    if (graphs != nullptr) {
      compute_.launch(*(*graphs)[i]);
    } else {
      compute(place, parts_[i], ready, forward_done);
    }
  }
  if (graphs != nullptr) {
    if (times_) times_->launched(place, ran_);
    for (const size_t tensor : order_) enqueued(tensor);
  } else {
    order_ = std::move(order);
    if (graphs_.size() < limits_.graphs) graphs_.try_emplace(place);
  }
  if (times_) times_->end_run(compute_, ran_);
  compute_.record(*slot.used);
  const size_t at = ran_ % limits_.losses;
  denominators_[at] = slot.denominators;
  compute_.copy_out(graph_.losses(), results_ * sizeof(float), losses_.get() + at * results_);
  compute_.record(*losses_copied_[at]);
  ++ran_;
}

void GraphStep::compute(const Place& place, const Part& part, const GradientReady& ready,
                        const std::function<void()>& forward_done) {
  const ops::Buffer& inputs = slots_.at(place.first).device;
  const auto total = static_cast<size_t>(table_.total);
  const PlannedGraph::Batch batch = {
      .weights = {weights_.data(), total},
      .block = inputs.data(),
      .keys = reinterpret_cast<const uint64_t*>(inputs.data() + layout_.keys),
      .scales = inputs.data() + layout_.scales,
      .gradients = {place.second, total}};
  graph_.forward(batch, part.begin, part.end);
  if (part.end < graph_.graph().nodes.size()) return;
  forward_done();
  graph_.backward(batch, ready);
}

// Returns the graphs to launch, or null to enqueue the run without them: in the first run at each
// place, because libraries load and allocate on first use, which cannot be captured.
const GraphStep::Graphs* GraphStep::graphs_at(const Place& place) {
  if (!has_graphs_) return nullptr;
  const auto found = graphs_.find(place);
  if (found == graphs_.end()) return nullptr;
  if (!found->second.empty()) return &found->second;
  const GradientReady ready = [this](size_t tensor) { compute_.record(*gradients_[tensor]); };
  const auto forward_done = [&] {
    if (times_) times_->end_forward(compute_, place);
  };
  Graphs graphs;
  for (const Part& part : parts_) {
    graphs.push_back(compute_.capture([&] { compute(place, part, ready, forward_done); }));
    if (graphs.back()) continue;
    has_graphs_ = false;
    return nullptr;
  }
  found->second = std::move(graphs);
  return &found->second;
}

// Enqueues the copies of tensors [0, end) that are not on the device yet. Called before the work
// that reads them is enqueued.
void GraphStep::need(size_t end, const WeightsNeeded& needed) {
  for (size_t tensor = tensors_here_; tensor < end; ++tensor) {
    if (needed) needed(tensor);
    const int64_t floats = begin_of(tensor + 1) - begin_of(tensors_here_);
    if (floats >= limits_.upload_floats || tensor + 1 == end) upload(tensor + 1);
  }
}

// Copies the tensors that are not on the device yet, up to `end`.
void GraphStep::upload(size_t end) {
  const auto first = static_cast<size_t>(begin_of(tensors_here_));
  const auto floats = static_cast<size_t>(begin_of(end)) - first;
  const size_t bytes = floats * sizeof(float);
  if (times_) times_->begin_weights(*in_, tensors_here_, static_cast<int64_t>(bytes));
  in_->copy_in(host_weights_.data() + first, bytes, weights_.data() + first);
  if (times_) times_->end_weights(*in_);
  in_->record(*uploaded_);
  compute_.wait(*uploaded_);
  tensors_here_ = end;
}

int64_t GraphStep::begin_of(size_t tensor) const {
  return tensor < table_.tensors.size() ? table_.tensors[tensor].offset : table_.total;
}

// Takes the loss of the oldest run; it must be on the host.
void GraphStep::take_loss() {
  const size_t at = taken_ % limits_.losses;
  means_.push_back(
      batch_loss(graph_.graph(), {losses_.get() + at * results_, results_}, denominators_[at]));
  ++taken_;
}

std::span<const float> GraphStep::wait() {
  // the last run's loss is copied last
  if (taken_ < ran_) losses_copied_[(ran_ - 1) % limits_.losses]->wait(kDeadlineMs);
  while (taken_ < ran_) take_loss();
  spans_.clear();
  if (times_ && !means_.empty()) spans_ = times_->take(ran_ - means_.size(), ran_);
  handed_out_.swap(means_);
  means_.clear();
  return handed_out_;
}

// Waits until no work reads or writes host memory.
void GraphStep::drain() noexcept {
  for (device::Stream* stream : {in_.get(), &compute_}) {
    try {
      stream->synchronize(kDeadlineMs);
    } catch (const Error&) {  // a failed device does no more work
      continue;
    }
  }
}

}  // namespace

std::unique_ptr<DeviceStep> make_device_step(PlannedGraph& graph, uint64_t seed,
                                             const DeviceStepLimits& limits) {
  return std::make_unique<GraphStep>(graph, seed, limits);
}

}  // namespace pushpull
