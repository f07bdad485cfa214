#include "ps/coordinator/coordinator.h"

#include <algorithm>

#include "common/net/address.h"
#include "common/net/tensor_wire.h"

namespace pushpull {

namespace {

// Where workers can connect to.
bool is_endpoint(const std::string& text) {
  try {
    return parse_address(text, "data-endpoint").port != "*";
  } catch (const Error&) {
    return false;
  }
}

// A host name has at most 255 bytes, the others less than twice as many.
constexpr size_t kMaxWordBytes = 512;

bool is_short(const wire::Hello& hello) {
  return hello.host().size() <= kMaxWordBytes && hello.version().size() <= kMaxWordBytes &&
         hello.data_endpoint().size() <= kMaxWordBytes;
}

// More than anybody starts; a stranger may say hello again and again.
constexpr int kMaxSpares = 4096;

void check_samples(const wire::Declare& declare, const Job& job) {
  constexpr int64_t kMaxSamples = int64_t{1} << 31;
  // one worker may have computed them all, and its results are one message
  constexpr int64_t kMaxChunks = 500'000;
  for (const int64_t samples : {declare.train_samples(), declare.test_samples()}) {
    if (samples >= 0 && samples < kMaxSamples) continue;
    throw Error(ErrorCode::kProtocol,
                "[declare] a data set of " + std::to_string(samples) + " samples");
  }
  const int64_t chunks = (declare.test_samples() + job.micro_batch - 1) / job.micro_batch;
  if (chunks <= kMaxChunks) return;
  throw Error(ErrorCode::kUsage, "[job] " + std::to_string(declare.test_samples()) +
                                     " test samples are " + std::to_string(chunks) +
                                     " times micro-batch = " + std::to_string(job.micro_batch) +
                                     ", at most " + std::to_string(kMaxChunks) +
                                     " are possible: raise micro-batch or lower test-samples");
}

// Workers read them; here they only must not be more than they can be.
void check_choices(const wire::Declare& declare) {
  constexpr size_t kMaxBytes = size_t{64} << 10;
  if (declare.choices().size() <= kMaxBytes) return;
  throw Error(ErrorCode::kProtocol,
              "[declare] a choice of algorithms of " + std::to_string(declare.choices().size()) +
                  " bytes, at most " + std::to_string(kMaxBytes) + " are possible");
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)), members_(options_.job.heartbeat_timeout_s) {
  MemberInfo& self = members_.add(options_.self);
  self.role = wire::ROLE_SERVER;
  self.rank = 0;
  self.peer.clear();
}

bool Coordinator::on_message(int64_t now_ms, const PeerId& peer, const Message& message) {
  now_ms_ = now_ms;
  const wire::Header& header = message.header;
  switch (header.body_case()) {
    case wire::Header::kHello:
      return on_hello(now_ms, peer, header.hello());
    case wire::Header::kDeclare:
      return on_declare(now_ms, peer, header.declare());
    case wire::Header::kHeartbeat:
      return on_heartbeat(now_ms, peer, header.heartbeat());
    case wire::Header::kEvalResult:
      return on_eval_result(peer, header.eval_result());
    case wire::Header::kNorms:
      return on_norms(header.norms());
    case wire::Header::kArrived:
      return on_arrived(header.arrived());
    case wire::Header::kLeave:
      return on_leave(now_ms, header.leave());
    case wire::Header::kRecordPart:
      return on_record_part(peer, header.record_part());
    default:
      return false;
  }
}

// ---- joining ----

void Coordinator::refuse(const PeerId& peer, ErrorCode code, const std::string& text) {
  Message message;
  message.header.mutable_refused()->set_code(static_cast<int>(code));
  message.header.mutable_refused()->set_text(text);
  outgoing_.push_back({peer, std::move(message)});
}

bool Coordinator::on_hello(int64_t now_ms, const PeerId& peer, const wire::Hello& hello) {
  if (hello.role() != wire::ROLE_SERVER && hello.role() != wire::ROLE_WORKER) return false;
  if (hello.incarnation() == 0 || !is_short(hello)) return false;
  const bool server = hello.role() == wire::ROLE_SERVER;
  // a server asks for the job first: it listens once it knows how large a slice may be
  const bool asks = server && hello.data_endpoint().empty();
  if (server && !asks && !is_endpoint(hello.data_endpoint())) return false;
  MemberInfo* member = members_.find(hello.incarnation());
  if (member == nullptr) {
    if (phase_ >= wire::PHASE_FINISHING) {
      refuse(peer, ErrorCode::kUnreachable, "[join] the job is over");
      return true;
    }
    const int servers = members_.count(wire::ROLE_SERVER);
    if (server && (servers >= options_.servers || phase_ != wire::PHASE_GATHERING)) {
      refuse(peer, ErrorCode::kUsage,
             "[join] the job was started for " + std::to_string(options_.servers) +
                 " servers and has them all; start it with --servers " +
                 std::to_string(servers + 1));
      return true;
    }
    if (server && !asks &&
        endpoint_taken(peer, hello.role(), hello.incarnation(), hello.data_endpoint())) {
      return true;
    }
    if (!has_room()) return false;
    if (!asks) add_member(hello, servers);
    member = members_.find(hello.incarnation());
  }
  if (member != nullptr) members_.heard(*member, peer, now_ms);
  Message message;
  wire::JobText* job = message.header.mutable_job_text();
  job->set_run(options_.run);
  job->set_ini(to_ini(options_.job));
  job->set_coordinator(members_.find_rank(wire::ROLE_SERVER, 0)->name());
  outgoing_.push_back({peer, std::move(message)});
  dirty_ = true;
  check_start();
  return true;
}

bool Coordinator::has_room() const {
  return std::ssize(members_.all()) < options_.servers + options_.workers + kMaxSpares;
}

bool Coordinator::endpoint_taken(const PeerId& peer, wire::Role role, uint64_t incarnation,
                                 const std::string& endpoint) {
  const bool server = role == wire::ROLE_SERVER;
  for (const auto& [other, member] : members_.all()) {
    if (member.role != role || other == incarnation) continue;
    if ((server ? member.data_endpoint : member.peer_endpoint) != endpoint) continue;
    refuse(peer, ErrorCode::kUsage,
           "[join] " + endpoint + " is the address of " + member.name() + " already; give this " +
               (server ? "server" : "worker") + " another --listen or --advertise");
    return true;
  }
  return false;
}

void Coordinator::add_member(const wire::Hello& hello, int servers) {
  MemberInfo info;
  info.role = hello.role();
  info.incarnation = hello.incarnation();
  info.host = hello.host();
  info.pid = hello.pid();
  info.data_endpoint = hello.data_endpoint();
  if (hello.role() == wire::ROLE_SERVER) info.rank = servers;
  const MemberInfo& member = members_.add(info);
  if (info.rank >= 0) notices_.push_back(member.name() + " joined from " + info.data_endpoint);
}

bool Coordinator::same_bits() const {
  return options_.job.strategy.traits().same_bits || !options_.job.record.empty();
}

std::string Coordinator::mismatch(const wire::Declare& declare) const {
  const std::string tensors = difference(declaration_.table, from_wire(declare.tensors()));
  if (!tensors.empty()) return "its model does not fit: " + tensors;
  if (declare.data_digest() != declaration_.data_digest ||
      declare.train_samples() != declaration_.train_samples ||
      declare.test_samples() != declaration_.test_samples) {
    return "its data differ: the job has " + std::to_string(declaration_.train_samples) + " + " +
           std::to_string(declaration_.test_samples) + " samples with digest " +
           declaration_.data_digest.substr(0, 12) + ", this worker has " +
           std::to_string(declare.train_samples()) + " + " +
           std::to_string(declare.test_samples()) + " with " + declare.data_digest().substr(0, 12);
  }
  if (same_bits() && declare.numerics() != declaration_.numerics) {
    return "it computes with other bits: the job has \"" + declaration_.numerics +
           "\", this worker \"" + declare.numerics() +
           "\"; sync, allreduce and record need the same everywhere";
  }
  return "";
}

bool Coordinator::freeze(const wire::Declare& declare, std::string* why) {
  if (declared_) {
    *why = mismatch(declare);
    return why->empty();
  }
  declaration_.table = from_wire(declare.tensors());
  declaration_.train_samples = declare.train_samples();
  declaration_.test_samples = declare.test_samples();
  declaration_.data_digest = declare.data_digest();
  declaration_.numerics = declare.numerics();
  declaration_.choices = declare.choices();
  declared_ = true;
  return true;
}

bool Coordinator::on_declare(int64_t now_ms, const PeerId& peer, const wire::Declare& declare) {
  MemberInfo* member = members_.find(declare.incarnation());
  if (member == nullptr || member->role != wire::ROLE_WORKER) return false;
  members_.heard(*member, peer, now_ms);
  dirty_ = true;
  if (member->declared) return true;
  if (all_reduce()) {
    if (!is_endpoint(declare.peer_endpoint()) || declare.peer_endpoint().size() > kMaxWordBytes) {
      return false;
    }
    if (endpoint_taken(peer, member->role, member->incarnation, declare.peer_endpoint())) {
      members_.remove(declare.incarnation());
      return true;
    }
    member->peer_endpoint = declare.peer_endpoint();
  }
  std::string why;
  try {
    check_samples(declare, options_.job);
    check_choices(declare);
    if (!freeze(declare, &why)) {
      refuse(peer, ErrorCode::kProtocol, "[declare] this worker cannot join: " + why);
      notices_.push_back("refused " + member->name() + ": " + why);
      members_.remove(member->incarnation);
      return true;
    }
    check_job_against_data(options_.job, declaration_.train_samples);
    if (options_.job.strategy.traits().step_versions &&
        declare.numerics() != declaration_.numerics) {
      notices_.push_back(member->name() + " computes with other bits, \"" + declare.numerics() +
                         "\", than the first worker, \"" + declaration_.numerics +
                         "\": the run goes on, but cannot be had again bit by bit");
    }
  } catch (const Error& e) {
    refuse(peer, e.code(), e.what());
    // a table that cannot be one is this peer's fault alone
    if (e.code() == ErrorCode::kProtocol) {
      members_.remove(member->incarnation);
    } else if (phase_ == wire::PHASE_GATHERING) {
      fail(e.code(), e.what());
    }
    return e.code() != ErrorCode::kProtocol;
  }
  admit_worker(*member);
  return true;
}

int Coordinator::free_rank() const {
  std::vector<bool> taken(static_cast<size_t>(options_.workers));
  for (const auto& [incarnation, member] : members_.all()) {
    if (member.role != wire::ROLE_WORKER || member.rank < 0) continue;
    taken[static_cast<size_t>(member.rank)] = true;
  }
  const auto found = std::find(taken.begin(), taken.end(), false);
  return found == taken.end() ? -1 : static_cast<int>(found - taken.begin());
}

void Coordinator::admit_worker(MemberInfo& member) {
  member.declared = true;
  member.rank = free_rank();
  if (member.rank < 0) {
    notices_.push_back(member.name() + " joined as a spare");
  } else if (phase_ == wire::PHASE_GATHERING) {
    const auto& all = members_.all();
    const auto ready = std::count_if(all.begin(), all.end(), [](const auto& entry) {
      return entry.second.role == wire::ROLE_WORKER && entry.second.rank >= 0;
    });
    notices_.push_back(member.name() + " joined, " + std::to_string(ready) + " of " +
                       std::to_string(options_.workers));
  } else {
    notices_.push_back(member.name() + " takes the free place");
    fill_vacancies();
  }
  ++state_version_;
  check_start();
}

void Coordinator::check_start() {
  if (phase_ != wire::PHASE_GATHERING) return;
  wants_start_ =
      declared_ && members_.count(wire::ROLE_SERVER) == options_.servers && free_rank() < 0;
}

std::string Coordinator::waiting_for() const {
  if (phase_ != wire::PHASE_GATHERING) return "";
  const int servers = members_.count(wire::ROLE_SERVER);
  int ready = 0;
  int preparing = 0;
  for (const auto& [incarnation, member] : members_.all()) {
    if (member.role != wire::ROLE_WORKER) continue;
    ++(member.declared ? ready : preparing);
  }
  std::string text = "waiting for members: " + std::to_string(servers) + " of " +
                     std::to_string(options_.servers) + " servers, " + std::to_string(ready) +
                     " of " + std::to_string(options_.workers) + " workers";
  if (preparing > 0) text += " (" + std::to_string(preparing) + " reading data)";
  return text;
}

// ---- starting ----

void Coordinator::start(int64_t now_ms, const Start& start) {
  now_ms_ = now_ms;
  wants_start_ = false;
  start_ = start;
  if (!start.choices.empty()) declaration_.choices = start.choices;
  const Job& job = options_.job;
  total_steps_ = pushpull::total_steps(job, declaration_.train_samples);
  barriers_ = barriers_of(
      job, start.step, job.stop_after > 0 ? std::min(job.stop_after, total_steps_) : total_steps_);
  // the start's own snapshot goes as those of barriers do: once it is released
  released_barrier_ = start.step - 1;
  snapshots_.push_back(start.step);
  const int64_t leaves = job.micro_batches();
  shares_ = static_cast<int>(std::min<int64_t>(options_.workers, leaves));
  training_ = std::make_unique<TrainingProgress>(job, options_.workers, start.step);
  evaluations_ = std::make_unique<Evaluations>(declaration_.test_samples, job.micro_batch);
  if (!job.record.empty()) {
    logs_ = std::make_unique<ServerLogs>(options_.servers, leaves, start.updates);
  }
  if (fixed_shares()) {
    if (options_.workers > shares_) {
      notices_.push_back(std::to_string(options_.workers - shares_) +
                         " workers have nothing to compute: a step has only " +
                         std::to_string(leaves) + " micro-batches; they wait as spares");
    }
    for (int i = 0; i < shares_; ++i) {
      ShareOwner share;
      share.range = share_range(i, shares_, leaves);
      share.clock = start.step;
      share.from_step = start.step;
      share.owner = members_.find_rank(wire::ROLE_WORKER, i)->incarnation;
      share_owners_.push_back(share);
    }
  } else {
    pool_ = std::make_unique<LeasePool>(barriers_, shares_, leaves, evaluations_->chunks());
  }
  const int with_slices = servers_with_slices();
  if (with_slices < options_.servers) {
    notices_.push_back("the model has only " + std::to_string(with_slices) + " slices: " +
                       std::to_string(options_.servers - with_slices) + " servers hold none");
  }
  if (backup()) choice_.emplace(with_slices, static_cast<int>(needed_shares()));
  change_phase(wire::PHASE_TRAINING);
}

void Coordinator::change_phase(wire::Phase phase) {
  phase_ = phase;
  phase_since_ms_ = now_ms_;
  ++state_version_;
  dirty_ = true;
}

wire::State Coordinator::state_for(const MemberInfo& member) const {
  wire::State state;
  state.set_version(state_version_);
  state.set_phase(phase_);
  state.set_rank(member.rank);
  state.set_declared(member.declared);
  if (phase_ == wire::PHASE_FAILED) {
    state.set_code(static_cast<int>(failure_code_));
    state.set_text(failure_text_);
  }
  if (phase_ == wire::PHASE_GATHERING || !training_) return state;
  state.set_world_size(options_.workers);
  state.set_start_step(barriers_.start_step);
  state.set_end_step(barriers_.end_step);
  state.set_total_steps(total_steps_);
  state.set_shares(shares_);
  std::map<int, std::string> endpoints;
  for (const auto& [incarnation, other] : members_.all()) {
    if (other.role == wire::ROLE_SERVER) endpoints[other.rank] = other.data_endpoint;
  }
  for (const auto& [rank, endpoint] : endpoints) state.add_data_endpoints(endpoint);
  if (member.role == wire::ROLE_WORKER) {
    for (size_t i = 0; i < share_owners_.size(); ++i) {
      const bool owns = share_owners_[i].owner == member.incarnation;
      if (!owns && share_owners_[i].evaluator != member.incarnation) continue;
      wire::Share* share = state.add_assigned();
      // without micro-batches: only its chunks are evaluated
      if (owns) share->set_lo(share_owners_[i].range.lo);
      if (owns) share->set_hi(share_owners_[i].range.hi);
      share->set_from_step(share_owners_[i].from_step);
      share->set_index(static_cast<int32_t>(i));
    }
    if (all_reduce()) add_peers(&state);
    // elsewhere another kind of device may compute, which they do not fit
    if (same_bits()) state.set_choices(declaration_.choices);
    return state;
  }
  to_wire(declaration_.table, state.mutable_tensors());
  for (const auto& [incarnation, other] : members_.all()) {
    if (other.role != wire::ROLE_WORKER || !other.declared) continue;
    wire::Member* worker = state.add_workers();
    worker->set_rank(other.rank);
    worker->set_incarnation(incarnation);
  }
  state.set_updates(start_.updates);
  state.set_load(start_.load);
  state.set_released_barrier(released_barrier_);
  if (backup()) state.set_evaluated_barrier(evaluated_barrier());
  return state;
}

void Coordinator::add_peers(wire::State* state) const {
  for (const ShareOwner& share : share_owners_) {
    const auto owner = members_.all().find(share.owner);
    const bool lost = owner == members_.all().end();
    state->add_peer_endpoints(lost ? "" : owner->second.peer_endpoint);
    state->add_peer_incarnations(lost ? 0 : share.owner);
  }
}

wire::State Coordinator::state_for_self() {
  return state_for(*members_.find_rank(wire::ROLE_SERVER, 0));
}

void Coordinator::send_states() {
  dirty_ = false;
  last_sent_ms_ = now_ms_;
  // servers first: they must know a worker before it pushes
  for (const wire::Role role : {wire::ROLE_SERVER, wire::ROLE_WORKER}) {
    for (const auto& [incarnation, member] : members_.all()) {
      if (member.role != role) continue;
      Message message;
      *message.header.mutable_state() = state_for(member);
      outgoing_.push_back({member.peer, std::move(message)});
    }
  }
}

// ---- training ----

bool Coordinator::on_heartbeat(int64_t now_ms, const PeerId& peer,
                               const wire::Heartbeat& heartbeat) {
  if (!plausible(heartbeat.stats())) return false;
  MemberInfo* member = members_.find(heartbeat.incarnation());
  if (member == nullptr) {
    // it was given up, or belongs to another run
    refuse(peer, ErrorCode::kPeerLost,
           "[job] this process was given up after it had been silent; start it again");
    return true;
  }
  members_.heard(*member, peer, now_ms);
  member->state_version = std::max(member->state_version, heartbeat.state_version());
  member->stats = heartbeat.stats();
  member->stats.DiscardUnknownFields();
  if (member->role == wire::ROLE_WORKER) member->stats.clear_staleness();
  return true;
}

void Coordinator::on_commit(const Commit& commit) {
  const MemberInfo* member = members_.find(commit.incarnation);
  training_->add(commit, member == nullptr ? -1 : member->rank);
  if (pool_) pool_->finish_training(commit.incarnation, commit.step, commit.range);
  for (ShareOwner& share : share_owners_) {
    if (share.range != commit.range) continue;
    share.clock = std::max(share.clock, commit.step + commit.steps);
  }
}

void Coordinator::on_barrier_open(int64_t step) {
  // the push that opens it in sync is told of later
  const int64_t whole = (step - barriers_.start_step) * options_.job.global_batch;
  opened_.push_back({step, backup() ? training_->samples() : whole});
  if (barriers_.checkpoint_due(step)) snapshots_.push_back(step);
  if (pool_) pool_->open_barrier(step);
}

std::vector<wire::Lease> Coordinator::leases(uint64_t incarnation) {
  const MemberInfo* member = members_.find(incarnation);
  if (!pool_ || member == nullptr || member->rank < 0) return {};
  return pool_->grant(incarnation);
}

std::optional<int64_t> Coordinator::take_snapshot_request() {
  if (snapshots_.empty()) return std::nullopt;
  const int64_t step = snapshots_.front();
  snapshots_.pop_front();
  return step;
}

void Coordinator::checkpoint_gathered(int64_t now_ms, int64_t step) {
  now_ms_ = now_ms;
  released_barrier_ = std::max(released_barrier_, step);
  ++state_version_;
  dirty_ = true;
}

void Coordinator::checkpoint_done(int64_t now_ms, int64_t step) {
  checkpoint_gathered(now_ms, step);
  written_barrier_ = std::max(written_barrier_, step);
}

void Coordinator::on_checkpoint_waits(int64_t step) {
  if (std::exchange(said_waits_, true)) return;
  notices_.push_back("training waits at step " + std::to_string(step) +
                     " until an earlier checkpoint is written: checkpoint-every = " +
                     std::to_string(options_.job.checkpoint_every) +
                     " is faster than the disk; where that matters, raise it");
}

bool Coordinator::on_eval_result(const PeerId& peer, const wire::EvalResult& result) {
  const MemberInfo* member = members_.find(result.incarnation());
  if (member == nullptr || !member->declared || !evaluations_) return false;
  if (!barriers_.evaluation_due(result.step())) return false;
  for (const wire::ChunkResult& chunk : result.chunks()) {
    if (chunk.correct() < 0 || chunk.correct() > options_.job.micro_batch) return false;
  }
  Message taken;
  taken.header.mutable_eval_taken()->set_number(result.number());
  outgoing_.push_back({peer, std::move(taken)});
  for (const wire::ChunkResult& chunk : result.chunks()) {
    if (evaluations_->add(result.step(), chunk) && backup()) {
      // the next evaluation's barrier waits for this
      ++state_version_;
      dirty_ = true;
    }
    if (pool_) pool_->finish_evaluation(result.incarnation(), result.step(), chunk.chunk());
  }
  return true;
}

}  // namespace pushpull
