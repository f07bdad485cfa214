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
                        state.peer_incarnations_size() == state.shares() &&
                        state.peer_ranks_size() == state.shares();
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
  setup.workers = {view.state.peer_ranks().begin(), view.state.peer_ranks().end()};
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
      ranks_(view.state.peer_ranks().begin(), view.state.peer_ranks().end()),
      map_(parts.slices),
      part_(parts.part),
      owned_(map_.elements_of_stage(part_.stage)),
      compute_(parts.compute),
      table_(model.table()),
      update_(table_, {0, table_.total}, job_.optimizer),
      buckets_(map_, part_.stage, kFirstBucketBytes, kBucketBytes),
      weights_(weights_memory(model)(static_cast<size_t>(map_.total()))),
      sums_(heap_floats(static_cast<size_t>(map_.total()))),
      client_(view.term_id, view.incarnation, map_, update_.state_vectors()),
      heard_ms_(static_cast<size_t>(map_.servers())),
      peers_(context, std::move(router), peers_of(view, credentials),
             [this] { return coordinator_.over(); }),
      collective_(make_collective(job_.strategy.algorithm, peers_, job_.micro_batches(),
                                  job_.heartbeat_timeout_s * kPatience)),
      communication_(peers_, *collective_, coordinator.activity()) {
  for (size_t i = 0; i < update_.state_vectors(); ++i) {
    const bool evaluated = barriers_.averages && i + 1 == update_.state_vectors();
    slots_.push_back((evaluated ? weights_memory(model)
                                : FloatAllocator(heap_floats))(static_cast<size_t>(map_.total())));
  }
  on_state(view.state);
}

std::span<const float> AllReduceStep::evaluated_weights() const {
  if (!barriers_.averages) return own_weights();
  return {slots_.back().get(), static_cast<size_t>(map_.total())};
}

// In time: server 0 acknowledges losses close to a checkpoint only once all workers know of it.
void AllReduceStep::on_state(const wire::State& state) {
  for (const int64_t step : state.chosen_checkpoints()) barriers_.choose(step);
}

void AllReduceStep::start(StepHost& host) {
  std::vector<int> slices;
  for (int slice = 0; slice < map_.slices(); ++slice) {
    if (part_.needs(slice)) slices.push_back(slice);
  }
  client_.fetch(barriers_.start_step, std::move(slices), clock_.now_ms());
  transfer(host, "the first weights");
  GatheredState start = *client_.take_fetched();
  updates_ = start.updates;
  for (int slice = 0; slice < map_.slices(); ++slice) {
    std::vector<Payload>& from = start.slices[static_cast<size_t>(slice)];
    const Range elements = map_.elements(slice);
    const size_t vectors = map_.stage_of(slice) == part_.stage ? from.size() : 1;
    for (size_t v = 0; v < std::min(vectors, from.size()); ++v) {
      float* const to = v == 0 ? weights_.get() : slots_[v - 1].get();
      std::copy_n(from[v].floats(), elements.size(), to + elements.lo);
    }
    from.clear();  // so that memory never holds two whole copies
  }
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
  update(task, host);
  host.begin_push();
  return result;
}

// The wait bounds the worker's lead over server 0.
void AllReduceStep::pushed(const Task& task, StepHost& host) {
  host.await([&] { return host.unacknowledged() <= kMaxReports; }, "an acknowledgement of losses");
  host.await([] { return true; }, "news");  // of a checkpoint that the coordinator has chosen
  const int64_t barrier = task.step + 1;
  if (!barriers_.is_barrier(barrier)) return;
  check_equal(barrier, host);
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

void AllReduceStep::wait(int64_t ticket, StepHost& host) {
  const TimeSplit::Phase phase = host.split().phase();
  host.split().enter(TimeSplit::kWait);
  while (!communication_.wait(ticket)) {
    host.await([] { return true; }, "the sums of the other workers");
  }
  host.split().enter(phase);
}

void AllReduceStep::update(const Task& task, StepHost& host) {
  UpdateInfo info;
  info.learning_rate = learning_rate(job_.schedule, task.step, total_steps_);
  info.divisor = static_cast<double>(job_.micro_batches());
  if (job_.clip_norm > 0) {
    if (!tickets_.empty()) wait(tickets_.back(), host);
    info.clip = clip(task.step);
  }
  const std::vector<double> ratios = trust(info, host);
  info.trust = ratios;
  for (int bucket = 0; bucket < buckets_.count(); ++bucket) {
    wait(tickets_[static_cast<size_t>(bucket)], host);
    apply(buckets_.elements(bucket), info);
  }
  ++updates_;
  compute_.share_weights(task.step, task.range, weights_.get());
}

// Adds squares along the tree that servers and coordinator use in `sync`.
double AllReduceStep::clip(int64_t step) {
  const std::span<const float> sums(sums_.get(), static_cast<size_t>(map_.total()));
  return clip_factor(std::sqrt(compute_.squares(sums, step, {0, job_.micro_batches()})),
                     job_.clip_norm);
}

// The ratios of tensors need all sums.
std::vector<double> AllReduceStep::trust(const UpdateInfo& info, StepHost& host) {
  if (!scales_by_tensor(job_.optimizer.kind)) return {};
  if (!tickets_.empty()) wait(tickets_.back(), host);
  std::vector<const float*> slots;
  for (const auto& slot : slots_) slots.push_back(slot.get());
  return trust_of_update(table_, job_.optimizer, update_, info, updates_ + 1, weights_.get(),
                         sums_.get(), slots);
}

void AllReduceStep::apply(Range elements, const UpdateInfo& info) {
  std::array<float*, kMaxStateVectors> slots{};
  for (size_t i = 0; i < slots_.size(); ++i) slots[i] = slots_[i].get();
  for (int64_t lo = elements.lo; lo < elements.hi; lo += TreeSum::kStride) {
    const Range stride{lo, std::min(lo + TreeSum::kStride, elements.hi)};
    update_.apply(stride, info, updates_ + 1, weights_.get(), sums_.get() + lo,
                  std::span(slots.data(), slots_.size()), weights_.get());
  }
}

// ---- barriers ----

// All workers that sum must have the same weights: a difference would grow unnoticed.
void AllReduceStep::check_equal(int64_t step, StepHost& host) {
  Sha256 hash;
  hash.update(std::as_bytes(
      std::span<const float>(weights_.get() + owned_.lo, static_cast<size_t>(owned_.size()))));
  const std::string mine = hash.hex();
  const auto gathered = std::make_shared<std::vector<std::string>>();
  const int64_t operation = next_operation_++;
  // by value: the wait may end before the work does, with the job
  wait(communication_.post([this, operation, mine, gathered] {
    peers_.begin(operation);
    *gathered = peers_.gather(mine);
  }),
       host);
  const std::vector<std::string>& all = *gathered;
  const auto other = std::find_if(all.begin(), all.end(), [&](const auto& h) { return h != mine; });
  if (other == all.end()) return;
  throw Error(ErrorCode::kFailed,
              "[all-reduce] after step " + std::to_string(step) + " worker " +
                  std::to_string(ranks_[static_cast<size_t>(share_)]) + " has weights " +
                  mine.substr(0, 12) + ", worker " +
                  std::to_string(ranks_[static_cast<size_t>(other - all.begin())]) + " " +
                  printable(other->substr(0, 12)) + "; resume from the last checkpoint");
}

// Each of the n workers that sum stores every n-th slice.
void AllReduceStep::store(int64_t step, StepHost& host) {
  const Range slices = map_.slices_of_stage(part_.stage);
  std::vector<int> mine;
  for (auto slice = static_cast<int>(slices.lo) + share_; slice < slices.hi; slice += shares_) {
    mine.push_back(slice);
  }
  FlatStateView state{step, updates_, own_weights(), {}};
  for (const auto& slot : slots_) {
    state.slots.emplace_back(slot.get(), static_cast<size_t>(map_.total()));
  }
  client_.store(std::move(state), std::move(mine), clock_.now_ms());
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

Buckets::Buckets(const SliceMap& map, int stage, int64_t first_bytes, int64_t max_bytes)
    : first_slice_(map.slices_of_stage(stage).lo),
      bucket_of_slice_(static_cast<size_t>(map.slices_of_stage(stage).size())) {
  for (int64_t i = std::ssize(bucket_of_slice_) - 1; i >= 0; --i) {
    const Range e = map.elements(static_cast<int>(first_slice_ + i));
    const int64_t most =
        (count() <= 1 ? first_bytes : max_bytes) / static_cast<int64_t>(sizeof(float));
    if (elements_.empty() || elements_.back().hi - e.lo > most) {
      elements_.push_back(e);
      slices_in_.push_back(0);
    }
    elements_.back().lo = e.lo;
    ++slices_in_.back();
    bucket_of_slice_[static_cast<size_t>(i)] = count() - 1;
  }
  begin();
}

void Buckets::begin() {
  missing_ = slices_in_;
  next_ = 0;
}

void Buckets::mark(int slice) {
  const int bucket = bucket_of_slice_.at(static_cast<size_t>(slice - first_slice_));
  int& missing = missing_[static_cast<size_t>(bucket)];
  PP_ASSERT(missing > 0);
  --missing;
}

std::optional<int> Buckets::next() {
  if (next_ == count() || missing_[static_cast<size_t>(next_)] > 0) return std::nullopt;
  return next_++;
}

}  // namespace pushpull
