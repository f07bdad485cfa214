// `pushpull run`: from flags to the launcher's options.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/run/deepspeed_config.h"
#include "cli/run/launcher.h"
#include "cli/run/link_lab.h"
#include "cli/run/step_launcher.h"
#include "cli/run/worker_command.h"
#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/device/device.h"
#include "common/host/binding.h"
#include "common/io/file.h"
#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "common/job/job_settings.h"
#include "common/job/program_help.h"
#include "common/launch/placement.h"
#include "common/net/address.h"
#include "common/net/key_file.h"
#include "ps/report/watch_page.h"
#include "ps/run/stop_flags.h"
#include "worker/devices.h"

namespace pushpull {
namespace {

// `pushpull run --over`: the coordinator runs here, and one srun or mpirun starts the workers and the
// further servers on the nodes of the allocation. Main thread.

struct Over {
  std::shared_ptr<const StepLauncher> launcher;
  int64_t workers = 1;  // tasks of the allocation, if --workers is not given
  std::string listen;   // of the coordinator, where other nodes reach it
};

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

// Returns the address of this host that other nodes of a job can reach: the local IP address on the route
// to the first of `nodes` that has one and is another host; if there is none, that of the default route,
// else of the first interface that is up, else 127.0.0.1. Sends nothing, but asks the resolver for the
// names.
std::string reachable_host(const std::vector<std::string>& nodes) {
  for (const std::string& node : nodes) {
    if (const auto address = address_towards(node)) return *address;
  }
  if (const auto address = address_towards(kElsewhere)) return *address;
  return address_of_an_interface().value_or("127.0.0.1");
}

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

// Returns what --over asks for, or nothing. Throws Error(kUsage) if the launcher cannot start anything
// here, if flags contradict it, or if nothing tells the number of workers.
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

// Turns options for local processes into those of a coordinator and a step.
//   line, job: the same from which `options` were made.
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
  add("--data-port", line.own("data-port", ""));
  add("--trace", options.trace_dir);
  add("--logs", line.own("logs", ""));
  if (options.insecure) step.words.emplace_back("--insecure");
  if (line.local.contains("oversubscribe")) step.words.emplace_back("--oversubscribe");
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

// From the job's end until a user's program must end, which may save its results.
constexpr int64_t kFinishOfUsersMs = 60000;
// The coordinator ends the job within its grace; the launcher waits a little longer.
constexpr int64_t kAfterGraceMs = 5000;
constexpr int64_t kMaxProcesses = 1024;  // per role; a larger number is a typing mistake

int64_t count(const CommandLine& line, const std::string& flag, int64_t other = 1) {
  const std::string text = line.own(flag, std::to_string(other));
  const std::optional<int64_t> value = parse_int64(text);
  if (!value || *value < 1 || *value > kMaxProcesses) {
    throw Error(ErrorCode::kUsage, "[run] --" + flag + " is '" + printable(text) +
                                       "': must be a whole number from 1 to " +
                                       std::to_string(kMaxProcesses));
  }
  return *value;
}

// Throws for a wrong flag before any process starts.
std::vector<std::string> devices(const CommandLine& line, const std::string& flag,
                                 int64_t processes) {
  const std::string text = line.own(flag, "");
  if (text.empty()) return {};
  const bool in_turns = text == "cuda";
  if (!in_turns) device::parse_devices(text, 0, flag);
  return devices_in_turns(text, processes, in_turns ? device::count() : 0);
}

// Returns a line if --bind cores has fewer cores than processes, or "".
std::string sharing_note(Bind bind, const std::vector<HostShare>& shares) {
  std::set<std::vector<int>> bound;
  for (const HostShare& share : shares) bound.insert(share.cpus);
  if (bind != Bind::kCores || bound.size() == shares.size()) return "";
  return "--bind cores: " + plural(std::ssize(bound), "core") + " for " +
         std::to_string(shares.size()) + " processes, which share them in turn";
}

// Sets the shares of the processes, and the lines about them.
void divide_host(const CommandLine& line, const Job& job, LauncherOptions& options) {
  const Bind bind = parse_bind(line.own("bind", "none"));
  const Cores cores = read_cores();
  options.shares = plan_host_shares(bind, cores, read_topology(cores.cpus),
                                    options.supervisor.servers, options.supervisor.workers);
  std::vector<std::string> notes = {sharing_note(bind, options.shares)};
  const std::string device = line.own("device", "cpu");
  const bool on_cores = device == "cpu" || (device == "auto" && device::count() == 0);
  if (options.worker_command.empty() && on_cores) {
    notes.push_back(checked_threads_text(options.supervisor.workers, job.threads, cores,
                                         line.local.contains("oversubscribe")));
  }
  std::erase(notes, "");
  options.notes = std::move(notes);
}

}  // namespace

const std::vector<KeyHelp>& run_options() {
  static const std::vector<KeyHelp> options = with_key_flags(with_stop_flags({
      takes(
          "FILE",
          {"job", "",
           "job file (INI); without it, all keys come from flags and PUSHPULL_ variables. Several: "
           "--worker joins each of them, by the file's name"}),
      {"servers-only", "",
       "start no workers: those of --workers join by themselves, or are those of another job", "",
       false},
      {"announce-fd", "", "descriptor that gets the first server's address, in a line"},
      deepspeed_help(),
      {"servers", "1", "servers to start; the weights are spread over them"},
      {"workers", "1", "workers to start"},
      {"worker", "",
       "command of a worker of your own, for model = external: 'python3 train.py'; it gets the "
       "job's address in PUSHPULL_JOIN"},
      takes("DIR", {"out", "pushpull-out", "folder for metrics, summary and checkpoints"}),
      {"listen", "tcp://127.0.0.1:*",
       "where the first server listens; *: a free port. With --over: an address of this host that "
       "other nodes reach"},
      data_port_help(),
      takes("slurm|mpi",
            {"over", "",
             "slurm or mpi: srun or mpirun starts the workers and further servers on the nodes of "
             "the allocation, one worker for each task (docs/clusters.md)"}),
      {"over-args", "", "further words for srun or mpirun: --over-args='--hostfile FILE'"},
      takes("DIR",
            {"logs", "",
             "with --over: folder for a file with the output of each task: task-0.log, ..."}),
      takes("DIR", {"tensorboard", "", "folder for TensorBoard's event files"}),
      {"metrics-listen", "",
       "PORT or HOST:PORT where HTTP serves /metrics (Prometheus) and /status (JSON); without a "
       "host on loopback"},
      {"link", "",
       "RATE,DELAY[,LOSS] such as 100mbit,5ms: each process on a host of its own, joined by such "
       "links; needs root"},
      {"per-host", "1", "with --link: workers of each host"},
      takes(
          kDeviceWords,
          {"device", "cpu",
           "of the workers: cpu, auto (GPUs in turns, or the processor), cuda (in turns), cuda:N, "
           "or several: cuda:0,cuda:1"}),
      takes(kDeviceWords,
            {"server-device", "cpu",
             "where servers keep weights and update them: cpu, auto, cuda (in turns), cuda:N"}),
      takes("none|cores|numa",
            {"bind", "none",
             "none, cores or numa: binds each process to its part of this host's cores"}),
      {"oversubscribe", "", "start workers of several threads each that are more than the cores",
       "", false},
      takes("DIR",
            {"trace", "", "folder for a Chrome trace of each worker's steps: worker-0.json, ..."}),
  }));
  return options;
}

LauncherOptions plan_run(const CommandLine& line, const std::string& program_dir, bool terminal) {
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage, "[run] '" + printable(line.positional.front()) +
                                       "' is not a flag; give the job file as --job FILE");
  }
  if (line.local.contains("link")) {
    parse_link(line.local.at("link"));  // throws for a wrong value before any process starts
    if (line.local.contains("listen")) {
      throw Error(ErrorCode::kUsage,
                  "[run] --listen and --link: the hosts of a link have addresses of their own; "
                  "remove --listen");
    }
  }
  if (line.local.contains("per-host")) {
    count(line, "per-host");
    if (line.own("link", "none") == "none") {
      throw Error(ErrorCode::kUsage,
                  "[run] --per-host " + line.local.at("per-host") +
                      ": needs --link RATE,DELAY, whose hosts get so many workers each");
    }
  }
  const std::optional<Over> over = over_of(line);
  LauncherOptions options;
  options.supervisor.servers = count(line, "servers");
  options.supervisor.workers = count(line, "workers", over ? over->workers : 1);
  const int64_t workers = options.supervisor.workers;
  const std::string file = line.own("job", "");
  // a program of the user's own may say the job
  const bool from_worker =
      file.empty() && !line.keys.contains("model") && line.local.contains("worker");
  if (file.empty() && line.keys.empty() && !from_worker) {
    throw Error(ErrorCode::kUsage,
                "[run] no job: give --job FILE, or its keys as flags: --model mlp --dataset dummy "
                "--steps 500");
  }
  const Job job = from_worker ? parse_programs_job("", line.keys) : parse_job(file, line.keys);
  if (!from_worker) check_job_against_workers(job, options.supervisor.workers);
  if (line.local.contains("metrics-listen")) parse_metrics_listen(line.local.at("metrics-listen"));
  options.data_port = data_port_of(line);
  const StopOptions stops = stop_options(line);
  options.checkpoint_signal = stops.checkpoint_signal;
  options.supervisor.stop_ms = stops.grace_ms + kAfterGraceMs;
  options.worker_command = worker_command(line, job, "run");
  if (!options.worker_command.empty()) options.supervisor.finish_ms = kFinishOfUsersMs;
  options.supervisor.on_worker_loss = job.on_worker_loss;
  options.supervisor.on_server_loss = job.on_server_loss;
  options.supervisor.quarantine = job.on_bad_gradient == OnBadGradient::kQuarantine;
  options.server_program = program_dir + "/pushpull-server";
  options.server_devices = devices(line, "server-device", options.supervisor.servers);
  options.worker_devices = devices(line, "device", options.supervisor.workers);
  if (!options.server_devices.empty() &&
      options.server_devices.front().find(',') != std::string::npos) {
    throw Error(ErrorCode::kUsage, "[run] --server-device " + options.server_devices.front() +
                                       ": a server uses one device");
  }
  if (line.local.contains("servers-only")) {
    options.supervisor.workers = 0;
    options.worker_command.clear();
  }
  if (!over) divide_host(line, job, options);  // with --over each task looks at its own host
  options.insecure = line.local.contains("insecure");
  // Several jobs have the same workers, and so the same token.
  const char* const token = std::getenv("PUSHPULL_JOB_TOKEN");  // NOLINT(concurrency-mt-unsafe)
  const bool given = token != nullptr && line.local.contains("announce-fd");
  options.job_token = given ? token : "run " + std::to_string(random_id());
  options.trace_dir = line.own("trace", "");
  options.worker_program = program_dir + "/pushpull-worker";

  if (const auto fd = line.local.find("announce-fd"); fd != line.local.end()) {
    const std::optional<int64_t> number = parse_int64(fd->second);
    if (!number || *number < 0 || *number > INT32_MAX) {
      throw Error(ErrorCode::kUsage, "[run] --announce-fd is '" + printable(fd->second) +
                                         "': must be the number of a descriptor");
    }
    options.announce_fd = static_cast<int>(*number);
  }
  options.out_dir = line.own("out", "pushpull-out");
  std::vector<std::string>& words = options.coordinator_arguments;
  if (!file.empty()) words.insert(words.end(), {"--job", file});
  if (from_worker) words.emplace_back(kJobFromWorker);
  words.insert(words.end(),
               {"--listen", over ? over->listen : line.own("listen", "tcp://127.0.0.1:*"),  //
                "--servers", std::to_string(options.supervisor.servers), "--workers",
                std::to_string(workers), "--out", options.out_dir, "--progress",
                terminal ? "tty" : "plain"});
  std::vector<std::string> passed(std::begin(kStopFlags), std::end(kStopFlags));
  passed.insert(passed.end(), {"tensorboard", "metrics-listen"});
  for (const std::string& flag : passed) {
    if (line.local.contains(flag)) words.insert(words.end(), {"--" + flag, line.local.at(flag)});
  }
  for (const auto& [key, value] : line.keys) {
    words.push_back(std::string("--").append(key).append("=").append(value));
  }
  if (over) start_over(*over, line, job, program_dir, options);
  return options;
}

const ProgramHelp& run_help() {
  static const ProgramHelp help = {
      .name = "pushpull run",
      .summary = "trains on this machine, or on the nodes of an allocation",
      .usage = {"pushpull run --job FILE --servers S --workers W [--KEY VALUE ...]",
                "pushpull run --over slurm|mpi --job FILE [--workers W] ...",
                "pushpull run --job FILE --workers W --worker 'COMMAND'",
                "pushpull run --job FILE --job FILE2 --workers W --worker 'COMMAND'"},
      .options = run_options(),
      .job_flags = JobFlags::kAccept};
  return help;
}

namespace {

// Several jobs with the same workers. The first one's launcher starts the workers; the servers of each further one have a
// launcher of their own.
struct SeveralJobs {
  std::vector<std::string> files;
  std::vector<std::string> others;  // arguments, without --job
};

SeveralJobs several_jobs(int argc, const char* const* argv) {
  SeveralJobs out;
  const std::vector<std::string> words(argv, argv + argc);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--job" && i + 1 < words.size()) {
      out.files.push_back(words[++i]);
    } else if (words[i].starts_with("--job=")) {
      out.files.push_back(words[i].substr(words[i].find('=') + 1));
    } else {
      out.others.push_back(words[i]);
    }
  }
  return out;
}

// Returns the name of a job among several, by which a worker joins it.
std::string job_name(const std::string& file) {
  const std::string name = std::filesystem::path(file).stem().string();
  const bool plain = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (plain) return name;
  throw Error(ErrorCode::kUsage,
              "[run] --job " + printable(file, kMaxPathBytes) +
                  ": among several jobs each is named after its file: expected a "
                  "name of letters, digits and - _ .");
}

void check_several(const CommandLine& line, const std::vector<std::string>& names) {
  for (const char* flag :
       {"over", "link", "listen", "metrics-listen", "data-port", "deepspeed", "servers-only"}) {
    if (!line.local.contains(flag)) continue;
    throw Error(ErrorCode::kUsage, std::string("[run] --") + flag + " and " +
                                       std::to_string(names.size()) +
                                       " jobs: it is for one job; leave it out");
  }
  if (!line.local.contains("worker")) {
    throw Error(ErrorCode::kUsage,
                "[run] " + std::to_string(names.size()) +
                    " jobs need --worker 'COMMAND', a program that joins each of "
                    "them");
  }
  const std::set<std::string> different(names.begin(), names.end());
  if (different.size() == names.size()) return;
  throw Error(ErrorCode::kUsage,
              "[run] two jobs of one name: each is named after its file, without .ini");
}

// Makes the command line that of the first job. Returns the others.
std::vector<OtherJob> other_jobs(const SeveralJobs& jobs, const std::string& dir,
                                 CommandLine& line) {
  std::vector<std::string> names;
  for (const std::string& file : jobs.files) names.push_back(job_name(file));
  check_several(line, names);
  const std::string out = line.own("out", "pushpull-out");
  const std::string board = line.own("tensorboard", "");
  std::vector<OtherJob> others;
  for (size_t i = 1; i < names.size(); ++i) {
    std::vector<std::string> words = {dir + "/pushpull"};
    words.insert(words.end(), jobs.others.begin(), jobs.others.end());
    words.insert(words.end(),
                 {"--job", jobs.files[i], "--servers-only", "--out", out + "/" + names[i]});
    if (!board.empty()) words.insert(words.end(), {"--tensorboard", board + "/" + names[i]});
    others.push_back({names[i], std::move(words)});
  }
  line.local["out"] = out + "/" + names.front();
  if (!board.empty()) line.local["tensorboard"] = board + "/" + names.front();
  return others;
}

}  // namespace

int run_command(int argc, const char* const* argv) {
  const SeveralJobs jobs = several_jobs(argc, argv);
  CommandLine line = parse_command_line(argc, argv, run_options());
  if (print_help(line, run_help(), PUSHPULL_VERSION)) return 0;
  // with --over the tasks of the allocation are workers, unless the flag is given
  const std::string workers = line.own("workers", line.local.contains("over") ? "0" : "1");
  for (const std::string& note : add_deepspeed_keys(line, parse_int64(workers).value_or(0))) {
    std::cout << note << std::endl;
  }
  const std::string dir = program_folder();
  std::vector<OtherJob> others;
  if (jobs.files.size() > 1) {
    others = other_jobs(jobs, dir, line);
    line.local["job"] = jobs.files.front();
  }
  LauncherOptions options = plan_run(line, dir, is_terminal(STDOUT_FILENO));
  if (!others.empty()) options.name = job_name(jobs.files.front());
  options.others = std::move(others);
  if (const std::string note = set_keys_of_children(line); !note.empty()) {
    std::cout << note << std::endl;
  }
  for (const std::string& note : options.notes) std::cout << "[run] " << note << std::endl;
  if (options.step && !options.insecure) options.step->key = find_key_text("");
  if (line.local.contains("trace")) {
    make_folder(line.local.at("trace"));
  }
  const std::optional<LinkSpec> link = parse_link(line.own("link", "none"));
  if (!link) {
    return launch(options);
  }
  const int64_t per_host = count(line, "per-host");
  const LinkLab lab(
      *link, hosts_of_job(options.supervisor.servers, options.supervisor.workers, per_host), dir);
  std::cout << "[link] " << link_text(lab.measured()) << "; TCP " << lab.congestion_control()
            << std::endl;
  put_on_hosts(options, lab, per_host);
  return launch(options);
}

}  // namespace pushpull
