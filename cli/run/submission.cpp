#include "cli/run/submission.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "cli/commands.h"
#include "cli/run/deepspeed_config.h"
#include "cli/run/worker_command.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "common/job/job_settings.h"
#include "common/net/key_file.h"
#include "datasets/dataset.h"
#include "models/model.h"

namespace pushpull {

namespace {

[[noreturn]] void refuse_submission(const std::string& text) {
  throw Error(ErrorCode::kUsage, "[submit] " + text);
}

int64_t number_in(const CommandLine& line, const std::string& flag, int64_t other) {
  constexpr int64_t kMost = 100'000;
  const std::string text = line.own(flag, std::to_string(other));
  const std::optional<int64_t> value = parse_int64(text);
  if (value && *value >= 1 && *value <= kMost) return *value;
  refuse_submission("--" + flag + " is '" + printable(text) +
                    "': must be a whole number from 1 to " + std::to_string(kMost));
}

bool is_one_line(const std::string& text) {
  return std::ranges::none_of(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
}

// Values become lines of a script's head, or values of a manifest.
std::string line_in(const CommandLine& line, const std::string& flag, const std::string& other) {
  const std::string text = line.own(flag, other);
  if (is_one_line(text)) return text;
  refuse_submission("--" + flag + " is '" + printable(text) + "': must be one line of plain text");
}

// The working directory, too, may have bytes that would begin another line of the script.
std::string absolute_in(const CommandLine& line, const std::string& flag) {
  std::error_code error;
  const std::string path =
      std::filesystem::absolute(line_in(line, flag, ""), error).lexically_normal().string();
  if (error) {
    refuse_submission("--" + flag + " is a path in the working directory, which cannot be read: " +
                      error.message());
  }
  if (is_one_line(path)) return path;
  refuse_submission("--" + flag + " is " + printable(path, kMaxPathBytes) +
                    ", with the working directory: must be one line of plain text");
}

// Returns a name that Slurm and Kubernetes take: small letters, digits and '-'.
std::string name_of(const CommandLine& line, const std::string& job_file) {
  if (line.local.contains("name")) return line_in(line, "name", "");
  constexpr size_t kMostLetters = 40;  // pods add theirs, up to 63
  std::string name;
  for (const char c : std::filesystem::path(job_file).stem().string()) {
    const auto letter = static_cast<unsigned char>(c);
    const bool fits = std::isalnum(letter) != 0 && letter < 128;
    if (fits) name += static_cast<char>(std::tolower(letter));
    if (!fits && !name.empty() && name.back() != '-') name += '-';
  }
  name.resize(std::min(name.size(), kMostLetters));
  while (!name.empty() && name.back() == '-') name.pop_back();
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front())) != 0) {
    name = "pushpull-" + name;
  }
  return name.back() == '-' ? "pushpull" : name;
}

// Returns what a worker and a server beside it need, or 0 for a user's model, and if the data, which
// give the model its shape, are not on this host.
int64_t memory_of_task(const Job& job, int64_t servers) {
  if (job.model == "external") return 0;
  constexpr int64_t kProgramsAndData = int64_t{1} << 30;
  constexpr int64_t kCopiesOfServer = 4;  // weights, two moments of an optimizer, a sum
  try {
    const WorkerMemory worker =
        worker_memory(job, figures_of_model(job, open_dataset(job)->fields()));
    return worker.total() + worker.weights_bytes * kCopiesOfServer / servers + kProgramsAndData;
  } catch (const Error&) {
    return 0;
  }
}

// Sets what each worker needs of its node.
void set_resources(const Job& job, Submission& to) {
  to.cpus = job.threads + 1;
  if (to.device.starts_with("cuda")) to.gpus = 1 + std::ranges::count(to.device, ',');
  to.memory = memory_of_task(job, to.servers);
}

// The limit must leave time for work before the notice.
void set_time(const CommandLine& line, Submission& to) {
  to.time = line_in(line, "time", "");
  to.notice_s = number_in(line, "notice", 120);
  if (to.time.empty()) return;
  const int64_t seconds = slurm_seconds(to.time);
  if (seconds < 0) {
    refuse_submission("--time is '" + printable(to.time) +
                      "': must be minutes, HH:MM:SS or DAYS-HH:MM:SS, as sbatch takes it");
  }
  if (line.local.contains("notice") && to.notice_s >= seconds) {
    refuse_submission("--notice " + std::to_string(to.notice_s) + " is not less than --time " +
                      to.time + ", so the job would stop at once");
  }
  to.notice_s = std::min(to.notice_s, std::max<int64_t>(1, seconds / 4));
}

void add_run_words(const CommandLine& line, Submission& to) {
  for (const char* flag : {"device", "server-device", "worker", "over-args", "tensorboard"}) {
    if (!line.local.contains(flag)) continue;
    to.run_words.push_back(std::string("--") + flag + "=" + line_in(line, flag, ""));
  }
  if (line.local.contains("key")) {
    to.run_words.emplace_back("--key");
    to.run_words.push_back(absolute_in(line, "key"));
  }
  if (to.insecure) to.run_words.emplace_back("--insecure");
}

}  // namespace

const std::vector<KeyHelp>& submit_options() {
  static const std::vector<KeyHelp> options = with_key_flags({
      takes("FILE", {"job", "", "job file (INI)"}),
      deepspeed_help(),
      {"nodes", "1", "nodes to ask for"},
      {"workers", "one for each node", "workers in all"},
      {"servers", "one for each node", "servers in all, each beside the workers of a node"},
      takes("DIR", {"out", "",
                    "folder for all results, on a file system of all nodes; also gets submit.sh"}),
      {"go", "", "submit it, too", "", false},
      takes("sbatch|jobset",
            {"print", "", "sbatch or jobset: print the script or the manifest, and write nothing"}),
      {"time", "the partition's", "time limit, as sbatch takes it: minutes, or HH:MM:SS"},
      {"notice", "120",
       "seconds before the time limit at which the job stops with a checkpoint and goes back into "
       "the queue; at most a quarter of --time"},
      {"name", "the job file's", "name of the job"},
      {"worker", "", "command of a worker of your own, for model = external"},
      {"device", "cpu", "of the workers"},
      {"server-device", "cpu", "of the servers"},
      takes("DIR", {"tensorboard", "", "folder for TensorBoard's event files"}),
      {"over-args", "", "further words for srun"},
      {"sbatch-args", "",
       "further words for sbatch: --sbatch-args='--partition=gpu --gpus-per-task=1'"},
      {"image", "pushpull", "of a JobSet: image with the programs"},
      {"volume", "pushpull-out", "of a JobSet: volume claim that holds --out, as /out"},
  });
  return options;
}

Submission plan_submission(const CommandLine& line, const std::string& program_dir) {
  for (const char* flag : {"job", "out"}) {
    if (line.own(flag, "").empty()) refuse_submission(std::string("--") + flag + " is missing");
  }
  Submission plan;
  plan.job_file = absolute_in(line, "job");
  plan.out = absolute_in(line, "out");
  plan.nodes = number_in(line, "nodes", 1);
  plan.workers = number_in(line, "workers", plan.nodes);
  plan.servers = number_in(line, "servers", std::min(plan.nodes, plan.workers));
  if (plan.workers < plan.nodes) {
    refuse_submission("--workers " + std::to_string(plan.workers) + " is less than --nodes " +
                      std::to_string(plan.nodes) + ": a node without a worker would do nothing");
  }
  if (plan.servers > plan.workers) {
    refuse_submission("--servers " + std::to_string(plan.servers) + " is more than --workers " +
                      std::to_string(plan.workers) + ": each server is beside a worker");
  }
  const Job job = parse_job(plan.job_file, line.keys);
  check_job_against_workers(job, plan.workers);
  plan.worker = worker_command(line, job, "submit");
  plan.device = line_in(line, "device", "");
  plan.insecure = line.local.contains("insecure");
  set_resources(job, plan);
  if (line.keys.contains("resume") && job.resume == Resume::kFalse) {
    refuse_submission("--resume false: a job that is requeued would start from scratch");
  }
  for (const auto& [key, value] : line.keys) plan.job_words.push_back("--" + key + "=" + value);
  if (job.resume == Resume::kFalse) plan.job_words.emplace_back("--resume=auto");
  plan.name = name_of(line, plan.job_file);
  plan.program = program_dir + "/pushpull";
  if (!is_one_line(plan.program)) {
    refuse_submission("the programs are in " + printable(plan.program, kMaxPathBytes) +
                      ": must be one line of plain text");
  }
  plan.sbatch_args = line_in(line, "sbatch-args", "");
  plan.image = line_in(line, "image", "pushpull");
  plan.volume = line_in(line, "volume", "pushpull-out");
  set_time(line, plan);
  add_run_words(line, plan);
  return plan;
}

int64_t slurm_seconds(const std::string& text) {
  std::string rest = text;
  int64_t days = 0;
  const size_t dash = rest.find('-');
  const bool has_days = dash != std::string::npos;
  constexpr int64_t kMostParts = 1'000'000;
  const auto part = [](const std::string& digits) -> int64_t {
    const auto value = parse_int64(digits);
    return value && *value >= 0 && *value <= kMostParts ? *value : -1;
  };
  if (has_days) {
    days = part(rest.substr(0, dash));
    rest = rest.substr(dash + 1);
  }
  std::vector<int64_t> parts;
  for (size_t begin = 0; begin <= rest.size();) {
    const size_t end = std::min(rest.find(':', begin), rest.size());
    parts.push_back(part(rest.substr(begin, end - begin)));
    begin = end + 1;
  }
  if (days < 0 || parts.size() > 3 || std::ranges::min(parts) < 0) return -1;
  // With days the first part is hours; without, one or two parts begin with minutes.
  if (has_days || parts.size() == 3) {
    parts.resize(3);
    return ((days * 24 + parts[0]) * 60 + parts[1]) * 60 + parts[2];
  }
  parts.resize(2);
  return parts[0] * 60 + parts[1];
}

namespace {

// A text of JSON is a text of YAML.
std::string yaml(const std::string& text) {
  if (is_plain_text(text)) return nlohmann::json(text).dump();
  refuse_submission("a manifest is UTF-8 and cannot hold '" + printable(text, kMaxPathBytes) + "'");
}

std::string quoted_word(const std::string& text) { return shell_command("", {text}).substr(1); }

std::string config_map(const Submission& plan) {
  std::ifstream file(plan.job_file);
  std::ostringstream out;
  out << "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " << yaml(plan.name + "-job")
      << "\ndata:\n  job.ini: |4\n";
  for (std::string line; std::getline(file, line);) {
    const bool marked = line.starts_with("\xEF\xBB\xBF");  // a byte order mark of the first line
    out << "      " << (marked ? line.substr(3) : line) << "\n";
  }
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

std::string resources_yaml(const Submission& plan) {
  std::string out = "                  resources:\n                    requests: {cpu: " +
                    std::to_string(plan.cpus);
  if (plan.memory > 0) out += ", memory: " + std::to_string((plan.memory >> 20) + 1) + "Mi";
  out += "}\n";
  if (plan.gpus == 0) return out;
  return out + "                    limits: {nvidia.com/gpu: " + std::to_string(plan.gpus) + "}\n";
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
      << "              enableServiceLinks: false  # no PUSHPULL_... variables of Services\n"
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
    out << "# First: pushpull keygen job.key; kubectl create secret generic "
        << quoted_word(plan.name + "-key") << " --from-file=key=job.key\n";
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
      << replicated_job(plan, "worker", plan.workers, worker_words(plan), resources_yaml(plan), "");
  return out.str();
}

namespace {

// bash runs a trap as soon as `wait` returns, and not while another command runs: so `run` is in the
// background. A signal ends `wait`, but not `run`. The last `wait` returns its code.
// Traps come first: without one, a signal right after the start would end bash and leave `run` alone.
constexpr const char* kTraps = R"(run= again= told=
pass_on() { told=1; [ -z "$run" ] || kill -TERM $run; }
trap 'again=1; pass_on' USR1  # the time limit is near: stop with a checkpoint, and requeue
trap pass_on TERM             # preempted, or cancelled: stop with a checkpoint

)";

constexpr const char* kBody = R"(run=$!
[ -z "$told" ] || pass_on
while kill -0 $run 2>/dev/null; do wait $run; done
wait $run
code=$?
if [ $code = 75 ] && [ -z "$again" ]; then
  # Slurm does not requeue a preempted job that ends within its grace time.
  again=$(scontrol show job "$SLURM_JOB_ID" 2>/dev/null | grep -o 'PreemptTime=[0-9]')
fi
if [ $code = 75 ] && [ -n "$again" ]; then
  echo "stopped with a checkpoint: back into the queue"
  scontrol requeue "$SLURM_JOB_ID" && exit 0
fi
exit $code
)";

// Returns the lines for cores, GPUs and memory that the user's own words for sbatch leave open.
std::string resource_lines(const Submission& plan) {
  std::vector<std::string> words;
  if (!plan.sbatch_args.empty()) words = split_words(plan.sbatch_args);
  const auto asked = [&words](const std::vector<std::string>& flags) {
    return std::ranges::any_of(words, [&](const std::string& word) {
      return std::ranges::any_of(flags, [&](const auto& flag) { return word.starts_with(flag); });
    });
  };
  std::string out;
  if (!asked({"--cpus-per-task", "-c", "--exclusive"})) {
    out += "#SBATCH --cpus-per-task=" + std::to_string(plan.cpus) + "\n";
  }
  if (plan.gpus > 0 && !asked({"--gpus", "-G", "--gres"})) {
    out += "#SBATCH --gpus-per-task=" + std::to_string(plan.gpus) + "\n";
  }
  constexpr int64_t kDefaultMib = 2048;  // sites give as much, and some accept no number
  const int64_t mib = (plan.memory / plan.cpus >> 20) + 1;
  if (mib > kDefaultMib && !asked({"--mem"})) {
    out += "#SBATCH --mem-per-cpu=" + std::to_string(mib) + "M\n";
  }
  return out;
}

}  // namespace

std::string sbatch_script(const Submission& plan) {
  const int64_t per_node = (plan.workers + plan.nodes - 1) / plan.nodes;
  std::ostringstream out;
  out << "#!/bin/bash\n"
      << "# Written by `pushpull submit`. `sbatch` with this file submits the job again.\n"
      << "#SBATCH --job-name=" << quoted_word(plan.name) << "\n"
      << "#SBATCH --nodes=" << plan.nodes << "\n"
      << "#SBATCH --ntasks=" << plan.workers << "\n"
      << "#SBATCH --ntasks-per-node=" << per_node << "\n"
      << resource_lines(plan);
  if (!plan.time.empty()) out << "#SBATCH --time=" << plan.time << "\n";
  out << "#SBATCH --requeue\n"
      << "#SBATCH --open-mode=append\n"
      << "#SBATCH --signal=B:USR1@" << plan.notice_s << "\n"
      << "#SBATCH --output=" << quoted_word(plan.out + "/slurm-%j.log") << "\n";
  if (!plan.sbatch_args.empty()) out << "#SBATCH " << plan.sbatch_args << "\n";
  out << "\nout=" << quoted_word(plan.out) << "\n"
      << "if [ -n \"$SLURM_ARRAY_TASK_ID\" ]; then out=$out/task-$SLURM_ARRAY_TASK_ID; fi\n\n"
      << kTraps
      << shell_command(quoted_word(plan.program),
                       {"run", "--over", "slurm", "--job", plan.job_file, "--workers",
                        std::to_string(plan.workers), "--servers", std::to_string(plan.servers)})
      << " \\\n  --out \"$out\" --logs \"$out/logs\"" << shell_command("", plan.run_words)
      << shell_command("", plan.job_words) << " &\n"
      << kBody;
  return out.str();
}

}  // namespace pushpull
