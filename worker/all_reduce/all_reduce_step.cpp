#include "worker/all_reduce/all_reduce_step.h"

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

namespace pushpull {

namespace {

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

PeersSetup peers_of(const JobView& view, const Credentials& credentials) {
  PeersSetup setup;
  setup.credentials = credentials;
  setup.term_id = view.term_id;
  setup.rank = only_share(view.state, view.job).index();
  setup.timeout_s = view.job.heartbeat_timeout_s * kPatience;
  for (int i = 0; i < view.state.peer_endpoints_size(); ++i) {
    setup.all.push_back({view.state.peer_endpoints(i), view.state.peer_incarnations(i)});
  }
  return setup;
}

}  // namespace

AllReduceStep::AllReduceStep(const JobView& view, Model& model, const StepParts& parts,
                             CoordinatorLink& coordinator, zmq::context_t& context,
                             const Credentials& credentials, std::unique_ptr<Router> router)
    : job_(view.job),
      coordinator_(coordinator),
      barriers_(barriers_of(job_, view.state.start_step(), view.state.end_step())),
      total_steps_(view.state.total_steps()),
      shares_(view.state.shares()),
      share_(only_share(view.state, job_).index()),
      map_(parts.slices),
      compute_(parts.compute),
      update_(model.table(), {0, model.table().total}, job_.optimizer),
      buckets_(map_, kFirstBucketBytes, kBucketBytes),
      weights_(weights_memory(model)(static_cast<size_t>(map_.total()))),
      sums_(new float[static_cast<size_t>(map_.total())]()),
      client_(view.term_id, view.incarnation, map_, update_.state_vectors()),
      heard_ms_(static_cast<size_t>(map_.servers())),
      peers_(context, std::move(router), peers_of(view, credentials),
             [this] { return coordinator_.over(); }),
      collective_(make_collective(job_.strategy.algorithm, peers_, job_.micro_batches(),
                                  job_.heartbeat_timeout_s * kPatience)),
      communication_(
          peers_, *collective_, [this] { return coordinator_.over(); }, coordinator.activity()) {
  on_state(view.state);
}

// In time: server 0 acknowledges losses close to a checkpoint only once all workers know of it.
void AllReduceStep::on_state(const wire::State& state) {
  for (const int64_t step : state.chosen_checkpoints()) barriers_.choose(step);
}

void AllReduceStep::start(StepHost& host) {
  client_.fetch(barriers_.start_step, true, clock_.now_ms());
  transfer(host, "the first weights");
  FlatState start = flatten(*client_.take_fetched());
  std::copy(start.weights.begin(), start.weights.end(), weights_.get());
  slots_ = std::move(start.slots);
  updates_ = start.updates;
}

// ---- a step ----

std::optional<Step::Result> AllReduceStep::run(const Task& task, StepHost& host) {
  Result result;
  buckets_.begin();
  tickets_.clear();
  std::vector<SumPart> parts;
  const std::vector<Range> nodes = host.nodes();
  compute_.begin(task.step, nodes, own_weights());
  host.hint_next();
  for (const Range& node : nodes) {
    parts.push_back({node, nullptr, nullptr});
    const auto ready = [&](int slice, const Payload& payload) {
      // all slices of a node are in one flat vector
      parts.back().owner = payload.owner;
      parts.back().floats = payload.floats() - map_.elements(slice).lo;
      if (parts.size() < nodes.size()) return;
      buckets_.mark(slice);
      while (const std::optional<int> bucket = buckets_.next()) post_sum(*bucket, parts);
    };
    if (!compute_.node(ready, result.losses)) return std::nullopt;
  }
  PP_ASSERT(std::ssize(tickets_) == buckets_.count());
  host.begin_push();
  return result;
}

// This bounds the worker's lead over server 0.
void AllReduceStep::pushed(const Task& task, StepHost& host) {
  host.await([&] { return host.unacknowledged() <= kMaxReports; }, "an acknowledgement of losses");
  update(task.step, host.split());
  coordinator_.set_traffic(peers_.bytes_sent(), peers_.bytes_received(), peers_.rejected());
  host.await([] { return true; }, "news");  // of a checkpoint that the coordinator has chosen
  const int64_t barrier = task.step + 1;
  if (!barriers_.is_barrier(barrier)) return;
  check_equal(barrier);
  if (barriers_.store_due(barrier)) store(barrier, host);
}

void AllReduceStep::post_sum(int bucket, const std::vector<SumPart>& parts) {
  const Range elements = buckets_.elements(bucket);
  std::vector<SumPart> here = parts;
  for (SumPart& part : here) part.floats += elements.lo;
  const SumTarget target{sums_, sums_.get() + elements.lo};
  const int64_t operation = next_operation_++;
  tickets_.push_back(communication_.post([this, operation, elements, here, target] {
    collective_->sum(operation, here, elements.size(), target);
  }));
}

void AllReduceStep::update(int64_t step, TimeSplit& split) {
  UpdateInfo info;
  info.learning_rate = learning_rate(job_.schedule, step, total_steps_);
  info.divisor = static_cast<double>(job_.micro_batches());
  const auto wait = [this, &split](int64_t ticket) {
    split.enter(TimeSplit::kWait);
    communication_.wait(ticket);
    split.enter(TimeSplit::kCompute);
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
double AllReduceStep::clip() const {
  const double total = update_.all_squares(sums_.get(), static_cast<double>(job_.micro_batches()));
  return clip_factor(std::sqrt(total), job_.clip_norm);
}

void AllReduceStep::apply(Range elements, const UpdateInfo& info) {
  std::array<float*, 2> slots{};
  for (size_t i = 0; i < slots_.size(); ++i) slots[i] = slots_[i].data();
  for (int64_t lo = elements.lo; lo < elements.hi; lo += TreeSum::kStride) {
    const Range stride{lo, std::min(lo + TreeSum::kStride, elements.hi)};
    update_.apply(stride, info, updates_ + 1, weights_.get(), sums_.get() + lo,
                  std::span(slots.data(), slots_.size()), weights_.get());
  }
}

// ---- barriers ----

// All workers must have the same weights: a difference would grow unnoticed.
void AllReduceStep::check_equal(int64_t step) {
  Sha256 hash;
  hash.update(std::as_bytes(own_weights()));
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

// Each of n workers stores every n-th slice.
void AllReduceStep::store(int64_t step, StepHost& host) {
  std::vector<int> mine;
  for (int slice = share_; slice < map_.slices(); slice += shares_) mine.push_back(slice);
  client_.store({step, updates_, own_weights(), {slots_.begin(), slots_.end()}}, std::move(mine),
                clock_.now_ms());
  transfer(host, "the checkpoint to be stored");
}

// ---- servers ----

void AllReduceStep::on_message(int server, const Message& message) {
  heard_ms_[static_cast<size_t>(server)] = clock_.now_ms();
  if (client_.busy()) client_.on_message(message, clock_.now_ms());
}

void AllReduceStep::transfer(StepHost& host, const char* what) {
  const auto timeout_ms = static_cast<int64_t>(job_.heartbeat_timeout_s * kPatience * 1000);
  std::ranges::fill(heard_ms_, clock_.now_ms());
  const auto done = [&] {
    const int64_t now = clock_.now_ms();
    client_.on_tick(now);
    for (ToShard& out : client_.take_outgoing()) host.send({out.server, std::move(out.message)});
    if (!client_.busy()) return true;
    const int server = client_.waiting_for();
    if (server < 0 || now - heard_ms_[static_cast<size_t>(server)] <= timeout_ms) return false;
    throw Error(ErrorCode::kUnreachable,
                "[all-reduce] server " + std::to_string(server) + " has not answered for " +
                    std::to_string(timeout_ms / 1000) + " s, waiting for " + what);
  };
  host.await(done, what);
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
