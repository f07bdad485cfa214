#include "cli/run/start_plan.h"

#include "cli/run/child.h"
#include "cli/run/launcher.h"

namespace pushpull {
namespace {

void append_to(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

void add_server(const LauncherOptions& options, size_t slot, const std::string& address,
                std::vector<std::string>& words) {
  words.push_back(options.server_program);
  if (slot == 0) {
    append_to(words, options.coordinator_arguments);
    append_to(words, {"--announce-fd", std::to_string(Child::kAnnounceFd)});
  } else {
    append_to(words, {"--join", address});
  }
  if (!options.server_devices.empty()) {
    append_to(words, {"--device", options.server_devices.at(slot)});
  }
}

void add_worker(const LauncherOptions& options, size_t rank, const std::string& address,
                std::vector<std::string>& words) {
  append_to(words, {options.worker_program, "--join", address});
  if (!options.worker_devices.empty()) {
    append_to(words, {"--device", options.worker_devices.at(rank)});
  }
  if (!options.trace_dir.empty()) {
    append_to(words, {"--trace", options.trace_dir + "/worker-" + std::to_string(rank) + ".json"});
  }
}

// For --device auto, the numbers of threads, and users' programs.
void take_share(const HostShare& share, StartPlan& plan) {
  plan.cpus = share.cpus;
  plan.environment.emplace_back("PUSHPULL_LOCAL_RANK", std::to_string(share.task.rank));
  plan.environment.emplace_back("PUSHPULL_LOCAL_WORLD_SIZE", std::to_string(share.task.size));
  plan.environment.emplace_back("PUSHPULL_CORES", std::to_string(share.cores));
}

}  // namespace

StartPlan plan_start(const LauncherOptions& options, size_t slot, const std::string& address) {
  StartPlan plan;
  if (!options.shares.empty()) take_share(options.shares.at(slot), plan);
  const auto servers = static_cast<size_t>(options.supervisor.servers);
  const bool is_worker = slot >= servers;
  const bool has_place = !options.places.empty();
  if (has_place) plan.words = options.places.at(slot).prefix;
  if (is_worker && !options.worker_command.empty()) {
    append_to(plan.words, options.worker_command);
    // PUSHPULL_INSECURE of another job must not open this one.
    plan.environment.emplace_back("PUSHPULL_JOIN", address);
    plan.environment.emplace_back(
        "PUSHPULL_INSECURE", options.insecure ? std::optional<std::string>("1") : std::nullopt);
    plan.ends_with_launcher = false;
    return plan;
  }
  if (is_worker) {
    add_worker(options, slot - servers, address, plan.words);
  } else {
    add_server(options, slot, address, plan.words);
  }
  if (options.insecure) plan.words.emplace_back("--insecure");
  if (has_place) append_to(plan.words, options.places.at(slot).arguments);
  return plan;
}

}  // namespace pushpull
