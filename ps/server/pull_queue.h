// The pulls that wait at a server, and their answers. A worker may have several connections to this
// server, each for every n-th slice: a pull arrives once on each and is answered there, lowest
// slice first, in the order in which forward needs them. Messages in ZeroMQ's queues cannot be
// overtaken, so a pull may limit the bytes in flight. For a worker that does not read, the queue
// holds a limited number of bytes in any case. Aggregation::answer decides which weights answer,
// and when. Not thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/base/buffer_pool.h"
#include "common/net/message.h"
#include "common/net/refusals.h"
#include "ps/server/commit.h"
#include "ps/server/index_set.h"
#include "ps/server/outgoing.h"

namespace pushpull {

// One pull on one connection: the slices that are not sent yet, the bytes in flight, and the slices
// that a repeated pull shows to be lost. Not thread-safe.
//
// A repeated pull uses the same connection, which keeps the order. (Where the worker has a ring, the
// repetition comes over the socket: another peer, whose answer begins anew.) If the worker has received the
// server's last progress report, then all slices sent before that report have arrived or are lost.
// All other slices may be in flight over a slow link and are not sent twice.
class PendingPull {
 public:
  // The number of connections of the worker; each carries every n-th slice of the pull.
  static int connections_of(const wire::Pull& pull) { return std::max(1, pull.lanes()); }

  PendingPull() = default;
  // slices: of the server, ascending; this connection carries its part of those that are wanted.
  //   one_version: as the pull asks; a repeated pull then continues the first one, and the
  //   worker may report bytes that it has received.
  PendingPull(PeerId peer, const wire::Pull& pull, const std::vector<int>& slices,
              bool one_version);

  const PeerId& peer() const { return peer_; }
  const wire::Pull& pull() const { return pull_; }
  // Returns true if slices must be sent.
  bool open() const { return open_; }
  void close() { open_ = false; }
  // Returns true if the slice at this place in the shard must be sent.
  bool wants(size_t place) const { return unsent_.contains(place); }
  bool all_sent() const { return unsent_.empty(); }
  // Returns true if no more may be queued: enough bytes are in flight.
  bool window_is_full() const {
    return pull_.window_bytes() > 0 && sent_bytes_ - received_bytes_ >= pull_.window_bytes();
  }
  void on_sent(size_t place, int64_t bytes);
  // Records the bytes that the worker has received since the pull began.
  void on_received(int64_t bytes);
  // Handles a repetition of the pull on the same connection.
  //   slices: of this server, ascending. servers: of the job.
  void repeat(const wire::Pull& pull, const std::vector<int>& slices, int servers);
  // Records a progress report to the worker: see above.
  void on_progress_report(const std::vector<int>& slices);

 private:
  bool is_wanted(int slice) const;
  // Calls visit(place) for all wanted slices of this connection.
  template <class Visit>
  void for_places(const std::vector<int>& slices, const Visit& visit) const {
    for (auto i = static_cast<size_t>(pull_.lane()); i < slices.size();
         i += static_cast<size_t>(connections_of(pull_))) {
      if (is_wanted(slices[i])) visit(i);
    }
  }

  PeerId peer_;
  wire::Pull pull_;
  IndexSet unsent_;  // by place in the shard
  bool open_ = false;
  int64_t sent_bytes_ = 0;      // of weights, since the pull began
  int64_t received_bytes_ = 0;  // of these; reported by the worker
  IndexSet settled_;            // slices sent before the last report: arrived or lost
  int report_ = 0;              // Pull.asked of that report; 0 once the worker has received it
  int64_t sent_at_report_ = 0;  // sent_bytes_ at that report
};

class Aggregation;
struct SliceAnswer;

struct PullQueueSetup {
  std::vector<int> slices;     // of this server, ascending
  int64_t slice_elements = 0;  // of the largest slice
  int servers = 1;
  int64_t start_step = 0;
  int64_t end_step = 0;
  bool encode = false;  // answers are encoded (`pull-codec`)
  // A worker with this many unsent bytes gets no answers until some are sent.
  int64_t max_unsent_bytes = INT64_MAX;
};

// Encodes weights for `pull-codec = bf16`. A version of a slice is encoded once, for its first
// answer.
class EncodedWeights {
 public:
  // slice_elements: of the largest slice.
  explicit EncodedWeights(int64_t slice_elements);

  // weights: the slice in this version.
  Payload get(int slice, int64_t version, const Payload& weights);

 private:
  struct Newest {
    int64_t version = -1;
    Payload payload;
  };
  Payload make(const Payload& weights);

  BufferPool pool_;
  std::map<int, Newest> newest_;  // by slice
};

class PullQueue {
 public:
  // pushes_through: see PushIntake::through. Borrows all references.
  PullQueue(PullQueueSetup setup, Aggregation& aggregation, TrainingObserver& observer,
            std::function<int64_t(uint64_t incarnation)> pushes_through);

  // Sets the workers that may pull from now on: rank by incarnation.
  void on_members(const std::map<uint64_t, int>& members);

  // Returns the reason if the pull must be dropped. The worker must be a member; also for `take`.
  Checked check(uint64_t incarnation, const wire::Pull& pull) const;
  void take(const PeerId& peer, uint64_t incarnation, const wire::Pull& pull);
  static Checked check(const wire::Received& received);
  // The numbers only limit the bytes in flight: a wrong one harms only its sender.
  void take(const wire::Received& received);

  // Answers all pulls that can be answered. A repeated pull without an answer gets a progress
  // report.
  void answer_all(Outbox& outbox);
  // Answers workers that wait for a lease, if there are leases.
  void offer_leases(Outbox& outbox);

  // The number of payload bytes of all answers.
  int64_t bytes() const { return bytes_; }
  // The largest difference between a pull's clock and the floor at its answer.
  int64_t clock_gap_max() const { return clock_gap_max_; }

 private:
  struct Connection {
    PendingPull pull;
    bool report = false;  // send a progress report if there is no answer yet
  };
  struct Worker {
    int64_t number = 0;                     // of the newest pull
    std::map<int, Connection> connections;  // of that pull, by Pull.lane
    // memory that the worker may read in place: all answers to its newest pull
    std::vector<std::shared_ptr<const void>> in_place;
    // Bytes of host memory in unsent answers; ZeroMQ's threads decrease it.
    std::shared_ptr<std::atomic<int64_t>> unsent = std::make_shared<std::atomic<int64_t>>(0);
  };

  void answer(uint64_t incarnation, Worker& worker, Outbox& outbox);
  void answer_with_leases(uint64_t incarnation, Worker& worker, Outbox& outbox);
  void answer_on(uint64_t incarnation, Worker& worker, PendingPull& pending, Outbox& outbox);
  void report_progress(uint64_t incarnation, PendingPull& pending, Outbox& outbox);
  Message begin(uint64_t incarnation, const wire::Pull& pull) const;
  // Adds one slice to an answer. Returns its bytes.
  size_t add(uint64_t incarnation, Worker& worker, PendingPull& pending, size_t place,
             SliceAnswer answer, Message& message);
  void finish(uint64_t incarnation, PendingPull& pending, Message& message);
  void add_leases(uint64_t incarnation, google::protobuf::RepeatedPtrField<wire::Lease>* out);

  const PullQueueSetup setup_;
  Aggregation& aggregation_;
  TrainingObserver& observer_;
  const std::function<int64_t(uint64_t)> pushes_through_;
  EncodedWeights encoded_;
  std::map<uint64_t, Worker> workers_;  // by incarnation
  int64_t bytes_ = 0;
  int64_t clock_gap_max_ = 0;
};

}  // namespace pushpull
