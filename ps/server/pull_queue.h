// The pulls that wait at a server, and their answers. A worker may have several connections to this
// server, each of which brings every n-th slice: a pull comes once on each and is answered there,
// lowest slice first, in the order in which forward needs them. What ZeroMQ has been given can no
// longer be overtaken, so a pull may limit how much of its weights is under way at once. Whatever it
// asks for, a worker that does not read keeps a limited number of bytes. Which weights answer, and
// when, is the rule's to say (Aggregation::answer). One thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/job/barriers.h"
#include "common/net/message.h"
#include "common/net/refusal.h"
#include "ps/aggregation/aggregation.h"
#include "ps/aggregation/commit.h"
#include "ps/server/encoded_weights.h"
#include "ps/server/outgoing.h"
#include "ps/server/pending_pull.h"

namespace pushpull {

struct PullQueueSetup {
  std::vector<int> slices;     // of this server, ascending
  int64_t slice_elements = 0;  // of the largest slice
  int servers = 1;
  int64_t start_step = 0;
  int64_t end_step = 0;
  bool encode = false;  // answers are encoded (`pull-codec`)
  // While so many bytes for a worker are not sent, nothing more is handed out to it.
  int64_t most_unsent_bytes = INT64_MAX;
};

class PullQueue {
 public:
  // pushes_through: see PushIntake::through. References are borrowed.
  PullQueue(PullQueueSetup setup, Aggregation& aggregation, TrainingObserver& observer,
            std::function<int64_t(uint64_t incarnation)> pushes_through);

  // Only these workers may pull from now on: rank by incarnation.
  void on_members(const std::map<uint64_t, int>& members);

  // The worker is a member; the same for `take`.
  Checked check(uint64_t incarnation, const wire::Pull& pull) const;
  void take(const PeerId& peer, uint64_t incarnation, const wire::Pull& pull);
  static Checked check(const wire::Received& received);
  // The numbers only decide when more is sent: a wrong one harms nobody but its sender.
  void take(const wire::Received& received);

  // Answers whom it can; reports its progress where it can send nothing to one who asks again.
  void answer_all(Outbox& outbox);
  // Leases may have become available: answers the workers that wait for one.
  void offer_leases(Outbox& outbox);

  // Payload bytes of all answers.
  int64_t bytes() const { return bytes_; }
  // The largest difference between a pull's clock and the floor when it was answered.
  int64_t clock_gap_max() const { return clock_gap_max_; }

 private:
  struct Connection {
    PendingPull pull;
    bool report = false;  // how far this is, where there is nothing to send yet
  };
  struct Worker {
    int64_t number = 0;                     // of the newest pull
    std::map<int, Connection> connections;  // on which that one has come, by Pull.lane
    // what it may be reading in place: all that its newest pull was answered with
    std::vector<std::shared_ptr<const void>> in_place;
    // Bytes of host memory that were handed out and not sent yet; threads of ZeroMQ lower it.
    std::shared_ptr<std::atomic<int64_t>> unsent = std::make_shared<std::atomic<int64_t>>(0);
  };

  void answer(uint64_t incarnation, Worker& worker, Outbox& outbox);
  void answer_with_leases(uint64_t incarnation, Worker& worker, Outbox& outbox);
  void answer_on(uint64_t incarnation, Worker& worker, PendingPull& pending, Outbox& outbox);
  void report_progress(uint64_t incarnation, PendingPull& pending, Outbox& outbox);
  Message begin(uint64_t incarnation, const wire::Pull& pull) const;
  // Puts one slice into an answer; returns its bytes.
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
