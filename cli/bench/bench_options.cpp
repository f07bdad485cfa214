#include "cli/bench/bench_options.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/net/address.h"
#include "common/net/key_file.h"

namespace pushpull {
namespace {

constexpr int64_t kMaxProcesses = 1024;   // per role; a larger number is a typing mistake
constexpr int64_t kMaxSteps = 1'000'000;  // per row
constexpr const char* kSizes = "4096,65536,1048576,26214400,104857600";
constexpr const char* kTransports = "shm,tcp,ipc";

[[noreturn]] void refuse_bench(const std::string& text) {
  throw Error(ErrorCode::kUsage, "[bench] " + text);
}

// Job keys that change the cost of an exchange and that users may set. Bench sets all others.
constexpr std::array kTunable = {"slice-bytes", "connections", "server-threads", "wait",
                                 "encrypt",     "codec",       "pull-codec",     "weight-decay",
                                 "clip-norm",   "lr"};

// Returns a flag of bench. transport, optimizer and steps are job keys too, and the parser returns
// those in `line.keys`.
std::string own_or_key(const CommandLine& line, const std::string& flag,
                       const std::string& fallback) {
  for (const auto* words : {&line.local, &line.keys}) {
    if (const auto found = words->find(flag); found != words->end()) return found->second;
  }
  return fallback;
}

std::map<std::string, std::string> tuned_keys(const CommandLine& line) {
  std::map<std::string, std::string> keys;
  for (const auto& [key, value] : line.keys) {
    if (key == "transport" || key == "optimizer" || key == "steps") continue;
    if (std::ranges::count(kTunable, key) == 0) {
      refuse_bench("--" + key +
                   " is set by bench for each row, or does not affect an exchange: remove it");
    }
    keys[key] = value;
  }
  return keys;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = std::string(trim(part));
  return parts;
}

int64_t count(const CommandLine& line, const std::string& flag, const char* fallback, int64_t max) {
  const std::string text = own_or_key(line, flag, fallback);
  const std::optional<int64_t> value = parse_int64(text);
  if (!value || *value < 1 || *value > max) {
    refuse_bench("--" + flag + ": '" + printable(text) + "' must be a whole number from 1 to " +
                 std::to_string(max));
  }
  return *value;
}

// Reads "4096", "64K", "1M", "1MiB" or "1G" (powers of 1,024).
std::optional<int64_t> parse_size(std::string word) {
  int64_t unit = 1;
  if (word.ends_with("iB")) word.resize(word.size() - 2);
  const size_t power = word.empty() ? std::string::npos : std::string_view("KMG").find(word.back());
  if (power != std::string::npos) {
    unit = int64_t{1} << (10 * (power + 1));
    word.pop_back();
  }
  const std::optional<int64_t> value = parse_int64(word);
  if (!value || *value < 0 || *value > std::numeric_limits<int64_t>::max() / unit) {
    return std::nullopt;
  }
  return *value * unit;
}

std::vector<int64_t> parse_bytes(const std::string& text) {
  std::vector<int64_t> sizes;
  for (const std::string& word : split(text)) {
    const std::optional<int64_t> value = parse_size(word);
    if (!value || *value < 4 || *value % 4 != 0) {
      refuse_bench(
          "--bytes: '" + printable(word) +
          "' must be a whole number of bytes > 0, a multiple of 4 (floats), such as 1048576 or 1M");
    }
    if (std::ranges::count(sizes, *value) > 0) {
      refuse_bench("--bytes: " + word + " is given twice: remove one");
    }
    sizes.push_back(*value);
  }
  return sizes;
}

std::vector<Transport> parse_transports(const std::string& text) {
  std::vector<Transport> transports;
  for (const std::string& word : split(text)) {
    std::optional<Transport> found;
    for (const Transport known :
         {Transport::kShm, Transport::kTcp, Transport::kIpc, Transport::kZmq}) {
      if (word == transport_name(known)) found = known;
    }
    if (!found) refuse_bench("--transport: '" + printable(word) + "' must be shm, tcp, ipc or zmq");
    if (std::ranges::count(transports, *found) > 0) {
      refuse_bench("--transport: " + word + " is given twice: remove one");
    }
    transports.push_back(*found);
  }
  return transports;
}

OptimizerKind optimizer_of(const std::string& text) {
  try {
    return parse_optimizer(text);
  } catch (const Error&) {
    refuse_bench("--optimizer: '" + printable(text) +
                 "' must be sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad or lion");
  }
}

std::string gib(int64_t bytes) {
  constexpr int64_t kTenths = int64_t{1} << 30;
  const int64_t tenths = bytes / (kTenths / 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

// Running servers have their own number, optimizer, transport and number of steps.
void check_join(const CommandLine& line, const BenchOptions& options) {
  if (options.join.empty()) return;
  parse_address(options.join, "join");
  std::vector<std::string> theirs;
  if (line.local.contains("servers")) theirs.emplace_back("servers");
  for (const auto& [key, value] : line.keys) theirs.push_back(key);
  if (!theirs.empty()) {
    refuse_bench("--" + theirs.front() + " belongs to the job of the servers at " + options.join +
                 ": set it there, and remove it here");
  }
  if (options.bytes.size() != 1) {
    refuse_bench("--join measures one size, and --bytes has " +
                 std::to_string(options.bytes.size()) +
                 ": give one; the servers' job ends with it");
  }
}

// Adds the keys of the job that bench accepts.
std::vector<KeyHelp> options_with_keys() {
  std::vector<KeyHelp> all = bench_options();
  const std::vector<KeyHelp> of_the_job = {
      takes("shm|tcp|ipc|zmq,...",
            {"transport", kTransports, "transports to measure, between commas"}),
      takes("sgd|momentum|nesterov|adam|adamw|rmsprop|adagrad|lion",
            {"optimizer", "momentum",
             "update rule: sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad or lion"}),
      {"steps", "by size", "exchanges to measure in each row"},
  };
  all.insert(all.begin() + 3, of_the_job.begin(), of_the_job.end());
  for (const KeyHelp& key : job_keys()) {
    if (std::ranges::count(kTunable, key.key) > 0) all.push_back(key);
  }
  return all;
}

}  // namespace

const std::vector<KeyHelp>& bench_options() {
  static const std::vector<KeyHelp> options = with_key_flags({
      {"bytes", kSizes, "sizes of the tensor that is exchanged, in bytes, between commas"},
      {"workers", "2", "workers to start"},
      {"servers", "1", "servers to start"},
      {"join", "",
       "tcp://HOST:PORT: exchange with servers that run there already, one size; the workers run "
       "here"},
      takes("FILE", {"out", "", "also write the rows to this file, as JSON"}),
  });
  return options;
}

const ProgramHelp& bench_help() {
  static const ProgramHelp help = {
      .name = "pushpull bench",
      .summary =
          "what one exchange of push, update and pull costs here, beside what the machine allows",
      .usage = {"pushpull bench [--bytes 4096,1048576] [--workers W] [--servers S] [--transport "
                "shm,tcp,ipc]",
                "               [--optimizer X] [--steps N] [--out FILE.json] [--KEY VALUE ...]",
                "pushpull bench --join tcp://HOST:PORT --bytes N --workers W [--out FILE.json]"},
      .options = options_with_keys()};
  return help;
}

std::string transport_name(Transport transport) {
  switch (transport) {
    case Transport::kShm:
      return "shm";
    case Transport::kTcp:
      return "tcp";
    case Transport::kIpc:
      return "ipc";
    case Transport::kZmq:
      return "zmq";
    default:
      return "auto";
  }
}

int64_t memory_of_exchange(int64_t bytes, int64_t workers, OptimizerKind optimizer) {
  // Per worker: the gradient, the weights in use, the arriving weights, data in flight each way.
  // Server: each worker's gradient, the weights, their previous version, the optimizer's state, and
  // a checkpoint of weights and state.
  const auto states = static_cast<int64_t>(state_names(optimizer).size());
  const int64_t tensors = workers * 5 + 3 + 2 * (1 + states);
  if (bytes > std::numeric_limits<int64_t>::max() / tensors) {
    return std::numeric_limits<int64_t>::max();
  }
  return bytes * tensors;
}

int64_t available_memory() {
  constexpr int64_t kKib = 1024;
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    int64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib * kKib;
  }
  return std::numeric_limits<int64_t>::max();
}

BenchOptions parse_bench(const CommandLine& line, const std::string& command,
                         int64_t memory_bytes) {
  if (!line.positional.empty()) {
    refuse_bench("'" + printable(line.positional.front()) +
                 "' is not a flag; write lists without blanks: --bytes 4096,1048576");
  }
  BenchOptions options;
  options.command = command;
  options.join = own_or_key(line, "join", "");
  options.bytes = parse_bytes(own_or_key(line, "bytes", kSizes));
  options.transports = parse_transports(own_or_key(line, "transport", kTransports));
  options.workers = count(line, "workers", "2", kMaxProcesses);
  options.servers = count(line, "servers", "1", kMaxProcesses);
  options.optimizer = optimizer_of(own_or_key(line, "optimizer", "momentum"));
  options.keys = tuned_keys(line);
  if (line.keys.contains("steps")) options.steps = count(line, "steps", "", kMaxSteps);
  options.insecure = line.local.contains("insecure");
  options.out = own_or_key(line, "out", "");
  if (line.local.contains("out") && options.out.empty())
    refuse_bench("--out: '' is not a file name");
  check_join(line, options);
  const int64_t largest = std::ranges::max(options.bytes);
  const int64_t needed = memory_of_exchange(largest, options.workers, options.optimizer);
  if (needed > memory_bytes) {
    refuse_bench("--bytes: " + std::to_string(largest) + " with " +
                 plural(options.workers, "worker") + " needs about " + gib(needed) +
                 ", and this machine has " + gib(memory_bytes) +
                 " available: use a smaller size or fewer workers");
  }
  return options;
}

}  // namespace pushpull
