#include "common/launch/host_place.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/host/cores.h"
#include "common/host/cpu_list.h"
#include "common/launch/local_place.h"

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

std::string crowding_text(int64_t threads) {
  if (std::getenv("PUSHPULL_CORES") != nullptr) return "";  // NOLINT(concurrency-mt-unsafe)
  const Cores cores = read_cores();
  const auto place = cores.is_bound() ? std::nullopt : place_if_readable();
  const TaskOnHost task = place ? place->task() : TaskOnHost{};
  return task.rank == 0 ? more_threads_text(std::max<int64_t>(1, task.size), threads, cores) : "";
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

}  // namespace pushpull
