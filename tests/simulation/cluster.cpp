#include "tests/simulation/cluster.h"

#include <algorithm>
#include <csignal>
#include <exception>

#include "common/net/address.h"
#include "common/net/model_wire.h"
#include "tests/simulation/coordinator_node.h"
#include "tests/simulation/describe.h"
#include "tests/simulation/forger.h"
#include "tests/simulation/server_node.h"
#include "tests/simulation/worker_node.h"

namespace pushpull::sim {

std::string endpoint_of(int number) { return "tcp://server:" + std::to_string(number + 1); }
std::string peer_endpoint_of(int number) { return "tcp://worker:" + std::to_string(number + 1); }

namespace {

// Time for a job to end after the last fault. A job's own waits (lost members, repeats) are much
// shorter.
constexpr int64_t kPatienceMs = 150'000;
constexpr int64_t kMaxEvents = 3'000'000;

}  // namespace

Cluster::Cluster(const Scenario& scenario, std::shared_ptr<const FlatState> start)
    : scenario_(scenario),
      start_(std::move(start)),
      network_(clock_, scenario.seed + 1, scenario.faults),
      dice_(scenario.seed + 2),
      toy_(scenario.job, scenario.elements, scenario.counting) {
  coordinator_ = std::make_unique<CoordinatorNode>(*this);
  for (int i = 1; i < scenario.servers; ++i) {
    servers_.push_back(std::make_unique<ServerNode>(*this, i));
  }
  for (int i = 0; i < scenario.workers + scenario.spares; ++i) start_worker();
  for (const Accident& accident : scenario.accidents) plan(accident);
  for (const ServerLoss& loss : scenario.server_losses) plan(loss);
  for (const Newcomer& newcomer : scenario.newcomers) {
    clock_.after(newcomer.at_ms * 1000, [this, newcomer] { start_newcomer(newcomer); });
  }
  for (const Silence& s : scenario.silences) {
    clock_.after(s.at_ms * 1000, [this, s] { silence(s); });
  }
  for (const Partition& p : scenario.partitions) {
    clock_.after(p.at_ms * 1000, [this, p] { partition(p); });
  }
  for (const PeerPartition& p : scenario.peer_partitions) {
    clock_.after(p.at_ms * 1000, [this, p] { partition(p); });
  }
  if (scenario.forgery.on) forger_ = std::make_unique<Forger>(*this);
  if (scenario.declares_again_ms >= 0) {
    clock_.after(scenario.declares_again_ms * 1000, [this] { declare_again(0); });
  }
  if (scenario.stop_ms >= 0) {
    clock_.after(scenario.stop_ms * 1000, [this] { request_end(); });
  }
  for (const int64_t at_ms : scenario.checkpoint_signals_ms) {
    clock_.after(at_ms * 1000, [this] { coordinator_->signal(SIGUSR1); });
  }
  if (scenario.server_killed_ms >= 0) {
    clock_.after(scenario.server_killed_ms * 1000, [this] { servers_.front()->kill(); });
  }
}

Cluster::~Cluster() = default;

void Cluster::start_worker(const Newcomer& newcomer) {
  workers_.push_back(
      std::make_unique<WorkerNode>(*this, static_cast<int>(workers_.size()), newcomer));
  if (newcomer.deaf_ms > 0) {
    network_.silence(workers_.back()->control(), clock_.now_ms() + newcomer.deaf_ms);
  }
}

// Starts a newcomer. A process that does not fit starts only when the job can refuse it.
void Cluster::start_newcomer(const Newcomer& newcomer) {
  if (over()) return;
  const Coordinator& job = coordinator();
  const bool all = job.members().count(wire::ROLE_SERVER) == scenario_.servers;
  const bool declared = newcomer.once_trained ? disk.history.declared.has_value()
                                              : !job.declaration().data_digest.empty();
  if ((newcomer.surplus_server && !all) || (!newcomer.surplus_server && !declared)) {
    return clock_.after(100'000, [this, newcomer] { start_newcomer(newcomer); });
  }
  if (!newcomer.surplus_server) return start_worker(newcomer);
  servers_.push_back(
      std::make_unique<ServerNode>(*this, static_cast<int>(servers_.size()) + 1, true));
}

void Cluster::silence(const Silence& silence) {
  const auto number = static_cast<size_t>(silence.number);
  const int64_t until_ms = clock_.now_ms() + silence.ms;
  if (!silence.server && number < workers_.size()) {
    network_.silence(workers_[number]->control(), until_ms);
  }
  if (silence.server && number < servers_.size()) {
    network_.silence(servers_[number]->control(), until_ms);
  }
}

void Cluster::partition(const Partition& partition) {
  const auto worker = static_cast<size_t>(std::max(partition.worker, 0));
  const int64_t until_ms = clock_.now_ms() + partition.ms;
  if (partition.worker < 0) {
    network_.cut_off(data_router(partition.server), until_ms);
  } else if (worker < workers_.size()) {
    workers_[worker]->silence_links(partition.server, until_ms);
  }
}

void Cluster::partition(const PeerPartition& partition) {
  const auto worker = static_cast<size_t>(partition.worker);
  if (worker >= workers_.size()) return;
  const int64_t until_ms = clock_.now_ms() + partition.ms;
  if (partition.from_it) workers_[worker]->silence_group(until_ms);
  if (partition.to_it) network_.cut_off(workers_[worker]->peer_router(), until_ms);
}

bool Cluster::forged(const PeerId& peer) const {
  return forger_ && forger_->owns(Network::dealer_of(peer));
}

// Simulates a faulty program: a worker declares again, with other data.
void Cluster::declare_again(int worker) {
  const WorkerMember& member = workers_[static_cast<size_t>(worker)]->member();
  const auto& members = coordinator().members().all();
  const auto found = members.find(member.incarnation());
  if (found == members.end() || !found->second.declared) return;
  Message message;
  *message.header.mutable_declare() = declaration("other");
  message.header.mutable_declare()->set_incarnation(member.incarnation());
  network_.to_router(workers_[static_cast<size_t>(worker)]->control(), std::move(message));
}

CoordinatorOptions Cluster::coordinator_options() {
  CoordinatorOptions options;
  options.job = scenario_.job;
  options.term_id = dice_.next();
  options.term = ++disk.term;
  if (options.term == 1) disk.run_id = options.term_id;
  options.run_id = disk.run_id;
  options.grant_key = "of the run with seed " + std::to_string(scenario_.seed);
  options.servers = scenario_.servers;
  options.workers = scenario_.workers;
  options.self.incarnation = dice_.next();
  options.self.host = "host";
  options.self.pid = 1000;
  options.self.data_endpoint = endpoint_of(0);
  return options;
}

StopOptions Cluster::stop_options() const {
  StopOptions options;
  if (scenario_.stops_by_limit) options.stop_at_utc_ms = scenario_.stop_ms;
  return options;
}

JoinOptions Cluster::join_options(wire::Role role, int number) {
  JoinOptions options;
  options.incarnation = dice_.next();
  options.host = "host";
  options.pid = (role == wire::ROLE_SERVER ? 1000 : 2000) + number;
  options.coordinator = "tcp://coordinator:1";
  options.timeout_s = scenario_.join_timeout_s;
  return options;
}

bool Cluster::by_stage() const {
  return scenario_.job.model == "external" && scenario_.job.stages > 1;
}

wire::Declare Cluster::declaration(const std::string& digest, int stage) const {
  wire::Declare out;
  if (stage < 0) {
    to_wire(toy_.table(), out.mutable_tensors());
  } else {
    to_wire(toy_.part_of(stage), out.mutable_tensors());
    out.mutable_own_stage()->set_stage(stage);
    out.mutable_own_stage()->set_stages(static_cast<int32_t>(scenario_.job.stages));
  }
  out.set_train_samples(Toy::kTrainSamples);
  out.set_test_samples(scenario_.test_samples);
  out.set_data_digest(digest);
  out.set_numerics("numerics");
  to_wire(Toy::heads(), out.mutable_heads());
  out.set_own_weights(!toy_.own_weights().empty());
  return out;
}

bool Cluster::over() const { return coordinator_->over(); }

void Cluster::note_chosen(const wire::Chosen& set) {
  const std::vector<int64_t> lo(set.lo().begin(), set.lo().end());
  if (chosen.emplace(set.step(), lo).first->second == lo) return;
  wrong("step " + std::to_string(set.step()) + " has two sets of pushes");
}

void Cluster::plan(const Accident& accident) {
  clock_.after(accident.at_ms * 1000, [this, accident] {
    const auto victim = static_cast<size_t>(accident.worker);
    if (victim < workers_.size() && !workers_[victim]->has_ended()) {
      if (accident.trainer_only) {
        workers_[victim]->stop_trainer();
      } else if (accident.freeze_ms > 0) {
        workers_[victim]->freeze(accident.freeze_ms);
      } else {
        workers_[victim]->kill();
      }
    }
    if (accident.replaced_ms >= 0) {
      clock_.after(accident.replaced_ms * 1000, [this, victim] {
        start_worker({.stage = victim < workers_.size() ? workers_[victim]->own_stage() : -1});
      });
    }
  });
}

void Cluster::plan(const ServerLoss& loss) {
  clock_.after(loss.at_ms * 1000, [this, loss] { lose_server(loss); });
}

// Kills a server. After the last step a coordinator need not return.
void Cluster::lose_server(const ServerLoss& loss) {
  const bool first = loss.server == 0;
  if (over() || coordinator().phase() >= wire::PHASE_FINISHING) return;
  const auto number = static_cast<size_t>(loss.server) - 1;
  if (!first && (number >= servers_.size() || servers_[number]->has_ended())) return;
  if (!first) {
    servers_[number]->kill();
    return clock_.after(loss.back_ms * 1000, [this] { replace_server(); });
  }
  if (coordinator_->killed()) return;
  coordinator_->kill();
  clock_.after(loss.back_ms * 1000, [this] {
    const int control = coordinator_->control_router();
    dead_.push_back(std::move(coordinator_));
    coordinator_ = std::make_unique<CoordinatorNode>(*this, control);
    // as the launcher does
    if (end_requested_ && !scenario_.stops_by_limit) coordinator_->signal(SIGTERM);
  });
}

void Cluster::request_end() {
  end_requested_ = true;
  if (!scenario_.stops_by_limit) {
    clock_.after(dice_.between(0, 500'000), [this] { coordinator_->signal(SIGTERM); });
  }
  if (!scenario_.all_signalled) return;
  for (size_t i = 0; i < servers_.size(); ++i) {
    clock_.after(dice_.between(0, 500'000), [this, i] { servers_[i]->request_end(); });
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    clock_.after(dice_.between(0, 500'000), [this, i] { workers_[i]->request_end(); });
  }
}

void Cluster::replace_server() {
  if (coordinator_->over()) return;
  servers_.push_back(std::make_unique<ServerNode>(*this, static_cast<int>(servers_.size()) + 1));
}

void Cluster::replace_worker(int stage) {
  clock_.after(100'000, [this, stage] {
    if (!coordinator_->over()) start_worker({.stage = stage});
  });
}

int Cluster::control_router() const { return coordinator_->control_router(); }

int Cluster::data_router(int server) const {
  return server == 0 ? coordinator_->data().router()
                     : servers_[static_cast<size_t>(server - 1)]->data_router();
}

int Cluster::data_router(const std::string& endpoint) const {
  return data_router(std::stoi(parse_address(endpoint, "data endpoint").port) - 1);
}

int Cluster::peer_router(const std::string& endpoint) const {
  const int number = std::stoi(parse_address(endpoint, "peer endpoint").port) - 1;
  return workers_.at(static_cast<size_t>(number))->peer_router();
}

const Coordinator& Cluster::coordinator() const { return coordinator_->driver().coordinator(); }

std::vector<wire::Stats> Cluster::server_stats() const {
  std::vector<wire::Stats> out{coordinator_->data().data().stats()};
  for (const auto& server : servers_) out.push_back(server->node().data().stats());
  return out;
}

std::optional<int> Cluster::exit_code(int worker) const {
  return workers_[static_cast<size_t>(worker)]->exit_code();
}

void Cluster::on_control_closed(int dealer, uint64_t incarnation, std::function<void()> closed) {
  network_.on_closed(dealer, [this, incarnation, closed = std::move(closed)] {
    watch_.connects(incarnation);
    closed();
  });
}

void Cluster::wrong(const std::string& text) {
  if (trouble_.empty()) trouble_ = text;
}

void Cluster::guarded(const std::string& who, const std::function<void()>& event) {
  try {
    event();
  } catch (const std::exception& e) {
    wrong(who + " threw: " + e.what());
  }
}

bool Cluster::all_ended() const {
  const auto ended = [](const auto& process) { return process->has_ended(); };
  return coordinator_->over() && std::all_of(servers_.begin(), servers_.end(), ended) &&
         std::all_of(workers_.begin(), workers_.end(), ended);
}

void Cluster::run() {
  network_.may_damage(control_router());
  int64_t deadline_ms = scenario_.faults.until_ms + scenario_.servers_late_ms + kPatienceMs;
  for (const Accident& accident : scenario_.accidents) {
    deadline_ms = std::max(deadline_ms, accident.at_ms + accident.freeze_ms + kPatienceMs);
  }
  for (const ServerLoss& loss : scenario_.server_losses) {
    deadline_ms = std::max(deadline_ms, loss.at_ms + loss.back_ms + kPatienceMs);
  }
  deadline_ms = std::max(deadline_ms, scenario_.forgery.until_ms + kPatienceMs);
  for (const Partition& partition : scenario_.partitions) {
    deadline_ms = std::max(deadline_ms, partition.at_ms + partition.ms + kPatienceMs);
  }
  for (const PeerPartition& partition : scenario_.peer_partitions) {
    deadline_ms = std::max(deadline_ms, partition.at_ms + partition.ms + kPatienceMs);
  }
  const Job& job = scenario_.job;
  if (job.checkpoint_every > 0) {  // a slow disk writes them one after the other
    deadline_ms += job.steps / job.checkpoint_every * (scenario_.write_us / 1000);
  }
  while (trouble_.empty() && !all_ended()) {
    if (!clock_.advance()) wrong("no event is left");
    if (clock_.now_ms() > deadline_ms) wrong("the job has not ended in time");
    if (clock_.events() > kMaxEvents) wrong("too many events");
  }
}

std::string Cluster::describe() const {
  std::string out = "at " + std::to_string(clock_.now_ms()) + " ms, " +
                    std::to_string(clock_.events()) + " events\n  " +
                    sim::describe(coordinator_->driver()) +
                    "\n  server 0: " + sim::describe(coordinator_->data().data().server());
  for (const auto& server : servers_) out += "\n  " + server->describe();
  for (const auto& worker : workers_) out += "\n  " + worker->describe();
  return out;
}

}  // namespace pushpull::sim
