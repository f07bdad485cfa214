#include "ps/run/coordinator_loop.h"

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/task_thread.h"
#include "common/host/shortage.h"
#include "common/io/file.h"
#include "common/net/address.h"
#include "common/net/endpoint.h"
#include "common/net/intervals.h"
#include "common/net/refusals.h"
#include "common/net/zap_handler.h"
#include "ps/members/ended_run.h"
#include "ps/report/checkpoint_writer.h"
#include "ps/report/start_state.h"
#include "ps/run/coordinator_sockets.h"
#include "ps/run/job_driver.h"
#include "ps/run/run_files.h"
#include "ps/server/aggregation.h"
#include "ps/server/grants.h"

namespace pushpull {
namespace {

// The program of a coordinator that finds the run of its predecessor ended, around `EndedRun`. Tells the
// members that are left how the run ended, and ends in the same way. Returns the exit code
// once the members have left, after 5 s, or at a signal.
//   folder: of the run, for messages.
int end_again(const RunEnd& end, const std::string& folder, Router& control, SignalFd& signals) {
  constexpr int kPollMs = 20;
  constexpr int64_t kMaxPerTurn = 256;
  constexpr int64_t kMaxBytesPerTurn = int64_t{4} << 20;
  const Log log("server 0");
  log.info("the run in " + folder + " has ended; telling its members, if any are left");
  EndedRun ended(end);
  while (!ended.over(now_ms()) && signals.take() == 0) {
    std::vector<zmq::pollitem_t> items{{nullptr, signals.fd(), ZMQ_POLLIN, 0},
                                       {control.socket().handle(), 0, ZMQ_POLLIN, 0}};
    poll_sockets(items, kPollMs);
    TurnBudget budget(kMaxPerTurn, kMaxBytesPerTurn);
    while (const auto received = control.receive(&budget)) {
      const auto& [peer, message] = *received;
      if (const auto answer = ended.on_message(message)) control.send(peer, *answer);
    }
  }
  const bool stopped = end.code == static_cast<int>(ErrorCode::kStopped);
  if (!end.text.empty()) stopped ? log.info(end.text) : log.error(end.text);
  return end.exit_code;
}

constexpr int kCoordinatorPollMs = 20;
// A flood of control messages must not delay data.
constexpr int64_t kControlPerTurn = 256;
constexpr int64_t kControlBytesPerTurn = int64_t{4} << 20;

class CoordinatorLoop : private JobEffects {
 public:
  // Borrows all but the term.
  //   term: the first one of this process.
  CoordinatorLoop(const CoordinatorProgram& program, CoordinatorSockets& sockets,
                  TaskThread& thread, RunFiles& files, const TermRecord& term, SignalFd& signals);
  int run();

 private:
  CoordinatorOptions make_options();
  RunHistory make_history() const;
  void announce_failure();
  void announce_end_failure();
  bool poll();
  void turn(bool signalled);
  void receive_control();
  void refuse(const PeerId& peer, const Refusal& refusal);
  void warn(const std::string& line) { files_.report().end_line(), log_.warn(line); }
  void receive_shards();
  void receive_written();
  void receive_files();
  std::optional<RunRecord> record_so_far(const std::string& weights_sha256,
                                         const std::string& ended);
  void write_last_record(const RunRecord& record);
  void work_last(const std::function<void()>& task);
  void wait_for_files();
  Now now() { return {now_ms(), clock_.now_ms(), utc_ms()}; }

  bool send(const PeerId& to, const Message& message) override {
    return control_.send(to, message) != SendResult::kDisconnected;
  }
  TermIds begin_term(int64_t term) override;
  void connect_shards(const std::vector<DataPort>& ports) override;
  void send_to_shard(int server, const Message& message) override {
    shards_[static_cast<size_t>(server)]->send(message);
  }
  void started(const Declaration& declaration, int64_t start_step) override;
  void load_start(const Declaration& declaration) override;
  void open_files(const Declaration& declaration, const StartPoint& start,
                  const RunHistory& history) override;
  void save_term(int64_t term, const RunHistory& history) override;
  void save_end(const RunEnd& end) override;
  void write_summary(RunFigures summary) override;
  std::string file_wait() const override { return thread_.waiting(); }
  int64_t file_bytes() const override { return file_bytes_moved(); }
  void hash_weights(GatheredState snapshot) override { writer_->hash(std::move(snapshot)); }
  void write_checkpoint(GatheredState snapshot, CheckpointState state,
                        CheckpointKind kind) override {
    writer_->write(std::move(snapshot), std::move(state), kind);
  }
  void members_lost(const std::vector<MemberInfo>& members) override {
    for (const MemberInfo& member : members) announcements_.lost(member.host, member.pid);
  }
  void show_line(const std::string& line) override { files_.report().end_line(), log_.info(line); }
  void show_moment(const RunFigures& moment) override { files_.report().moment(moment); }
  void show_members(const std::string& json) override { files_.report().members(json); }
  void show_status(const MembersView& view, const RunFigures& figures) override {
    files_.report().status(view, figures);
  }

  const CoordinatorProgram& program_;
  SignalFd& signals_;
  Announcements announcements_;
  Log log_{"server 0"};
  zmq::context_t& context_;
  ZapHandler& handler_;
  Router& control_;
  DataPlane& data_;
  TaskThread& thread_;
  RunFiles& files_;
  const uint64_t incarnation_;
  Refusals refusals_;  // counts refused control messages
  const TermRecord term_;
  std::vector<std::unique_ptr<Dealer>> shards_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::optional<StartPoint> loaded_;   // by the task that runs or has just ended
  std::optional<RunFigures> summary_;  // until it is written
  AwakeClock clock_;
  JobDriver driver_;
};

CoordinatorOptions CoordinatorLoop::make_options() {
  CoordinatorOptions options;
  options.job = program_.job;
  options.term_id = term_.term == 1 ? term_.run_id : random_id();
  options.term = term_.term;
  options.run_id = term_.run_id;
  options.grant_key = Grants::random_key();
  options.servers = program_.servers;
  options.workers = program_.workers;
  options.job_token = program_.job_token;
  options.launched = program_.announce_fd >= 0;
  options.self.incarnation = incarnation_;
  options.self.host = host_name();
  options.self.pid = getpid();
  options.self.data_endpoint = advertised(data_.router().address(), program_.advertise);
  options.self.device = program_.device ? program_.device->name() : "cpu";
  std::error_code unknown;  // the working directory is gone: the path stays as it was given
  const std::filesystem::path out = std::filesystem::absolute(program_.out_dir, unknown);
  options.out = (unknown ? std::filesystem::path(program_.out_dir) : out).lexically_normal();
  return options;
}

RunHistory CoordinatorLoop::make_history() const {
  RunHistory history = term_.history;
  history.trained = term_.started;
  if (!term_.started) return history;
  history.seconds = static_cast<double>(std::max<int64_t>(0, utc_ms() - term_.began_ms)) / 1000.0;
  return history;
}

CoordinatorLoop::CoordinatorLoop(const CoordinatorProgram& program, CoordinatorSockets& sockets,
                                 TaskThread& thread, RunFiles& files, const TermRecord& term,
                                 SignalFd& signals)
    : program_(program),
      signals_(signals),
      announcements_(program.announce_fd, host_name()),
      context_(sockets.context),
      handler_(sockets.handler),
      control_(sockets.control),
      data_(sockets.data),
      thread_(thread),
      files_(files),
      incarnation_(sockets.incarnation),
      term_(term),
      driver_(make_options(), program.join_timeout_s, data_.data(), *this, make_history(),
              program.stops) {
  data_.listen_locally(program.job, driver_.coordinator().term_id(), log_);
  for (const std::string& notice : files_.take_notices()) log_.warn(notice);
  log_.info(listening_line(control_, program_.advertise));
  if (!announcements_.address(term_.address)) log_.warn("--announce-fd has no reader");
}

// All processes end with the job's exit code, which does not say which of them failed.
void CoordinatorLoop::announce_failure() {
  const Coordinator& coordinator = driver_.coordinator();
  const std::optional<Culprit>& culprit = coordinator.culprit();
  if (!culprit || !coordinator.end_announced()) return;
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
      const Error error = error_of(e);
      driver_.fail(error.code(), error.what());
    }
    announce_failure();
  }
  files_.report().end_line();
  std::optional<RunRecord> record;
  if (driver_.coordinator().phase() == wire::PHASE_FAILED) {
    const Coordinator& ended = driver_.coordinator();
    const bool stopped = ended.failure_code() == ErrorCode::kStopped && !driver_.gave_up_stop();
    stopped ? log_.info(ended.failure_text()) : log_.error(ended.failure_text());
    if (!stopped) record = record_so_far("", ended.failure_text());
  } else if (!driver_.end_failure().empty()) {
    announce_end_failure();
  }
  wait_for_files();
  if (record) write_last_record(*record);
  announcements_.ended(driver_.exit_code());
  work_last([this] { files_.close(); });
  return driver_.exit_code();
}

// Writes the record of a failed run.
void CoordinatorLoop::write_last_record(const RunRecord& record) {
  bool written = false;
  work_last([&] {
    files_.write_record(record);
    written = true;
  });
  if (written) log_.info("recorded the run up to this point in " + program_.job.record);
}

// Work on files after the end of the job.
void CoordinatorLoop::work_last(const std::function<void()>& task) {
  thread_.start(task);
  driver_.closes_files();
  wait_for_files();
}

// Completes the checkpoint and the work on files in progress, unless the file system hangs: a thread
// in a system call cannot be stopped.
void CoordinatorLoop::wait_for_files() {
  while (thread_.busy() || (writer_ && writer_->busy())) {
    const int signal = poll() ? signals_.take() : 0;
    const bool at_once = signal != 0 && driver_.on_signal(now(), signal);
    receive_control();
    driver_.on_turn(now());
    if (writer_ && writer_->take()) continue;
    try {
      receive_files();
    } catch (const std::exception& e) {
      log_.error(e.what());
    }
    if (!thread_.busy() && !(writer_ && writer_->busy())) return;
    if (!at_once && !driver_.transfer_overdue(now())) continue;
    log_.error(thread_.busy()
                   ? "[out] " + driver_.file_text(now()) + "; the process ends without it"
                   : "[checkpoint] the disk did not finish a checkpoint; it stays "
                     "incomplete");
    flush_output();
    const int code = driver_.exit_code();
    _exit(code == 0 ? static_cast<int>(ErrorCode::kIo) : code);
  }
}

// Returns true if a signal is pending.
bool CoordinatorLoop::poll() {
  std::vector<zmq::pollitem_t> items{{nullptr, signals_.fd(), ZMQ_POLLIN, 0},
                                     {nullptr, thread_.done_fd(), ZMQ_POLLIN, 0},
                                     {control_.socket().handle(), 0, ZMQ_POLLIN, 0}};
  if (writer_) items.push_back({nullptr, writer_->done_fd(), ZMQ_POLLIN, 0});
  if (driver_.waits_for_shards()) {
    for (const auto& shard : shards_) {
      items.push_back({shard->socket().handle(), 0, ZMQ_POLLIN, 0});
    }
  }
  data_.wait(items, kCoordinatorPollMs);
  return (items.front().revents & ZMQ_POLLIN) != 0;
}

void CoordinatorLoop::turn(bool signalled) {
  // A server that failed once fails again, and members must still hear of the failure.
  if (driver_.serves()) {
    data_.receive();
    driver_.on_data_taken(now());
  }
  if (!data_.sockets_are_idle()) receive_control();
  for (const std::string& line : handler_.take_notices()) warn(line);
  receive_shards();
  receive_written();
  receive_files();
  if (const int signal = signalled ? signals_.take_any() : 0; signal != 0) {
    if (driver_.on_signal(now(), signal)) {
      flush_output();
      _exit(128 + signal);
    }
  }
  driver_.on_turn(now());
  if (driver_.serves()) data_.send();
}

void CoordinatorLoop::receive_control() {
  TurnBudget budget(kControlPerTurn, kControlBytesPerTurn);
  while (const auto received = control_.receive(&budget)) {
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
    driver_.on_written(now(), {result->step, result->weights_sha256, result->error, result->kind});
  }
}

void CoordinatorLoop::receive_files() {
  const std::optional<std::exception_ptr> error = thread_.take();
  if (!error) return;
  for (const std::string& notice : files_.take_notices()) log_.warn(notice);
  if (summary_ && !*error) files_.report().show_summary(*summary_);
  summary_.reset();
  driver_.on_files(now(), {*error, std::exchange(loaded_, std::nullopt)});
}

// ---- effects ----

TermIds CoordinatorLoop::begin_term(int64_t /*term*/) {
  const uint64_t term_id = random_id();
  data_.listen_locally(program_.job, term_id, log_);
  return {term_id, Grants::random_key()};
}

void CoordinatorLoop::connect_shards(const std::vector<DataPort>& ports) {
  shards_.clear();
  const EndpointLimits limits = data_limits(program_.job.slice_bytes);
  const Credentials credentials =
      program_.keys.data_credentials(program_.job.encrypt_data, term_.run_id);
  for (const DataPort& port : ports) {
    shards_.push_back(
        std::make_unique<Dealer>(context_, port.endpoint, limits, credentials.to(port.listener)));
  }
}

void CoordinatorLoop::load_start(const Declaration& declaration) {
  thread_.start([this, declaration] { loaded_ = files_.load(declaration); });
}

void CoordinatorLoop::open_files(const Declaration& declaration, const StartPoint& start,
                                 const RunHistory& history) {
  thread_.start([this, declaration, start, history] {
    files_.open(declaration, program_.servers, start, history);
  });
}

void CoordinatorLoop::save_term(int64_t term, const RunHistory& history) {
  thread_.start([this, term, history] { files_.save_term(term, history); });
}

void CoordinatorLoop::save_end(const RunEnd& end) {
  thread_.start([this, end] { files_.save_end(end); });
}

void CoordinatorLoop::started(const Declaration& declaration, int64_t start_step) {
  files_.report().begin(files_.take_metrics(), start_step);
  writer_ = std::make_unique<CheckpointWriter>(files_.take_store(), declaration.table,
                                               state_names(server_optimizer(program_.job)));
  announcements_.started();
}

void CoordinatorLoop::write_summary(RunFigures summary) {
  wire::Stats control;
  refusals_.report(control_.rejected_frames(), control);
  summary.totals.add_refusals(control.rejected_frames(), control.refusals());
  summary.totals.refused_peers += handler_.refused_peers();
  const std::string stop = summary.stopped_by ? "stopped by " + *summary.stopped_by : "";
  std::optional<RunRecord> record = record_so_far(stop.empty() ? summary.weights_sha256 : "", stop);
  summary_ = std::move(summary);
  thread_.start([this, summary = *summary_, record = std::move(record)] {
    if (record) files_.write_record(*record);
    files_.write_summary(summary);
  });
}

// Returns nothing if the job is not recorded or has not begun, or if a task uses the recorder.
std::optional<RunRecord> CoordinatorLoop::record_so_far(const std::string& weights_sha256,
                                                        const std::string& ended) {
  const Coordinator& coordinator = driver_.coordinator();
  RunRecorder* const recorder = thread_.busy() ? nullptr : files_.recorder();
  if (recorder == nullptr) return std::nullopt;
  const TrainingRun* const run = coordinator.training();
  return recorder->complete(run == nullptr ? nullptr : run->logs(), coordinator.members(),
                            coordinator.departures().failed_push(), weights_sha256, ended);
}

}  // namespace

int run_coordinator(const CoordinatorProgram& program, SignalFd& signals) {
  const Log log("server 0");
  TaskThread thread;
  const auto on_disk = [&](const std::function<void()>& task) {
    run_before_start(thread, signals, program.job.progress_timeout_s, task);
  };
  std::optional<TermRecord> earlier;
  on_disk([&] { earlier = earlier_run(thread, program.job, program.out_dir); });
  TermRecord term;
  term.run_id = random_id();
  term.job_ini = to_ini(program.job);
  if (earlier) term = *earlier;
  ListenOptions listen{program.listen, program.listen_ports, term.run_id};
  if (earlier) listen.earlier = earlier->address;
  listen.data_port = program.data_port;
  const auto sockets = open_coordinator_sockets(listen, program.job, program.keys, program.device);
  term.address = control_address(sockets->control, program.advertise);
  std::vector<FolderLock> locks;
  on_disk([&] { locks = lock_paths(thread, program.job, program.out_dir); });
  if (term.end) {
    for (const FolderLock& lock : locks)
      if (!lock.notice().empty()) log.warn(lock.notice());
    const int code = end_again(*term.end, program.out_dir, sockets->control, signals);
    Announcements(program.announce_fd, host_name()).ended(code);
    on_disk([&] { remove_run(thread, program.out_dir); });
    return code;
  }
  std::unique_ptr<RunFiles> files;
  std::vector<std::string> nothing_to_do;
  on_disk([&] {
    StartState start = earlier ? resume_run(thread, program.job, program.out_dir, term)
                               : begin_run(thread, program.job, program.out_dir);
    if (start.complete() && !earlier) {
      nothing_to_do = start.take_notices();
      return;
    }
    files = std::make_unique<RunFiles>(thread, program.job, program.out_dir, program.style,
                                       program.watch, std::move(locks), std::move(start), term);
  });
  for (const std::string& notice : nothing_to_do) log.info(notice);
  if (!files) return 0;
  if (earlier) {
    log.info("the run in " + program.out_dir + " is unfinished: resuming it as term " +
             std::to_string(term.term));
  }
  return CoordinatorLoop(program, *sockets, thread, *files, term, signals).run();
}

}  // namespace pushpull
