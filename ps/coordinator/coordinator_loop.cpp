#include "ps/coordinator/coordinator_loop.h"

#include <unistd.h>

#include <filesystem>
#include <vector>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/base/unique_fd.h"
#include "common/io/folder_lock.h"
#include "common/net/address.h"
#include "ps/aggregation/make_aggregation.h"
#include "ps/coordinator/checkpoint_writer.h"
#include "ps/coordinator/job_driver.h"
#include "ps/coordinator/run_recorder.h"
#include "ps/coordinator/start_state.h"
#include "ps/server/data_plane.h"
#include "ps/server/grants.h"
#include "ps/server/refusals.h"

namespace pushpull {

namespace {

constexpr int kCoordinatorPollMs = 20;
constexpr int kControlPerTurn = 256;  // a flood must not keep the data waiting
constexpr size_t kMostCulpritBytes = 400;

std::string data_address(const std::string& listen) {
  Address address = parse_address(listen, "listen");
  address.port = "*";
  return address.to_string();
}

// The sockets and locks below exclude a second job. A job takes them before it touches any file.
// Both throw Error(kUsage).
struct Sockets {
  explicit Sockets(const CoordinatorProgram& program)
      : control(context, program.listen, EndpointLimits{}),
        data(data_address(program.listen), program.job.slice_bytes, program.device) {}

  zmq::context_t context{1};
  Router control;
  DataPlane data;
};

std::vector<FolderLock> lock_folders(const CoordinatorProgram& program) {
  std::vector<FolderLock> locks;
  locks.emplace_back(program.out_dir, "out", "--out");
  const std::string& other = program.job.checkpoint_dir;
  std::error_code absent;
  if (!other.empty() && !std::filesystem::equivalent(program.out_dir, other, absent)) {
    locks.emplace_back(other, "checkpoint", "checkpoint-dir");
  }
  return locks;
}

class CoordinatorLoop : private JobEffects {
 public:
  CoordinatorLoop(const CoordinatorProgram& program, Sockets& sockets, StartState start_state,
                  SignalFd& signals);
  int run();

 private:
  CoordinatorOptions make_options();
  void announce();
  void announce_failure();
  bool poll();
  void turn(bool signalled);
  void receive_control();
  void refuse(const PeerId& peer, const Refusal& refusal);
  void receive_shards();
  void receive_written();
  void record_failure();
  void wait_for_writer();
  Now now() { return {now_ms(), clock_.now_ms(), utc_ms()}; }

  bool send(const PeerId& to, const Message& message) override;
  void connect_shards(const std::vector<std::string>& endpoints) override;
  void send_to_shard(int server, const Message& message) override;
  StartPoint load_start(const Declaration& declaration) override;
  void started(const Coordinator& coordinator, const StartPoint& start) override;
  void hash_weights(GatheredState snapshot) override;
  void write_checkpoint(GatheredState snapshot, CheckpointState state, bool hash) override;
  void show_line(const std::string& line) override;
  void show_moment(const Moment& moment) override { report_.moment(moment); }
  void show_members(const std::string& json) override { report_.members(json); }
  void write_summary(const Coordinator& coordinator, Summary summary) override;

  const CoordinatorProgram& program_;
  SignalFd& signals_;
  UniqueFd announce_;
  Log log_{"server 0"};
  zmq::context_t& context_;
  Router& control_;
  DataPlane& data_;
  Refusals refusals_;  // of control messages
  StartState start_state_;
  Report report_;
  std::vector<std::unique_ptr<Dealer>> shards_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::optional<RunRecorder> recorder_;
  AwakeClock clock_;
  JobDriver driver_;
};

CoordinatorOptions CoordinatorLoop::make_options() {
  CoordinatorOptions options;
  options.job = program_.job;
  options.run = random_id();
  options.grant_key = Grants::random_key();
  options.servers = program_.servers;
  options.workers = program_.workers;
  options.self.incarnation = random_id();
  options.self.host = host_name();
  options.self.pid = getpid();
  options.self.data_endpoint = advertised(data_.router().address(), program_.advertise);
  options.self.device = program_.device ? program_.device->name() : "cpu";
  options.out = std::filesystem::absolute(program_.out_dir).lexically_normal();
  return options;
}

CoordinatorLoop::CoordinatorLoop(const CoordinatorProgram& program, Sockets& sockets,
                                 StartState start_state, SignalFd& signals)
    : program_(program),
      signals_(signals),
      announce_(program.announce_fd),
      context_(sockets.context),
      control_(sockets.control),
      data_(sockets.data),
      start_state_(std::move(start_state)),
      report_(program.out_dir, program.style),
      driver_(make_options(), program.join_timeout_s, data_.data(), *this) {
  data_.listen_locally(program.job, driver_.coordinator().run(), log_);
  report_.write_job(to_ini(program.job));
  if (!program.job.record.empty()) recorder_.emplace(program.job);
  for (const std::string& notice : start_state_.take_notices()) log_.warn(notice);
  announce();
}

void CoordinatorLoop::announce() {
  std::string address = advertised(control_.address(), program_.advertise);
  // who reads it is on this machine, where "everywhere" is no address to connect to
  if (parse_address(address, "listen").is_everywhere()) address = advertised(address, "127.0.0.1");
  log_.info("listening on " + address);
  if (announce_.get() < 0) return;
  const std::string line = address + "\n";
  if (write(announce_.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) return;
  log_.warn("nobody reads --announce-fd");
  announce_.reset();
}

// All processes end with the job's exit code, so codes do not tell the launcher which one failed.
// It knows nothing of processes on other hosts.
void CoordinatorLoop::announce_failure() {
  const Coordinator& coordinator = driver_.coordinator();
  const std::optional<Culprit>& culprit = coordinator.culprit();
  if (announce_.get() < 0 || !culprit || culprit->host != host_name()) return;
  const std::string line = "failed " + std::to_string(culprit->pid) + " " +
                           std::to_string(static_cast<int>(coordinator.failure_code())) + " " +
                           printable(culprit->reason, kMostCulpritBytes) + "\n";
  [[maybe_unused]] const ssize_t written = write(announce_.get(), line.data(), line.size());
  announce_.reset();
}

int CoordinatorLoop::run() {
  while (!driver_.over()) {
    const bool signalled = poll();
    try {
      turn(signalled);
    } catch (const Error& e) {
      driver_.fail(e.code(), e.what());
    } catch (const std::exception& e) {
      driver_.fail(ErrorCode::kInternal, std::string("[internal] ") + e.what());
    }
    announce_failure();
  }
  report_.end_line();
  if (driver_.coordinator().phase() == wire::PHASE_FAILED) {
    log_.error(driver_.coordinator().failure_text());
    record_failure();
  }
  wait_for_writer();
  return driver_.exit_code();
}

// A job that has failed while a checkpoint was being written still gets it, unless the disk hangs:
// no thread can be ended that stands in a system call.
void CoordinatorLoop::wait_for_writer() {
  while (writer_ && writer_->busy()) {
    const bool signalled = poll();
    receive_control();
    driver_.on_turn(now());
    if (writer_->take()) return;
    if (!signalled && !driver_.transfer_overdue(now())) continue;
    log_.error("[checkpoint] the disk has not taken a checkpoint; it is left unfinished");
    flush_output();
    _exit(driver_.exit_code());
  }
}

// True: a signal has come.
bool CoordinatorLoop::poll() {
  std::vector<zmq::pollitem_t> items{{nullptr, signals_.fd(), ZMQ_POLLIN, 0},
                                     {control_.socket().handle(), 0, ZMQ_POLLIN, 0},
                                     {data_.router().socket().handle(), 0, ZMQ_POLLIN, 0}};
  if (writer_) items.push_back({nullptr, writer_->done().fd(), ZMQ_POLLIN, 0});
  if (driver_.waits_for_shards()) {
    for (const auto& shard : shards_) {
      items.push_back({shard->socket().handle(), 0, ZMQ_POLLIN, 0});
    }
  }
  poll_sockets(items, kCoordinatorPollMs);
  return (items.front().revents & ZMQ_POLLIN) != 0;
}

void CoordinatorLoop::turn(bool signalled) {
  // what has failed here fails again, and others must hear of it
  if (driver_.serves()) {
    data_.receive();
    driver_.on_data_taken(now());
  }
  receive_control();
  receive_shards();
  receive_written();
  if (const int signal = signalled ? signals_.take() : 0; signal != 0) {
    if (driver_.on_signal(now(), signal, signal_name(signal))) {
      flush_output();
      _exit(128 + signal);
    }
  }
  driver_.on_turn(now());
  if (driver_.serves()) data_.send();
}

void CoordinatorLoop::receive_control() {
  for (int i = 0; i < kControlPerTurn; ++i) {
    const auto received = control_.receive();
    if (!received) return;
    const auto& [peer, message] = *received;
    if (const Checked refusal = driver_.on_message(now(), peer, message)) refuse(peer, *refusal);
  }
}

void CoordinatorLoop::refuse(const PeerId& peer, const Refusal& refusal) {
  control_.count_rejected();
  if (!refusals_.add(peer, refusal, now_ms())) return;
  report_.end_line();
  log_.warn("dropped a control message: " + refusal.line());
}

void CoordinatorLoop::receive_shards() {
  for (const auto& shard : shards_) {
    while (auto message = shard->receive()) driver_.on_shard_message(now(), *message);
  }
}

void CoordinatorLoop::receive_written() {
  if (!writer_) return;
  if (auto result = writer_->take()) {
    driver_.on_written(now(), {result->step, result->weights_sha256, result->error});
  }
}

// ---- effects ----

bool CoordinatorLoop::send(const PeerId& to, const Message& message) {
  return control_.send(to, message) != SendResult::kGone;
}

void CoordinatorLoop::connect_shards(const std::vector<std::string>& endpoints) {
  const EndpointLimits limits = data_limits(program_.job.slice_bytes);
  for (const std::string& endpoint : endpoints) {
    shards_.push_back(std::make_unique<Dealer>(context_, endpoint, limits));
  }
}

void CoordinatorLoop::send_to_shard(int server, const Message& message) {
  shards_[static_cast<size_t>(server)]->send(message);
}

StartPoint CoordinatorLoop::load_start(const Declaration& declaration) {
  StartPoint start;
  start.weights = start_state_.match(program_.job, declaration);
  for (const std::string& notice : start_state_.take_notices()) log_.warn(notice);
  start.choices = start_state_.choices(declaration);
  return start;
}

void CoordinatorLoop::started(const Coordinator& coordinator, const StartPoint& start) {
  if (recorder_) {
    recorder_->start(coordinator, program_.servers, start.weights.get(), start_state_.resumes());
  }
  writer_ = std::make_unique<CheckpointWriter>(
      start_state_.open_store(program_.job.checkpoint_keep), coordinator.declaration().table,
      state_names(server_optimizer(program_.job).kind));
  for (const std::string& notice : start_state_.take_notices()) log_.warn(notice);
}

void CoordinatorLoop::hash_weights(GatheredState snapshot) { writer_->hash(std::move(snapshot)); }

void CoordinatorLoop::write_checkpoint(GatheredState snapshot, CheckpointState state, bool hash) {
  writer_->write(std::move(snapshot), std::move(state), hash);
}

void CoordinatorLoop::show_line(const std::string& line) {
  report_.end_line();
  log_.info(line);
}

void CoordinatorLoop::write_summary(const Coordinator& coordinator, Summary summary) {
  if (start_state_.resumes()) summary.resumed_from_step = start_state_.resumed_step();
  wire::Stats control;
  refusals_.report(control_.rejected_frames(), control);
  summary.totals.add_refusals(control.rejected_frames(), control.refusals());
  if (recorder_) recorder_->finish(coordinator, summary.weights_sha256, "");
  report_.write_summary(summary);
}

void CoordinatorLoop::record_failure() {
  if (!recorder_ || !recorder_->started()) return;
  const Coordinator& coordinator = driver_.coordinator();
  try {
    if (!recorder_->finish(coordinator, "", coordinator.failure_text())) return;
    log_.info("recorded up to there in " + program_.job.record);
  } catch (const Error& e) {
    log_.error(e.what());
  }
}

}  // namespace

int run_coordinator(const CoordinatorProgram& program, SignalFd& signals) {
  const Log log("server 0");
  Sockets sockets(program);
  const std::vector<FolderLock> locks = lock_folders(program);
  for (const FolderLock& lock : locks) {
    if (!lock.notice().empty()) log.warn(lock.notice());
  }
  StartState start_state(program.job, program.out_dir + "/checkpoints");
  if (start_state.complete()) {
    for (const std::string& notice : start_state.take_notices()) log.info(notice);
    return 0;
  }
  return CoordinatorLoop(program, sockets, std::move(start_state), signals).run();
}

}  // namespace pushpull
