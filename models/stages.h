// A graph divided into the stages of a pipeline. Each stage is a graph of its own, with the table of the
// whole one, so all stages together compute the bits of the undivided graph: each operation sees the
// same inputs, and a tensor's gradient is added up in the same order. Pure functions; any thread.
//
// One value passes from a stage to the next. Operations that only prepare a field (a mask) are repeated
// in each stage that reads them. A tensor that several stages read (tied weights) belongs to the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "models/graph.h"
#include "models/pipeline.h"

namespace pushpull {

// How stages divide the nodes.
struct Balance {
  enum Kind {
    kAuto,        // the floating-point operations of forward and backward
    kParameters,  // the parameters that are trained
    kList,        // `pieces`
  };
  Kind kind = kAuto;
  // kList: of each stage, how many pieces between cuts it has; at least 1.
  std::vector<int64_t> pieces = {};

  // Reads "auto", "parameters" or numbers between commas. Throws Error(kUsage).
  static Balance parse(const std::string& text);
  std::string to_string() const;
  friend bool operator==(const Balance&, const Balance&) = default;
};

// Returns the nodes of each stage. The most expensive stage is as cheap as possible; of several ways,
// the one with the earliest cuts. Throws Error(kUsage) that names both numbers, if the graph has fewer
// pieces than stages, or if a list does not fit.
std::vector<Range> stage_nodes(const Graph& graph, int64_t stages, const Balance& balance);

// Divides a stage again, into local stages, and returns their nodes. A balance that is a list counts as kAuto.
//   stages: of stage_nodes, each with at least `local_stages` pieces.
std::vector<Range> local_nodes(const Graph& graph, const std::vector<Range>& stages, size_t stage,
                               int64_t local_stages, const Balance& balance);

// Returns how many pieces between cuts each stage has.
//   stages: of stage_nodes.
std::vector<int64_t> pieces_in(const Graph& graph, const std::vector<Range>& stages);

// Returns how many pieces each stage has, with which the most expensive stage is as cheap as possible; of several ways,
// the one with the earliest cuts.
//   piece_costs: at least as many as stages.
std::vector<int64_t> balanced(const std::vector<int64_t>& piece_costs, int64_t stages);

// Returns a stage as a graph.
//   all: of stage_nodes.
Graph stage_graph(const Graph& whole, const std::vector<Range>& all, size_t stage);

// Returns the tensors that each stage reads, ascending.
std::vector<std::vector<size_t>> tensors_read_by(const Graph& whole, const std::vector<Range>& all);

// Marks in the table where stages begin: slices end there. read: of tensors_read_by. Throws Error(kUsage) unless
// each stage has tensors of its own, those of a later one behind those of an earlier one in the table.
void mark_stages(TensorTable& table, const std::vector<std::vector<size_t>>& read);

// The cost of a stage.
struct StageCost {
  int64_t layers = 0;  // operations with parameters
  int64_t parameters =
      0;              // that are trained; a tensor that several stages read counts in the first
  int64_t flops = 0;  // of forward and backward of a micro-batch
};
StageCost cost_of(const Graph& stage);

// ---- the order in which stages compute ----

// Returns the passes of a stage, in order. Backward passes are in the order of the micro-batches, so
// that gradients are added up as without stages.
//   schedule: "1f1b" (PipeDream-Flush: Narayanan et al., Memory-Efficient Pipeline-Parallel DNN
//   Training, arXiv:2006.09503) or "gpipe" (Huang et al., GPipe, arXiv:1811.06965).
std::vector<StageAction> stage_actions(const std::string& schedule, int64_t stages, int64_t stage,
                                       int64_t micro_batches);

// Returns the most micro-batches between forward and backward in a stage.
int64_t stage_slots(const std::string& schedule, int64_t stages, int64_t stage,
                    int64_t micro_batches);

// The cost of the passes of one micro-batch in a stage, in any unit.
struct PassCosts {
  double forward = 0.0;
  double backward = 0.0;
};

// Returns the share of a step in which each stage waits, if its passes cost this and passing values on costs nothing.
std::vector<double> stage_bubbles(const std::string& schedule, const std::vector<PassCosts>& stages,
                                  int64_t micro_batches);

}  // namespace pushpull
