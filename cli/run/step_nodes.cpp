#include "cli/run/step_nodes.h"

#include <algorithm>
#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cli/run/child.h"
#include "cli/run/merged_view.h"
#include "common/base/parse_json.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/host/cores.h"

namespace pushpull {
namespace {

using nlohmann::ordered_json;

constexpr const char* kNodeTag = "[node] ";
constexpr int64_t kStepPatienceMs = 300'000;  // a step may wait for the end of the one before it
constexpr long kStepLookMs = 50;
constexpr int64_t kStepEndMs = 10'000;  // after a signal
constexpr size_t kMostNodeNames = 8;    // in a text
constexpr size_t kMaxNodeText = 200;    // of what a node tells

}  // namespace

std::string node_line(int64_t rank, const std::string& node) {
  const MachineInfo machine = machine_info();
  const ordered_json json = {{"name", node},
                             {"host", host_name()},
                             {"processor", machine.processor},
                             {"cores", machine.cores},
                             {"present", machine.present},
                             {"rest", machine.rest},
                             {"congestion_control", machine.congestion_control},
                             {"libraries", machine.libraries},
                             {"cpus", own_cores().cpus}};
  return task_prefix(rank, node) + kNodeTag +
         json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::optional<StepNode> node_in(const std::string& line) {
  const size_t at = line.find(kNodeTag);
  if (!is_line_of_task(line) || at == std::string::npos) return std::nullopt;
  const auto json = parse_json<nlohmann::json>(line.substr(at + std::string_view(kNodeTag).size()));
  if (!json.is_object()) return std::nullopt;
  const auto text = [&json](const char* name) {
    const std::string value = json.value(name, "");
    return printable(value, kMaxNodeText);
  };
  StepNode node;
  try {
    node.name = text("name");
    node.host = text("host");
    node.machine.processor = text("processor");
    node.machine.cores = json.value("cores", int64_t{1});
    node.machine.present = json.value("present", int64_t{1});
    node.machine.rest = text("rest");
    node.machine.congestion_control = text("congestion_control");
    node.machine.libraries = json.value("libraries", node.machine.libraries);
    node.cpus = json.value("cpus", node.cpus);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // a value of another type
  }
  return node;
}

std::vector<StepNode> nodes_of_tasks(const std::vector<StepNode>& tasks) {
  std::map<std::string, StepNode> nodes;
  for (const StepNode& task : tasks) {
    const auto [found, is_new] = nodes.try_emplace(task.name, task);
    StepNode& node = found->second;
    if (is_new || node.cpus == task.cpus) continue;  // a quota holds for all together
    std::set<int> all(node.cpus.begin(), node.cpus.end());
    all.insert(task.cpus.begin(), task.cpus.end());
    node.cpus.assign(all.begin(), all.end());
    node.machine.cores = std::ssize(node.cpus);
  }
  std::vector<StepNode> out;
  for (auto& [name, node] : nodes) out.push_back(std::move(node));
  return out;
}

int64_t cores_of(const std::vector<StepNode>& nodes) {
  int64_t cores = 0;
  for (const StepNode& node : nodes) cores += node.machine.cores;
  return cores;
}

std::string text_of_nodes(const std::vector<StepNode>& nodes) {
  std::vector<std::pair<std::string, std::vector<std::string>>> kinds;  // text, names
  for (const StepNode& node : nodes) {
    const std::string text = machine_text(node.machine);
    auto found = std::ranges::find(kinds, text, &decltype(kinds)::value_type::first);
    if (found == kinds.end()) found = kinds.insert(found, {text, {}});
    found->second.push_back(node.name);
  }
  std::string out;
  for (const auto& [text, names] : kinds) {
    std::string list;
    for (size_t i = 0; i < std::min(names.size(), kMostNodeNames); ++i) {
      list += (i == 0 ? "" : ", ") + names[i];
    }
    if (names.size() > kMostNodeNames) list += ", ...";
    const auto count = std::ssize(names);
    out.append(out.empty() ? "" : "; ").append(plural(count, "node")).append(" (").append(list);
    out.append(count == 1 ? "): " : "), each: ").append(text);
  }
  return out;
}

AskedNodes ask_nodes(const StepLauncher& launcher, const std::string& over,
                     const std::string& program, int64_t tasks,
                     const std::vector<std::string>& more, HeldSignals& signals) {
  StartPlan plan;
  plan.words = launcher.words(tasks, {}, more);
  plan.words.insert(plan.words.end(), {program, "task", "--over", over, "--tell-node"});
  plan.environment = {{"PUSHPULL_CORES", std::nullopt}};  // a share of another host
  Child step(plan, /*announce=*/false);
  StepLines lines(launcher);
  AskedNodes asked;
  std::vector<StepNode> found;
  std::string last;  // line of the launcher or of a task
  LineSplitter out;
  LineSplitter err;
  const auto take_line = [&](std::string line) {
    while (!line.empty() && line.back() == '\r') line.pop_back();  // mpirun gives tasks a terminal
    if (const auto node = node_in(line)) return found.push_back(*node);
    const StepLines::Reading reading = lines.take(line);
    if (asked.why.empty()) asked.why = reading.refusal;
    if (reading.show && !line.empty()) last = printable(line);
  };
  const auto read = [&](UniqueFd& fd, LineSplitter& splitter) {
    std::string bytes;
    while (fd.get() >= 0) {
      if (!read_available(fd.get(), bytes)) fd.reset();
      for (const std::string& line : splitter.feed(bytes)) take_line(line);
      if (bytes.empty()) break;
    }
  };
  int64_t deadline_ms = now_ms() + kStepPatienceMs;
  std::optional<Ending> ending;
  while (!ending && now_ms() < deadline_ms) {
    if (const int signal = signals.take(kStepLookMs); signal != 0) {
      asked.signal = signal;
      step.send(SIGTERM);
      deadline_ms = now_ms() + kStepEndMs;
    }
    read(step.out, out);
    read(step.err, err);
    ending = step.poll_end();
  }
  read(step.out, out);
  read(step.err, err);
  for (LineSplitter* splitter : {&out, &err}) {
    if (const std::string rest = splitter->rest(); !rest.empty()) take_line(rest);
  }
  if (asked.signal != 0 || !asked.why.empty()) return asked;
  const std::string after = last.empty() ? "" : ": " + last;
  if (!ending) {
    asked.why = launcher.program() + " did not end within " +
                std::to_string(kStepPatienceMs / 1000) + " s" + after;
  } else if (!ending->success() || found.empty()) {
    asked.why = launcher.program() + " ended without starting " + plural(tasks, "task") + after;
  } else {
    asked.nodes = nodes_of_tasks(found);
  }
  return asked;
}

}  // namespace pushpull
