// `pushpull selftest`: small jobs on made-up data, in real processes, that show whether this installation keeps its promises.
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/run/launcher.h"
#include "common/base/error.h"
#include "common/base/parse_json.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/base/unique_fd.h"
#include "common/io/file.h"
#include "common/io/folder_lock.h"
#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/net/key_file.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSummaryBytes = int64_t{16} << 20;
constexpr const char* kSteps = "40";

const std::vector<KeyHelp>& selftest_options() {
  static const std::vector<KeyHelp> options = {
      takes("DIR", {"out", "a new folder in TMPDIR, removed if all is well",
                    "folder for the jobs' files, which then stay"}),
      {"over", "", "also a job over the nodes of this allocation: slurm or mpi"},
  };
  return options;
}

// A small job, with its files in a folder of its own. One after the other.
class Jobs {
 public:
  explicit Jobs(std::string folder) : folder_(std::move(folder)), program_dir_(program_folder()) {}

  using Keys = std::map<std::string, std::string>;

  // Runs a job and returns its summary. Throws Error(kFailed) with its exit code and the path of its log.
  nlohmann::json run(const std::string& name, int servers, int workers, const Keys& keys,
                     const Keys& flags = {}) {
    const int code = launch_job(name, servers, workers, keys, flags);
    if (code == 0) return summary(name);
    throw Error(ErrorCode::kFailed, "ended with exit code " + std::to_string(code) + "; " +
                                        folder_ + "/" + name + ".log says why");
  }

  // Starts `pushpull run`, kills server 0 and then the rest without warning once the first checkpoint is complete, and
  // waits until nobody holds the job's folder.
  void kill_in_the_middle(const std::string& name, const Keys& keys) {
    StartPlan plan;
    plan.words = {program_dir_ + "/pushpull", "run", "--workers", "2", "--out", out_of(name)};
    for (const auto& [key, value] : with_defaults(keys))
      plan.words.push_back("--" + key + "=" + value);
    Child child(plan, false);
    const int64_t until_ms = now_ms() + kKillMs;
    std::string ignored;
    while (now_ms() < until_ms && !has_checkpoint(name)) {
      std::array<pollfd, 2> ends = {{{child.out.get(), POLLIN, 0}, {child.err.get(), POLLIN, 0}}};
      poll(ends.data(), ends.size(), kPollMs);
      for (const UniqueFd* end : {&child.out, &child.err}) {
        if (end->get() >= 0) read_available(end->get(), ignored);
      }
      if (child.poll_end()) throw Error(ErrorCode::kFailed, "ended before it could be killed");
    }
    if (!has_checkpoint(name)) throw Error(ErrorCode::kFailed, "has written no checkpoint in 20 s");
    if (const pid_t server = holder(name); server > 0) kill(server, SIGKILL);
    child.send(SIGKILL);
    while (holder(name) > 0) {
      if (now_ms() >= until_ms)
        throw Error(ErrorCode::kFailed, "leaves a process behind when it is killed");
      poll(nullptr, 0, kPollMs);
    }
  }

 private:
  static constexpr int64_t kKillMs = 20'000;
  static constexpr int kPollMs = 20;

  std::string out_of(const std::string& name) const { return folder_ + "/" + name; }

  static Keys with_defaults(Keys keys) {
    const Keys defaults = {{"model", "mlp"},         {"dataset", "dummy"},   {"hidden", "32"},
                           {"train-samples", "640"}, {"test-samples", "64"}, {"steps", kSteps},
                           {"global-batch", "32"},   {"micro-batch", "8"}};
    keys.insert(defaults.begin(), defaults.end());
    return keys;
  }

  int launch_job(const std::string& name, int servers, int workers, const Keys& keys,
                 const Keys& flags) {
    CommandLine line;
    line.keys = with_defaults(keys);
    line.local = flags;
    line.local["servers"] = std::to_string(servers);
    line.local["workers"] = std::to_string(workers);
    line.local["out"] = out_of(name);
    LauncherOptions options = plan_run(line, program_dir_, false);
    if (options.step) options.step->key = find_key_text("");
    const UniqueFd log(
        open((out_of(name) + ".log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (log.get() < 0) {
      throw Error(ErrorCode::kIo,
                  "cannot write in " + folder_ + ": " + std::generic_category().message(errno));
    }
    options.out_fd = options.err_fd = log.get();
    int signal = 0;
    options.stopped_by = &signal;
    const int code = launch(options);
    if (signal != 0) throw Error(ErrorCode::kStopped, "[selftest] ended by a signal");
    return code;
  }

  nlohmann::json summary(const std::string& name) const {
    nlohmann::json out =
        parse_json(read_text_file(out_of(name) + "/summary.json", kMaxSummaryBytes));
    if (out.is_object()) return out;
    throw Error(ErrorCode::kFailed, "has written no summary.json");
  }

  // Returns the process that holds the folder of a job, server 0, or 0 if none does.
  pid_t holder(const std::string& name) const {
    constexpr std::string_view kProcess = "process ";
    try {
      const FolderLock free(out_of(name), "selftest", "--out");
      return 0;
    } catch (const Error& error) {
      const std::string text = error.what();
      const size_t at = text.find(kProcess);
      if (error.code() != ErrorCode::kUsage || at == std::string::npos) throw;
      return static_cast<pid_t>(std::strtol(text.c_str() + at + kProcess.size(), nullptr, 10));
    }
  }

  bool has_checkpoint(const std::string& name) const {
    std::error_code error;
    fs::directory_iterator entry(out_of(name) + "/checkpoints", error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      if (fs::exists(entry->path() / "DONE", error)) return true;
    }
    return false;
  }

  const std::string folder_;
  const std::string program_dir_;
};

std::string hash_of(const nlohmann::json& summary) {
  return summary.value("weights_sha256", std::string());
}

void expect(bool is_true, const std::string& what) {
  if (!is_true) throw Error(ErrorCode::kFailed, what);
}

void expect_same(const std::string& one, const std::string& other) {
  expect(!one.empty() && one == other, "other bits: the weights have the hashes " +
                                           one.substr(0, 12) + " and " + other.substr(0, 12));
}

// A check: throws Error with what is wrong.
struct Check {
  std::string name;
  std::function<void(Jobs&)> run;
};

void strategy_trains(Jobs& jobs, const std::string& strategy) {
  std::string name = strategy;
  std::ranges::replace(name, ':', '-');
  const nlohmann::json summary = jobs.run(name, 1, 2, {{"strategy", strategy}});
  expect(summary.value("steps", 0) == std::stoi(kSteps),
         "has not trained " + std::string(kSteps) + " steps");
  expect(summary.contains("heads") && !summary["heads"].empty(), "has not been evaluated");
}

std::vector<Check> checks_of(const std::string& over) {
  std::vector<Check> checks;
  checks.push_back({"sync: the same bits with 1 and 3 workers, 1 and 2 servers", [](Jobs& jobs) {
                      const std::string one = hash_of(jobs.run("sync-1", 1, 1, {}));
                      expect_same(one, hash_of(jobs.run("sync-3", 2, 3, {})));
                    }});
  for (const char* strategy : {"async", "buffered:2", "ssp:2", "backup:1", "local:4",
                               "allreduce:tree", "allreduce:ring"}) {
    checks.push_back({std::string(strategy) + ": 2 workers train",
                      [strategy](Jobs& jobs) { strategy_trains(jobs, strategy); }});
  }
  checks.push_back(
      {"a job that is killed resumes, with the same bits", [](Jobs& jobs) {
         const Jobs::Keys keys = {
             {"steps", "3000"}, {"checkpoint-every", "100"}, {"resume", "auto"}};
         jobs.kill_in_the_middle("killed", keys);
         const nlohmann::json resumed = jobs.run("killed", 1, 2, keys);
         expect(resumed.value("recoveries", 0) > 0, "has begun again in the place of resuming");
         expect_same(hash_of(jobs.run("whole", 1, 2, {{"steps", "3000"}})), hash_of(resumed));
       }});
  if (!over.empty()) {
    checks.push_back(
        {"the nodes of this allocation train (--over " + over + ")", [over](Jobs& jobs) {
           jobs.run("over", 1, 2, {}, {{"over", over}});
         }});
  }
  return checks;
}

// Returns whether all is well.
bool run_checks(const std::vector<Check>& checks, Jobs& jobs) {
  size_t failed = 0;
  for (const Check& check : checks) {
    const double began_s = now_seconds();
    std::string problem;
    try {
      check.run(jobs);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kStopped) throw;
      problem = error.what();
    }
    if (!problem.empty()) ++failed;
    std::cout << (problem.empty() ? "OK      " : "FAILED  ") << check.name << std::fixed
              << std::setprecision(1) << " (" << now_seconds() - began_s << " s)"
              << (problem.empty() ? "" : ": " + problem) << std::endl;
  }
  std::cout << (failed == 0 ? "selftest: OK"
                            : "selftest: FAILED, " + plural(static_cast<int64_t>(failed), "check"))
            << std::endl;
  return failed == 0;
}

std::string new_folder() {
  const char* const parent = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): one thread
  std::string path = std::string(parent == nullptr || *parent == '\0' ? "/tmp" : parent) +
                     "/pushpull-selftest-XXXXXX";
  if (mkdtemp(path.data()) != nullptr) return path;
  throw Error(ErrorCode::kIo, "[selftest] cannot make the folder " + path + ": " +
                                  std::generic_category().message(errno) + "; name one with --out");
}

}  // namespace

const ProgramHelp& selftest_help() {
  static const ProgramHelp help = {
      .name = "pushpull selftest",
      .summary = "small jobs that show whether this installation works",
      .usage = {"pushpull selftest [--over slurm|mpi]"},
      .options = selftest_options()};
  return help;
}

int selftest_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, selftest_options(), JobFlags::kRefuse);
  if (print_help(line, selftest_help(), PUSHPULL_VERSION)) return 0;
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage,
                "[selftest] '" + printable(line.positional.front()) + "' is not a flag");
  }
  const bool keeps = line.local.contains("out");
  const std::string folder = keeps ? line.local.at("out") : new_folder();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(ErrorCode::kIo,
                "[selftest] cannot make the folder " + folder + ": " + error.message());
  if (const std::string note = set_keys_of_children({}); !note.empty())
    std::cout << note << std::endl;
  Jobs jobs(folder);
  const bool well = run_checks(checks_of(line.own("over", "")), jobs);
  if (well && !keeps) {
    fs::remove_all(folder, error);
  } else {
    std::cout << "the jobs' files are in " << folder << std::endl;
  }
  return well ? 0 : static_cast<int>(ErrorCode::kFailed);
}

}  // namespace pushpull
