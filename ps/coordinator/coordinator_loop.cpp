// The coordinator's program: one poll loop over control, data, its own shard client, the checkpoint
// writer and signals.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/base/unique_fd.h"
#include "common/net/address.h"
#include "common/update/schedule.h"
#include "ps/aggregation/make_aggregation.h"
#include "ps/coordinator/checkpoint_writer.h"
#include "ps/coordinator/coordinator.h"
#include "ps/coordinator/run_recorder.h"
#include "ps/coordinator/start_state.h"
#include "ps/server/data_plane.h"
#include "ps/server_loop.h"

namespace pushpull {

namespace {

constexpr int kPollMs = 20;
constexpr int64_t kTickMs = 5;
constexpr int64_t kMomentMs = 250;
constexpr int64_t kTellMs = 5000;
constexpr int kControlPerTurn = 256;  // a flood must not keep the data waiting
constexpr int64_t kEchoMs = 300;
constexpr size_t kMostReasonBytes = 400;

class CoordinatorLoop {
 public:
  CoordinatorLoop(const CoordinatorProgram& program, StartState start_state, SignalFd& signals);
  int run();

 private:
  static CoordinatorOptions options_of(const CoordinatorProgram& program, const DataPlane& data);
  void announce();
  void tell_launcher();
  void turn();
  void receive_control();
  void deliver();
  bool deliver_outgoing();
  void say_notices();
  void start();
  void snapshots();
  void take_written();
  void note_barriers();
  void shard_messages();
  void repeat_norms();
  void pass_norms();
  void pass_record();
  void write_record_of_failure();
  void tell();
  // last: in any case, the end of training
  void moment(bool last);
  void add_evaluation(Moment& m, const Evaluation& evaluation);
  void summarise();
  std::map<int64_t, int64_t> staleness() const;
  int exit_code() const;

  const CoordinatorProgram& program_;
  SignalFd& signals_;
  UniqueFd announce_;
  Log log_{"server 0"};
  zmq::context_t context_{1};
  Router control_;
  DataPlane data_;
  StartState start_state_;
  Report report_;
  Coordinator coordinator_;
  uint64_t run_id_;

  std::vector<std::unique_ptr<Dealer>> shards_;
  std::unique_ptr<ShardClient> client_;
  std::unique_ptr<CheckpointWriter> writer_;
  bool writing_ = false;
  std::string weights_sha256_;
  std::optional<RunRecorder> recorder_;
  std::string initial_weights_sha256_;
  struct Opened {
    int64_t at_ms = 0;
    int64_t samples = 0;  // in its weights
  };
  std::map<int64_t, Opened> opened_;  // barriers, until they are evaluated

  AwakeClock clock_;  // of coordinator_
  const int64_t began_ms_ = now_ms();
  int64_t ticked_ms_ = 0;
  int64_t told_ms_ = 0;
  int64_t moment_ms_ = 0;
  int64_t training_since_ms_ = -1;
  int64_t training_until_ms_ = -1;
  int64_t moment_samples_ = 0;
  double rate_ = 0.0;
  int signal_ = 0;
  int64_t signal_ms_ = 0;
};

std::string data_address(const std::string& listen) {
  Address address = parse_address(listen, "listen");
  address.port = "*";
  return address.to_string();
}

CoordinatorOptions CoordinatorLoop::options_of(const CoordinatorProgram& program,
                                               const DataPlane& data) {
  CoordinatorOptions options;
  options.job = program.job;
  options.run = random_id();
  options.servers = program.servers;
  options.workers = program.workers;
  options.self.incarnation = random_id();
  options.self.host = host_name();
  options.self.pid = getpid();
  options.self.data_endpoint =
      advertised(const_cast<DataPlane&>(data).router().address(), program.advertise);
  return options;
}

CoordinatorLoop::CoordinatorLoop(const CoordinatorProgram& program, StartState start_state,
                                 SignalFd& signals)
    : program_(program),
      signals_(signals),
      announce_(program.announce_fd),
      control_(context_, program.listen, EndpointLimits{}),
      data_(data_address(program.listen), program.job.slice_bytes, program.device),
      start_state_(std::move(start_state)),
      report_(program.out_dir, program.style),
      coordinator_(options_of(program, data_)),
      run_id_(coordinator_.run()) {
  data_.listen_locally(program.job, run_id_, log_);
  report_.write_job(to_ini(program.job));
  if (!program.job.record.empty()) recorder_.emplace(program.job);
  for (const std::string& notice : start_state_.take_notices()) log_.warn(notice);
  announce();
}

// All end with the job's exit code, so codes do not tell the launcher who it was. Of processes on
// other hosts it knows nothing.
void CoordinatorLoop::tell_launcher() {
  const std::optional<Culprit>& culprit = coordinator_.culprit();
  if (announce_.get() < 0 || !culprit || culprit->host != host_name()) return;
  const std::string line = "failed " + std::to_string(culprit->pid) + " " +
                           std::to_string(static_cast<int>(coordinator_.failure_code())) + " " +
                           printable(culprit->reason, kMostReasonBytes) + "\n";
  [[maybe_unused]] const ssize_t written = write(announce_.get(), line.data(), line.size());
  announce_.reset();
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

int CoordinatorLoop::run() {
  while (!coordinator_.over()) turn();
  report_.end_line();
  if (coordinator_.phase() == wire::PHASE_FAILED) {
    log_.error(coordinator_.failure_text());
    write_record_of_failure();
  }
  return exit_code();
}

int CoordinatorLoop::exit_code() const {
  if (signal_ != 0) return 128 + signal_;
  if (coordinator_.phase() == wire::PHASE_FAILED) {
    return static_cast<int>(coordinator_.failure_code());
  }
  return 0;
}

void CoordinatorLoop::turn() {
  std::vector<zmq::pollitem_t> items{{control_.socket().handle(), 0, ZMQ_POLLIN, 0},
                                     {data_.router().socket().handle(), 0, ZMQ_POLLIN, 0},
                                     {nullptr, signals_.fd(), ZMQ_POLLIN, 0}};
  if (writer_) items.push_back({nullptr, writer_->done().fd(), ZMQ_POLLIN, 0});
  if (client_ && client_->busy()) {
    for (const auto& shard : shards_) {
      items.push_back({shard->socket().handle(), 0, ZMQ_POLLIN, 0});
    }
  }
  poll_sockets(items, kPollMs);
  // what has failed here fails again, and others must hear of it
  const bool failed = coordinator_.phase() == wire::PHASE_FAILED;
  try {
    if (!failed) {
      data_.receive();
      note_barriers();
    }
    receive_control();
    shard_messages();
    take_written();
    const int64_t now = now_ms();
    repeat_norms();
    pass_record();
    if (data_.server() != nullptr) data_.server()->offer_leases();
    if (now - ticked_ms_ >= kTickMs) {
      ticked_ms_ = now;
      if (const int signal = signals_.take(); signal != 0) {
        // asked twice; the same signal may come from the terminal and from a wrapper at once
        if (signal_ != 0 && now - signal_ms_ > kEchoMs) _exit(128 + signal);
        if (signal_ == 0) signal_ms_ = now;
        signal_ = signal;
        coordinator_.fail_here(ErrorCode::kFailed, "[job] ended by " + signal_name(signal));
      }
      coordinator_.on_tick(clock_.now_ms());
      if (coordinator_.wants_start()) start();
      snapshots();
      tell();
      moment(false);
      if (coordinator_.wants_summary()) summarise();
    }
    deliver();
  } catch (const Error& e) {
    coordinator_.fail_here(e.code(), e.what());
  } catch (const std::exception& e) {
    coordinator_.fail_here(ErrorCode::kInternal, std::string("[internal] ") + e.what());
  }
  tell_launcher();
}

void CoordinatorLoop::receive_control() {
  for (int i = 0; i < kControlPerTurn; ++i) {
    const auto received = control_.receive();
    if (!received) return;
    if (coordinator_.on_message(clock_.now_ms(), received->first, received->second)) {
      control_.count_rejected();
    }
  }
}

// Puts on their way what the state machines have to say.
void CoordinatorLoop::deliver() {
  if (deliver_outgoing()) {
    pass_norms();
    deliver_outgoing();
  }
  if (coordinator_.phase() != wire::PHASE_FAILED) data_.send();
  // the first weights are made: that is no training
  if (data_.server() != nullptr && training_since_ms_ < 0) training_since_ms_ = now_ms();
  note_barriers();
  say_notices();
}

// True: the server in this process has been told of its pushes, and may wait for a norm now. With
// the next turn's poll in between, each step would take that long.
bool CoordinatorLoop::deliver_outgoing() {
  bool chosen = false;
  for (const Outgoing& out : coordinator_.take_outgoing()) {
    if (!out.to.empty()) {
      if (control_.send(out.to, out.message) == SendResult::kGone) {
        coordinator_.on_gone(clock_.now_ms(), out.to);
      }
    } else if (out.message.header.has_state()) {
      data_.on_state(out.message.header.state(), run_id_, coordinator_.self_incarnation(),
                     program_.servers, program_.job, &coordinator_);
    } else if (data_.server() != nullptr) {
      const wire::Header& header = out.message.header;
      if (header.has_norm_total()) data_.server()->on_norm_total(header.norm_total());
      if (header.has_chosen()) data_.server()->on_chosen(header.chosen());
      chosen = chosen || header.has_chosen();
    }
  }
  return chosen;
}

void CoordinatorLoop::say_notices() {
  for (const std::string& notice : coordinator_.take_notices()) {
    report_.end_line();
    log_.info(notice);
  }
}

// What the server in this process waits for of the coordinator.
void CoordinatorLoop::repeat_norms() {
  Server* server = data_.server();
  if (server == nullptr) return;
  if (server->waiting_arrived()) {
    Message message;
    *message.header.mutable_arrived() = *server->waiting_arrived();
    coordinator_.on_message(clock_.now_ms(), "", message);
  }
  pass_norms();
}

void CoordinatorLoop::pass_norms() {
  if (!data_.server()->waiting_norms()) return;
  Message message;
  *message.header.mutable_norms() = *data_.server()->waiting_norms();
  coordinator_.on_message(clock_.now_ms(), "", message);
}

// All that this process's own server has applied since the last turn.
void CoordinatorLoop::pass_record() {
  Server* server = data_.server();
  if (server == nullptr) return;
  for (wire::RecordPart& part : server->log().take_rest()) {
    part.set_incarnation(coordinator_.self_incarnation());
    Message message;
    *message.header.mutable_record_part() = std::move(part);
    coordinator_.on_message(clock_.now_ms(), "", message);
  }
}

void CoordinatorLoop::write_record_of_failure() {
  if (!recorder_ || !recorder_->started()) return;
  try {
    if (!recorder_->finish(coordinator_, "", coordinator_.failure_text())) return;
    log_.info("recorded up to there in " + program_.job.record);
  } catch (const Error& e) {
    log_.error(e.what());
  }
}

// ---- start and snapshots ----

void CoordinatorLoop::start() {
  const int64_t now = now_ms();
  const Declaration& declaration = coordinator_.declaration();
  const auto initial = start_state_.match(program_.job, declaration);
  for (const std::string& notice : start_state_.take_notices()) log_.warn(notice);
  say_notices();
  Start start;
  if (initial) start = {initial->step, initial->updates, true};
  start.choices = start_state_.choices(declaration);
  coordinator_.start(clock_.now_ms(), start);
  if (recorder_) {
    recorder_->start(coordinator_, program_.servers, initial.get(), start_state_.resumes());
  }
  moment_ms_ = now;
  const SliceMap map(declaration.table.total, program_.job.slice_bytes, program_.servers);
  const auto& slot_names = state_names(server_optimizer(program_.job).kind);
  writer_ = std::make_unique<CheckpointWriter>(
      CheckpointStore(start_state_.checkpoint_dir(), program_.job.checkpoint_keep),
      declaration.table, slot_names);
  const EndpointLimits limits = data_limits(program_.job.slice_bytes);
  const wire::State state = coordinator_.state_for_self();
  for (const std::string& endpoint : state.data_endpoints()) {
    shards_.push_back(std::make_unique<Dealer>(context_, endpoint, limits));
  }
  // last: the loop uses it, and what it needs, as soon as it is there
  client_ = std::make_unique<ShardClient>(run_id_, coordinator_.self_incarnation(), map,
                                          slot_names.size());
  if (initial) client_->load(initial, now);
  log_.info("training starts: " + plural(declaration.table.total, "parameter") + " in " +
            plural(map.slices(), "slice") + ", steps " +
            std::to_string(coordinator_.barriers().start_step) + " to " +
            std::to_string(coordinator_.barriers().end_step) + ", strategy " +
            program_.job.strategy.to_string());
}

void CoordinatorLoop::shard_messages() {
  if (!client_) return;
  const int64_t now = now_ms();
  for (const auto& shard : shards_) {
    while (auto message = shard->receive()) client_->on_message(*message, now);
  }
  client_->on_tick(now);
  for (const ToShard& out : client_->take_outgoing()) {
    shards_[static_cast<size_t>(out.server)]->send(out.message);
  }
  std::optional<GatheredState> fetched = client_->take_fetched();
  if (!fetched) return;
  coordinator_.checkpoint_gathered(clock_.now_ms(), fetched->step);
  if (fetched->step == coordinator_.barriers().start_step) {
    return writer_->hash(std::move(*fetched));
  }
  CheckpointState state;
  state.step = fetched->step;
  state.updates = fetched->updates;
  state.total_steps = coordinator_.total_steps();
  state.job_ini = to_ini(program_.job);
  state.data_digest = coordinator_.declaration().data_digest;
  state.numerics = coordinator_.declaration().numerics;
  state.choices = coordinator_.declaration().choices;
  // the summary tells that one alone
  const bool last = state.step == coordinator_.barriers().end_step;
  writer_->write(std::move(*fetched), std::move(state), last);
}

void CoordinatorLoop::snapshots() {
  if (!client_ || client_->busy() || writing_) return;
  const std::optional<int64_t> step = coordinator_.take_snapshot_request();
  if (!step) return;
  writing_ = true;
  client_->fetch(*step, *step != coordinator_.barriers().start_step, now_ms());
}

// A barrier opens when the weights that are evaluated there exist: asked at once, for its time.
void CoordinatorLoop::note_barriers() {
  for (const auto& [step, samples] : coordinator_.take_opened_barriers()) {
    if (coordinator_.barriers().evaluation_due(step)) {
      opened_[step] = {now_ms(), samples};
    }
    if (step == coordinator_.barriers().end_step) training_until_ms_ = now_ms();
  }
}

void CoordinatorLoop::take_written() {
  if (!writer_) return;
  const auto result = writer_->take();
  if (!result) return;
  writing_ = false;
  if (result->error) std::rethrow_exception(result->error);
  const bool at_start = result->step == coordinator_.barriers().start_step;
  (at_start ? initial_weights_sha256_ : weights_sha256_) = result->weights_sha256;
  coordinator_.checkpoint_done(clock_.now_ms(), result->step);
}

// ---- what people see ----

void CoordinatorLoop::tell() {
  const std::string waiting = coordinator_.waiting_for();
  if (waiting.empty()) return;
  if (now_ms() - began_ms_ > static_cast<int64_t>(program_.join_timeout_s * 1000)) {
    coordinator_.fail(ErrorCode::kUnreachable,
                      "[join] not everybody came within --join-timeout: " + waiting);
  }
  if (now_ms() - told_ms_ < kTellMs) return;
  if (told_ms_ != 0) log_.info(waiting);
  told_ms_ = now_ms();
}

std::map<int64_t, int64_t> CoordinatorLoop::staleness() const {
  std::map<int64_t, int64_t> out;
  const auto add = [&](const wire::Stats& stats) {
    for (const auto& [staleness, updates] : stats.staleness()) out[staleness] += updates;
  };
  add(data_.stats());
  for (const auto& [incarnation, member] : coordinator_.members().all()) {
    if (member.role == wire::ROLE_SERVER && !member.peer.empty()) add(member.stats);
  }
  return out;
}

void CoordinatorLoop::moment(bool last) {
  const wire::Phase phase = coordinator_.phase();
  if (phase != wire::PHASE_TRAINING && phase != wire::PHASE_FINISHING) return;
  const int64_t now = now_ms();
  const std::vector<Evaluation> evaluations = coordinator_.take_evaluations();
  if (now - moment_ms_ < kMomentMs && evaluations.empty() && !last) return;
  const TrainingProgress& record = coordinator_.training();
  if (now - moment_ms_ >= kMomentMs) {
    const double seconds = static_cast<double>(now - moment_ms_) / 1000.0;
    const double rate = static_cast<double>(record.samples() - moment_samples_) / seconds;
    // smoothed over some moments, so that the estimate of the end does not jump
    rate_ = rate_ == 0.0 ? rate : 0.7 * rate_ + 0.3 * rate;
    moment_ms_ = now;
    moment_samples_ = record.samples();
  }
  Moment m;
  m.seconds = static_cast<double>(now - training_since_ms_) / 1000.0;
  m.step = record.floor();
  m.step_done = record.floor() - coordinator_.barriers().start_step;
  m.end_step = coordinator_.barriers().end_step;
  m.steps_per_epoch =
      std::max<int64_t>(1, steps_per_epoch(program_.job, coordinator_.declaration().train_samples));
  m.samples = record.samples();
  m.samples_per_second =
      rate_ > 0 ? rate_ : static_cast<double>(m.samples) / std::max(m.seconds, 1e-3);
  m.learning_rate = learning_rate(program_.job.schedule, m.step, coordinator_.total_steps());
  m.loss = record.newest_loss();
  double sum = 0.0;
  double count = 0.0;
  for (const auto& [value, times] : staleness()) {
    sum += static_cast<double>(value * times);
    count += static_cast<double>(times);
    m.staleness_max = std::max(m.staleness_max, value);
  }
  m.staleness_mean = count > 0 ? sum / count : 0.0;
  // a line for each evaluation, and one in any case
  for (size_t i = 0; i < std::max<size_t>(1, evaluations.size()); ++i) {
    if (i < evaluations.size()) add_evaluation(m, evaluations[i]);
    report_.moment(m);
  }
}

void CoordinatorLoop::add_evaluation(Moment& m, const Evaluation& evaluation) {
  const auto found = opened_.find(evaluation.step);
  const Opened opened =
      found != opened_.end() ? found->second : Opened{now_ms(), coordinator_.training().samples()};
  m.evaluation = evaluation;
  m.test_seconds = static_cast<double>(opened.at_ms - training_since_ms_) / 1000.0;
  m.test_samples = opened.samples;
  opened_.erase(opened_.begin(), opened_.upper_bound(evaluation.step));
}

void CoordinatorLoop::summarise() {
  moment(true);
  const TrainingProgress& record = coordinator_.training();
  const Declaration& declaration = coordinator_.declaration();
  Summary s;
  s.strategy = program_.job.strategy.to_string();
  s.workers = program_.workers;
  s.servers = program_.servers;
  s.steps = coordinator_.barriers().end_step;
  if (start_state_.resumes()) s.resumed_from_step = start_state_.resumed_step();
  s.samples = record.samples();
  s.samples_per_worker = record.samples_per_worker();
  s.pushes_applied = record.pushes_applied();
  s.pushes_dropped = record.pushes_dropped();
  s.pushes_dropped_per_worker = record.pushes_dropped_per_worker();
  s.seconds = static_cast<double>(training_until_ms_ - training_since_ms_) / 1000.0;
  s.samples_per_second = static_cast<double>(s.samples) / std::max(s.seconds, 1e-3);
  s.train_loss = record.mean_loss(steps_per_epoch(program_.job, declaration.train_samples));
  if (const auto& evaluation = coordinator_.evaluations().newest()) {
    s.test_loss = evaluation->loss;
    s.test_correct = evaluation->correct;
    s.test_total = evaluation->total;
  }
  s.weights_sha256 = weights_sha256_;
  const SliceMap map(declaration.table.total, program_.job.slice_bytes, program_.servers);
  for (int server = 0; server < program_.servers; ++server) {
    s.slices_per_server.push_back(std::ssize(map.slices_of(server)));
  }
  s.staleness = staleness();
  s.initial_weights_sha256 = initial_weights_sha256_;
  s.data_order_sha256 = record.data_hash().hex();
  s.totals = coordinator_.departed();
  s.totals.add_refusals(control_.rejected_frames(), {});
  s.totals.add(wire::ROLE_SERVER, data_.stats());
  for (const auto& [incarnation, member] : coordinator_.members().all()) {
    if (!member.peer.empty()) s.totals.add(member.role, member.stats);
  }
  if (recorder_) recorder_->finish(coordinator_, weights_sha256_, "");
  report_.write_summary(s);
  coordinator_.finish();
}

}  // namespace

int run_coordinator(const CoordinatorProgram& program, SignalFd& signals) {
  StartState start_state(program.job, program.out_dir + "/checkpoints");
  if (start_state.complete()) {
    for (const std::string& notice : start_state.take_notices()) Log("server 0").info(notice);
    return 0;
  }
  return CoordinatorLoop(program, std::move(start_state), signals).run();
}

}  // namespace pushpull
