#include "cli/run/run_over.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "cli/run/step_launcher.h"
#include "cli/run/worker_command.h"
#include "common/base/error.h"
#include "common/host/binding.h"
#include "common/launch/placement.h"
#include "common/net/address.h"

namespace pushpull {
namespace {

// An address of RFC 5737, which no host has: the route to it is the default route.
constexpr const char* kElsewhere = "198.51.100.1";

std::optional<std::string> address_towards(const std::string& host) {
  try {
    const std::string address = local_address_towards({host, "9"});
    const bool link_local = address.find('%') != std::string::npos;  // needs the peer's interface
    if (!link_local && !Address{address, "9"}.is_loopback()) return address;
  } catch (const Error&) {
    // no name or no route: another one may have
  }
  return std::nullopt;
}

std::optional<std::string> address_of_an_interface() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, &freeifaddrs);
  for (const ifaddrs* at = list.get(); at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    if ((at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
    std::array<char, INET_ADDRSTRLEN> text{};
    const auto* address = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    if (inet_ntop(AF_INET, &address->sin_addr, text.data(), text.size()) != nullptr) {
      return text.data();
    }
  }
  return std::nullopt;
}

}  // namespace

std::string reachable_host(const std::vector<std::string>& nodes) {
  for (const std::string& node : nodes) {
    if (const auto address = address_towards(node)) return *address;
  }
  if (const auto address = address_towards(kElsewhere)) return *address;
  return address_of_an_interface().value_or("127.0.0.1");
}

namespace {

// From the job's end until the launcher must have ended, which takes leave of all nodes.
constexpr int64_t kFinishOfStepMs = 60000;
constexpr size_t kNodesToAsk = 4;  // names that the resolver does not know may take seconds each

void refuse_without_over(const CommandLine& line) {
  for (const char* flag : {"over-args", "logs"}) {
    if (!line.local.contains(flag)) continue;
    throw Error(ErrorCode::kUsage,
                std::string("[run] --") + flag + " needs --over slurm or --over mpi");
  }
}

int64_t workers_of(const CommandLine& line, const std::string& over, const StepLauncher& launcher) {
  if (line.local.contains("workers")) return 1;  // the flag counts
  if (const auto tasks = launcher.tasks()) return *tasks;
  throw Error(ErrorCode::kUsage, "[run] --over " + over + ": no variable says how many tasks " +
                                     launcher.program() + " starts here: give --workers");
}

// mpirun gives its tasks only variables that are named.
std::vector<std::string> variables_of_tasks() {
  const Environment environment = environment_of_this_process();
  std::vector<std::string> names{"PUSHPULL_JOB_TOKEN"};
  for (const char* name : {"PUSHPULL_SHARE", "PUSHPULL_CUDA_LIBS", "PUSHPULL_LIBRARY"}) {
    if (environment.contains(name)) names.emplace_back(name);
  }
  return names;
}

std::string bind_of(const CommandLine& line, const LauncherOptions& options) {
  std::string bind = line.own("bind", "");
  if (!bind.empty()) parse_bind(bind);  // throws for a wrong value before any process starts
  if (bind.empty() || options.worker_command.empty()) return bind;
  throw Error(ErrorCode::kUsage,
              "[run] --bind, --over and --worker: programs of your own are bound by the launcher: "
              "leave --bind out, and give --over-args, such as '--cpu-bind=cores'");
}

const char* name_of(OnWorkerLoss policy) {
  switch (policy) {
    case OnWorkerLoss::kWait:
      return "wait";
    case OnWorkerLoss::kContinue:
      return "continue";
    default:
      return "abort";
  }
}

}  // namespace

std::optional<Over> over_of(const CommandLine& line) {
  if (!line.local.contains("over")) {
    refuse_without_over(line);
    return std::nullopt;
  }
  if (line.local.contains("link")) {
    throw Error(
        ErrorCode::kUsage,
        "[run] --over and --link: links are emulated on one machine; leave one of them out");
  }
  const std::string name = line.local.at("over");
  const Environment environment = environment_of_this_process();
  check_step_launcher(name, environment);
  Over over;
  over.launcher = make_step_launcher(name, environment);
  over.workers = workers_of(line, name, *over.launcher);
  over.listen = line.own("listen", "");
  if (over.listen.empty()) {
    over.listen = Address{reachable_host(over.launcher->nodes(kNodesToAsk)), "*"}.to_string();
  }
  return over;
}

void start_over(const Over& over, const CommandLine& line, const Job& job,
                const std::string& program_dir, LauncherOptions& options) {
  if (parse_address(over.listen, "listen").is_everywhere()) {
    options.coordinator_arguments.insert(
        options.coordinator_arguments.end(),
        {"--advertise", reachable_host(over.launcher->nodes(kNodesToAsk))});
  }
  std::vector<std::string> more;
  if (line.local.contains("over-args")) more = split_words(line.local.at("over-args"));
  std::vector<std::string> variables = variables_of_tasks();
  if (!options.insecure) variables.emplace_back("PUSHPULL_KEY");
  Step step{.launcher = over.launcher,
            .words = over.launcher->words(options.supervisor.workers, variables, more)};
  const auto add = [&step](const std::string& flag, const std::string& value) {
    if (!value.empty()) step.words.insert(step.words.end(), {flag, value});
  };
  step.words.insert(step.words.end(), {program_dir + "/pushpull", "task"});
  add("--over", line.local.at("over"));
  add("--servers", std::to_string(options.supervisor.servers));
  add("--on-worker-loss", name_of(job.on_worker_loss));
  add("--on-server-loss", job.on_server_loss == OnServerLoss::kRestart ? "restart" : "abort");
  add("--device", line.own("device", ""));
  add("--server-device", line.own("server-device", ""));
  add("--bind", bind_of(line, options));
  add("--trace", options.trace_dir);
  add("--logs", line.own("logs", ""));
  if (options.insecure) step.words.emplace_back("--insecure");
  if (!options.worker_command.empty()) {
    step.words_after.emplace_back("--");
    step.words_after.insert(step.words_after.end(), options.worker_command.begin(),
                            options.worker_command.end());
  }
  options.supervisor.servers = 1;
  options.supervisor.workers = 1;
  options.supervisor.step = over.launcher->program();
  options.supervisor.finish_ms = kFinishOfStepMs;
  options.step = std::move(step);
}

}  // namespace pushpull
