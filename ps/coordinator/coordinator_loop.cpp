#include "ps/coordinator/coordinator_loop.h"

#include <unistd.h>

#include <filesystem>
#include <vector>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/io/folder_lock.h"
#include "common/keys/data_proof.h"
#include "common/net/address.h"
#include "common/net/refusals.h"
#include "common/net/zap_handler.h"
#include "ps/aggregation/make_aggregation.h"
#include "ps/coordinator/job_driver.h"
#include "ps/coordinator/run_recorder.h"
#include "ps/coordinator/start_state.h"
#include "ps/files/announcements.h"
#include "ps/files/checkpoint_writer.h"
#include "ps/files/term_file.h"
#include "ps/members/ended_run_loop.h"
#include "ps/server/data_plane.h"
#include "ps/server/grants.h"

namespace pushpull {

namespace {

constexpr int kCoordinatorPollMs = 20;
constexpr int kControlPerTurn = 256;  // a flood of control messages must not delay data

std::string data_address(const std::string& listen) {
  Address address = parse_address(listen, "listen");
  address.port = "*";
  return address.to_string();
}

// The sockets and locks below exclude a second job. Take them before touching any file. Both throw
// Error(kUsage).
struct Sockets {
  // first_run: id of the job's first term. own_incarnation: incarnation of this process.
  Sockets(const CoordinatorProgram& program, const std::string& listen, uint64_t first_run,
          uint64_t own_incarnation)
      : handler(context, program.keys.control_demand()),
        control(handler, listen, EndpointLimits{}),
        data(data_address(program.listen), program.job.slice_bytes, program.device,
             program.keys.data_demand(program.job.encrypt_data, first_run,
                                      listener_name(own_incarnation))),
        incarnation(own_incarnation) {}

  zmq::context_t context = make_context(1);
  ZapHandler handler;
  Router control;
  DataPlane data;
  const uint64_t incarnation;
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

// Returns the run of an earlier process that was killed, under the same job in this folder, if any.
std::optional<TermRecord> run_to_go_on(const CoordinatorProgram& program) {
  std::optional<TermRecord> found = read_term(program.out_dir);
  const bool restarts = program.job.on_server_loss == OnServerLoss::kRestart;
  const bool goes_on = found && (restarts || found->end);
  return goes_on && found->job_ini == to_ini(program.job) ? found : std::nullopt;
}

// Returns the address of the earlier process, so that members find a restarted coordinator there.
std::string listen_address(const CoordinatorProgram& program,
                           const std::optional<TermRecord>& earlier) {
  Address address = parse_address(program.listen, "listen");
  if (!earlier || address.port != "*") return program.listen;
  address.port = parse_address(earlier->address, "listen").port;
  return address.to_string();
}

// Binds the earlier process's address, or another one if that process may still run.
std::unique_ptr<Sockets> open_sockets(const CoordinatorProgram& program,
                                      const std::optional<TermRecord>& earlier,
                                      uint64_t first_run) {
  const std::string address = listen_address(program, earlier);
  try {
    return std::make_unique<Sockets>(program, address, first_run, random_id());
  } catch (const Error&) {
    if (address == program.listen) throw;
  }
  return std::make_unique<Sockets>(program, program.listen, first_run, random_id());
}

class CoordinatorLoop : private JobEffects {
 public:
  //   term: the first one of this process.
  CoordinatorLoop(const CoordinatorProgram& program, Sockets& sockets, StartState start_state,
                  const TermRecord& term, SignalFd& signals);
  int run();

 private:
  CoordinatorOptions make_options();
  RunHistory make_history() const;
  std::string control_address() const;
  void announce();
  void announce_failure();
  void announce_end_failure();
  bool poll();
  void turn(bool signalled);
  void receive_control();
  void refuse(const PeerId& peer, const Refusal& refusal);
  void warn(const std::string& line) { report_.end_line(), log_.warn(line); }
  void receive_shards();
  void receive_written();
  void record_failure();
  void wait_for_writer();
  Now now() { return {now_ms(), clock_.now_ms(), utc_ms()}; }

  bool send(const PeerId& to, const Message& message) override;
  TermIds begin_term(int64_t term, const RunHistory& history) override;
  void connect_shards(const std::vector<DataPort>& ports) override;
  void send_to_shard(int server, const Message& message) override;
  StartPoint load_start(const Declaration& declaration) override;
  void started(const Coordinator& coordinator, const StartPoint& start,
               const RunHistory& history) override;
  void hash_weights(GatheredState snapshot) override;
  void write_checkpoint(GatheredState snapshot, CheckpointState state, bool hash) override;
  void members_lost(const std::vector<MemberInfo>& members) override {
    for (const MemberInfo& member : members) announcements_.lost(member.host, member.pid);
  }
  void show_line(const std::string& line) override;
  void show_moment(const Moment& moment) override { report_.moment(moment); }
  void show_members(const std::string& json) override { report_.members(json); }
  void ended(const RunEnd& end) override;
  void write_summary(const Coordinator& coordinator, Summary summary) override;

  const CoordinatorProgram& program_;
  SignalFd& signals_;
  Announcements announcements_;
  Log log_{"server 0"};
  zmq::context_t& context_;
  ZapHandler& handler_;
  Router& control_;
  DataPlane& data_;
  const uint64_t incarnation_;
  Refusals refusals_;                      // counts refused control messages
  std::optional<StartState> start_state_;  // empty until it is read
  TermRecord term_;
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
  options.run = term_.term == 1 ? term_.first_run : random_id();
  options.term = term_.term;
  options.first_run = term_.first_run;
  options.grant_key = Grants::random_key();
  options.servers = program_.servers;
  options.workers = program_.workers;
  options.self.incarnation = incarnation_;
  options.self.host = host_name();
  options.self.pid = getpid();
  options.self.data_endpoint = advertised(data_.router().address(), program_.advertise);
  options.self.device = program_.device ? program_.device->name() : "cpu";
  options.out = std::filesystem::absolute(program_.out_dir).lexically_normal();
  return options;
}

RunHistory CoordinatorLoop::make_history() const {
  RunHistory history = term_.history;
  history.trained = term_.started;
  if (!term_.started) return history;
  history.seconds = static_cast<double>(std::max<int64_t>(0, utc_ms() - term_.began_ms)) / 1000.0;
  return history;
}

CoordinatorLoop::CoordinatorLoop(const CoordinatorProgram& program, Sockets& sockets,
                                 StartState start_state, const TermRecord& term, SignalFd& signals)
    : program_(program),
      signals_(signals),
      announcements_(program.announce_fd, host_name()),
      context_(sockets.context),
      handler_(sockets.handler),
      control_(sockets.control),
      data_(sockets.data),
      incarnation_(sockets.incarnation),
      start_state_(std::move(start_state)),
      term_(term),
      report_(program.out_dir, program.style),
      driver_(make_options(), program.join_timeout_s, data_.data(), *this, make_history()) {
  data_.listen_locally(program.job, driver_.coordinator().run(), log_);
  term_.address = control_address();
  write_term(program.out_dir, term_);
  if (!program.job.record.empty()) recorder_.emplace(program.job);
  for (const std::string& notice : start_state_->take_notices()) log_.warn(notice);
  announce();
}

// Returns an address for readers on this machine, which cannot connect to a wildcard address.
std::string CoordinatorLoop::control_address() const {
  const std::string address = advertised(control_.address(), program_.advertise);
  const bool everywhere = parse_address(address, "listen").is_everywhere();
  return everywhere ? advertised(address, "127.0.0.1") : address;
}

void CoordinatorLoop::announce() {
  const std::string address = control_address();
  log_.info("listening on " + address);
  if (!announcements_.address(address)) log_.warn("--announce-fd has no reader");
}

// All processes end with the job's exit code, which does not say which of them failed.
void CoordinatorLoop::announce_failure() {
  const Coordinator& coordinator = driver_.coordinator();
  const std::optional<Culprit>& culprit = coordinator.culprit();
  if (!culprit) return;
  announcements_.failed(culprit->host, culprit->pid, static_cast<int>(coordinator.failure_code()),
                        culprit->reason);
}

// The other members have finished their work and exit with 0.
void CoordinatorLoop::announce_end_failure() {
  log_.error(driver_.end_failure());
  announcements_.failed(host_name(), getpid(), driver_.exit_code(), driver_.end_failure());
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
    const Coordinator& ended = driver_.coordinator();
    const bool stopped = ended.failure_code() == ErrorCode::kStopped;
    stopped ? log_.info(ended.failure_text()) : log_.error(ended.failure_text());
    if (!stopped) record_failure();
  } else if (!driver_.end_failure().empty()) {
    announce_end_failure();
  }
  wait_for_writer();
  announcements_.ended(driver_.exit_code());
  remove_term(program_.out_dir);
  return driver_.exit_code();
}

// After a failure the checkpoint in progress is still completed, unless the disk hangs: a thread in
// a system call cannot be stopped.
void CoordinatorLoop::wait_for_writer() {
  while (writer_ && writer_->busy()) {
    const int signal = poll() ? signals_.take() : 0;
    const bool at_once = signal != 0 && driver_.on_signal(now(), signal);
    receive_control();
    driver_.on_turn(now());
    if (writer_->take()) return;
    if (!at_once && !driver_.transfer_overdue(now())) continue;
    log_.error("[checkpoint] the disk did not finish a checkpoint; it stays incomplete");
    flush_output();
    _exit(driver_.exit_code());
  }
}

// Returns true if a signal is pending.
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
  // A server that failed once fails again, and members must still hear of the failure.
  if (driver_.serves()) {
    data_.receive();
    driver_.on_data_taken(now());
  }
  receive_control();
  for (const std::string& line : handler_.take_notices()) warn(line);
  receive_shards();
  receive_written();
  if (const int signal = signalled ? signals_.take() : 0; signal != 0) {
    if (driver_.on_signal(now(), signal)) {
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
  warn("dropped a control message: " + refusal.line());
}

void CoordinatorLoop::receive_shards() {
  for (const auto& shard : shards_) {
    while (auto message = shard->receive()) driver_.on_shard_message(now(), *message);
    if (const std::string line = shard->take_warning(); !line.empty()) warn(line);
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

TermIds CoordinatorLoop::begin_term(int64_t term, const RunHistory& history) {
  term_.term = term;
  term_.history = history;
  write_term(program_.out_dir, term_);
  start_state_.reset();  // a checkpoint may just be in progress
  const uint64_t run = random_id();
  data_.listen_locally(program_.job, run, log_);
  return {run, Grants::random_key()};
}

void CoordinatorLoop::connect_shards(const std::vector<DataPort>& ports) {
  shards_.clear();
  const EndpointLimits limits = data_limits(program_.job.slice_bytes);
  const Credentials credentials =
      program_.keys.data_credentials(program_.job.encrypt_data, term_.first_run);
  for (const DataPort& port : ports) {
    shards_.push_back(
        std::make_unique<Dealer>(context_, port.endpoint, limits, credentials.to(port.listener)));
  }
}

void CoordinatorLoop::send_to_shard(int server, const Message& message) {
  shards_[static_cast<size_t>(server)]->send(message);
}

StartPoint CoordinatorLoop::load_start(const Declaration& declaration) {
  if (!start_state_) {
    start_state_.emplace(program_.job, program_.out_dir + "/checkpoints",
                         hex_text(term_.first_run));
  }
  StartPoint start;
  start.weights = start_state_->match(program_.job, declaration);
  for (const std::string& notice : start_state_->take_notices()) log_.warn(notice);
  start.choices = start_state_->choices(declaration);
  start.resumed = start_state_->resumes();
  if (start_state_->goes_on()) {
    start.counts = start_state_->checkpoint().counts;
    start.initial_weights_sha256 = start_state_->checkpoint().initial_weights_sha256;
  }
  return start;
}

void CoordinatorLoop::started(const Coordinator& coordinator, const StartPoint& start,
                              const RunHistory& history) {
  // First: if the folder of checkpoints cannot be used, the files of an earlier run stay.
  CheckpointStore store = start_state_->open_store(program_.job.checkpoint_keep);
  report_.begin(to_ini(program_.job), term_.started);
  term_.history = history;
  if (!std::exchange(term_.started, true)) term_.began_ms = utc_ms();
  if (recorder_) {
    recorder_->start(coordinator, program_.servers, start.weights.get(), start_state_->resumes());
  }
  writer_ = std::make_unique<CheckpointWriter>(std::move(store), coordinator.declaration().table,
                                               state_names(server_optimizer(program_.job).kind));
  for (const std::string& notice : start_state_->take_notices()) log_.warn(notice);
  // Last, once the files of an earlier run are out of the way.
  write_term(program_.out_dir, term_);
  announcements_.started();
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
  wire::Stats control;
  refusals_.report(control_.rejected_frames(), control);
  summary.totals.add_refusals(control.rejected_frames(), control.refusals());
  summary.totals.refused_peers += handler_.refused_peers();
  const std::string stop = summary.stopped_by ? "stopped by " + *summary.stopped_by : "";
  if (recorder_) recorder_->finish(coordinator, stop.empty() ? summary.weights_sha256 : "", stop);
  report_.write_summary(summary);
}

void CoordinatorLoop::ended(const RunEnd& end) {
  term_.end = end;
  try {
    write_term(program_.out_dir, term_);
  } catch (const Error& e) {
    log_.warn(e.what());
  }
}

void CoordinatorLoop::record_failure() {
  const Coordinator& coordinator = driver_.coordinator();
  // A term that has not started training has no logs.
  if (!recorder_ || !recorder_->started() || !coordinator.started()) return;
  try {
    if (!recorder_->finish(coordinator, "", coordinator.failure_text())) return;
    log_.info("recorded the run up to this point in " + program_.job.record);
  } catch (const Error& e) {
    log_.error(e.what());
  }
}

// Resumes the run in `out_dir` after its coordinator was killed.
int go_on(const CoordinatorProgram& program, Sockets& sockets, TermRecord term, SignalFd& signals) {
  const std::string folder = program.out_dir + "/checkpoints";
  ++term.term;
  if (term.started) {
    ++term.history.recoveries;
    term.history.reached_step = newest_step_of_metrics(program.out_dir);
  }
  const Log log("server 0");
  log.info("the run in " + program.out_dir + " is unfinished: resuming it as term " +
           std::to_string(term.term));
  StartState start_state = term.started ? StartState(program.job, folder, hex_text(term.first_run))
                                        : StartState(program.job, folder);
  return CoordinatorLoop(program, sockets, std::move(start_state), term, signals).run();
}

}  // namespace

int run_coordinator(const CoordinatorProgram& program, SignalFd& signals) {
  const Log log("server 0");
  const std::optional<TermRecord> earlier = run_to_go_on(program);
  TermRecord term;
  term.first_run = random_id();
  term.job_ini = to_ini(program.job);
  if (earlier) term = *earlier;
  const std::unique_ptr<Sockets> sockets = open_sockets(program, earlier, term.first_run);
  const std::vector<FolderLock> locks = lock_folders(program);
  for (const FolderLock& lock : locks)
    if (!lock.notice().empty()) log.warn(lock.notice());
  if (term.end) {
    const int code = end_again(*term.end, program.out_dir, sockets->control, signals);
    Announcements(program.announce_fd, host_name()).ended(code);
    remove_term(program.out_dir);
    return code;
  }
  if (earlier) return go_on(program, *sockets, term, signals);
  StartState start_state(program.job, program.out_dir + "/checkpoints");
  if (start_state.complete()) {
    for (const std::string& notice : start_state.take_notices()) log.info(notice);
    return 0;
  }
  return CoordinatorLoop(program, *sockets, std::move(start_state), term, signals).run();
}

}  // namespace pushpull
