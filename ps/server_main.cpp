// The program pushpull-server: the first server reads the job and coordinates it; the others join.
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <iostream>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/host/shortage.h"
#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "common/job/job_settings.h"
#include "common/job/program_help.h"
#include "common/launch/find_job.h"
#include "common/launch/local_place.h"
#include "common/launch/placement.h"
#include "common/net/address.h"
#include "common/net/join.h"
#include "common/net/key_file.h"
#include "ps/engine/device_engine.h"
#include "ps/report/watch_page.h"
#include "ps/run/coordinator_loop.h"
#include "ps/run/job_of_worker.h"
#include "ps/run/stop_flags.h"
#include "ps/server/joined_server_loop.h"

namespace pushpull {
namespace {

const std::vector<KeyHelp>& options() {
  static const std::vector<KeyHelp> flags = with_key_flags(with_stop_flags({
      takes("FILE", {"job", "", "job file (INI); only the first server reads it"}),
      {"job-from-worker", "",
       "in the place of --job: the first worker's program says the job; keys as flags come first",
       "", false},
      {"listen", "tcp://127.0.0.1:5555", "where to listen; port * picks a free one"},
      data_port_help(),
      {"advertise", "", "host name or address by which other processes reach this server"},
      {"servers", "1", "servers of the job, this one included"},
      {"workers", "1", "workers to wait for before training starts"},
      takes("DIR", {"out", "pushpull-out", "folder for metrics, summary and checkpoints"}),
      takes("DIR",
            {"tensorboard", "", "folder for TensorBoard's event files; only of the first server"}),
      {"metrics-listen", "",
       "PORT or HOST:PORT where HTTP serves /metrics (Prometheus) and /status (JSON); without a "
       "host on loopback; only of the first server"},
      takes(kDeviceWords, {"device", "cpu",
                           "where weights are kept and updated: cpu, auto (the GPU of this task's "
                           "local rank), cuda, cuda:N"}),
      takes("none|cores|numa", {"bind", "none",
                                "none, cores or numa: run only on this task's part of the host's "
                                "cores, by its local rank"}),
      takes("auto|plain|tty",
            {"progress", "auto", "tty (one line that is overwritten), plain, or auto"}),
      {"announce-fd", "",
       "file descriptor to write the address to, once it is known, and a line if the job fails"},
      takes("auto|tcp:", {"join", "",
                          "join the job at tcp://HOST:PORT as a further server, or `auto`: the "
                          "launcher's variables "
                          "decide; rank 0 starts the job (docs/clusters.md)"}),
      {"explain", "", "print which variable said what to `--join auto`, and join nothing", "",
       false},
      {"join-timeout", "60",
       "seconds to wait for the first server; the first server waits for all others (600)"},
  }));
  return flags;
}

// What the smallest job needs: with less, libzmq ends the process.
constexpr int64_t kFilesOfServer = 64;  // a quarter stays free for files
constexpr int64_t kFilesOfMember = 6;
constexpr int kThreadsOfServer = 12;

std::string value_of(const CommandLine& line, const std::string& key, const std::string& other) {
  const auto found = line.local.find(key);
  return found == line.local.end() ? other : found->second;
}

int64_t count_of(const CommandLine& line, const std::string& key, int64_t other, int64_t least) {
  const auto found = line.local.find(key);
  if (found == line.local.end()) return other;
  const std::optional<int64_t> value = parse_int64(found->second);
  if (!value || *value < least || *value > 100'000) {
    throw Error(ErrorCode::kUsage, "[usage] --" + key + " " + found->second +
                                       ": must be a whole number from " + std::to_string(least) +
                                       " to 100000");
  }
  return *value;
}

std::string advertise_of(const CommandLine& line) {
  std::string host = value_of(line, "advertise", "");
  if (line.local.contains("advertise")) check_host(host, "advertise");
  return host;
}

// Returns the keys of a program that listens. Warns if there are none.
Keys keys_to_listen(const CommandLine& line) {
  Keys keys = keys_of(line);
  if (keys.insecure()) Log("server").warn(kInsecureLine);
  return keys;
}

// Opens the device before waiting for members, so that a problem is reported at once.
std::shared_ptr<device::Device> device_of(const CommandLine& line) {
  const std::string device = value_of(line, "device", "cpu");
  return open_server_device(device, device == "auto" ? task_of_this_process() : TaskOnHost{},
                            [](const std::string& text) { Log("server").info(text); });
}

void refuse_keys(const CommandLine& line) {
  if (line.keys.empty()) return;
  throw Error(ErrorCode::kUsage, "[usage] --" + line.keys.begin()->first +
                                     " belongs to the job: give it to the first server");
}

// Flags that only the first server has a use for.
void refuse_flags_of_first(const CommandLine& line) {
  std::vector<std::string> flags(std::begin(kStopFlags), std::end(kStopFlags));
  flags.insert(flags.end(), {"tensorboard", "metrics-listen"});
  for (const std::string& flag : flags) {
    if (!line.local.contains(flag)) continue;
    throw Error(ErrorCode::kUsage,
                "[usage] --" + flag + " with --join: give it to the first server");
  }
}

//   placement: of --join auto, or null.
int join_job(const CommandLine& line, const std::string& join, const Placement* placement,
             SignalFd& signals) {
  JoinedServerProgram program;
  program.join = join;
  program.job_token = placement != nullptr ? placement->job_token : job_token_of_this_process();
  parse_address(program.join, "join");
  program.listen = value_of(line, "listen", "");
  if (!program.listen.empty()) parse_address(program.listen, "listen");
  program.data_port = data_port_of(line);
  program.advertise = advertise_of(line);
  program.keys = keys_to_listen(line);
  program.join_timeout_s = seconds_of(line, "join-timeout", 60);
  if (placement != nullptr) {
    int signal = 0;
    const SearchListener listener{[](const std::string& text) { Log("server").info(text); },
                                  [&] { return (signal = signals.take()) != 0; }};
    const auto found = address_of_job(*placement, program.keys, program.join_timeout_s, listener);
    if (!found) return 128 + signal;
    program.join = *found;
  }
  program.device = device_of(line);
  return run_joined_server(program, signals);
}

ProgressStyle style_of(const std::string& text) {
  if (text == "tty") return ProgressStyle::kTerminal;
  if (text == "plain") return ProgressStyle::kPlain;
  if (text == "auto") {
    return is_terminal(STDOUT_FILENO) ? ProgressStyle::kTerminal : ProgressStyle::kPlain;
  }
  throw Error(ErrorCode::kUsage, "[usage] --progress " + text + ": must be tty, plain or auto");
}

WatchOptions watch_of(const CommandLine& line) {
  WatchOptions watch;
  watch.tensorboard_dir = value_of(line, "tensorboard", "");
  if (line.local.contains("metrics-listen")) {
    watch.metrics_listen = parse_metrics_listen(line.local.at("metrics-listen"));
  }
  return watch;
}

bool says_job(const CommandLine& line) {
  return line.local.contains("job") || line.local.contains("job-from-worker") || !line.keys.empty();
}

// Sets the job. Returns 0, or the signal that ended the wait for it.
int take_job(const CommandLine& line, SignalFd& signals, CoordinatorProgram& program) {
  if (!line.local.contains("job-from-worker")) {
    program.job = parse_job(value_of(line, "job", ""), line.keys);
    check_job_against_workers(program.job, program.workers);
    return 0;
  }
  if (line.local.contains("job")) {
    throw Error(ErrorCode::kUsage,
                "[usage] --job and --job-from-worker: the job comes from one of them");
  }
  int signal = 0;
  const auto found =
      wait_for_job({program.listen, program.advertise, program.job_token, program.keys, line.keys,
                    program.workers, program.join_timeout_s, program.announce_fd},
                   signals, signal);
  if (!found) return signal;
  program.job = found->job;
  program.listen = found->listen;
  program.listen_ports = 1;
  return 0;
}

//   placement: of --join auto, or null.
int coordinate(const CommandLine& line, const Placement* placement, SignalFd& signals) {
  if (!says_job(line)) {
    throw Error(ErrorCode::kUsage,
                "[usage] --job FILE starts a job, --join tcp://HOST:PORT joins one");
  }
  CoordinatorProgram program;
  program.servers = static_cast<int>(count_of(line, "servers", 1, 1));
  program.workers = static_cast<int>(count_of(line, "workers", 1, 1));
  program.listen = value_of(line, "listen", "tcp://127.0.0.1:5555");
  parse_address(program.listen, "listen");
  program.data_port = data_port_of(line);
  program.keys = keys_to_listen(line);
  program.advertise = advertise_of(line);
  program.out_dir = value_of(line, "out", "pushpull-out");
  program.watch = watch_of(line);
  program.stops = with_limit(stop_options(line), line, this_allocation(), [&] {
    std::error_code unreadable;  // named when the run begins
    return std::filesystem::exists(program.out_dir + "/term.json", unreadable);
  });
  program.style = style_of(value_of(line, "progress", "auto"));
  program.join_timeout_s = seconds_of(line, "join-timeout", 600);
  program.listen_ports = placement != nullptr ? placement->ports : 1;
  program.job_token = placement != nullptr ? placement->job_token : job_token_of_this_process();
  program.announce_fd = static_cast<int>(count_of(line, "announce-fd", -1, 0));
  program.device = device_of(line);
  if (const int signal = take_job(line, signals, program)) return 128 + signal;
  return run_coordinator(program, signals);
}

// Returns --servers or --workers as a launch flag.
std::optional<int64_t> given_count(const CommandLine& line, const std::string& key) {
  if (!line.local.contains(key)) return std::nullopt;
  return count_of(line, key, 1, 1);
}

// Returns the flags of the first server with the values that --join auto has found. Throws
// Error(kUsage) if flags contradict them, or if nothing tells the number of workers.
CommandLine first_server_line(const CommandLine& given, const Placement& placement) {
  CommandLine line = given;
  if (!says_job(line)) {
    throw Error(ErrorCode::kUsage, "[join] " + placement.role_from +
                                       ": this task is the first server, which reads the job: give "
                                       "--job FILE");
  }
  if (!placement.workers) {
    throw Error(ErrorCode::kUsage,
                "[join] " + placement.launcher + " does not say how many workers: give --workers");
  }
  const std::string port = std::to_string(placement.port.value);
  const std::string listen = value_of(line, "listen", placement.listen());
  if (parse_address(listen, "listen").port != port) {
    throw Error(ErrorCode::kUsage, "[join] --listen " + listen + " contradicts port " + port +
                                       " (" + placement.port.from +
                                       "), where the other tasks look for this server; set "
                                       "PUSHPULL_PORT in all tasks, or leave --listen out");
  }
  line.local["listen"] = listen;
  if (parse_address(listen, "listen").is_everywhere()) {
    line.local.try_emplace("advertise", placement.host.value);
  }
  line.local["servers"] = std::to_string(placement.servers.value);
  line.local["workers"] = std::to_string(placement.workers->value);
  return line;
}

// Returns the flags of a further server: the interface of --listen, and a port of its own.
CommandLine further_server_line(const CommandLine& given) {
  CommandLine line = given;
  if (!line.local.contains("listen")) return line;
  Address address = parse_address(line.local.at("listen"), "listen");
  address.port = "*";
  line.local["listen"] = address.to_string();
  return line;
}

// Starts or joins the job as the launcher's variables say. All tasks may have the same flags, so those
// of the job are allowed where they are not needed.
int run_placed(const CommandLine& line, const Placement& placement, SignalFd& signals) {
  Log("server").info(summary_line(placement));
  switch (placement.role) {
    case TaskRole::kFirstServer:
      return coordinate(first_server_line(line, placement), &placement, signals);
    case TaskRole::kServer:
      return join_job(further_server_line(line), placement.address(), &placement, signals);
    default:
      Log("server").info("the job has " + plural(placement.servers.value, "server") + " (" +
                         placement.servers.from + "), so this task needs none");
      return 0;
  }
}

// Runs the program with --join.
int join_or_explain(const CommandLine& line, SignalFd& signals) {
  const std::string& join = line.local.at("join");
  const bool explains = line.local.contains("explain");
  if (join != "auto") {
    refuse_keys(line);
    refuse_flags_of_first(line);
  }
  if (join != "auto" && !explains) return join_job(line, join, nullptr, signals);
  const Placement placement =
      place_this_process({true, join, given_count(line, "servers"), given_count(line, "workers")});
  if (!explains) return run_placed(line, placement, signals);
  std::cout << explain(placement);
  return 0;
}

const ProgramHelp& server_help() {
  static const ProgramHelp help = {
      .name = "pushpull-server",
      .summary = "holds the weights of a job; the first server coordinates it",
      .usage =
          {"pushpull-server --job FILE [--listen tcp://ADDR:PORT] [--servers S] [--workers W] "
           "[--out DIR] [--device DEVICE] [--KEY VALUE ...]",
           "pushpull-server --join tcp://ADDR:PORT [--device DEVICE] [--join-timeout SECONDS]",
           "pushpull-server --join auto [--explain] --job FILE [--servers S] [--workers W] ..."},
      .options = options(),
      .job_flags = JobFlags::kAccept};
  return help;
}

int main_of(int argc, char** argv) {
  const CommandLine line = parse_command_line(argc, argv, options());
  if (print_help(line, server_help(), program_version())) return 0;
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage, "[usage] unexpected word " + line.positional.front());
  }
  if (line.local.contains("explain") && !line.local.contains("join")) {
    throw Error(ErrorCode::kUsage, "[usage] --explain explains --join auto: give that, too");
  }
  take_cores(parse_bind(value_of(line, "bind", "none")), count_of(line, "servers", 1, 1),
             [](const std::string& text) { Log("server").info(text); });
  keep_heap();
  raise_file_limit();
  SignalFd signals(stop_options(line).checkpoint_signal);
  const int64_t members = count_of(line, "servers", 1, 1) + count_of(line, "workers", 1, 1);
  check_descriptors(kFilesOfServer + members * kFilesOfMember, "this server");
  check_threads(kThreadsOfServer, "a server");
  return line.local.contains("join") ? join_or_explain(line, signals)
                                     : coordinate(line, nullptr, signals);
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  const pushpull::ProcessConsole console;
  try {
    return pushpull::main_of(argc, argv);
  } catch (const pushpull::Error& e) {
    pushpull::Log("server").error(e.what());
    return static_cast<int>(e.code());
  } catch (const std::exception& e) {
    const pushpull::Error error = pushpull::error_of(e);
    pushpull::Log("server").error(error.what());
    return static_cast<int>(error.code());
  }
}
