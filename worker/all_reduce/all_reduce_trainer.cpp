#include "worker/all_reduce/all_reduce_trainer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/sha256.h"
#include "common/layout/slice_map.h"
#include "common/update/norm.h"
#include "common/update/optimizer.h"
#include "common/update/optimizer_options.h"
#include "common/update/range_update.h"
#include "worker/compute/device_memory.h"
#include "worker/exchange/socket_links.h"

namespace pushpull {

namespace {

constexpr int kTrainerPollMs = 20;
constexpr int64_t kRepeatMs = 1000;
// The same sizes as PyTorch's DDP.
constexpr int64_t kFirstBucketBytes = int64_t{1} << 20;
constexpr int64_t kBucketBytes = int64_t{25} << 20;
// Factor of heartbeat-timeout: the coordinator reports a lost process first, with host and pid.
constexpr double kPatience = 1.5;

const wire::Share& only_share(const wire::State& state, const Job& job) {
  const auto fits = [&](const wire::Share& share) {
    return share.index() >= 0 && share.index() < state.shares() && share.lo() >= 0 &&
           share.lo() < share.hi() && share.hi() <= job.micro_batches();
  };
  const bool complete = state.peer_endpoints_size() == state.shares() &&
                        state.peer_incarnations_size() == state.shares();
  if (state.assigned_size() != 1 || !fits(state.assigned(0)) || !complete) {
    throw Error(ErrorCode::kProtocol, "[state] the coordinator has assigned no valid share");
  }
  return state.assigned(0);
}

PeersSetup peers_of(const JobView& run, const Control& control) {
  PeersSetup setup;
  setup.credentials = control.data_credentials();
  setup.run = run.run;
  setup.rank = only_share(run.state, run.job).index();
  setup.timeout_s = run.job.heartbeat_timeout_s * kPatience;
  for (int i = 0; i < run.state.peer_endpoints_size(); ++i) {
    setup.all.push_back({run.state.peer_endpoints(i), run.state.peer_incarnations(i)});
  }
  return setup;
}

}  // namespace

AllReduceTrainer::AllReduceTrainer(const JobView& run, const Dataset& dataset, Model& model,
                                   Control& control, zmq::context_t& context,
                                   std::unique_ptr<Router> router)
    : job_(run.job),
      sender_{run.run, run.incarnation},
      control_(control),
      barriers_(barriers_of(job_, run.state.start_step(), run.state.end_step())),
      total_steps_(run.state.total_steps()),
      shares_(run.state.shares()),
      share_(only_share(run.state, job_).index()),
      range_{only_share(run.state, job_).lo(), only_share(run.state, job_).hi()},
      grant_(only_share(run.state, job_).grant()),
      nodes_(maximal_subtrees(range_, job_.micro_batches())),
      map_(model.table().total, job_.slice_bytes, std::max(1, run.state.data_endpoints_size())),
      evaluation_(
          {job_, dataset, model}, run.incarnation, [this] { return control_.over(); },
          control.activity()),
      compute_(job_, dataset, model, map_, [this] { return control_.over(); }),
      update_(model.table(), {0, model.table().total}, job_.optimizer),
      buckets_(map_, kFirstBucketBytes, kBucketBytes),
      weights_(weights_memory(model)(static_cast<size_t>(map_.total()))),
      sums_(new float[static_cast<size_t>(map_.total())]()),
      client_(run.run, run.incarnation, map_, update_.state_vectors()),
      servers_(connect_to_servers(run, control.address(), context, control.data_credentials())),
      heard_ms_(servers_.size()),
      peers_(context, std::move(router), peers_of(run, control),
             [this] { return control_.over(); }),
      collective_(make_collective(job_.strategy.algorithm, peers_, job_.micro_batches(),
                                  job_.heartbeat_timeout_s * kPatience)),
      communication_(
          peers_, *collective_, [this] { return control_.over(); }, control.activity()) {
  compute_.set_rank(run.state.rank());
  compute_.set_activity(control.activity());
}

JobEnd AllReduceTrainer::run() {
  try {
    train_to_the_end();
  } catch (const JobOver&) {
  }
  return *control_.end();
}

void AllReduceTrainer::train_to_the_end() {
  fetch_start();
  for (int64_t s = barriers_.start_step; s < barriers_.end_step; ++s) {
    step(s);
    learn_barriers();
    if (barriers_.is_barrier(s + 1)) barrier(s + 1);
  }
  if (barriers_.starts_at_end()) evaluate(barriers_.end_step);
  compute_.finish(weights());
  until([] { return false; }, "the end of the job");
}

// In time: server 0 acknowledges losses close to a checkpoint only once all workers know of it.
void AllReduceTrainer::learn_barriers() {
  if (control_.state_version() == learnt_version_) return;
  const wire::State state = control_.state().value_or(wire::State());
  learnt_version_ = state.version();
  for (const int64_t step : state.chosen_checkpoints()) barriers_.choose(step);
}

void AllReduceTrainer::fetch_start() {
  client_.fetch(barriers_.start_step, true, clock_.now_ms());
  until([this] { return !client_.busy(); }, "the first weights");
  FlatState start = flatten(*client_.take_fetched());
  std::copy(start.weights.begin(), start.weights.end(), weights_.get());
  slots_ = std::move(start.slots);
  updates_ = start.updates;
}

// ---- a step ----

void AllReduceTrainer::step(int64_t step) {
  std::vector<float> losses;
  split_.enter(TimeSplit::kCompute);
  if (!compute(step, losses)) throw JobOver{};
  split_.enter(TimeSplit::kPush);
  report(step, losses);
  update(step);
  split_.enter(TimeSplit::kOther);
  split_.count_tasks(1);
  control_.set_times(split_.totals());
  control_.set_traffic(peers_.bytes_sent(), peers_.bytes_received(), peers_.rejected());
}

bool AllReduceTrainer::compute(int64_t step, std::vector<float>& losses) {
  buckets_.begin();
  tickets_.clear();
  std::vector<SumPart> parts;
  compute_.begin(step, nodes_, weights());
  if (step + 1 < barriers_.end_step) compute_.hint(step + 1, nodes_);
  for (const Range& node : nodes_) {
    parts.push_back({node, nullptr, nullptr});
    const auto ready = [&](int slice, const Payload& payload) {
      // all slices of a node are in one flat vector
      parts.back().owner = payload.owner;
      parts.back().floats = payload.floats() - map_.elements(slice).lo;
      if (parts.size() < nodes_.size()) return;
      buckets_.mark(slice);
      while (const std::optional<int> bucket = buckets_.next()) post_sum(*bucket, parts);
    };
    if (!compute_.node(ready, losses)) return false;
  }
  PP_ASSERT(std::ssize(tickets_) == buckets_.count());
  return true;
}

void AllReduceTrainer::post_sum(int bucket, const std::vector<SumPart>& parts) {
  const Range elements = buckets_.elements(bucket);
  std::vector<SumPart> here = parts;
  for (SumPart& part : here) part.floats += elements.lo;
  const SumTarget target{sums_, sums_.get() + elements.lo};
  const int64_t operation = next_operation_++;
  tickets_.push_back(communication_.post([this, operation, elements, here, target] {
    collective_->sum(operation, here, elements.size(), target);
  }));
}

void AllReduceTrainer::update(int64_t step) {
  UpdateInfo info;
  info.learning_rate = learning_rate(job_.schedule, step, total_steps_);
  info.divisor = static_cast<double>(job_.micro_batches());
  const auto wait = [this](int64_t ticket) {
    split_.enter(TimeSplit::kWait);
    communication_.wait(ticket);
    split_.enter(TimeSplit::kCompute);
  };
  if (job_.clip_norm > 0) {
    wait(tickets_.back());
    info.clip = clip();
  }
  for (int bucket = 0; bucket < buckets_.count(); ++bucket) {
    wait(tickets_[static_cast<size_t>(bucket)]);
    apply(buckets_.elements(bucket), info);
  }
  ++updates_;
}

// Adds squares along the tree that servers and coordinator use in `sync`.
double AllReduceTrainer::clip() const {
  const double total = update_.all_squares(sums_.get(), static_cast<double>(job_.micro_batches()));
  return clip_factor(std::sqrt(total), job_.clip_norm);
}

void AllReduceTrainer::apply(Range elements, const UpdateInfo& info) {
  std::array<float*, 2> slots{};
  for (size_t i = 0; i < slots_.size(); ++i) slots[i] = slots_[i].data();
  for (int64_t lo = elements.lo; lo < elements.hi; lo += TreeSum::kStride) {
    const Range stride{lo, std::min(lo + TreeSum::kStride, elements.hi)};
    update_.apply(stride, info, updates_ + 1, weights_.get(), sums_.get() + lo,
                  std::span(slots.data(), slots_.size()), weights_.get());
  }
}

// ---- barriers ----

void AllReduceTrainer::barrier(int64_t step) {
  check_equal(step);
  if (barriers_.store_due(step)) store(step);
  if (barriers_.evaluation_due(step)) evaluate(step);
  const auto may_go_on = [&] { return barriers_.may_begin(step, control_.evaluated()); };
  until(may_go_on, "the result of an evaluation");
}

// All workers must have the same weights: a difference would grow unnoticed.
void AllReduceTrainer::check_equal(int64_t step) {
  Sha256 hash;
  hash.update(std::as_bytes(weights()));
  const std::string mine = hash.hex();
  std::vector<std::string> all;
  const int64_t operation = next_operation_++;
  communication_.wait(communication_.post([&] {
    peers_.begin(operation);
    all = peers_.gather(mine);
  }));
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& h) { return h != mine; });
  if (other == all.end()) return;
  throw Error(ErrorCode::kFailed,
              "[all-reduce] after step " + std::to_string(step) + " worker " +
                  std::to_string(share_) + " has weights " + mine.substr(0, 12) + ", worker " +
                  std::to_string(other - all.begin()) + " " + printable(other->substr(0, 12)) +
                  "; resume from the last checkpoint");
}

void AllReduceTrainer::evaluate(int64_t step) {
  auto result =
      evaluation_.run(step, share_range(share_, shares_, evaluation_.chunks()), weights());
  if (!result) throw JobOver{};
  control_.report(std::move(*result));
}

// Each of n workers stores every n-th slice.
void AllReduceTrainer::store(int64_t step) {
  std::vector<int> mine;
  for (int slice = share_; slice < map_.slices(); slice += shares_) mine.push_back(slice);
  client_.store({step, updates_, weights(), {slots_.begin(), slots_.end()}}, std::move(mine),
                clock_.now_ms());
  until([this] { return !client_.busy(); }, "the checkpoint to be stored");
}

// ---- servers ----

void AllReduceTrainer::report(int64_t step, const std::vector<float>& losses) {
  Report out;
  out.number = next_report_++;
  out.sent_ms = clock_.now_ms();
  wire::Exchange* sent = out.message.header.mutable_exchange();
  sender_.put(sent->mutable_sender());
  wire::Push* push = sent->mutable_push();
  push->set_number(out.number);
  push->set_step(step);
  push->set_lo(static_cast<int32_t>(range_.lo));
  push->set_hi(static_cast<int32_t>(range_.hi));
  *push->mutable_grant() = grant_;
  push->mutable_losses()->Assign(losses.begin(), losses.end());
  push->set_data_hash(compute_.take_data_hash().bytes());
  const std::vector<wire::BadGradient> bad = compute_.take_bad();
  push->mutable_bad()->Assign(bad.begin(), bad.end());
  push->set_acknowledge(true);
  if (reports_.empty()) heard_ms_[0] = out.sent_ms;
  servers_[0]->send(out.message);
  reports_.push_back(std::move(out));
  exchange();
  if (std::ssize(reports_) <= kMaxReports) return;
  until([this] { return std::ssize(reports_) <= kMaxReports; }, "an acknowledgement of losses");
}

void AllReduceTrainer::take(const Message& message) {
  if (message.header.has_status() && message.header.status().pushes_through() > 0) {
    const int64_t through = message.header.status().pushes_through();
    while (!reports_.empty() && reports_.front().number <= through) reports_.pop_front();
    return;
  }
  client_.on_message(message, clock_.now_ms());
}

void AllReduceTrainer::exchange() {
  for (size_t server = 0; server < servers_.size(); ++server) {
    while (const auto message = servers_[server]->receive()) {
      heard_ms_[server] = clock_.now_ms();
      take(*message);
    }
  }
  const int64_t now = clock_.now_ms();
  client_.on_tick(now);
  for (const ToShard& out : client_.take_outgoing()) {
    servers_[static_cast<size_t>(out.server)]->send(out.message);
  }
  for (Report& report : reports_) {
    if (now - report.sent_ms < kRepeatMs) continue;
    report.sent_ms = now;
    servers_[0]->send(report.message);
  }
}

void AllReduceTrainer::check_servers() {
  const auto timeout_ms = static_cast<int64_t>(job_.heartbeat_timeout_s * kPatience * 1000);
  const int server = client_.busy() ? client_.waiting_for() : reports_.empty() ? -1 : 0;
  if (server < 0 || clock_.now_ms() - heard_ms_[static_cast<size_t>(server)] <= timeout_ms) return;
  throw Error(ErrorCode::kUnreachable,
              "[all-reduce] server " + std::to_string(server) + " has not answered for " +
                  std::to_string(timeout_ms / 1000) + " s, waiting for " + waits_for_);
}

void AllReduceTrainer::until(const std::function<bool()>& done, const char* what) {
  waits_for_ = what;
  if (client_.busy()) std::fill(heard_ms_.begin(), heard_ms_.end(), clock_.now_ms());
  while (!done()) {
    if (control_.over()) throw JobOver{};
    exchange();
    if (done()) return;
    control_.activity().wait([what] { return std::string(what); });
    poll_items_.assign(1, {nullptr, control_.news().fd(), ZMQ_POLLIN, 0});
    for (const auto& server : servers_) {
      poll_items_.push_back({server->socket().handle(), 0, ZMQ_POLLIN, 0});
    }
    poll_sockets(poll_items_, kTrainerPollMs);
    if ((poll_items_.front().revents & ZMQ_POLLIN) != 0) control_.news().clear();
    check_servers();
  }
}

Buckets::Buckets(const SliceMap& map, int64_t first_bytes, int64_t max_bytes)
    : bucket_of_slice_(static_cast<size_t>(map.slices())) {
  for (int slice = map.slices() - 1; slice >= 0; --slice) {
    const Range e = map.elements(slice);
    const int64_t most =
        (count() <= 1 ? first_bytes : max_bytes) / static_cast<int64_t>(sizeof(float));
    if (elements_.empty() || elements_.back().hi - e.lo > most) {
      elements_.push_back(e);
      slices_in_.push_back(0);
    }
    elements_.back().lo = e.lo;
    ++slices_in_.back();
    bucket_of_slice_[static_cast<size_t>(slice)] = count() - 1;
  }
  begin();
}

void Buckets::begin() {
  missing_ = slices_in_;
  next_ = 0;
}

void Buckets::mark(int slice) {
  int& missing = missing_[static_cast<size_t>(bucket_of_slice_.at(static_cast<size_t>(slice)))];
  PP_ASSERT(missing > 0);
  --missing;
}

std::optional<int> Buckets::next() {
  if (next_ == count() || missing_[static_cast<size_t>(next_)] > 0) return std::nullopt;
  return next_++;
}

}  // namespace pushpull
