// The update strategies as data: their names, their parameters, and the properties that the parts
// around them depend on. The strategies themselves are implemented by ps/server (when pushes
// count and pulls are answered) and worker/exchange (which task a worker computes next).
// docs/strategies.md compares them. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pushpull {

enum class StrategyKind { kSync, kAsync, kSsp, kBackup, kLocal, kAllReduce, kBuffered };
enum class AllReduceKind { kTree, kRing, kGloo };

// Completes "must be ..." for an unknown strategy.
inline constexpr std::string_view kStrategyWords =
    "sync, async, buffered:K (K from 1), ssp:S (S from 0), backup:B (B from 0, below the number of "
    "workers), local:H (H from 1), allreduce:tree, allreduce:ring or allreduce:gloo; K, S, B and H "
    "up to 1000000, such as ssp:4";

// One row of the table of strategies. Code that must treat strategies differently asks for the
// property that it depends on, never for the strategy, so a new strategy is a new row.
struct StrategyTraits {
  // All slices have one version per step. Otherwise each server counts its own updates, and
  // gradients may be stale.
  bool step_versions = true;
  // Each push is an update of its own: `clip-norm` applies to it, and it can be corrected for its
  // staleness (`staleness-aware`, `delay-compensation`).
  bool single_pushes = false;
  // Workers draw leases from one pool. Otherwise each worker owns a fixed share of every step.
  bool leases = false;
  // A step's update takes every micro-batch of the step. Otherwise some pushes may be dropped.
  bool whole_steps = true;
  // The weights depend on the job file alone, so all members must compute the same bits.
  bool same_bits = false;
  // The weights depend on the order in which pushes arrive; that order can be recorded and
  // replayed. A lost worker does not end such a run unless the job says otherwise.
  bool recordable = false;
  // Workers take local steps with the job's optimizer; servers apply the outer optimizer to the
  // changes that the workers push.
  bool outer_optimizer = false;
  // Workers update the weights among themselves; no server is in the path of a step.
  bool workers_update = false;
};

// Returns the strategies for completion, between '|'; one that takes a number ends with ':'.
std::string strategy_words();

// Returns the strategies that have a property, for texts: "async, ssp:S or backup:B".
std::string strategies_with(bool StrategyTraits::*property);

// When and where gradients move the weights.
struct Strategy {
  StrategyKind kind = StrategyKind::kSync;
  int64_t buffer = 1;                              // K of buffered:K; buffered:1 is kAsync
  int64_t staleness = 0;                           // S of ssp:S; ssp:0 is parsed as kSync
  int64_t backups = 0;                             // B of backup:B; backup:0 is parsed as kSync
  int64_t local_steps = 1;                         // H of local:H
  AllReduceKind algorithm = AllReduceKind::kTree;  // KIND of allreduce:KIND

  // Reads "sync", "async", "buffered:4", "ssp:4", "backup:1", "local:16", "allreduce:ring". Throws
  // Error(kUsage) that quotes the text.
  static Strategy parse(const std::string& text);
  std::string to_string() const;

  const StrategyTraits& traits() const;
  friend bool operator==(const Strategy&, const Strategy&) = default;
};

}  // namespace pushpull
