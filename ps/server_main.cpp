// The program pushpull-server: the first server reads the job and coordinates it; the others join.
#include <unistd.h>

#include <exception>
#include <iostream>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/strict_number.h"
#include "common/job/command_line.h"
#include "common/job/job_check.h"
#include "common/job/key_help.h"
#include "common/keys/key_flags.h"
#include "common/net/address.h"
#include "common/net/join.h"
#include "ps/coordinator/coordinator_loop.h"
#include "ps/engine/server_device.h"
#include "ps/server/joined_server_loop.h"
#include "ps/watch/watch_options.h"

namespace pushpull {
namespace {

const std::vector<KeyHelp>& options() {
  static const std::vector<KeyHelp> flags = with_key_flags({
      {"job", "", "job file (INI); only the first server reads it"},
      {"listen", "tcp://127.0.0.1:5555", "where to listen; port * picks a free one"},
      {"advertise", "", "host name or address by which other processes reach this server"},
      {"servers", "1", "servers of the job, this one included"},
      {"workers", "1", "workers to wait for before training starts"},
      {"out", "pushpull-out", "folder for metrics, summary and checkpoints"},
      {"tensorboard", "", "folder for TensorBoard's event files; only of the first server"},
      {"metrics-listen", "",
       "PORT or HOST:PORT where HTTP serves /metrics (Prometheus) and /status (JSON); without a "
       "host on loopback; only of the first server"},
      {"device", "cpu", "where weights are kept and updated: cpu, auto, cuda, cuda:N"},
      {"progress", "auto", "tty (one line that is overwritten), plain, or auto"},
      {"announce-fd", "",
       "file descriptor to write the address to, once it is known, and a line if the job fails"},
      {"join", "", "join the job at tcp://HOST:PORT as a further server"},
      {"join-timeout", "60",
       "seconds to wait for the first server; the first server waits for all others (600)"},
  });
  return flags;
}

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
  return open_server_device(value_of(line, "device", "cpu"),
                            [](const std::string& text) { Log("server").info(text); });
}

int join_job(const CommandLine& line, SignalFd& signals) {
  if (!line.keys.empty()) {
    throw Error(ErrorCode::kUsage, "[usage] --" + line.keys.begin()->first +
                                       " belongs to the job: give it to the first server");
  }
  for (const char* flag : {"tensorboard", "metrics-listen"}) {
    if (!line.local.contains(flag)) continue;
    throw Error(ErrorCode::kUsage,
                std::string("[usage] --") + flag + " with --join: give it to the first server");
  }
  JoinedServerProgram program;
  program.join = line.local.at("join");
  parse_address(program.join, "join");
  program.listen = value_of(line, "listen", "");
  if (!program.listen.empty()) parse_address(program.listen, "listen");
  program.advertise = advertise_of(line);
  program.keys = keys_to_listen(line);
  program.join_timeout_s = seconds_of(line, "join-timeout", 60);
  program.device = device_of(line);
  return run_joined_server(program, signals);
}

ProgressStyle style_of(const std::string& text) {
  if (text == "tty") return ProgressStyle::kTerminal;
  if (text == "plain") return ProgressStyle::kPlain;
  if (text == "auto") {
    return isatty(STDOUT_FILENO) != 0 ? ProgressStyle::kTerminal : ProgressStyle::kPlain;
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

int coordinate(const CommandLine& line, SignalFd& signals) {
  if (!line.local.contains("job") && line.keys.empty()) {
    throw Error(ErrorCode::kUsage,
                "[usage] --job FILE starts a job, --join tcp://HOST:PORT joins one");
  }
  CoordinatorProgram program;
  program.job = parse_job(value_of(line, "job", ""), line.keys);
  program.servers = static_cast<int>(count_of(line, "servers", 1, 1));
  program.workers = static_cast<int>(count_of(line, "workers", 1, 1));
  check_job_against_workers(program.job, program.workers);
  program.listen = value_of(line, "listen", "tcp://127.0.0.1:5555");
  parse_address(program.listen, "listen");
  program.keys = keys_to_listen(line);
  program.advertise = advertise_of(line);
  program.out_dir = value_of(line, "out", "pushpull-out");
  program.watch = watch_of(line);
  program.style = style_of(value_of(line, "progress", "auto"));
  program.join_timeout_s = seconds_of(line, "join-timeout", 600);
  program.announce_fd = static_cast<int>(count_of(line, "announce-fd", -1, 0));
  program.device = device_of(line);
  return run_coordinator(program, signals);
}

int main_of(int argc, char** argv) {
  const CommandLine line = parse_command_line(argc, argv, options());
  if (line.help) {
    std::cout << help_text(
        "pushpull-server: holds the weights of a job; the first server coordinates it",
        {"pushpull-server --job FILE [--listen tcp://ADDR:PORT] [--servers S] [--workers W] "
         "[--out DIR] [--device DEVICE] [--KEY VALUE ...]",
         "pushpull-server --join tcp://ADDR:PORT [--device DEVICE] [--join-timeout SECONDS]"},
        options());
    return 0;
  }
  if (line.version) {
    std::cout << "pushpull-server " << program_version() << "\n";
    return 0;
  }
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage, "[usage] unexpected word " + line.positional.front());
  }
  keep_heap();
  raise_file_limit();
  SignalFd signals;
  return line.local.contains("join") ? join_job(line, signals) : coordinate(line, signals);
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
    pushpull::Log("server").error(std::string("[internal] ") + e.what());
    return static_cast<int>(pushpull::ErrorCode::kInternal);
  }
}
