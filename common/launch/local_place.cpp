#include "common/launch/local_place.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/host/cores.h"
#include "common/host/kernel_files.h"
#include "common/launch/claim.h"
#include "common/launch/placement.h"

namespace pushpull {
namespace {

// A variable without meaning matters only to programs that need the place.
std::optional<LocalPlace> place_if_readable() {
  try {
    return local_place_of_this_process();
  } catch (const Error&) {
    return std::nullopt;
  }
}

LocalPlace needed_place() {
  const std::optional<LocalPlace> place = local_place_of_this_process();
  if (place && place->size) return *place;
  throw Error(
      ErrorCode::kUsage,
      "[bind] --bind needs this task's number on its host and how many there are: " +
          (place ? place->rank.from + " has no size beside it" : "no launcher's variable says") +
          "; set PUSHPULL_LOCAL_RANK and PUSHPULL_LOCAL_WORLD_SIZE");
}

}  // namespace

std::string crowding_text(int64_t threads, bool allowed) {
  if (std::getenv("PUSHPULL_CORES") != nullptr) return "";  // NOLINT(concurrency-mt-unsafe)
  const Cores cores = read_cores();
  const auto place = cores.is_bound() ? std::nullopt : place_if_readable();
  const TaskOnHost task = place ? place->task() : TaskOnHost{};
  const std::string text =
      checked_threads_text(std::max<int64_t>(1, task.size), threads, cores, allowed);
  return task.rank == 0 ? text : "";
}

void take_cores(Bind bind, int64_t most, const std::function<void(const std::string&)>& say) {
  const Cores cores = read_cores();
  if (bind == Bind::kNone) {
    // A task that the launcher has bound has its cores for itself.
    const auto place = cores.is_bound() ? std::nullopt : place_if_readable();
    const int64_t tasks = place && place->size ? place->size->value : 1;
    share_own_cores(most > 0 ? std::min(most, tasks) : tasks);
    return;
  }
  const LocalPlace place = needed_place();
  if (cores.is_bound()) {
    say("--bind: the launcher has bound this task to CPUs " + cpu_list_text(cores.cpus) +
        " already, which stay");
    return;
  }
  const int64_t tasks = place.size->value;
  const BindPlan plan = plan_binding(bind, read_topology(cores.cpus), tasks);
  const std::vector<int>& mine = plan.cpus.at(static_cast<size_t>(place.rank.value));
  bind_to(mine);
  const auto same = std::ranges::count(plan.cpus, mine);
  share_own_cores(same);
  say("bound to CPUs " + cpu_list_text(mine) + ": local rank " + std::to_string(place.rank.value) +
      " of " + std::to_string(tasks) + (same > 1 ? ", shared by " + plural(same, "task") : ""));
}

namespace {

constexpr const char* kSlurmRank = "SLURM_LOCALID";
constexpr const char* kSlurmTasks = "SLURM_STEP_TASKS_PER_NODE";

struct LocalPair {
  const char* rank;
  const char* size;
};

constexpr std::array<LocalPair, 4> kLocalPairs = {
    {{"PUSHPULL_LOCAL_RANK", "PUSHPULL_LOCAL_WORLD_SIZE"},
     {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
     {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
     {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"}}};

[[noreturn]] void refuse_tasks(const std::string& text) {
  refuse_launch(std::string(kSlurmTasks) + "=" + printable(text) +
                ": expected counts like 2(x2),1");
}

// Returns the entry of a node in "2(x2),1": two nodes with two tasks, one with one.
std::optional<Found<int64_t>> tasks_of_node(const Environment& environment) {
  const auto list = text_of(environment, {kSlurmTasks});
  const auto node = number_of(environment, {"SLURM_NODEID"});
  if (!list || !node) return std::nullopt;
  int64_t end = 0;  // of the nodes read so far
  std::istringstream entries(list->value);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const size_t times = entry.find("(x");
    const auto tasks = parse_int64(entry.substr(0, times));
    auto nodes = std::optional<int64_t>(1);
    if (times != entry.npos) {
      if (!entry.ends_with(")")) refuse_tasks(list->value);
      nodes = parse_int64(entry.substr(times + 2, entry.size() - times - 3));
    }
    if (!tasks || !nodes || *tasks < 1 || *nodes < 1 || *nodes > INT32_MAX) {
      refuse_tasks(list->value);
    }
    end += *nodes;
    if (node->value < end) return Found<int64_t>{*tasks, kSlurmTasks};
  }
  return std::nullopt;
}

void check_local(const LocalPlace& place) {
  if (!place.size || place.rank.value < place.size->value) return;
  refuse_launch(place.rank.from + "=" + std::to_string(place.rank.value) + " contradicts " +
                place.size->from + "=" + std::to_string(place.size->value) +
                ": local ranks go from 0 to one less than the size");
}

}  // namespace

std::optional<LocalPlace> local_place(const Environment& environment) {
  std::optional<LocalPlace> place;
  for (const LocalPair& names : kLocalPairs) {
    const auto rank = number_of(environment, {names.rank});
    if (!rank) continue;
    place = LocalPlace{*rank, number_of(environment, {names.size})};
    break;
  }
  if (!place && environment.contains("SLURM_STEP_ID")) {
    if (const auto rank = number_of(environment, {kSlurmRank})) {
      place = LocalPlace{*rank, tasks_of_node(environment)};
    }
  }
  if (place) check_local(*place);
  return place;
}

std::optional<LocalPlace> local_place_of_this_process() {
  return local_place(environment_of_this_process());
}

TaskOnHost task_of_this_process() {
  const auto place = local_place_of_this_process();
  return place ? place->task() : TaskOnHost{};
}

}  // namespace pushpull
