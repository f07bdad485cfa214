// The connections of one worker to all others that sum with it: one Router for incoming messages and
// one Dealer per worker. Sends and receives parts of sums (PeerChunk) and short texts (PeerText),
// drops messages that do not belong to this term, and detects a dead worker or a lost message.
// Blocking; single-threaded.
//
// Ranks are counted among these workers: the share of each. If groups divide the model, they are
// those with one stage, and have other ranks in the job.
//
// Messages are not resent: a broken connection counts as a lost worker, which ends the job. A
// waiting worker asks the peers with missing messages once a second, or more often if the timeout is
// short, how many they have sent. Two answers in a row above the number received: a loss.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "common/base/process.h"
#include "common/net/endpoint.h"
#include "common/net/message.h"
#include "worker/group/peer_dealers.h"
#include "worker/member/coordinator_link.h"

namespace pushpull {

// Makes the messages between workers of an all-reduce job. Plain functions; thread-safe.

// Returns the sender of a message between workers, or null for any other message. Valid while the
// header exists.
const wire::PeerSender* peer_sender(const wire::Header& header);

// Fields and payloads: common/net/wire.proto.
Message peer_chunk(const wire::PeerSender& sender, int64_t operation, int stage, int index,
                   Payload payload);
Message peer_text(const wire::PeerSender& sender, int64_t operation, std::string text);
Message peer_question(const wire::PeerSender& sender);
Message peer_answer(const wire::PeerSender& sender, int64_t sent);

struct PeersSetup {
  uint64_t term_id = 0;
  int rank = 0;
  std::vector<PeerAddress> all;   // by rank, including this worker
  std::vector<int> workers = {};  // their ranks in the job, for messages; empty: the same
  double timeout_s = 10.0;        // without an answer to questions
  int64_t max_frame_bytes = int64_t{17} << 20;
  Credentials credentials = {};  // of this worker; Credentials::to names another one
};

class Peers {
 public:
  // Messages of the current operation.
  struct Chunk {
    int rank = 0;  // of the sender
    int stage = 0;
    int index = 0;
    Payload payload;
  };
  struct Text {
    int rank = 0;  // of the sender
    std::string text;
  };

  // router: bound to `setup.all[setup.rank].endpoint`. over: returns true once the job is over;
  // called while waiting.
  Peers(zmq::context_t& context, std::unique_ptr<Router> router, PeersSetup setup,
        std::function<bool()> over);

  int rank() const { return setup_.rank; }
  // Returns the address that other workers connect to.
  const std::string& endpoint() const { return setup_.all[static_cast<size_t>(rank())].endpoint; }
  int size() const { return static_cast<int>(setup_.all.size()); }

  // Begins the next operation. All workers number operations 0, 1, ... alike. Messages of earlier
  // operations are dropped from now on. The first one begins once all workers have proven
  // themselves; throws as `receive` does.
  void begin(int64_t operation);
  // Sends to worker `to`. stage, index: at least 0. payload: not empty.
  void send(int to, int stage, int index, Payload payload);
  void send_text(int to, std::string text);
  // Returns the next chunk or text of the operation. Refuses messages of the other kind meanwhile,
  // because an operation waits for one kind at a time.
  //   missing: number of messages expected, by rank; used for questions and errors.
  // Throws Error(kUnreachable), which names worker, address and operation, and JobOver.
  Chunk receive(std::span<const int64_t> missing);
  Text receive_text(std::span<const int64_t> missing);
  // Counts a message that does not fit, and drops it.
  void refuse(const Chunk& chunk);
  void refuse(const Text& text);

  // Sends a few bytes to every worker and returns those of all workers, by rank. At most once per
  // operation.
  std::vector<std::string> gather(const std::string& mine);

  // Receives messages and answers questions for at most `timeout_ms` or until `wake` is readable.
  // For the time between operations.
  void serve(const WakeFd& wake, int timeout_ms);

  // Waits before this worker reports a lost peer, so that the coordinator can report it first, with
  // host and pid. Throws JobOver once the job is over.
  void wait_for_the_coordinator() const;

  // Ends all waits from now on, as the end of the job does. Thread-safe.
  void stop() { stopped_.store(true); }

  // Payload bytes. Thread-safe.
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  int64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }
  int64_t rejected() const {
    return rejected_.load(std::memory_order_relaxed) + undecoded_.load(std::memory_order_relaxed);
  }
  // Adds bytes that another library has sent and received for this worker.
  void count_bytes(int64_t sent, int64_t received);

 private:
  struct Link {
    int64_t sent = 0;  // messages that belong to operations
    int64_t received = 0;
    int64_t heard_ms = -1;
    int64_t asked_ms = -1;
    int questions = 0;  // since its last message
    int lost = 0;       // answers in a row that exceed `received`
  };

  template <class Kind>
  using Arrived = std::deque<std::pair<int64_t, Kind>>;  // by operation

  bool take_next();
  bool take(Message& message);
  bool take_chunk(int from, Message& message);
  void check_operation(int from, int64_t operation) const;
  // Returns the link of a message's sender and its rank in `from`, or null if the sender is no
  // worker of this run.
  Link* link_of(const wire::Header& header, int* from);
  void post(int to, const Message& message);
  void poll(const WakeFd* wake, int timeout_ms);
  void wait_for_proofs();
  template <class Kind, class Other>
  Kind next(Arrived<Kind>& wanted, Arrived<Other>& other, std::span<const int64_t> missing);
  void wait_for_message(std::span<const int64_t> missing, int64_t* spin_until_us);
  void count_refused();
  void check(std::span<const int64_t> missing);
  std::string name(int rank) const;

  const PeersSetup setup_;
  const std::function<bool()> over_;
  wire::PeerSender self_;
  std::unique_ptr<Router> router_;
  PeerDealers dealers_;
  std::vector<Link> links_;
  int64_t operation_ = -1;
  Arrived<Chunk> chunks_;
  Arrived<Text> texts_;
  AwakeClock clock_;
  int64_t refused_ = 0;  // in the current operation
  int64_t progress_ms_ = 0;
  int64_t check_us_ = 0;  // when to send the next questions
  std::vector<zmq::pollitem_t> poll_items_;
  std::atomic<bool> stopped_ = false;
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> bytes_received_ = 0;
  std::atomic<int64_t> rejected_ = 0;
  std::atomic<int64_t> undecoded_ = 0;  // frames that are not messages
};

}  // namespace pushpull
