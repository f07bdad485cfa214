// `pushpull task`: the program around TaskRules.

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/run/child.h"
#include "cli/run/merged_view.h"
#include "cli/run/signals.h"
#include "cli/run/step_launcher.h"
#include "cli/run/step_nodes.h"
#include "cli/run/task_rules.h"
#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/device/device.h"
#include "common/io/file.h"
#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/launch/placement.h"
#include "worker/devices.h"

namespace pushpull {
namespace {

const std::vector<KeyHelp>& task_options() {
  static const std::vector<KeyHelp> options = {
      {"over", "", "the launcher that has started this task: slurm or mpi"},
      {"join", "", "address of the coordinator"},
      {"servers", "1", "servers of the job; one may start beside the worker of this task"},
      {"on-worker-loss", "abort", "the job's"},
      {"on-server-loss", "abort", "the job's"},
      {"device", "", "--device of the worker"},
      {"server-device", "", "--device of the server"},
      {"bind", "", "--bind of both"},
      {"data-port", "", "--data-port of both"},
      {"oversubscribe", "", "--oversubscribe of the worker", "", false},
      {"trace", "", "folder for the worker's trace"},
      {"logs", "", "folder for a file with the output of each task"},
      {"insecure", "", "no key", "", false},
      {"tell-node", "", "only prints what the node of this task is", "", false},
  };
  return options;
}

// One process, its plan for replacements, and its output.
struct TaskMember {
  StartPlan plan;
  bool users = false;  // a program of the user's, which SIGTERM would kill in its last work
  std::unique_ptr<Child> child = nullptr;
  LineSplitter out = {};
  LineSplitter err = {};
};

class Task {
 public:
  Task(const TaskOptions& options, std::vector<TaskMember> members, std::string prefix,
       const std::string& log_file)
      : members_(std::move(members)),
        rules_(options, members_.size()),
        prefix_(std::move(prefix)),
        console_(STDOUT_FILENO, STDERR_FILENO) {
    if (log_file.empty()) return;
    log_ = UniqueFd(open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (log_.get() < 0) line("[task] cannot write " + log_file + "; this task has no log file");
  }

  int run();

 private:
  void start(TaskMember& member) { member.child = std::make_unique<Child>(member.plan, false); }
  bool any_left() const;
  void wait_for_events();
  void take(UniqueFd& fd, LineSplitter& lines, bool to_the_end);
  void reap();
  void handle_signals();
  void line(const std::string& text);

  std::vector<TaskMember> members_;
  TaskRules rules_;
  const std::string prefix_;
  SignalQueue signals_;  // before the console starts threads
  Console console_;
  UniqueFd log_;
};

int Task::run() {
  for (TaskMember& member : members_) start(member);
  while (any_left()) {
    wait_for_events();
    handle_signals();
    reap();
  }
  console_.flush();
  return rules_.exit_code();
}

bool Task::any_left() const {
  for (const TaskMember& member : members_) {
    if (member.child != nullptr) return true;
  }
  return false;
}

void Task::line(const std::string& text) {
  const std::string whole = prefix_ + text + "\n";
  console_.err(whole);
  // A full disk costs the log file only.
  if (log_.get() >= 0 && write(log_.get(), whole.data(), whole.size()) < 0) log_.reset();
}

void Task::take(UniqueFd& fd, LineSplitter& lines, bool to_the_end) {
  std::string bytes;
  while (fd.get() >= 0) {
    if (!read_available(fd.get(), bytes)) fd.reset();
    for (const std::string& text : lines.feed(bytes)) line(text);
    if (bytes.empty()) break;
  }
  if (!to_the_end) return;
  fd.reset();
  if (const std::string rest = lines.rest(); !rest.empty()) line(rest);
}

void Task::wait_for_events() {
  std::vector<pollfd> fds{{signals_.fd(), POLLIN, 0}};
  for (const TaskMember& member : members_) {
    if (member.child == nullptr) continue;
    for (const UniqueFd* fd : {&member.child->out, &member.child->err}) {
      if (fd->get() >= 0) fds.push_back({fd->get(), POLLIN, 0});
    }
  }
  // SIGCHLD wakes it at every end.
  poll(fds.data(), fds.size(), -1);
  for (TaskMember& member : members_) {
    if (member.child == nullptr) continue;
    take(member.child->out, member.out, false);
    take(member.child->err, member.err, false);
  }
}

void Task::handle_signals() {
  for (int signal = signals_.take(); signal != 0; signal = signals_.take()) {
    if (signal == SIGCHLD || signal == SIGTSTP) continue;
    rules_.told_to_end();
    line(std::string(kToldToEnd) + signal_name(signal));
    for (const TaskMember& member : members_) {
      if (member.child != nullptr && !member.users) member.child->send(signal);
    }
  }
}

void Task::reap() {
  for (size_t i = 0; i < members_.size(); ++i) {
    TaskMember& member = members_[i];
    if (member.child == nullptr) continue;
    const std::optional<Ending> ending = member.child->poll_end();
    if (!ending) continue;
    take(member.child->out, member.out, true);
    take(member.child->err, member.err, true);
    member.child.reset();
    const TaskRules::Verdict verdict = rules_.ended(i, *ending);
    if (!verdict.say.empty()) line("[task] " + verdict.say);
    if (verdict.restart) start(member);
  }
}

std::string device_of_rank(const std::string& text, int64_t local_rank) {
  const int devices = text == "cuda" ? device::count() : 0;
  return devices_in_turns(text, local_rank + 1, devices).back();
}

void add_common_words(const CommandLine& line, std::vector<std::string>& words) {
  if (const std::string bind = line.own("bind", ""); !bind.empty()) {
    words.insert(words.end(), {"--bind", bind});
  }
  if (const std::string port = line.own("data-port", ""); !port.empty()) {
    words.insert(words.end(), {"--data-port", port});
  }
  if (line.local.contains("insecure")) words.emplace_back("--insecure");
}

TaskMember worker_of(const CommandLine& line, const TaskPlace& place, const std::string& dir) {
  const std::string join = line.own("join", "");
  TaskMember member;
  member.plan.environment = {{"PUSHPULL_RANK", std::to_string(place.rank)}};
  if (!line.positional.empty()) {
    member.plan.words = line.positional;
    member.plan.environment.emplace_back("PUSHPULL_JOIN", join);
    member.plan.environment.emplace_back("PUSHPULL_INSECURE", std::nullopt);
    if (line.local.contains("insecure")) member.plan.environment.back().second = "1";
    member.users = true;
    return member;
  }
  std::vector<std::string>& words = member.plan.words;
  words = {dir + "/pushpull-worker", "--join", join};
  if (const std::string device = line.own("device", ""); !device.empty()) {
    words.insert(words.end(), {"--device", device_of_rank(device, place.local_rank)});
  }
  if (const std::string trace = line.own("trace", ""); !trace.empty()) {
    make_folder(trace);
    words.insert(words.end(),
                 {"--trace", trace + "/worker-" + std::to_string(place.rank) + ".json"});
  }
  if (line.local.contains("oversubscribe")) words.emplace_back("--oversubscribe");
  add_common_words(line, words);
  return member;
}

TaskMember server_of(const CommandLine& line, const TaskPlace& place, const std::string& dir) {
  TaskMember member;
  member.plan.words = {dir + "/pushpull-server", "--join", line.own("join", "")};
  if (const std::string device = line.own("server-device", ""); !device.empty()) {
    member.plan.words.insert(member.plan.words.end(),
                             {"--device", device_of_rank(device, place.local_rank)});
  }
  add_common_words(line, member.plan.words);
  return member;
}

TaskOptions options_of(const CommandLine& line) {
  TaskOptions options;
  const std::string workers = line.own("on-worker-loss", "abort");
  if (workers == "wait") options.on_worker_loss = OnWorkerLoss::kWait;
  if (workers == "continue") options.on_worker_loss = OnWorkerLoss::kContinue;
  if (line.own("on-server-loss", "abort") == "restart") {
    options.on_server_loss = OnServerLoss::kRestart;
  }
  return options;
}

}  // namespace

int task_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, task_options(), JobFlags::kRefuse);
  static const ProgramHelp help = {
      .name = "pushpull task",
      .summary = "one task of `pushpull run --over`, which starts it by srun or mpirun",
      .usage = {"pushpull task --over slurm|mpi --join tcp://HOST:PORT [-- COMMAND]"},
      .options = task_options()};
  if (print_help(line, help, PUSHPULL_VERSION)) return 0;
  if (line.local.contains("tell-node")) {
    const auto launcher = make_step_launcher(line.own("over", ""), environment_of_this_process());
    const std::string node = launcher->node();
    std::cout << node_line(launcher->place().rank, node.empty() ? host_name() : node) << std::endl;
    return 0;
  }
  if (line.own("join", "").empty()) {
    throw Error(ErrorCode::kUsage, "[task] `pushpull run --over` starts tasks, not users");
  }
  // A launcher that is killed leaves no task behind.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  const TaskPlace place =
      make_step_launcher(line.own("over", ""), environment_of_this_process())->place();
  const std::string dir = program_folder();
  const int64_t servers = parse_int64(line.own("servers", "1")).value_or(1);
  std::vector<TaskMember> members;
  members.push_back(worker_of(line, place, dir));
  if (server_beside(place, servers)) members.push_back(server_of(line, place, dir));
  std::string log_file;
  if (const std::string logs = line.own("logs", ""); !logs.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(logs, ignored);
    log_file = logs + "/task-" + std::to_string(place.rank) + ".log";
  }
  return Task(options_of(line), std::move(members), task_prefix(place.rank, host_name()), log_file)
      .run();
}

}  // namespace pushpull
