#include "models/stages.h"

#include <algorithm>
#include <limits>
#include <set>
#include <sstream>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Returns true if every stage can compute this node for itself.
bool only_prepares_fields(const Graph& graph, const GraphNode& node) {
  return node.params.empty() && !node.spec->is_random() &&
         std::ranges::all_of(node.inputs,
                             [&](int32_t x) { return graph.field_of_value[at(x)] >= 0; });
}

// Returns the first node of each piece, and the number of nodes.
std::vector<int64_t> piece_bounds(const Graph& graph) {
  std::vector<int64_t> bounds{0};
  for (const size_t cut : graph.cuts) {
    if (static_cast<int64_t>(cut) > bounds.back()) bounds.push_back(static_cast<int64_t>(cut));
  }
  bounds.push_back(std::ssize(graph.nodes));
  return bounds;
}

int64_t cost(const Graph& graph, Range nodes, Balance::Kind kind) {
  int64_t sum = 0;
  std::set<int32_t> counted;
  for (int64_t i = nodes.lo; i < nodes.hi; ++i) {
    const GraphNode& node = graph.nodes[static_cast<size_t>(i)];
    if (kind == Balance::kAuto) sum += node.spec->flops();
    for (const int32_t param : node.params) {
      const TensorInfo& tensor = graph.table.tensors[at(param)];
      const bool counts = kind == Balance::kParameters && tensor.rule == UpdateRule::kOptimizer;
      if (counts && counted.insert(param).second) sum += tensor.size;
    }
  }
  return sum;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kUsage, "[stages] " + what);
}

}  // namespace

std::vector<int64_t> balanced(const std::vector<int64_t>& piece_costs, int64_t stages) {
  const int64_t pieces = std::ssize(piece_costs);
  std::vector<int64_t> sum(static_cast<size_t>(pieces) + 1);
  for (int64_t i = 0; i < pieces; ++i) {
    sum[static_cast<size_t>(i) + 1] =
        sum[static_cast<size_t>(i)] + piece_costs[static_cast<size_t>(i)];
  }
  // best[s][i]: the cost of the dearest of s stages that have the first i pieces
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const auto width = static_cast<size_t>(pieces) + 1;
  std::vector<std::vector<int64_t>> best(static_cast<size_t>(stages) + 1,
                                         std::vector<int64_t>(width, kNone));
  std::vector<std::vector<int64_t>> from = best;
  best[0][0] = 0;
  for (size_t s = 1; s < best.size(); ++s) {
    for (size_t i = s; i < width; ++i) {
      for (size_t j = s - 1; j < i; ++j) {
        if (best[s - 1][j] == kNone) continue;
        const int64_t dearest = std::max(best[s - 1][j], sum[i] - sum[j]);
        if (dearest >= best[s][i]) continue;
        best[s][i] = dearest;
        from[s][i] = static_cast<int64_t>(j);
      }
    }
  }
  std::vector<int64_t> counts(static_cast<size_t>(stages));
  auto end = static_cast<size_t>(pieces);
  for (size_t s = best.size() - 1; s > 0; --s) {
    const auto begin = static_cast<size_t>(from[s][end]);
    counts[s - 1] = static_cast<int64_t>(end - begin);
    end = begin;
  }
  return counts;
}

namespace {

std::vector<int64_t> costs_of(const Graph& graph, const std::vector<int64_t>& bounds,
                              Balance::Kind kind) {
  std::vector<int64_t> costs;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    costs.push_back(cost(graph, {bounds[i], bounds[i + 1]}, kind));
  }
  return costs;
}

std::vector<int64_t> pieces_of_stages(const Graph& graph, const std::vector<int64_t>& bounds,
                                      int64_t stages, const Balance& balance) {
  const int64_t pieces = std::ssize(bounds) - 1;
  if (balance.kind == Balance::kList) {
    int64_t sum = 0;
    for (const int64_t count : balance.pieces) sum += count;
    if (std::ssize(balance.pieces) != stages || sum != pieces) {
      refuse("balance = " + balance.to_string() + " has " + std::to_string(balance.pieces.size()) +
             " numbers with the sum " + std::to_string(sum) + "; " + std::to_string(stages) +
             " stages of this model need " + std::to_string(stages) + " numbers with the sum " +
             std::to_string(pieces));
    }
    return balance.pieces;
  }
  return balanced(costs_of(graph, bounds, balance.kind), stages);
}

// Returns the nodes of stages with so many pieces.
std::vector<Range> nodes_of(const std::vector<int64_t>& bounds,
                            const std::vector<int64_t>& counts) {
  std::vector<Range> out;
  size_t piece = 0;
  for (const int64_t count : counts) {
    const size_t next = piece + static_cast<size_t>(count);
    out.push_back({bounds[piece], bounds[next]});
    piece = next;
  }
  return out;
}

}  // namespace

Balance Balance::parse(const std::string& text) {
  if (text == "auto") return {};
  if (text == "parameters") return {kParameters, {}};
  Balance out{kList, {}};
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    const std::optional<int64_t> count = parse_int64(item);
    if (!count || *count < 1) {
      refuse("balance = " + text + ": must be auto, parameters or numbers from 1 on, such as 3,2");
    }
    out.pieces.push_back(*count);
  }
  if (out.pieces.empty()) {
    refuse("balance is empty: must be auto, parameters or numbers from 1 on, such as 3,2");
  }
  return out;
}

std::string Balance::to_string() const {
  if (kind == kAuto) return "auto";
  if (kind == kParameters) return "parameters";
  std::string text;
  for (const int64_t count : pieces) text += (text.empty() ? "" : ",") + std::to_string(count);
  return text;
}

std::vector<Range> stage_nodes(const Graph& graph, int64_t stages, const Balance& balance) {
  const std::vector<int64_t> bounds = piece_bounds(graph);
  const int64_t pieces = std::ssize(bounds) - 1;
  if (stages < 1 || stages > pieces) {
    refuse("stages = " + std::to_string(stages) + ", but this model has " + std::to_string(pieces) +
           " pieces: choose 1 to " + std::to_string(pieces));
  }
  return nodes_of(bounds, pieces_of_stages(graph, bounds, stages, balance));
}

std::vector<Range> local_nodes(const Graph& graph, const std::vector<Range>& stages, size_t stage,
                               int64_t local_stages, const Balance& balance) {
  const Range nodes = stages.at(stage);
  std::vector<int64_t> bounds = piece_bounds(graph);
  std::erase_if(bounds, [&](int64_t bound) { return bound < nodes.lo || bound > nodes.hi; });
  PP_ASSERT(local_stages < std::ssize(bounds));
  const auto kind = balance.kind == Balance::kList ? Balance::kAuto : balance.kind;
  return nodes_of(bounds, balanced(costs_of(graph, bounds, kind), local_stages));
}

std::vector<int64_t> pieces_in(const Graph& graph, const std::vector<Range>& stages) {
  const std::vector<int64_t> bounds = piece_bounds(graph);
  std::vector<int64_t> out;
  for (const Range& stage : stages) {
    out.push_back(std::ranges::count_if(
        bounds, [&](int64_t bound) { return bound >= stage.lo && bound < stage.hi; }));
  }
  return out;
}

namespace {

// Copies the nodes of a stage and the values that they read.
class StageMaker {
 public:
  StageMaker(const Graph& whole, Range nodes)
      : whole_(whole), nodes_(nodes), places_(whole.values.size(), -1), producers_(places_) {
    for (size_t i = 0; i < whole.nodes.size(); ++i) {
      producers_[at(whole.nodes[i].output)] = static_cast<int32_t>(i);
    }
  }

  Graph make() {
    stage_.samples = whole_.samples;
    stage_.fields = whole_.fields;
    stage_.table = whole_.table;
    for (int64_t i = nodes_.lo; i < nodes_.hi; ++i) add(whole_.nodes[static_cast<size_t>(i)]);
    if (nodes_.hi == std::ssize(whole_.nodes)) {
      for (GraphHead head : whole_.heads) {
        head.scores = place_of(head.scores);
        head.target = place_of(head.target);
        stage_.heads.push_back(std::move(head));
      }
    }
    find_output();
    find_edges();
    return std::move(stage_);
  }

 private:
  const GraphNode& producer(int32_t value) const { return whole_.nodes[at(producers_[at(value)])]; }
  bool is_before(int32_t node) const { return node < nodes_.lo; }
  bool is_behind(int64_t node) const { return node >= nodes_.hi; }

  int32_t copy_value(int32_t value) {
    stage_.values.push_back(whole_.values[at(value)]);
    stage_.field_of_value.push_back(whole_.field_of_value[at(value)]);
    return places_[at(value)] = static_cast<int32_t>(stage_.values.size()) - 1;
  }

  // Returns the value's place in the stage.
  int32_t place_of(int32_t value) {
    if (places_[at(value)] >= 0) return places_[at(value)];
    const bool is_field = whole_.field_of_value[at(value)] >= 0;
    if (!is_field && only_prepares_fields(whole_, producer(value))) {
      add(producer(value));
      return places_[at(value)];
    }
    const int32_t place = copy_value(value);
    if (!is_field) {
      PP_ASSERT(is_before(producers_[at(value)]) && stage_.edges.input < 0);
      stage_.edges.input = place;
    }
    return place;
  }

  void add(const GraphNode& node) {
    if (places_[at(node.output)] >= 0) return;  // it prepares a field, and was needed before
    GraphNode copy = node;
    for (int32_t& input : copy.inputs) input = place_of(input);
    copy.output = copy_value(node.output);
    stage_.nodes.push_back(std::move(copy));
  }

  void find_output() {
    const auto read = [&](int32_t value) {
      const int32_t place = places_[at(value)];
      const int32_t by = producers_[at(value)];
      if (place < 0 || by < 0 || only_prepares_fields(whole_, whole_.nodes[at(by)])) return;
      PP_ASSERT(!is_before(by) && (stage_.edges.output < 0 || stage_.edges.output == place));
      stage_.edges.output = place;
    };
    for (int64_t i = nodes_.hi; i < std::ssize(whole_.nodes); ++i) {
      for (const int32_t input : whole_.nodes[static_cast<size_t>(i)].inputs) read(input);
    }
    if (nodes_.hi == std::ssize(whole_.nodes)) return;
    for (const GraphHead& head : whole_.heads) read(head.scores);
  }

  void find_edges() {
    std::set<int32_t> own;
    for (const GraphNode& node : stage_.nodes) own.insert(node.params.begin(), node.params.end());
    std::set<int32_t> before;
    std::set<int32_t> behind;
    for (int64_t i = 0; i < std::ssize(whole_.nodes); ++i) {
      const GraphNode& node = whole_.nodes[static_cast<size_t>(i)];
      if (i < nodes_.lo && node.spec->is_random()) ++stage_.edges.random_nodes;
      for (const int32_t param : node.params) {
        if (!own.contains(param)) continue;
        if (i < nodes_.lo) before.insert(param);
        if (is_behind(i)) behind.insert(param);
      }
    }
    stage_.edges.before.assign(before.begin(), before.end());
    stage_.edges.behind.assign(behind.begin(), behind.end());
  }

  const Graph& whole_;
  const Range nodes_;
  Graph stage_;
  std::vector<int32_t> places_;     // in the stage, by value of the whole graph; -1: not there
  std::vector<int32_t> producers_;  // nodes; -1: a field
};

}  // namespace

Graph stage_graph(const Graph& whole, const std::vector<Range>& all, size_t stage) {
  return StageMaker(whole, all.at(stage)).make();
}

std::vector<std::vector<size_t>> tensors_read_by(const Graph& whole,
                                                 const std::vector<Range>& all) {
  std::vector<std::vector<size_t>> out;
  for (const Range& nodes : all) {
    std::set<size_t> read;
    for (int64_t i = nodes.lo; i < nodes.hi; ++i) {
      const std::vector<int32_t>& params = whole.nodes[static_cast<size_t>(i)].params;
      read.insert(params.begin(), params.end());
    }
    out.emplace_back(read.begin(), read.end());
  }
  return out;
}

// The next tensor that no stage has read yet must be the next one of the table.
void mark_stages(TensorTable& table, const std::vector<std::vector<size_t>>& read) {
  size_t next = 0;
  for (size_t s = 0; s < read.size(); ++s) {
    const size_t first = next;
    for (const size_t tensor : read[s]) {
      if (tensor < first) continue;  // an earlier stage has it
      if (tensor != next) {
        throw Error(ErrorCode::kUsage,
                    "[stages] stage " + std::to_string(s) + " reads tensor " +
                        table.tensors[tensor].name + ", but tensor " + table.tensors[next].name +
                        " before it belongs to a later stage: tensors must be in the order of the "
                        "stages");
      }
      ++next;
    }
    if (next == first) {
      throw Error(ErrorCode::kUsage, "[stages] stage " + std::to_string(s) + " of " +
                                         std::to_string(read.size()) +
                                         " has no tensors of its own: choose fewer stages or "
                                         "another balance");
    }
    if (s > 0) table.tensors[first].begins_stage = true;
  }
}

StageCost cost_of(const Graph& stage) {
  StageCost out;
  for (const GraphNode& node : stage.nodes) {
    if (!node.params.empty()) ++out.layers;
    out.flops += node.spec->flops();
  }
  for (const size_t tensor : own_tensors(stage)) {
    const TensorInfo& info = stage.table.tensors[tensor];
    if (info.rule == UpdateRule::kOptimizer) out.parameters += info.size;
  }
  return out;
}

int64_t stage_slots(const std::string& schedule, int64_t stages, int64_t stage,
                    int64_t micro_batches) {
  return schedule == "gpipe" ? micro_batches : std::min(micro_batches, stages - stage);
}

std::vector<StageAction> stage_actions(const std::string& schedule, int64_t stages, int64_t stage,
                                       int64_t micro_batches) {
  const int64_t ahead = stage_slots(schedule, stages, stage, micro_batches);
  std::vector<StageAction> actions;
  int64_t forward = 0;
  while (forward < ahead) actions.push_back({true, forward++});
  for (int64_t backward = 0; backward < micro_batches; ++backward) {
    actions.push_back({false, backward});
    if (forward < micro_batches) actions.push_back({true, forward++});
  }
  return actions;
}

// Runs the schedules.
std::vector<double> stage_bubbles(const std::string& schedule, const std::vector<PassCosts>& stages,
                                  int64_t micro_batches) {
  const auto size = static_cast<size_t>(micro_batches);
  std::vector<std::vector<StageAction>> actions;
  for (int64_t s = 0; s < std::ssize(stages); ++s) {
    actions.push_back(stage_actions(schedule, std::ssize(stages), s, micro_batches));
  }
  std::vector<std::vector<double>> forward(stages.size(), std::vector<double>(size, -1.0));
  std::vector<std::vector<double>> backward = forward;  // when a pass ended; -1: it has not
  std::vector<size_t> next(stages.size());
  std::vector<double> now(stages.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < stages.size(); ++s) {
      while (next[s] < actions[s].size()) {
        const StageAction action = actions[s][next[s]];
        const auto m = static_cast<size_t>(action.micro_batch);
        const double fed = action.forward           ? (s == 0 ? 0.0 : forward[s - 1][m])
                           : s + 1 == stages.size() ? forward[s][m]
                                                    : backward[s + 1][m];
        if (fed < 0.0) break;
        now[s] = std::max(now[s], fed) + (action.forward ? stages[s].forward : stages[s].backward);
        (action.forward ? forward : backward)[s][m] = now[s];
        ++next[s];
        moved = true;
      }
    }
  }
  const double end = *std::ranges::max_element(now);
  std::vector<double> out;
  for (const PassCosts& stage : stages) {
    const double busy = (stage.forward + stage.backward) * static_cast<double>(micro_batches);
    out.push_back(end > 0.0 ? 1.0 - busy / end : 0.0);
  }
  return out;
}

}  // namespace pushpull
