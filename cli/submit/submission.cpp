#include "cli/submit/submission.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>

#include "cli/run/worker_command.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job.h"
#include "common/job/job_check.h"
#include "common/job/job_keys.h"
#include "common/net/key_file.h"

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

// Values become lines of a script's head, or values of a manifest.
std::string line_in(const CommandLine& line, const std::string& flag, const std::string& other) {
  const std::string text = line.own(flag, other);
  const bool plain = std::ranges::none_of(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
  if (plain) return text;
  refuse_submission("--" + flag + " is '" + printable(text) + "': must be one line of plain text");
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
    to.run_words.push_back(std::filesystem::absolute(line.local.at("key")));
  }
  if (to.insecure) to.run_words.emplace_back("--insecure");
}

}  // namespace

const std::vector<KeyHelp>& submit_options() {
  static const std::vector<KeyHelp> options = with_key_flags({
      takes("FILE", {"job", "", "job file (INI)"}),
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
  plan.job_file = std::filesystem::absolute(line_in(line, "job", "")).lexically_normal();
  plan.out = std::filesystem::absolute(line_in(line, "out", "")).lexically_normal();
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
  if (line.keys.contains("resume") && job.resume == Resume::kFalse) {
    refuse_submission("--resume false: a job that is requeued would start from scratch");
  }
  for (const auto& [key, value] : line.keys) plan.job_words.push_back("--" + key + "=" + value);
  if (job.resume == Resume::kFalse) plan.job_words.emplace_back("--resume=auto");
  plan.name = name_of(line, plan.job_file);
  plan.program = program_dir + "/pushpull";
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

}  // namespace pushpull
