// The nodes on which a launcher starts the tasks of a step, and what they are: each task tells it, `pushpull
// compare --over` asks before its first run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/report/machine_info.h"
#include "cli/run/signals.h"
#include "cli/run/step_launcher.h"

namespace pushpull {

// Describes a node as one task sees it, or as all its tasks see it together.
struct StepNode {
  std::string name;  // as the launcher calls it
  std::string host;  // as the node calls itself
  MachineInfo machine;
  std::vector<int> cpus;  // that it may use, in ascending order
};

// Returns the line that this process, a task, writes.
std::string node_line(int64_t rank, const std::string& node);
// Returns what such a line tells, or nothing for another line.
std::optional<StepNode> node_in(const std::string& line);

// Returns the nodes of these tasks, by name. A launcher may bind each task to cores of its own: a node has
// the cores of all its tasks.
std::vector<StepNode> nodes_of_tasks(const std::vector<StepNode>& tasks);
// Returns the sum of their cores.
int64_t cores_of(const std::vector<StepNode>& nodes);
// Returns "2 nodes (n1, n2), each: AMD EPYC ..., 8 of 8 cores usable, ..."; nodes that differ are apart.
std::string text_of_nodes(const std::vector<StepNode>& nodes);

struct AskedNodes {
  std::vector<StepNode> nodes;  // by name; none: `why` says the reason, unless a signal has come
  std::string why;
  int signal = 0;  // that has ended the step
};

// Runs a step whose tasks only tell their nodes.
//   over: as make_step_launcher takes it. program: path of pushpull. more: words of --over-args.
//   signals: looked at while the step runs.
AskedNodes ask_nodes(const StepLauncher& launcher, const std::string& over,
                     const std::string& program, int64_t tasks,
                     const std::vector<std::string>& more, HeldSignals& signals);

}  // namespace pushpull
