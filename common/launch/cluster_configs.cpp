#include "common/launch/cluster_configs.h"

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/text.h"
#include "common/launch/claim.h"

namespace pushpull {
namespace {

constexpr const char* kIndex = "JOB_COMPLETION_INDEX";

// The parts of "NAME-INDEX".
struct Indexed {
  std::string name;
  std::string index;  // "": the text does not end so
};

Indexed split_index(const std::string& text) {
  const size_t dash = text.rfind('-');
  if (dash == std::string::npos || dash == 0) return {text, ""};
  const std::string index = text.substr(dash + 1);
  if (index.empty() || index.find_first_not_of("0123456789") != std::string::npos)
    return {text, ""};
  return {text.substr(0, dash), index};
}

// A pod of a JobSet is SET-JOB-JOBINDEX-PODINDEX.SET. Returns false if `pod` is not one of `set`.
// Sets the first server's host, and the role if the replicated job is called "server" or "worker".
bool read_jobset(Claim& claim, const std::string& pod, const std::string& set,
                 const std::string& domain) {
  const Indexed without_pod = split_index(pod);
  const Indexed without_job = split_index(without_pod.name);
  if (without_job.index.empty() || !without_job.name.starts_with(set + "-")) return false;
  const std::string replicated = without_job.name.substr(set.size() + 1);
  if (without_job.index != "0") {
    claim.missing = "replicated job " + printable(replicated) +
                    " of the JobSet has several Jobs, so " + kIndex +
                    " is no rank: set PUSHPULL_RANK and PUSHPULL_WORLD_SIZE";
    claim.rank.reset();
  }
  const bool of_workers = replicated == "worker";
  if (of_workers) claim.role = {TaskRole::kWorker, "replicated job worker"};
  const std::string first = of_workers ? "server" : replicated;
  claim.host = {checked_host(set + "-" + first + "-0-0" + domain, "host name"),
                "first pod of the JobSet's replicated job " + first};
  return true;
}

}  // namespace

std::optional<Claim> claim_of_kubernetes(const Environment& environment,
                                         const std::string& host_name) {
  Claim claim{.source = "Kubernetes"};
  claim.rank = number_of(environment, {kIndex});
  if (!claim.rank) return std::nullopt;
  claim.no_host = "host name " + printable(host_name) +
                  " has no subdomain: set MASTER_ADDR, or give the Job's pods a subdomain and a "
                  "headless service";
  const size_t dot = host_name.find('.');
  if (dot == std::string::npos) return claim;
  const std::string pod = host_name.substr(0, dot);
  const std::string domain = host_name.substr(dot);  // with the dot
  const std::string set = domain.substr(1, domain.find('.', 1) - 1);
  if (read_jobset(claim, pod, set, domain)) return claim;
  const Indexed parts = split_index(pod);
  if (parts.index != std::to_string(claim.rank->value)) {
    claim.no_host = "host name " + printable(host_name) + " does not end with " + kIndex + "=" +
                    std::to_string(claim.rank->value) + ": set MASTER_ADDR";
    return claim;
  }
  claim.host = {checked_host(parts.name + "-0" + domain, "host name"), "first pod of the Job"};
  return claim;
}

namespace {

using Json = nlohmann::json;

// The hosts of one task type in TF_CONFIG's cluster.
std::vector<std::string> hosts_of(const Json& cluster, const std::string& type) {
  const auto found = cluster.find(type);
  if (found == cluster.end()) return {};
  std::vector<std::string> hosts;
  const auto refuse = [&type] {
    refuse_launch("TF_CONFIG: cluster." + type + " must be a list of \"HOST:PORT\"");
  };
  if (!found->is_array()) refuse();
  for (const Json& host : *found) {
    if (!host.is_string()) refuse();
    hosts.push_back(host.get<std::string>());
  }
  return hosts;
}

const Json& part_of(const Json& whole, const char* name) {
  const auto found = whole.find(name);
  if (found != whole.end() && found->is_object()) return *found;
  refuse_launch(std::string("TF_CONFIG has no \"") + name +
                "\"; it needs \"cluster\" and \"task\"");
}

struct TfTask {
  std::string type;
  int64_t index = 0;
};

TfTask task_of(const Json& config) {
  const Json& task = part_of(config, "task");
  const auto type = task.find("type");
  const auto index = task.find("index");
  if (type == task.end() || !type->is_string()) refuse_launch("TF_CONFIG: task.type is missing");
  if (index == task.end()) refuse_launch("TF_CONFIG: task.index is missing");
  // some launchers write the index as text
  const auto number = index->is_number_integer() ? std::optional(index->get<int64_t>())
                      : index->is_string()       ? parse_int64(index->get<std::string>())
                                                 : std::nullopt;
  if (!number || *number < 0) {
    refuse_launch("TF_CONFIG: task.index must be a whole number from 0");
  }
  return {type->get<std::string>(), *number};
}

void set_address(Claim& claim, const std::string& text) {
  const std::string why =
      "TF_CONFIG: cluster.ps begins with " + printable(text) + ", not with HOST:PORT";
  const Address address = address_or_refuse("tcp://" + text, why);
  const auto port = parse_int64(address.port);
  if (!port || *port == 0) refuse_launch(why);
  const std::string from = "TF_CONFIG cluster.ps[0]";
  claim.host = {address.host, from};
  claim.port = {*port, from};
}

Claim claim_of_cluster(const Json& config) {
  const Json& cluster = part_of(config, "cluster");
  const TfTask task = task_of(config);
  const std::vector<std::string> servers = hosts_of(cluster, "ps");
  const std::vector<std::string> workers = hosts_of(cluster, "worker");
  std::vector<std::string> chiefs = hosts_of(cluster, "chief");
  if (chiefs.empty()) chiefs = hosts_of(cluster, "master");
  const auto tasks = static_cast<int64_t>(chiefs.size() + workers.size());
  const std::string from = "TF_CONFIG";
  Claim claim{.source = from};
  if (task.type == "evaluator") {
    refuse_launch(
        "TF_CONFIG makes this task an evaluator, which a job of pushpull does not have: its "
        "workers evaluate; start `pushpull eval --follow --checkpoint OUT/checkpoints` in it, "
        "which "
        "evaluates each new checkpoint");
  }
  const auto place = [&](TaskRole role, int64_t rank, size_t count) {
    if (task.index >= static_cast<int64_t>(count)) {
      refuse_launch("TF_CONFIG: task.index " + std::to_string(task.index) +
                    " contradicts cluster." + printable(task.type) + ", which has " +
                    plural(static_cast<int64_t>(count), "task"));
    }
    claim.role = {role, from};
    claim.rank = {rank, from};
  };
  const bool is_chief = task.type == "chief" || task.type == "master";
  if (task.type == "ps") {
    place(task.index == 0 ? TaskRole::kFirstServer : TaskRole::kServer, task.index, servers.size());
  } else if (is_chief) {
    place(TaskRole::kWorker, task.index, chiefs.size());
  } else if (task.type == "worker") {
    place(TaskRole::kWorker, static_cast<int64_t>(chiefs.size()) + task.index, workers.size());
  } else {
    refuse_launch("TF_CONFIG: task.type is " + printable(task.type) +
                  ", not ps, chief, worker or evaluator");
  }
  if (servers.empty())
    refuse_launch("TF_CONFIG has no cluster.ps; its first task would have the first server");
  claim.servers = {static_cast<int64_t>(servers.size()), from};
  claim.workers = {tasks, from};
  claim.size = task.type == "ps" ? claim.servers : claim.workers;
  set_address(claim, servers.front());
  return claim;
}

}  // namespace

std::optional<Claim> claim_of_tf_config(const Environment& environment) {
  const auto text = text_of(environment, {"TF_CONFIG"});
  if (!text) return std::nullopt;
  const Json config = Json::parse(text->value, nullptr, false);
  if (config.is_discarded() || !config.is_object()) {
    refuse_launch("TF_CONFIG is no JSON object: " + printable(text->value));
  }
  return claim_of_cluster(config);
}

std::optional<Claim> claim_of_ps_lite(const Environment& environment) {
  const auto role = text_of(environment, {"DMLC_ROLE"});
  if (!role) return std::nullopt;
  Claim claim{.source = "ps-lite"};
  if (role->value == "scheduler") {
    claim.role = {TaskRole::kFirstServer, role->from};
  } else if (role->value == "server") {
    claim.role = {TaskRole::kServer, role->from};
  } else if (role->value == "worker") {
    claim.role = {TaskRole::kWorker, role->from};
  } else {
    refuse_launch("DMLC_ROLE=" + printable(role->value) + ": must be scheduler, server or worker");
  }
  claim.workers = number_of(environment, {"DMLC_NUM_WORKER"});
  claim.servers = number_of(environment, {"DMLC_NUM_SERVER"});
  if (claim.servers) {  // the scheduler is a server here
    claim.servers = {claim.servers->value + 1, claim.servers->from + " + 1, the scheduler"};
  }
  claim.host = host_of(environment, {"DMLC_PS_ROOT_URI"});
  claim.port = port_of(environment, {"DMLC_PS_ROOT_PORT"});
  claim.no_host = "set DMLC_PS_ROOT_URI";
  return claim;
}

}  // namespace pushpull
