#include "tests/simulation/cluster.h"

#include <algorithm>
#include <exception>

#include "common/net/address.h"
#include "tests/simulation/server_node.h"
#include "tests/simulation/worker_node.h"

namespace pushpull::sim {

std::string endpoint_of(int number) { return "tcp://server:" + std::to_string(number + 1); }

namespace {

// After the faults have ended; a job's own waits (lost members, repeats) are far below it.
constexpr int64_t kPatienceMs = 150'000;
constexpr int64_t kMostEvents = 3'000'000;

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
  if (scenario.server_killed_ms >= 0) {
    clock_.after(scenario.server_killed_ms * 1000, [this] { servers_.front()->kill(); });
  }
}

Cluster::~Cluster() = default;

void Cluster::start_worker() {
  workers_.push_back(std::make_unique<WorkerNode>(*this, static_cast<int>(workers_.size())));
}

void Cluster::plan(const Accident& accident) {
  clock_.after(accident.at_ms * 1000, [this, accident] {
    const auto victim = static_cast<size_t>(accident.worker);
    if (victim < workers_.size() && !workers_[victim]->gone()) {
      if (accident.freeze_ms > 0) {
        workers_[victim]->freeze(accident.freeze_ms);
      } else {
        workers_[victim]->kill();
      }
    }
    if (accident.replaced_ms >= 0) {
      clock_.after(accident.replaced_ms * 1000, [this] { start_worker(); });
    }
  });
}

void Cluster::replace_worker() {
  clock_.after(100'000, [this] {
    if (!coordinator_->over()) start_worker();
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

const Coordinator& Cluster::coordinator() const { return coordinator_->coordinator(); }

std::vector<wire::Stats> Cluster::server_stats() const {
  std::vector<wire::Stats> out{coordinator_->data().stats()};
  for (const auto& server : servers_) out.push_back(server->data().stats());
  return out;
}

std::optional<int> Cluster::exit_code(int worker) const {
  return workers_[static_cast<size_t>(worker)]->exit_code();
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

bool Cluster::everybody_gone() const {
  return coordinator_->over() &&
         std::all_of(workers_.begin(), workers_.end(), [](const auto& w) { return w->gone(); });
}

void Cluster::run() {
  int64_t deadline_ms = scenario_.faults.until_ms + scenario_.servers_late_ms + kPatienceMs;
  for (const Accident& accident : scenario_.accidents) {
    deadline_ms = std::max(deadline_ms, accident.at_ms + accident.freeze_ms + kPatienceMs);
  }
  while (trouble_.empty() && !everybody_gone()) {
    if (!clock_.advance()) wrong("nothing is left to happen");
    if (clock_.now_ms() > deadline_ms) wrong("the job has not come to its end");
    if (clock_.events() > kMostEvents) wrong("too many events");
  }
}

std::string Cluster::describe() const {
  std::string out = "at " + std::to_string(clock_.now_ms()) + " ms, " +
                    std::to_string(clock_.events()) + " events\n  " + coordinator_->describe();
  for (const auto& server : servers_) out += "\n  " + server->describe();
  for (const auto& worker : workers_) out += "\n  " + worker->describe();
  return out;
}

}  // namespace pushpull::sim
