#include "worker/exchange/push_pull.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/net/join.h"
#include "worker/exchange/schedules.h"

namespace pushpull {

namespace {

// If another process can take a lost server's place, the worker waits for the coordinator to
// declare the loss, which takes this much longer than the silence.
constexpr int64_t kReasonMs = 5000;

// Time after which a push is repeated that only reports.
constexpr int64_t kReportMs = 1000;

int64_t silence_ms(const Job& job) {
  return static_cast<int64_t>(job.heartbeat_timeout_s * 1000) +
         (job.copy_distance() > 0 ? kReasonMs : 0);
}

// The result of an evaluation may end the run: no step after it begins without the result.
bool may_begin(const PushPullSetup& setup, const Task& task, int64_t evaluated) {
  return task.kind != Task::kCompute || setup.barriers.may_begin(task.step, evaluated);
}

}  // namespace

PushPullSetup push_pull_setup(const JobView& view, const TensorTable& table, int64_t chunks) {
  PushPullSetup setup;
  setup.term_id = view.term_id;
  setup.incarnation = view.incarnation;
  setup.job = view.job;
  setup.total_elements = table.total;
  setup.stage_begins = table.stage_begins();
  setup.servers = view.state.data_endpoints_size();
  setup.barriers = barriers_of(view.job, view.state.start_step(), view.state.end_step());
  setup.shares = view.state.shares();
  setup.chunks = chunks;
  setup.acknowledge = view.job.strategy.traits().workers_update;
  return setup;
}

PushPull::PushPull(PushPullSetup setup)
    : setup_(std::move(setup)),
      connections_(
          {setup_.total_elements, setup_.job.slice_bytes, setup_.servers, setup_.stage_begins},
          setup_.job.connections, setup_.part),
      schedule_(make_schedule(setup_.job.strategy, {setup_.barriers, setup_.shares, setup_.chunks,
                                                    setup_.job.micro_batches()})),
      weights_(connections_.map(), setup_.job.pull_codec.kind == CodecKind::kBf16, setup_.memory,
               setup_.anywhere, setup_.part.pulled),
      delivery_({setup_.term_id, setup_.incarnation}, connections_,
                {setup_.flush_bytes, setup_.acknowledge, schedule_->acknowledged_is_applied(),
                 setup_.job.copy_distance() > 0, setup_.job.strategy.traits().workers_update},
                outgoing_),
      pull_({setup_.term_id, setup_.incarnation},
            {2 * setup_.job.slice_bytes, setup_.window_bytes, silence_ms(setup_.job),
             setup_.job.pull_codec == Codec{}, setup_.barriers.averages},
            {connections_, *schedule_, weights_, delivery_, outgoing_}),
      evaluated_(setup_.barriers.start_step),
      read_versions_(static_cast<size_t>(setup_.servers)) {}

// ---- what to do next ----

void PushPull::on_state(const wire::State& state, int64_t now_ms) {
  if (state.version() <= state_version_) return;
  state_version_ = state.version();
  evaluated_ = std::max(evaluated_, state.evaluated_barrier());
  if (delivery_.is_running()) {
    later_ = state;
  } else {
    take_state(state, now_ms);
  }
}

// Starts over with each server that another process has replaced since the last State.
void PushPull::follow_servers(const wire::Places& places, int64_t now_ms) {
  if (lives_.empty()) lives_.assign(places.lives().begin(), places.lives().end());
  delivery_.copied(places.copied_step());
  for (int server = 0; server < std::min<int>(places.lives_size(), setup_.servers); ++server) {
    int32_t& life = lives_[static_cast<size_t>(server)];
    if (places.lives(server) <= life) continue;
    life = places.lives(server);
    replaced_.push_back(server);
    delivery_.start_over(server);
    pull_.start_over(server, now_ms);
  }
}

void PushPull::take_state(const wire::State& state, int64_t now_ms) {
  const wire::Places& places = state.places();
  if (places.lives_size() == setup_.servers) follow_servers(places, now_ms);
  pull_.set_absent({places.absent().begin(), places.absent().end()});
  if (schedule_->on_shares(state)) give_up_pull();
}

// Ends a pull that the schedule no longer needs.
void PushPull::give_up_pull() {
  if (!pull_.running() || !schedule_->gives_up(pull_.aim())) return;
  const bool releases = pull_.brings_weights() && weights_.current_in_place();
  pull_.end();
  if (releases) schedule_->on_weights_released();
}

void PushPull::follow(const Task& task) {
  schedule_->follow(task);
  give_up_pull();
}

Task PushPull::next(int64_t now_ms) {
  if (pull_.running()) return {};
  const Schedule::Decision decision = schedule_->next();
  if (decision.pull) pull_.start(*decision.pull, now_ms);
  return may_begin(setup_, decision.task, evaluated_) ? decision.task : Task{};
}

std::string PushPull::waiting_for() const {
  if (pull_.running()) return pull_.waiting_for();
  const std::optional<Task> task = schedule_->wanted();
  if (task && !may_begin(setup_, *task, evaluated_)) return "the result of an evaluation";
  return schedule_->idle() ? "a share (this worker is a spare)" : "the coordinator";
}

// ---- a task that begins while its weights arrive ----

// Returns true if arriving weights are for this task: each slice has one exact version, which
// servers cannot have passed.
bool PushPull::arrives_for(const Task& task) const {
  const PullAim& aim = pull_.aim();
  return pull_.brings_weights() && aim.versions == PullAim::kExact && !aim.may_be_past &&
         !aim.at_barrier && task.kind == Task::kCompute && aim.clock == task.step;
}

// A task of a group that has begun must be computed: each of its parts is sent and taken once.
std::optional<Task> PushPull::early() const {
  if (!pull_.brings_weights() || !weights_.has_any()) return std::nullopt;
  if (setup_.job.stages > 1 && pull_.may_start_anew()) return std::nullopt;
  std::optional<Task> task = schedule_->wanted();
  if (!task || !arrives_for(*task) || !may_begin(setup_, *task, evaluated_)) return std::nullopt;
  return task;
}

bool PushPull::is_current(const Task& task) const {
  return schedule_->wanted() == task &&
         (arrives_for(task) || (!pull_.brings_weights() && schedule_->weights_fit(task)));
}

std::span<const float> PushPull::weights_of(const Task& task) const {
  return arrives_for(task) ? weights_.arriving() : weights_.current();
}

// ---- pull ----

bool PushPull::on_message(int server, const Message& message, int64_t now_ms) {
  if (server < 0 || server >= setup_.servers) return false;
  if (server == 0) heard_ms_ = now_ms;
  if (message.header.has_weights()) {
    const wire::Weights& weights = message.header.weights();
    delivery_.acknowledge(server, weights.pushes_through());
    if (schedule_->on_leases(weights.leases())) give_up_pull();
    if (weights.has_progress() && weights.progress().steps() >= progress_.steps()) {
      progress_ = weights.progress();
    }
    if (pull_.on_weights(server, message, now_ms)) pull_answered_ = true;
  } else if (message.header.has_status()) {
    const wire::Status& status = message.header.status();
    delivery_.acknowledge(server, status.pushes_through());
    if (schedule_->on_leases(status.leases())) give_up_pull();
    pull_.on_status(server, status, now_ms);
  } else {
    return false;
  }
  finish_if_complete(now_ms);
  return true;
}

// A pull ends when all weights are here and all pushes have arrived. When a worker is lost, at most
// one push of each share or lease is therefore in flight.
void PushPull::finish_if_complete(int64_t now_ms) {
  if (!pull_.brings_weights() || delivery_.is_running() || !pull_.is_complete()) return;
  pull_.end();
  const PulledWeights pulled{pull_.aim(), weights_.min_version(), weights_.max_version(),
                             pull_.state().at_barrier()};
  if (const auto instead = schedule_->on_weights(pulled)) return pull_.start(*instead, now_ms);
  weights_.take_over();
  delivery_.applied(pulled.min_version);
  const bool per_server = pulled.aim.versions == PullAim::kPerServer;
  for (int server = 0; server < setup_.servers; ++server) {
    int64_t& read = read_versions_[static_cast<size_t>(server)];
    if (per_server && connections_.pulled(server).empty()) {
      if (slices().stages() > 1) read = -1;  // else the server has no slices
      continue;
    }
    read = per_server ? pull_.state().version(server) : pulled.min_version;
  }
}

void PushPull::on_tick(int64_t now_ms) {
  // during a push the worker waits for no server, and its parts may still be in local queues
  if (delivery_.is_running()) return;
  pull_.on_tick(now_ms);
  if (setup_.job.strategy.traits().workers_update) repeat_reports(now_ms);
}

// Without pulls, nothing else shows that a push was lost. The silence counts while the worker looks:
// it may be busy for longer.
void PushPull::repeat_reports(int64_t now_ms) {
  const int64_t away_ms = now_ms - std::exchange(ticked_ms_, now_ms);
  if (away_ms > kReportMs) heard_ms_ += away_ms;
  if (delivery_.arrived(0)) {
    heard_ms_ = repeated_ms_ = now_ms;
    return;
  }
  const int64_t silence = silence_ms(setup_.job);
  if (now_ms - heard_ms_ > silence) {
    throw Error(ErrorCode::kUnreachable, "[push] server 0 has not answered for " +
                                             std::to_string(silence / 1000) +
                                             " s, waiting for an acknowledgement of losses");
  }
  if (now_ms - repeated_ms_ < kReportMs) return;
  repeated_ms_ = now_ms;
  delivery_.send_again(0);
}

// ---- push ----

void PushPull::begin_push(int64_t step, Range range) {
  PP_ASSERT(!pull_.brings_weights());
  delivery_.begin({step, range, schedule_->steps_from(step), static_cast<int>(nodes(range).size()),
                   read_versions_, schedule_->grant(range)});
}

// The first of several messages of a push carries the next pull, so that slices return while others
// are still sent: a link carries both directions at once. Not with shared weights, which a new pull
// would release.
void PushPull::pull_while_pushing() {
  if (pull_.running() || setup_.acknowledge || pull_.any_in_place()) return;
  if (const auto aim = schedule_->pull_after(delivery_.head().step)) pull_.start(*aim, 0);
}

void PushPull::add_part(int slice, Range node, Payload payload) {
  const int server = slices().server_of(slice);
  if (delivery_.is_full(slice, pull_.shares_memory(server))) {
    pull_while_pushing();
    delivery_.flush(server, connections_.of_slice(slice));
  }
  delivery_.add_part(slice, node, std::move(payload));
}

void PushPull::end_push(const std::vector<float>& losses, double squares, int64_t now_ms,
                        const std::string& data_hash, std::span<const wire::BadGradient> bad,
                        std::optional<double> learning_rate) {
  pull_answered_ = false;
  delivery_.end(losses, squares, data_hash, bad, learning_rate);
  schedule_->on_pushed(delivery_.head().step, delivery_.head().range);
  if (const auto later = std::exchange(later_, std::nullopt)) take_state(*later, now_ms);
  if (!setup_.acknowledge) next(now_ms);  // starts the next pull, which rides on the push
  delivery_.flush_all();
  // the silence of a pull that began during the push counts from now on
  if (pull_.brings_weights()) pull_.restart(now_ms);
  finish_if_complete(now_ms);
}

}  // namespace pushpull
