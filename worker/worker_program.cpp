#include "worker/worker_program.h"

#include <unistd.h>

#include <exception>
#include <iostream>

#include "common/base/error.h"
#include "common/base/strict_number.h"
#include "common/job/command_line.h"
#include "common/job/key_help.h"
#include "common/keys/data_proof.h"
#include "common/keys/key_flags.h"
#include "common/net/address.h"
#include "common/net/head_wire.h"
#include "common/net/join.h"
#include "common/net/tensor_wire.h"
#include "common/net/zap_handler.h"
#include "datasets/text/tokenizer.h"
#include "worker/all_reduce/all_reduce_trainer.h"
#include "worker/all_reduce/collective.h"
#include "worker/compute/device_team.h"
#include "worker/compute/devices.h"
#include "worker/exchange/exchange_loop.h"
#include "worker/member/control.h"
#include "worker/trainer.h"

namespace pushpull {
namespace {

const std::vector<KeyHelp>& options() {
  static const std::vector<KeyHelp> flags = with_key_flags({
      {"join", "", "address of the first server: tcp://HOST:PORT"},
      {"join-timeout", "60", "seconds to wait for the server before giving up"},
      {"data-dir", "", "folder of the data on this host, if not the job's"},
      {"listen", "",
       "all-reduce: where to listen for other workers; default: the interface to the first server"},
      {"advertise", "", "all-reduce: host name or address by which other workers reach this one"},
      {"device", "cpu", "device to compute on: cpu, auto, cuda, cuda:N, or a list: cuda:0,cuda:1"},
      {"trace", "",
       "file for a Chrome trace of this worker's steps, written at the end; not in all-reduce"},
      {"exchange-bytes", "",
       "for `pushpull bench`: size of the tensor to exchange, in bytes, instead of a model and "
       "data"},
      {"exchange-times", "", "for `pushpull bench`: file for the times of the steps"},
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

// The socket that other workers connect to, and its address.
struct PeerListener {
  std::unique_ptr<Router> router;
  std::string endpoint;
};

// Listens for other workers as joined servers do: on the interface that reaches the coordinator,
// unless --listen names another one.
PeerListener listen_for_peers(const CommandLine& line, Control& control, zmq::context_t& context) {
  const Address joined = parse_address(line.local.at("join"), "join");
  Address listen = joined;
  if (const std::string given = value_of(line, "listen"); !given.empty()) {
    listen = parse_address(given, "listen");
  } else {
    listen.host = local_address_towards(joined);
    listen.port = "*";
  }
  const Keys& keys = control.keys();
  if (control.job().strategy.algorithm == AllReduceKind::kGloo && !listen.is_loopback() &&
      !keys.insecure()) {
    throw Error(ErrorCode::kUsage,
                "[usage] --listen " + listen.to_string() +
                    ": Gloo opens its own sockets, which check no keys; use "
                    "allreduce:ring, or start all with --insecure on a network that you trust");
  }
  if (keys.insecure()) Log("worker").warn(kInsecureLine);
  // one handler per context; it outlives the terms
  std::shared_ptr<ZapHandler> handler = control.handler();
  if (!handler) {
    handler = std::make_shared<ZapHandler>(
        context, keys.data_demand(control.job().encrypt_data, control.first_run(),
                                  listener_name(control.incarnation())));
    control.report_refused(handler);
  }
  PeerListener listener;
  listener.router = std::make_unique<Router>(*handler, listen.to_string(), EndpointLimits{});
  Address endpoint = parse_address(listener.router->address(), "listen");
  if (const std::string host = value_of(line, "advertise"); !host.empty()) {
    check_host(host, "advertise");
    endpoint.host = host;
  } else if (endpoint.is_everywhere()) {
    endpoint.host = local_address_towards(joined);
  }
  listener.endpoint = endpoint.to_string();
  return listener;
}

// The data and the model. They are loaded while the control thread already sends heartbeats.
struct Prepared {
  std::unique_ptr<Dataset> dataset;
  std::unique_ptr<Model> model;
  wire::Declare declare;
};

Prepared prepare(const Job& job, const std::string& data_dir,
                 const std::vector<device::DeviceName>& devices) {
  Prepared out;
  out.dataset = open_dataset(job, data_dir);
  std::vector<std::unique_ptr<Model>> models;
  models.reserve(devices.size());
  for (const device::DeviceName& device : devices) {
    models.push_back(make_model(job, out.dataset->fields(), device));
  }
  out.model = models.size() == 1 ? std::move(models.front())
                                 : std::make_unique<TeamModel>(std::move(models));
  wire::Declare& declare = out.declare;
  to_wire(out.model->table(), declare.mutable_tensors());
  to_wire(out.model->heads(), declare.mutable_heads());
  declare.set_train_samples(out.dataset->size(Split::kTrain));
  declare.set_test_samples(out.dataset->size(Split::kTest));
  declare.set_data_digest(out.dataset->digest());
  if (const Tokenizer* tokenizer = out.dataset->tokenizer()) {
    declare.set_tokenizer(tokenizer->to_json());
  }
  declare.set_numerics(out.model->numerics());
  declare.set_choices(out.model->choices());
  declare.set_arena_bytes(static_cast<int64_t>(out.model->arena_bytes()));
  declare.set_slots(static_cast<int64_t>(out.model->slots()));
  return out;
}

// Waits until training starts. Returns nothing if the job is over first.
std::optional<wire::State> wait_for_training(Control& control, const Log& log) {
  int64_t logged_ms = now_ms();
  while (!control.over()) {
    zmq::pollitem_t item{nullptr, control.news().fd(), ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, 200);
    control.news().clear();
    auto state = control.state();
    if (state && state->phase() >= wire::PHASE_TRAINING && state->phase() <= wire::PHASE_FINISHED) {
      return state;
    }
    control.activity().wait([] { return std::string("the start of training"); });
    if (now_ms() - logged_ms > 5000) {
      log.info("waiting for the job to start");
      logged_ms = now_ms();
    }
  }
  return std::nullopt;
}

JobEnd train(const JobView& view, const Prepared& prepared, PeerListener listener, Control& control,
             zmq::context_t& context, Trace& trace) {
  const Dataset& dataset = *prepared.dataset;
  Model& model = *prepared.model;
  if (!listener.router) return Trainer(view, dataset, model, control, context, trace).run();
  if (view.state.assigned_size() > 0) {
    return AllReduceTrainer(view, dataset, model, control, context, std::move(listener.router))
        .run();
  }
  // a spare: no share becomes free in an all-reduce job
  while (!control.over()) {
    control.activity().wait([] { return std::string("a share (this worker is a spare)"); });
    zmq::pollitem_t item{nullptr, control.news().fd(), ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, 200);
    control.news().clear();
  }
  return *control.end();
}

// Runs one term of the job.
JobEnd train_term(const CommandLine& line, Prepared& prepared, Control& control,
                  zmq::context_t& context, Trace& trace, Log& log) {
  const Job& job = control.job();
  const uint64_t run = control.enter_term();
  PeerListener listener;
  if (job.strategy.kind == StrategyKind::kAllReduce)
    listener = listen_for_peers(line, control, context);
  prepared.declare.set_peer_endpoint(listener.endpoint);
  control.declare(prepared.declare);
  const std::optional<wire::State> state = wait_for_training(control, log);
  if (!state) return *control.end();
  if (state->rank() >= 0) log.rename("worker " + std::to_string(state->rank()));
  // this worker chose its kernels by timing them; the job may have begun with other choices
  if (state->choices() != prepared.model->choices()) prepared.model->choose(state->choices());
  try {
    return train({job, run, control.incarnation(), *state}, prepared, std::move(listener), control,
                 context, trace);
  } catch (const Error& e) {
    // the coordinator may be about to declare the silent server or worker lost, and then says more
    const bool reason_may_follow = e.code() == ErrorCode::kUnreachable;
    if (!reason_may_follow || !control.wait_for_reason()) throw;
    return *control.end();
  }
}

JobEnd train_job(const CommandLine& line, const std::vector<device::DeviceName>& devices,
                 Control& control, zmq::context_t& context, Trace& trace, Log& log) {
  const Job& job = control.job();
  if (job.strategy.kind == StrategyKind::kAllReduce) check_built(job.strategy.algorithm);
  Prepared prepared = prepare(job, value_of(line, "data-dir"), devices);
  while (true) {
    JobEnd end = train_term(line, prepared, control, context, trace, log);
    if (!end.next_term) return end;
    log.info("a server was lost: all workers go back to the newest checkpoint");
  }
}

// Runs a worker without model and data; see exchange_loop.h.
JobEnd exchange(const ExchangeOptions& options, Control& control, zmq::context_t& context,
                Log& log) {
  const Job& job = control.job();
  if (job.strategy.kind != StrategyKind::kSync) {
    throw Error(ErrorCode::kUsage, "[exchange] the job's strategy is " + job.strategy.to_string() +
                                       ": `pushpull bench` measures sync; start the servers with "
                                       "strategy = sync");
  }
  while (true) {
    const uint64_t run = control.enter_term();
    control.declare(declare_exchange(options.bytes));
    const std::optional<wire::State> state = wait_for_training(control, log);
    if (state && state->rank() >= 0) log.rename("worker " + std::to_string(state->rank()));
    JobEnd end =
        state ? ExchangeLoop(options, {job, run, control.incarnation(), *state}, control, context)
                    .run()
              : *control.end();
    if (!end.next_term) return end;
  }
}

JoinOptions join_options(const CommandLine& line, const std::vector<device::DeviceName>& devices) {
  JoinOptions options;
  options.incarnation = random_id();
  options.host = host_name();
  options.pid = getpid();
  options.coordinator = line.local.at("join");
  options.timeout_s = seconds_of(line, "join-timeout", 60);
  for (const device::DeviceName& device : devices) {
    options.device += (options.device.empty() ? "" : ",") + device.to_string();
  }
  return options;
}

// Runs the worker and returns the exit code.
int work(const CommandLine& line, SignalFd& signals) {
  const std::string address = line.local.at("join");
  parse_address(address, "join");
  const std::optional<ExchangeOptions> exchange_options = exchange_of(line);
  Log log("worker");
  if (exchange_options && line.local.contains("device")) {
    throw Error(ErrorCode::kUsage, "[usage] --exchange-bytes computes nothing: leave --device out");
  }
  const std::vector<device::DeviceName> devices =
      choose_devices(value_of(line, "device"), [&log](const std::string& text) { log.info(text); });
  zmq::context_t control_context(1);
  zmq::context_t context = make_context(data_io_threads());
  Trace trace(value_of(line, "trace"));
  const Keys keys = keys_of(line);
  Control control(std::make_unique<Dealer>(control_context, address, control_limits(),
                                           keys.control_credentials()),
                  join_options(line, devices), signals, keys);
  if (!control.wait_joined()) {
    const JobEnd why = *control.end();
    if (why.signal != 0) return why.exit_code();
    throw Error(why.code, why.text);
  }
  JobEnd end;
  try {
    end = exchange_options ? exchange(*exchange_options, control, context, log)
                           : train_job(line, devices, control, context, trace, log);
  } catch (const Error& e) {
    control.leave(static_cast<int>(e.code()), e.what());
    throw;
  } catch (const std::exception& e) {
    control.leave(static_cast<int>(ErrorCode::kFailed), std::string("[worker] ") + e.what());
    throw;
  }
  if (end.signal != 0) {
    control.leave(static_cast<int>(ErrorCode::kPeerLost), end.text);
  } else {
    control.leave(0, "");
  }
  if (!end.success) end.stopped() ? log.info(end.text) : log.error(end.text);
  return end.exit_code();
}

int main_of(int argc, char** argv) {
  const CommandLine line = parse_command_line(argc, argv, options(), JobFlags::kRefuse);
  if (line.help) {
    std::cout << help_text(
        "pushpull-worker: computes gradients for a job, pushes them to its "
        "servers, pulls weights",
        {"pushpull-worker --join tcp://HOST:PORT [--join-timeout SECONDS] "
         "[--data-dir DIR] [--listen tcp://ADDR:PORT] [--device DEVICE] [--trace FILE]"},
        options(), JobFlags::kRefuse);
    return 0;
  }
  if (line.version) {
    std::cout << "pushpull-worker " << program_version() << "\n";
    return 0;
  }
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage, "[usage] unexpected word " + line.positional.front());
  }
  if (!line.local.contains("join")) {
    throw Error(ErrorCode::kUsage,
                "[usage] --join is missing: the address of the first server, tcp://HOST:PORT");
  }
  keep_heap();
  raise_file_limit();
  SignalFd signals;
  return work(line, signals);
}

}  // namespace

int worker_program(int argc, char** argv) {
  try {
    return main_of(argc, argv);
  } catch (const Error& e) {
    Log("worker").error(e.what());
    return static_cast<int>(e.code());
  } catch (const std::exception& e) {
    Log("worker").error(std::string("[internal] ") + e.what());
    return static_cast<int>(ErrorCode::kInternal);
  }
}

}  // namespace pushpull
