#include "ps/server/pull_queue.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "common/update/block_codec.h"
#include "ps/server/aggregation.h"

namespace pushpull {
namespace {

constexpr int64_t kMaxReceived = int64_t{1} << 50;  // sums cannot overflow

}  // namespace

PendingPull::PendingPull(PeerId peer, const wire::Pull& pull, const std::vector<int>& slices,
                         bool one_version)
    : peer_(std::move(peer)), pull_(pull), open_(true) {
  if (one_version) {
    received_bytes_ = std::min(pull.received_bytes(), kMaxReceived);
    sent_bytes_ = received_bytes_;
  }
  if (pull.lease_only()) return;
  unsent_.reserve(slices.size());
  for_places(slices, [this](size_t place) { unsent_.insert(place); });
}

bool PendingPull::is_wanted(int slice) const {
  return pull_.wanted().empty() ||
         std::ranges::any_of(pull_.wanted(), [slice](const wire::SliceRange& range) {
           return range.lo() <= slice && slice < range.hi();
         });
}

void PendingPull::on_sent(size_t place, int64_t bytes) {
  sent_bytes_ += bytes;
  unsent_.erase(place);
}

void PendingPull::on_received(int64_t bytes) {
  received_bytes_ = std::clamp(bytes, received_bytes_, sent_bytes_);
}

void PendingPull::repeat(const wire::Pull& pull, const std::vector<int>& slices, int servers) {
  if (pull.asked() < pull_.asked()) return;
  pull_ = pull;
  on_received(pull.received_bytes());
  if (report_ == 0 || pull.heard() < report_) return;
  report_ = 0;
  // slices sent before the report have been counted by the worker, or are lost
  const int64_t since = std::max<int64_t>(0, sent_bytes_ - sent_at_report_);
  sent_bytes_ = received_bytes_ + since;
  for (const int slice : pull.missing()) {
    if (slice < 0) continue;
    const auto place = static_cast<size_t>(slice / servers);
    if (place >= slices.size() || slices[place] != slice) continue;  // another server's
    if (!settled_.contains(place) || !is_wanted(slice)) continue;
    settled_.erase(place);
    if (unsent_.insert(place)) open_ = true;
  }
}

void PendingPull::on_progress_report(const std::vector<int>& slices) {
  if (report_ != 0) return;  // the last report may still be in flight
  report_ = pull_.asked();
  sent_at_report_ = sent_bytes_;
  settled_ = {};
  for_places(slices, [this](size_t place) {
    if (!unsent_.contains(place)) settled_.insert(place);
  });
}

namespace {

// Bytes of weights in one message: the worker reads the first messages while others are in flight.
constexpr size_t kAnswerBytes = size_t{1} << 20;
constexpr size_t kMaxHeld = 64;      // generations for a worker that repeats one pull
constexpr int kMaxConnections = 16;  // as many as the key `connections` allows
constexpr int kMaxWanted = 4096;     // ranges of slices in a pull

// Holds the buffer of these weights; most slices of an answer share one.
void hold(std::vector<std::shared_ptr<const void>>& held, const Payload& weights) {
  if (!held.empty() && held.back() == weights.owner) return;
  held.push_back(weights.owner);
  // drops the buffers of old, lost answers: a worker must not hold memory without limit
  if (held.size() > kMaxHeld) held.erase(held.begin());
}

// Holds the weights of a message and counts their bytes until the last of them is sent or dropped.
struct Unsent {
  Unsent(std::shared_ptr<std::atomic<int64_t>> all) : counter(std::move(all)) {}
  Unsent(const Unsent&) = delete;
  Unsent& operator=(const Unsent&) = delete;
  ~Unsent() { *counter -= bytes; }

  std::shared_ptr<std::atomic<int64_t>> counter;
  int64_t bytes = 0;
  std::vector<std::shared_ptr<const void>> owners;
};

void count_until_sent(const std::shared_ptr<std::atomic<int64_t>>& counter, Message& message) {
  const auto unsent = std::make_shared<Unsent>(counter);
  for (Payload& payload : message.payloads) {
    if (payload.on_device) continue;  // a copy is sent
    unsent->bytes += std::ssize(payload.bytes);
    if (unsent->owners.empty() || unsent->owners.back() != payload.owner) {
      unsent->owners.push_back(payload.owner);
    }
    payload.owner = std::shared_ptr<const void>(unsent, payload.owner.get());
  }
  *counter += unsent->bytes;
}

}  // namespace

// ---- EncodedWeights ----

EncodedWeights::EncodedWeights(int64_t slice_elements)
    : pool_(static_cast<size_t>(slice_elements + 1) / 2) {}

Payload EncodedWeights::make(const Payload& weights) {
  const auto n = static_cast<int64_t>(weights.float_count());
  if (n == 1) return weights;  // not shorter encoded, and workers tell the two by length
  const std::shared_ptr<float[]> out = pool_.get();
  const int64_t floats = (n + 1) / 2;
  out[floats - 1] = 0.0F;  // half of it may be padding
  to_bf16(weights.floats(), n, reinterpret_cast<uint16_t*>(out.get()));
  return {out, std::as_bytes(std::span(out.get(), static_cast<size_t>(floats)))};
}

Payload EncodedWeights::get(int slice, int64_t version, const Payload& weights) {
  Newest& newest = newest_[slice];
  if (version < newest.version) return make(weights);  // for a worker that is behind
  if (version > newest.version) {
    newest.payload = {};  // back to the pool first
    newest = {version, make(weights)};
  }
  return newest.payload;
}

// ---- PullQueue ----

PullQueue::PullQueue(PullQueueSetup setup, Aggregation& aggregation, TrainingObserver& observer,
                     std::function<int64_t(uint64_t)> pushes_through)
    : setup_(std::move(setup)),
      aggregation_(aggregation),
      observer_(observer),
      pushes_through_(std::move(pushes_through)),
      encoded_(setup_.slice_elements) {}

void PullQueue::on_members(const std::map<uint64_t, int>& members) {
  std::erase_if(workers_, [&](const auto& worker) { return !members.contains(worker.first); });
  for (const auto& [incarnation, rank] : members) workers_[incarnation];
}

Checked PullQueue::check(uint64_t incarnation, const wire::Pull& pull) const {
  if (pull.number() < 1) {
    return refused("pull-number", "a number from 1", std::to_string(pull.number()));
  }
  for (const int64_t count :
       {pull.window_bytes(), int64_t{pull.asked()}, int64_t{pull.heard()}, pull.received_bytes()}) {
    if (count < 0) {
      return refused("pull-count", "counts from 0", std::to_string(count));
    }
  }
  const int connections = PendingPull::connections_of(pull);
  if (pull.lanes() < 0 || connections > kMaxConnections || pull.lane() < 0 ||
      pull.lane() >= connections) {
    return refused(
        "pull-connection", "one of at most " + std::to_string(kMaxConnections) + " connections",
        "connection " + std::to_string(pull.lane()) + " of " + std::to_string(pull.lanes()));
  }
  if (pull.wanted_size() > kMaxWanted) {
    return refused("pull-wanted", "at most " + std::to_string(kMaxWanted) + " ranges of slices",
                   std::to_string(pull.wanted_size()));
  }
  // a pull must be the same on all connections
  const Worker& worker = workers_.at(incarnation);
  if (pull.number() == worker.number && !worker.connections.empty()) {
    const wire::Pull& other = worker.connections.begin()->second.pull.pull();
    if (PendingPull::connections_of(other) != connections ||
        other.lease_only() != pull.lease_only()) {
      return refused("pull-other",
                     "what pull " + std::to_string(pull.number()) + " asked on another connection",
                     "something else");
    }
  }
  if (pull.lease_only()) {  // has no clock
    if (pull.lane() == 0) return {};
    return refused("pull-connection", "leases asked for on connection 0",
                   "connection " + std::to_string(pull.lane()));
  }
  const int64_t first = pull.latest() ? 0 : setup_.start_step;
  if (pull.clock() >= first && pull.clock() <= setup_.end_step) return {};
  return refused("pull-clock", std::to_string(first) + " to " + std::to_string(setup_.end_step),
                 std::to_string(pull.clock()));
}

void PullQueue::take(const PeerId& peer, uint64_t incarnation, const wire::Pull& pull) {
  Worker& worker = workers_.at(incarnation);
  if (pull.number() < worker.number) return;  // a newer pull has overtaken it
  if (pull.number() > worker.number) {
    worker.connections.clear();
    // a new pull for weights releases those that the worker reads in place
    if (!pull.lease_only()) worker.in_place.clear();
  }
  worker.number = pull.number();
  const bool one_version = aggregation_.asks_for_one_version(pull);
  const auto known = worker.connections.find(pull.lane());
  const bool repeated = known != worker.connections.end();
  if (repeated && one_version && known->second.pull.peer() == peer) {
    known->second.report = true;
    known->second.pull.repeat(pull, setup_.slices, setup_.servers);
    return;
  }
  // the answer was lost, or is not due yet: then the worker gets a report of its pushes
  const bool report =
      repeated || pull.asked() > 0 || (pull.lane() == 0 && aggregation_.is_past(pull));
  worker.connections[pull.lane()] = {PendingPull(peer, pull, setup_.slices, one_version), report};
}

Checked PullQueue::check(const wire::Received& received) {
  if (received.bytes() >= 0 && received.lane() >= 0 && received.lane() < kMaxConnections) return {};
  return refused(
      "received-count",
      "bytes from 0 on one of at most " + std::to_string(kMaxConnections) + " connections",
      std::to_string(received.bytes()) + " bytes on connection " + std::to_string(received.lane()));
}

void PullQueue::take(const wire::Received& received) {
  const auto worker = workers_.find(received.sender().incarnation());
  if (worker == workers_.end() || worker->second.number != received.pull()) return;
  const auto connection = worker->second.connections.find(received.lane());
  if (connection == worker->second.connections.end()) return;
  connection->second.pull.on_received(received.bytes());
}

void PullQueue::answer_all(Outbox& outbox) {
  for (auto& [incarnation, worker] : workers_) {
    const size_t before = outbox.size();
    answer(incarnation, worker, outbox);
    const bool answered = outbox.size() != before;
    for (auto& [lane, connection] : worker.connections) {
      if (std::exchange(connection.report, false) && !answered) {
        report_progress(incarnation, connection.pull, outbox);
      }
    }
  }
}

void PullQueue::offer_leases(Outbox& outbox) {
  for (auto& [incarnation, worker] : workers_) {
    if (!worker.connections.empty() &&
        worker.connections.begin()->second.pull.pull().lease_only()) {
      answer(incarnation, worker, outbox);
    }
  }
}

void PullQueue::report_progress(uint64_t incarnation, PendingPull& pending, Outbox& outbox) {
  const wire::Pull& pull = pending.pull();
  wire::Status& status =
      add_status(outbox, pending.peer(), pull.number(), pushes_through_(incarnation));
  status.set_lane(pull.lane());
  status.set_asked(pull.asked());
  pending.on_progress_report(setup_.slices);
}

void PullQueue::answer(uint64_t incarnation, Worker& worker, Outbox& outbox) {
  if (worker.connections.empty()) return;
  const wire::Pull& pull = worker.connections.begin()->second.pull.pull();
  if (pull.lease_only()) return answer_with_leases(incarnation, worker, outbox);
  if (*worker.unsent >= setup_.max_unsent_bytes) return;
  // all connections must get weights of one version, at one time
  const auto open = std::count_if(worker.connections.begin(), worker.connections.end(),
                                  [](const auto& c) { return c.second.pull.open(); });
  if (!aggregation_.asks_for_one_version(pull) && open < PendingPull::connections_of(pull)) return;
  for (auto& [lane, connection] : worker.connections) {
    if (connection.pull.open()) answer_on(incarnation, worker, connection.pull, outbox);
  }
}

void PullQueue::answer_with_leases(uint64_t incarnation, Worker& worker, Outbox& outbox) {
  PendingPull& pending = worker.connections.begin()->second.pull;
  if (!pending.open()) return;
  Message message;
  wire::Status* status = message.header.mutable_status();
  add_leases(incarnation, status->mutable_leases());
  // pushes of its older leases may be in flight, and their evaluations are reported elsewhere
  const int64_t newest = pending.pull().newest_lease();
  if (std::none_of(status->leases().begin(), status->leases().end(),
                   [&](const wire::Lease& l) { return l.number() > newest; })) {
    return;
  }
  status->set_pull(pending.pull().number());
  status->set_pushes_through(pushes_through_(incarnation));
  pending.close();
  outbox.push_back({pending.peer(), std::move(message)});
}

Message PullQueue::begin(uint64_t incarnation, const wire::Pull& pull) const {
  Message message;
  wire::Weights* weights = message.header.mutable_weights();
  weights->set_pull(pull.number());
  weights->set_pushes_through(pushes_through_(incarnation));
  weights->set_version(aggregation_.updates());
  weights->set_lane(pull.lane());
  return message;
}

void PullQueue::answer_on(uint64_t incarnation, Worker& worker, PendingPull& pending,
                          Outbox& outbox) {
  // an answer of any version cannot wait for the window: the next update would change it
  const bool limited = aggregation_.asks_for_one_version(pending.pull());
  Message message = begin(incarnation, pending.pull());
  size_t bytes = 0;
  for (size_t place = 0; place < setup_.slices.size(); ++place) {
    if (!pending.wants(place)) continue;
    if (limited && pending.window_is_full()) break;
    auto answer = aggregation_.answer(pending.pull(), setup_.slices[place]);
    if (!answer) continue;
    if (bytes >= kAnswerBytes && !pending.pull().in_place()) {
      count_until_sent(worker.unsent, message);
      outbox.push_back(
          {pending.peer(), std::exchange(message, begin(incarnation, pending.pull()))});
      bytes = 0;
    }
    bytes += add(incarnation, worker, pending, place, std::move(*answer), message);
  }
  if (message.payloads.empty()) return;
  if (pending.all_sent()) finish(incarnation, pending, message);
  // shared weights are sent as references and held until the next pull
  if (!pending.pull().in_place()) count_until_sent(worker.unsent, message);
  outbox.push_back({pending.peer(), std::move(message)});
}

size_t PullQueue::add(uint64_t incarnation, Worker& worker, PendingPull& pending, size_t place,
                      SliceAnswer answer, Message& message) {
  const int slice = setup_.slices[place];
  aggregation_.on_answered(incarnation, slice, answer);
  // workers round the weights of an evaluation themselves
  if (setup_.encode && !answer.evaluated) {
    answer.weights = encoded_.get(slice, answer.version, answer.weights);
  }
  const size_t bytes = answer.weights.bytes.size();
  wire::Weights* weights = message.header.mutable_weights();
  weights->set_at_barrier(answer.at_barrier);
  wire::SliceVersion* entry = weights->add_slices();
  entry->set_slice(slice);
  entry->set_version(answer.version);
  if (pending.pull().in_place()) hold(worker.in_place, answer.weights);
  bytes_ += static_cast<int64_t>(bytes);
  pending.on_sent(place, static_cast<int64_t>(bytes));
  message.payloads.push_back(std::move(answer.weights));
  return bytes;
}

// Ends an answer: all slices of this connection have been added.
void PullQueue::finish(uint64_t incarnation, PendingPull& pending, Message& message) {
  const wire::Pull& pull = pending.pull();
  pending.close();
  const int64_t gap = pull.latest() ? 0 : pull.clock() - aggregation_.floor();
  clock_gap_max_ = std::max(clock_gap_max_, gap);
  if (auto progress = observer_.progress()) {
    *message.header.mutable_weights()->mutable_progress() = *std::move(progress);
  }
  if (pull.want_lease()) {
    add_leases(incarnation, message.header.mutable_weights()->mutable_leases());
  }
}

void PullQueue::add_leases(uint64_t incarnation,
                           google::protobuf::RepeatedPtrField<wire::Lease>* out) {
  for (wire::Lease& lease : observer_.leases(incarnation)) *out->Add() = std::move(lease);
}

}  // namespace pushpull
