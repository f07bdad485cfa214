#include "common/launch/pods.h"

#include <cstddef>

#include "common/base/text.h"
#include "common/launch/variables.h"

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

}  // namespace pushpull
