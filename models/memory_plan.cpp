#include "models/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/error.h"

namespace pushpull {

namespace {

bool overlap(const Region& a, const Region& b) { return a.first <= b.last && b.first <= a.last; }

// Returns the largest sum of sizes that are alive at one event. It is reached where a region begins.
size_t largest_live(const std::vector<Region>& regions, const std::vector<size_t>& sizes) {
  size_t largest = 0;
  for (const Region& at : regions) {
    size_t live = 0;
    for (size_t i = 0; i < regions.size(); ++i) {
      if (regions[i].first <= at.first && at.first <= regions[i].last) live += sizes[i];
    }
    largest = std::max(largest, live);
  }
  return largest;
}

// Returns the lowest offset with room for `bytes` between the taken ranges [begin, end).
size_t lowest_gap(std::vector<std::pair<size_t, size_t>> taken, size_t bytes) {
  std::sort(taken.begin(), taken.end());
  size_t offset = 0;
  for (const auto& [begin, end] : taken) {
    if (begin >= offset + bytes) break;
    offset = std::max(offset, end);
  }
  return offset;
}

}  // namespace

MemoryPlan plan_memory(const std::vector<Region>& regions, size_t alignment) {
  PP_ASSERT(alignment > 0 && (alignment & (alignment - 1)) == 0);
  std::vector<size_t> sizes;
  for (const Region& region : regions) {
    PP_ASSERT(region.first <= region.last);
    sizes.push_back((region.bytes + alignment - 1) / alignment * alignment);
  }
  std::vector<size_t> order(regions.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });

  MemoryPlan plan;
  plan.offsets.resize(regions.size());
  plan.largest_live = largest_live(regions, sizes);
  for (size_t n = 0; n < order.size(); ++n) {
    const size_t own = order[n];
    std::vector<std::pair<size_t, size_t>> taken;
    for (size_t k = 0; k < n; ++k) {
      const size_t other = order[k];
      if (!overlap(regions[own], regions[other])) continue;
      taken.emplace_back(plan.offsets[other], plan.offsets[other] + sizes[other]);
    }
    plan.offsets[own] = lowest_gap(std::move(taken), sizes[own]);
    plan.bytes = std::max(plan.bytes, plan.offsets[own] + sizes[own]);
  }
  return plan;
}

namespace {

constexpr size_t kAlignment = 256;

class Liveness {
 public:
  Liveness(const Graph& graph, const GraphNeeds& needs)
      : graph_(graph),
        needs_(needs),
        nodes_(static_cast<int32_t>(graph.nodes.size())),
        heads_(static_cast<int32_t>(graph.heads.size())),
        producer_(graph.values.size(), -1),
        last_read_(graph.values.size(), -1),
        wanted_(graph.values.size(), false),
        has_writer_(graph.table.tensors.size(), false) {
    memory_.values.assign(graph.values.size(), -1);
    memory_.gradients.assign(graph.values.size(), -1);
    memory_.nodes.resize(graph.nodes.size());
    memory_.heads.resize(graph.heads.size());
  }

  GraphMemory run() {
    read_graph();
    place_values();
    if (graph_.edges.output >= 0) place_output_gradient();
    for (int32_t h = heads_; h-- > 0;) place_head(h);
    for (int32_t i = nodes_; i-- > 0;) place_backward(i);
    memory_.result_words = first_result(graph_, graph_.heads.size());
    memory_.results = region(2 * memory_.result_words * sizeof(float), 0, end());
    memory_.plan = plan_memory(regions_, kAlignment);
    return std::move(memory_);
  }

 private:
  static size_t at(int32_t index) { return static_cast<size_t>(index); }
  int32_t forward(int32_t node) const { return node; }
  int32_t head_forward(int32_t head) const { return nodes_ + head; }
  int32_t head_backward(int32_t head) const { return nodes_ + 2 * heads_ - 1 - head; }
  int32_t backward(int32_t node) const { return 2 * (nodes_ + heads_) - 1 - node; }
  int32_t last_forward() const { return nodes_ + heads_ - 1; }
  int32_t end() const { return 2 * (nodes_ + heads_) - 1; }

  int32_t region(size_t bytes, int32_t first, int32_t last) {
    regions_.push_back({bytes, first, last});
    return static_cast<int32_t>(regions_.size()) - 1;
  }
  void extend(int32_t region, int32_t last) {
    regions_[at(region)].last = std::max(regions_[at(region)].last, last);
  }
  // Zeros that pad a value's blocks must stay: its memory is its own for all time.
  bool is_padded(int32_t value) const { return needs_.padded[at(value)]; }
  static size_t at32(int64_t size) { return static_cast<size_t>(size); }
  // Returns whether a value may move into a region that is read for the last time at `event`.
  bool can_take(int32_t region, int32_t value, int32_t event) const {
    return region >= 0 && regions_[at(region)].last == event &&
           regions_[at(region)].bytes == needs_.value_bytes[at(value)] && !is_padded(value);
  }

  void read_graph() {
    for (const int32_t tensor : graph_.edges.behind) has_writer_[at(tensor)] = true;
    if (graph_.edges.input >= 0) wanted_[at(graph_.edges.input)] = true;
    for (int32_t i = 0; i < nodes_; ++i) {
      const GraphNode& node = graph_.nodes[at(i)];
      const ops::Needs& needs = needs_.nodes[at(i)];
      producer_[at(node.output)] = i;
      const bool trains = std::ranges::any_of(node.params, [&](int32_t param) {
        return graph_.table.tensors[at(param)].rule == UpdateRule::kOptimizer;
      });
      wanted_[at(node.output)] = trains;
      last_read_[at(node.output)] = needs.output ? backward(i) : forward(i);
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const size_t x = at(node.inputs[k]);
        if (wanted_[x]) wanted_[at(node.output)] = true;
        const bool later = (needs.inputs >> k & 1U) != 0;
        last_read_[x] = std::max(last_read_[x], later ? backward(i) : forward(i));
      }
    }
    for (int32_t h = 0; h < heads_; ++h) {
      const size_t x = at(graph_.heads[at(h)].scores);
      const bool later = (needs_.heads[at(h)].inputs & 1U) != 0;
      last_read_[x] = std::max(last_read_[x], later ? head_backward(h) : head_forward(h));
    }
    if (graph_.edges.output < 0) return;
    int32_t& last = last_read_[at(graph_.edges.output)];
    last = std::max(last, last_forward());  // the stage behind gets it then
  }

  void place_values() {
    if (const int32_t input = graph_.edges.input; input >= 0) {
      const int32_t last = is_padded(input) ? end() : last_read_[at(input)];
      memory_.values[at(input)] = region(needs_.value_bytes[at(input)], 0, last);
    }
    for (int32_t i = 0; i < nodes_; ++i) {
      const GraphNode& node = graph_.nodes[at(i)];
      const ops::Needs& needs = needs_.nodes[at(i)];
      const size_t bytes = needs_.value_bytes[at(node.output)];
      if (needs.kept_bytes > 0) {
        memory_.nodes[at(i)].kept = region(needs.kept_bytes, forward(i), backward(i));
      }
      if (needs.is_view) {
        PP_ASSERT(graph_.field_of_value[at(node.inputs[0])] >= 0);
        continue;
      }
      int32_t& place = memory_.values[at(node.output)];
      const int32_t last = last_read_[at(node.output)];
      if (is_padded(node.output)) {
        place = region(bytes, 0, end());
      } else if (needs.in_place &&
                 can_take(memory_.values[at(node.inputs[0])], node.output, forward(i))) {
        place = memory_.values[at(node.inputs[0])];
        extend(place, last);
      } else {
        place = region(bytes, forward(i), last);
      }
    }
  }

  // Returns the event at which the gradient of a value is read for the last time. The stage before
  // gets that of the input at the end.
  int32_t gradient_end(int32_t value) const {
    const int32_t producer = producer_[at(value)];
    return producer < 0 ? end() : backward(producer);
  }

  // The stage behind gives it before the first event of backward.
  void place_output_gradient() {
    const int32_t output = graph_.edges.output;
    PP_ASSERT(wanted_[at(output)]);
    memory_.gradients[at(output)] = new_gradient(output, last_forward() + 1);
  }

  // Makes the place of a gradient that is written at `event` for the first time.
  int32_t new_gradient(int32_t value, int32_t event) {
    const int32_t last = gradient_end(value);
    const size_t bytes = needs_.value_bytes[at(value)];
    return is_padded(value) ? region(bytes, 0, end()) : region(bytes, event, last);
  }

  void place_head(int32_t h) {
    const ops::Needs& needs = needs_.heads[at(h)];
    const int32_t event = head_backward(h);
    const int32_t x = graph_.heads[at(h)].scores;
    GraphMemory::Node& own = memory_.heads[at(h)];
    if (needs.kept_bytes > 0) own.kept = region(needs.kept_bytes, head_forward(h), event);
    if (!wanted_[at(x)]) return;
    int32_t& place = memory_.gradients[at(x)];
    if (place >= 0) {
      own.sums[0] = region(needs_.value_bytes[at(x)], event, event);
    } else if (needs.gradient_in_input && can_take(memory_.values[at(x)], x, event)) {
      place = memory_.values[at(x)];
      extend(place, gradient_end(x));
    } else {
      place = new_gradient(x, event);
    }
  }

  void place_backward(int32_t i) {
    const GraphNode& node = graph_.nodes[at(i)];
    const ops::Needs& needs = needs_.nodes[at(i)];
    if (!wanted_[at(node.output)]) return;
    const int32_t event = backward(i);
    GraphMemory::Node& own = memory_.nodes[at(i)];
    const int32_t dy = memory_.gradients[at(node.output)];
    PP_ASSERT(dy >= 0);  // each value leads to a head
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const int32_t x = node.inputs[k];
      if (!wanted_[at(x)]) continue;
      int32_t& place = memory_.gradients[at(x)];
      if (place >= 0) {
        own.sums.at(k) = region(needs_.value_bytes[at(x)], event, event);
      } else if (k == 0 && needs.gradient_in_place && can_take(dy, x, event)) {
        place = dy;
        extend(place, gradient_end(x));
      } else {
        place = new_gradient(x, event);
      }
    }
    for (size_t k = 0; k < node.params.size(); ++k) {
      const TensorInfo& tensor = graph_.table.tensors[at(node.params[k])];
      const bool is_first = !has_writer_[at(node.params[k])];
      has_writer_[at(node.params[k])] = true;
      if (is_first) continue;
      PP_ASSERT(tensor.rule == UpdateRule::kOptimizer);
      if ((needs.adds >> k & 1U) != 0) {
        own.adds |= 1U << k;
      } else {
        own.param_sums.at(k) = region(at32(tensor.size) * sizeof(float), event, event);
      }
    }
  }

  const Graph& graph_;
  const GraphNeeds& needs_;
  const int32_t nodes_;
  const int32_t heads_;
  std::vector<int32_t> producer_;   // of each value; -1: a field
  std::vector<int32_t> last_read_;  // event
  std::vector<bool> wanted_;        // the gradient of the value
  std::vector<bool> has_writer_;    // of each tensor's gradient, so far
  std::vector<Region> regions_;
  GraphMemory memory_;
};

}  // namespace

GraphMemory plan_graph_memory(const Graph& graph, const GraphNeeds& needs) {
  return Liveness(graph, needs).run();
}

}  // namespace pushpull
