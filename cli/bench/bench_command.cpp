// `pushpull bench`: its flags, its runs and its table.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>

#include "cli/bench/bench_options.h"
#include "cli/bench/bench_result.h"
#include "cli/bench/bench_run.h"
#include "cli/bench/link_floor.h"
#include "cli/bench/update_floor.h"
#include "cli/commands.h"
#include "cli/report/machine_info.h"
#include "cli/run/signals.h"
#include "cli/run/worker_command.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/job/program_help.h"
#include "common/net/address.h"
#include "common/net/key_file.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

floors::LinkKind link_of(Transport transport) {
  return transport == Transport::kIpc ? floors::LinkKind::kUnix : floors::LinkKind::kTcp;
}

class Bench {
 public:
  Bench(BenchOptions options, std::string program_dir)
      : options_(std::move(options)), program_dir_(std::move(program_dir)) {}

  int run();

 private:
  void describe();
  void measure(int64_t bytes, Transport transport);
  void measure_joined();
  // Returns false if a signal interrupted the exchange.
  bool exchange(BenchRow& row, const ExchangePlan& plan);
  bool one_worker_alone(BenchRow& row, Transport transport);
  // Measures the bare link, without pushpull, in at most --steps rounds.
  LinkFloor bare_link(Transport transport, int64_t bytes, int64_t workers) const;
  // Returns the lower bound for a whole exchange, in microseconds.
  double floor_us(const BenchRow& row, Transport transport, OptimizerKind optimizer) const;
  void show(BenchRow row);
  void write() const;
  bool stopped();

  const BenchOptions options_;
  const std::string program_dir_;
  HeldSignals signals_;
  BenchResult result_;
  int signal_ = 0;
};

int Bench::run() {
  result_.command = options_.command;
  result_.version = PUSHPULL_VERSION;
  result_.commit = built_commit();
  result_.machine = machine_text(machine_info());
  result_.began = utc_now();
  if (options_.join.empty()) result_.optimizer = to_string(options_.optimizer);
  describe();
  try {
    if (options_.join.empty()) {
      for (const Transport transport : options_.transports) {
        for (const int64_t bytes : options_.bytes) {
          if (!stopped()) measure(bytes, transport);
        }
      }
    } else {
      measure_joined();
    }
  } catch (const Error&) {
    write();  // keep the rows measured so far
    throw;
  }
  write();
  if (signal_ == 0) return 0;
  std::cerr << "[bench] ended by " << signal_name(signal_) << " after "
            << plural(static_cast<int64_t>(result_.rows.size()), "row") << std::endl;
  return 128 + signal_;
}

bool Bench::stopped() {
  if (signal_ == 0) signal_ = signals_.take();
  return signal_ != 0;
}

void Bench::describe() {
  std::cout << "# " << result_.machine << "\n";
  if (options_.join.empty()) {
    std::cout << "# " << plural(options_.workers, "worker") << ", "
              << plural(options_.servers, "server") << ", " << result_.optimizer << "\n";
  } else {
    std::cout << "# " << plural(options_.workers, "worker") << " here, servers at " << options_.join
              << "\n";
  }
  std::cout << "# exchange: all pushes, the update, all workers have the new weights\n"
            << "# floor: the same bytes without pushpull, measured beside it; ratio: exchange over "
               "floor\n"
            << "# push, pull: one worker alone; in brackets raw sockets\n"
            << bench_head() << std::flush;
}

void Bench::measure(int64_t bytes, Transport transport) {
  BenchRow row;
  row.bytes = bytes;
  row.transport = transport_name(transport);
  row.workers = options_.workers;
  row.servers = options_.servers;
  const double before = floor_us(row, transport, options_.optimizer);
  if (!exchange(row, plan_exchange(options_, bytes, transport, options_.workers))) return;
  row.floor_us = (before + floor_us(row, transport, options_.optimizer)) / 2;
  if (transport != Transport::kShm && (stopped() || !one_worker_alone(row, transport))) return;
  show(std::move(row));
}

LinkFloor Bench::bare_link(Transport transport, int64_t bytes, int64_t workers) const {
  const int64_t max_rounds = options_.steps == 0 ? floors::kMaxRounds : options_.steps;
  return link_floor(link_of(transport), bytes, workers, max_rounds);
}

double Bench::floor_us(const BenchRow& row, Transport transport, OptimizerKind optimizer) const {
  if (transport != Transport::kShm) {
    return bare_link(transport, row.bytes, row.workers).exchange.p50;
  }
  return update_floor_us(row.bytes, row.workers, optimizer);
}

bool Bench::exchange(BenchRow& row, const ExchangePlan& plan) {
  const ExchangeRecord record = run_exchange(options_, plan, program_dir_);
  signal_ = record.signal;
  if (signal_ != 0) return false;
  const std::vector<double> times = exchange_us(record, plan.warm_up);
  if (times.empty()) throw Error(ErrorCode::kFailed, "[bench] no exchange was finished");
  row.exchange = percentiles(times);
  row.steps = static_cast<int64_t>(times.size());
  row.note = record.note;
  return true;
}

bool Bench::one_worker_alone(BenchRow& row, Transport transport) {
  ExchangePlan plan = plan_exchange(options_, row.bytes, transport, 1);
  plan.apart = true;
  const OneWay before = bare_link(transport, row.bytes, 1).way;
  const ExchangeRecord record = run_exchange(options_, plan, program_dir_);
  signal_ = record.signal;
  if (signal_ != 0) return false;
  row.alone = one_way(record, plan.warm_up);
  const OneWay after = bare_link(transport, row.bytes, 1).way;
  row.alone_floor = {mean(before.push, after.push), mean(before.pull, after.pull)};
  return true;
}

// Measures servers that run already. Their job determines transport and optimizer. There is a floor
// only if the servers are on this host.
void Bench::measure_joined() {
  BenchRow row;
  row.bytes = options_.bytes.front();
  row.workers = options_.workers;
  const ExchangeRecord record = join_exchange(options_, program_dir_, signals_);
  signal_ = record.signal;
  if (signal_ != 0) return;
  const auto steps = static_cast<int64_t>(record.workers.front().size());
  const std::vector<double> times =
      exchange_us(record, std::min<int64_t>(steps / 10 + 1, steps - 1));
  if (times.empty()) throw Error(ErrorCode::kFailed, "[bench] no exchange was finished");
  row.exchange = percentiles(times);
  row.steps = static_cast<int64_t>(times.size());
  row.note = record.note;
  row.transport = record.setting.transport;
  row.servers = record.setting.servers;
  result_.optimizer = record.setting.optimizer;
  if (parse_address(options_.join, "join").is_loopback()) {
    Transport transport = Transport::kShm;
    for (const Transport sockets : {Transport::kTcp, Transport::kIpc, Transport::kZmq}) {
      if (row.transport == transport_name(sockets)) transport = sockets;
    }
    row.floor_us = floor_us(row, transport, parse_optimizer(result_.optimizer));
  } else {
    row.note += row.note.empty() ? "" : "; ";
    row.note += "no floor: the servers are on other hosts, where bench starts no process";
  }
  show(std::move(row));
}

void Bench::show(BenchRow row) {
  std::cout << bench_line(row) << std::flush;
  result_.rows.push_back(std::move(row));
}

void Bench::write() const {
  if (options_.out.empty()) return;
  std::ofstream file(options_.out);
  file << bench_json(result_);
  file.close();
  if (!file) throw Error(ErrorCode::kIo, "[bench] cannot write " + options_.out);
}

}  // namespace

int bench_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, bench_options());
  if (print_help(line, bench_help(), PUSHPULL_VERSION)) return 0;
  BenchOptions options =
      parse_bench(line, shell_command("pushpull", std::vector<std::string>(argv, argv + argc)),
                  available_memory());
  if (const std::string note = set_keys_of_children(line); !note.empty()) {
    std::cout << "# " << note << std::endl;
  }
  return Bench(std::move(options), program_folder()).run();
}

}  // namespace pushpull
