// pushpull-worker: joins a job, computes gradients, pushes and pulls until the job is over.
#include <unistd.h>

#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/host/shortage.h"
#include "common/job/command_line.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/launch/find_job.h"
#include "common/launch/local_place.h"
#include "common/launch/placement.h"
#include "common/net/address.h"
#include "common/net/key_file.h"
#include "worker/compute/device_team.h"
#include "worker/devices.h"
#include "worker/exchange_work.h"
#include "worker/training_work.h"
#include "worker/worker_life.h"

namespace pushpull {
namespace {

const std::vector<KeyHelp>& options() {
  static const std::vector<KeyHelp> flags = with_key_flags({
      takes(
          "auto|tcp:",
          {"join", "",
           "address of the first server: tcp://HOST:PORT, or `auto`: from the launcher's variables "
           "(docs/clusters.md)"}),
      {"explain", "", "print which variable said what to `--join auto`, and join nothing", "",
       false},
      {"join-timeout", "60", "seconds to wait for the server before giving up"},
      takes("DIR", {"data-dir", "", "folder of the data on this host, if not the job's"}),
      {"listen", "",
       "all-reduce and stages: where to listen for other workers; default: the interface to the "
       "first server"},
      data_port_help(),
      {"advertise", "",
       "all-reduce and stages: host name or address by which other workers reach this one"},
      takes(
          kDeviceWords,
          {"device", "cpu",
           "device to compute on: cpu, auto (the GPU of this task's local rank), cuda, cuda:N, or "
           "a list: cuda:0,cuda:1"}),
      {"stages", "1",
       "divide the model, or with the job's key stages the worker's stage of it, into so many "
       "stages, "
       "which compute at the same time, on threads of their own; --device names one device for "
       "all, "
       "or one for each"},
      takes("none|cores|numa", {"bind", "none",
                                "none, cores or numa: run only on this task's part of the host's "
                                "cores, by its local rank"}),
      {"oversubscribe", "",
       "compute although the workers of this host have several threads each and more than its "
       "cores",
       "", false},
      takes("FILE",
            {"trace", "", "file for a Chrome trace of this worker's steps, written at the end"}),
      {"exchange-bytes", "",
       "for `pushpull bench`: size of the tensor to exchange, in bytes, instead of a model and "
       "data"},
      takes("FILE",
            {"exchange-times", "", "for `pushpull bench`: file for the times of the steps"}),
      {"exchange-apart", "", "for `pushpull bench`: pull only when the push has arrived", "",
       false},
  });
  return flags;
}

std::string value_of(const CommandLine& line, const std::string& key) {
  const auto found = line.local.find(key);
  return found == line.local.end() ? "" : found->second;
}

// Returns the options that `pushpull bench` gives to its workers, or nothing for an ordinary
// worker.
std::optional<ExchangeOptions> exchange_of(const CommandLine& line) {
  const std::string text = value_of(line, "exchange-bytes");
  const std::string times = value_of(line, "exchange-times");
  const bool apart = line.local.contains("exchange-apart");
  if (text.empty() && times.empty() && !apart) return std::nullopt;
  if (text.empty() || times.empty()) {
    throw Error(ErrorCode::kUsage,
                "[usage] --exchange-bytes and --exchange-times belong together; `pushpull bench` "
                "gives both");
  }
  const std::optional<int64_t> bytes = parse_int64(text);
  if (!bytes || *bytes < 4 || *bytes % 4 != 0) {
    throw Error(ErrorCode::kUsage, "[usage] --exchange-bytes " + text +
                                       ": must be a whole number of bytes > 0, a multiple of 4");
  }
  return ExchangeOptions{*bytes, times, apart};
}

// The data set and the model that the job names.
Computation make_computation(const Job& job, const std::string& data_dir,
                             const std::vector<device::DeviceName>& devices, int64_t stages) {
  Computation out;
  out.dataset = open_dataset(job, data_dir);
  if (job.stages > 1) {
    if (devices.size() > 1 && stages == 1) {
      throw Error(ErrorCode::kUsage, "[usage] --device names " + std::to_string(devices.size()) +
                                         " devices, but a worker of a job with stages = " +
                                         std::to_string(job.stages) +
                                         " computes one stage: name 1 device, or divide it with "
                                         "--stages " +
                                         std::to_string(devices.size()));
    }
    out.model = make_group_model(job, out.dataset->fields(), stages, devices);
    return out;
  }
  if (stages > 1) {
    out.model = make_staged_model(job, out.dataset->fields(), stages, devices);
    return out;
  }
  std::vector<std::unique_ptr<Model>> models;
  models.reserve(devices.size());
  for (const device::DeviceName& device : devices) {
    models.push_back(make_model(job, out.dataset->fields(), device));
  }
  out.model = models.size() == 1 ? std::move(models.front())
                                 : std::make_unique<TeamModel>(std::move(models));
  return out;
}

// Ends this process at signals. Create it before any thread starts.
class WorkerProcess final : public WorkerOwner {
 public:
  int take_signal() override {
    const int signal = signals_.take();
    if (const std::string line = signals_.take_notice(); !line.empty()) Log("worker").info(line);
    return signal;
  }
  int signal_fd() const override { return signals_.fd(); }
  void end_now(int code) override {
    flush_output();
    _exit(code);
  }

 private:
  SignalFd signals_;
};

// The job that this worker joins.
struct JobAddress {
  std::string join;   // tcp://HOST:PORT
  std::string token;  // or ""
};

WorkerOptions worker_options(const CommandLine& line, const JobAddress& job,
                             const std::vector<device::DeviceName>& devices) {
  WorkerOptions options;
  options.join = job.join;
  options.job_token = job.token;
  options.join_timeout_s = seconds_of(line, "join-timeout", 60);
  options.device.clear();
  for (const device::DeviceName& device : devices) {
    options.device += (options.device.empty() ? "" : ",") + device.to_string();
  }
  options.trace = value_of(line, "trace");
  options.keys = keys_of(line);
  return options;
}

// Returns the number of stages that the worker's model has.
int64_t stages_of(const CommandLine& line, const std::vector<device::DeviceName>& devices) {
  const std::string text = value_of(line, "stages");
  const std::optional<int64_t> stages = parse_int64(text.empty() ? "1" : text);
  if (!stages || *stages < 1) {
    throw Error(ErrorCode::kUsage,
                "[usage] --stages " + text + ": must be a whole number from 1 on");
  }
  if (*stages > 1 && devices.size() > 1 && std::ssize(devices) != *stages) {
    throw Error(ErrorCode::kUsage,
                "[usage] --stages " + text + ": --device names " + std::to_string(devices.size()) +
                    " devices: name 1 for all stages, or " + text + ", one for each");
  }
  return *stages;
}

void say_crowding(const Job& job, const std::vector<device::DeviceName>& devices, int64_t stages,
                  bool allowed) {
  if (devices.front().kind != device::DeviceName::kCpu) return;
  // stages with one thread each sleep while they wait; the threads of a stage wait for each other
  // without sleeping
  const int64_t threads = job.threads > 1 ? job.threads * stages : job.threads;
  if (const std::string text = crowding_text(threads, allowed); !text.empty()) {
    Log("worker").warn(text);
  }
}

// Runs the worker and returns the exit code.
int work(const CommandLine& line, const JobAddress& address, WorkerProcess& process) {
  parse_address(address.join, "join");
  const std::optional<ExchangeOptions> exchange = exchange_of(line);
  if (exchange && line.local.contains("device")) {
    throw Error(ErrorCode::kUsage, "[usage] --exchange-bytes computes nothing: leave --device out");
  }
  const std::string device = value_of(line, "device");
  const std::vector<device::DeviceName> devices =
      choose_devices(device, device == "auto" ? task_of_this_process() : TaskOnHost{},
                     [](const std::string& text) { Log("worker").info(text); });
  const int64_t stages = stages_of(line, devices);
  bool said_crowding = false;
  WorkerLife life(worker_options(line, address, devices), process);
  const JobEnd end = life.run([&](const WorkerParts& parts) -> std::unique_ptr<Work> {
    if (exchange) return std::make_unique<ExchangeWork>(parts, *exchange);
    const MakeComputation make = [&](const Job& job) {
      if (!said_crowding) say_crowding(job, devices, stages, line.local.contains("oversubscribe"));
      said_crowding = true;
      return make_computation(job, value_of(line, "data-dir"), devices, stages);
    };
    return std::make_unique<TrainingWork>(
        parts, make,
        PeerPort{value_of(line, "listen"), data_port_of(line), value_of(line, "advertise")});
  });
  return end.exit_code();
}

const ProgramHelp& worker_help() {
  static const ProgramHelp help = {
      .name = "pushpull-worker",
      .summary = "computes gradients for a job, pushes them to its servers, pulls weights",
      .usage = {"pushpull-worker --join tcp://HOST:PORT [--join-timeout SECONDS] "
                "[--data-dir DIR] [--listen tcp://ADDR:PORT] [--device DEVICE] [--trace FILE]",
                "pushpull-worker --join auto [--explain]"},
      .options = options()};
  return help;
}

int main_of(int argc, char** argv) {
  const CommandLine line = parse_command_line(argc, argv, options(), JobFlags::kRefuse);
  if (print_help(line, worker_help(), program_version())) return 0;
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage, "[usage] unexpected word " + line.positional.front());
  }
  if (!line.local.contains("join")) {
    throw Error(ErrorCode::kUsage,
                "[usage] --join is missing: the address of the first server, tcp://HOST:PORT, or "
                "auto");
  }
  std::string join = line.local.at("join");
  std::string job_token = job_token_of_this_process();
  if (join == "auto" || line.local.contains("explain")) {
    const Placement placement = place_this_process({.server = false, .join = join});
    if (line.local.contains("explain")) {
      std::cout << explain(placement);
      return 0;
    }
    Log("worker").info(summary_line(placement));
    // Signals end this process until it has found the server: it is no member of the job yet.
    const SearchListener listener{[](const std::string& text) { Log("worker").info(text); },
                                  [] { return false; }};
    join =
        *address_of_job(placement, keys_of(line), seconds_of(line, "join-timeout", 60), listener);
    job_token = placement.job_token;
  }
  take_cores(parse_bind(line.own("bind", "none")), 0,
             [](const std::string& text) { Log("worker").info(text); });
  keep_heap();
  raise_file_limit();
  WorkerProcess process;
  return work(line, {join, job_token}, process);
}

// Runs the program and returns its exit code. Errors have been logged by then.
int worker_program(int argc, char** argv) {
  try {
    return main_of(argc, argv);
  } catch (const Error& e) {
    Log("worker").error(e.what());
    return static_cast<int>(e.code());
  } catch (const std::exception& e) {
    const Error error = error_of(e);
    Log("worker").error(error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  const pushpull::ProcessConsole console;
  return pushpull::worker_program(argc, argv);
}
