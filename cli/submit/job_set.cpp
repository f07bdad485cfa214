#include "cli/submit/job_set.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

// A text of JSON is a text of YAML.
std::string yaml(const std::string& text) { return nlohmann::json(text).dump(); }

std::string config_map(const Submission& plan) {
  std::ifstream file(plan.job_file);
  std::ostringstream out;
  out << "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " << yaml(plan.name + "-job")
      << "\ndata:\n  job.ini: |4\n";
  for (std::string line; std::getline(file, line);) out << "      " << line << "\n";
  return out.str();
}

// Codes that another try would meet again fail the Job; a stop with a checkpoint, and a pod that its
// node has lost, count for nothing, and the pod starts again.
constexpr const char* kPodFailurePolicy = R"(          podFailurePolicy:
            rules:
              - action: FailJob
                onExitCodes:
                  operator: In
                  values: [2, 3, 6, 7, 77]
              - action: Ignore
                onExitCodes:
                  operator: In
                  values: [75]
              - action: Ignore
                onPodConditions:
                  - type: DisruptionTarget
                    status: "True"
)";

std::string command_yaml(const std::vector<std::string>& words) {
  std::string out = "                  command:\n";
  for (const std::string& word : words) out += "                    - " + yaml(word) + "\n";
  return out;
}

std::string environment_yaml(const Submission& plan, bool users) {
  std::ostringstream out;
  if (plan.insecure && !users) return "";
  out << "                  env:\n";
  if (users) out << "                    - {name: PUSHPULL_JOIN, value: auto}\n";
  if (plan.insecure) {
    out << "                    - {name: PUSHPULL_INSECURE, value: \"1\"}\n";
  } else {
    out << "                    - name: PUSHPULL_KEY\n"
        << "                      valueFrom:\n"
        << "                        secretKeyRef: {name: " << yaml(plan.name + "-key")
        << ", key: key}\n";
  }
  return out.str();
}

std::string replicated_job(const Submission& plan, const std::string& role, int64_t pods,
                           const std::vector<std::string>& words, const std::string& mounts,
                           const std::string& volumes) {
  const bool users = role == "worker" && !plan.worker.empty();
  std::ostringstream out;
  out << "    - name: " << role << "\n"
      << "      replicas: 1\n"
      << "      template:\n"
      << "        spec:\n"
      << "          completionMode: Indexed\n"
      << "          completions: " << pods << "\n"
      << "          parallelism: " << pods << "\n"
      << "          backoffLimit: 6\n"
      << kPodFailurePolicy  //
      << "          template:\n"
      << "            spec:\n"
      << "              restartPolicy: Never\n"
      << "              terminationGracePeriodSeconds: 30  # SIGTERM: a checkpoint, then code 75\n"
      << "              containers:\n"
      << "                - name: " << role << "\n"
      << "                  image: " << yaml(plan.image) << "\n"
      << command_yaml(words) << environment_yaml(plan, users) << mounts << volumes;
  return out.str();
}

std::vector<std::string> server_words(const Submission& plan) {
  std::vector<std::string> words{"pushpull-server",
                                 "--join",
                                 "auto",
                                 "--job",
                                 "/job/job.ini",
                                 "--servers",
                                 std::to_string(plan.servers),
                                 "--workers",
                                 std::to_string(plan.workers),
                                 "--out",
                                 "/out/" + plan.name};
  words.insert(words.end(), plan.job_words.begin(), plan.job_words.end());
  if (plan.insecure) words.emplace_back("--insecure");
  return words;
}

std::vector<std::string> worker_words(const Submission& plan) {
  if (!plan.worker.empty()) return plan.worker;
  std::vector<std::string> words{"pushpull-worker", "--join", "auto"};
  if (!plan.device.empty()) words.insert(words.end(), {"--device", plan.device});
  if (plan.insecure) words.emplace_back("--insecure");
  return words;
}

}  // namespace

std::string job_set(const Submission& plan) {
  const std::string mounts = R"(                  volumeMounts:
                    - {name: job, mountPath: /job}
                    - {name: out, mountPath: /out}
)";
  const std::string volumes =
      "              volumes:\n                - {name: job, configMap: {name: " +
      yaml(plan.name + "-job") +
      "}}\n                - {name: out, persistentVolumeClaim: "
      "{claimName: " +
      yaml(plan.volume) + "}}\n";
  std::ostringstream out;
  out << "# Written by `pushpull submit --print jobset`.\n";
  if (!plan.insecure) {
    out << "# First: pushpull keygen job.key; kubectl create secret generic " << plan.name
        << "-key --from-file=key=job.key\n";
  }
  out << config_map(plan) << "---\n"
      << "apiVersion: jobset.x-k8s.io/v1alpha2\n"
      << "kind: JobSet\n"
      << "metadata:\n"
      << "  name: " << yaml(plan.name) << "\n"
      << "spec:\n"
      << "  network:\n"
      << "    enableDNSHostnames: true  # a headless service, so that pods find each other by "
         "name\n"
      << "  successPolicy:\n"
      << "    operator: All\n"
      << "    targetReplicatedJobs: [server]\n"
      << "  failurePolicy:\n"
      << "    maxRestarts: 0\n"
      << "  replicatedJobs:\n"
      << replicated_job(plan, "server", plan.servers, server_words(plan), mounts, volumes)
      << replicated_job(plan, "worker", plan.workers, worker_words(plan), "", "");
  return out.str();
}

}  // namespace pushpull
