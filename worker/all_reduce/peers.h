// The connections of one worker with the others: a Router that they reach, a Dealer to each. Sends
// and receives the parts of sums (PeerChunk) and short texts (PeerText), drops what does not belong
// to this run, and notices when another worker has died or a message was lost. One thread,
// blocking.
//
// Nothing is repeated: a worker that is lost ends an all-reduce job, and a broken connection counts
// as that. A worker that waits asks the others once a second how many messages they have sent
// (PeerQuestion, PeerAnswer); more than have come, twice in a row, means that some were lost.
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

#include "common/base/process.h"
#include "common/net/endpoint.h"

namespace pushpull {

struct PeerAddress {
  std::string endpoint;
  uint64_t incarnation = 0;
};

struct PeersSetup {
  uint64_t run = 0;
  int rank = 0;
  std::vector<PeerAddress> all;  // by rank, this one included
  double timeout_s = 10.0;       // of silence of a worker that was asked
  int64_t max_frame_bytes = int64_t{17} << 20;
  Credentials credentials = {};  // what this one shows to the others
};

// The job is over, whatever the reason: thrown out of waits.
struct JobOver {};

class Peers {
 public:
  // Messages of the operation that runs.
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

  // router: bound, where `setup.all[setup.rank].endpoint` leads. over: asked while waiting.
  Peers(zmq::context_t& context, std::unique_ptr<Router> router, PeersSetup setup,
        std::function<bool()> over);

  int rank() const { return setup_.rank; }
  // The others reach this worker there.
  const std::string& endpoint() const { return setup_.all[static_cast<size_t>(rank())].endpoint; }
  int size() const { return static_cast<int>(setup_.all.size()); }

  // Operations have the same numbers in every worker: 0, 1, ... Messages of earlier ones are
  // dropped from now on.
  void begin(int64_t operation);
  // stage, index: at least 0. payload: not empty.
  void send(int to, int stage, int index, Payload payload);
  void send_text(int to, std::string text);
  // The next chunk, or text, of the operation. One of the other kind is refused meanwhile: an
  // operation waits for one kind at a time.
  //   missing: how many are still to come from each worker, for questions and errors.
  // Throws Error(kUnreachable) naming worker, address and operation; JobOver.
  Chunk receive(std::span<const int64_t> missing);
  Text receive_text(std::span<const int64_t> missing);
  // Counts a message that does not fit, and forgets it.
  void refuse(const Chunk& chunk);
  void refuse(const Text& text);

  // A few bytes of every worker, by rank: sent to all, received from all. Once in an operation.
  std::vector<std::string> gather(const std::string& mine);

  // Between operations: takes in what comes, and answers questions, for at most `timeout_ms` or
  // until `wake` is readable.
  void serve(const WakeFd& wake, int timeout_ms);

  // Gives the coordinator time to say who was lost, with host and pid, before this worker leaves
  // for a reason of its own. Throws JobOver once the job is over.
  void wait_for_the_coordinator() const;

  // Ends waits from now on, as the end of the job does. Any thread.
  void stop() { stopped_.store(true); }

  // Payload bytes. Any thread.
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  int64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }
  int64_t rejected() const {
    return rejected_.load(std::memory_order_relaxed) + undecoded_.load(std::memory_order_relaxed);
  }
  // Bytes that another library has moved on this worker's behalf.
  void count_bytes(int64_t sent, int64_t received);

 private:
  struct Link {
    std::unique_ptr<Dealer> dealer;  // null: this worker itself
    int64_t sent = 0;                // messages of operations
    int64_t received = 0;
    int64_t heard_ms = -1;
    int64_t asked_ms = -1;
    int questions = 0;  // since it was last heard
    int lost = 0;       // answers in a row that speak of more messages than have come
  };

  template <class Kind>
  using Arrived = std::deque<std::pair<int64_t, Kind>>;  // with their operation

  bool take_next();
  bool take(Message& message);
  bool take_chunk(int from, Message& message);
  void check_operation(int from, int64_t operation) const;
  // The sender of a message between workers, where it is one of them.
  Link* link_of(const wire::Header& header, int* from);
  void post(int to, const Message& message);
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
  std::vector<Link> links_;
  int64_t operation_ = -1;
  Arrived<Chunk> chunks_;
  Arrived<Text> texts_;
  AwakeClock clock_;
  int64_t refused_ = 0;  // in this operation
  int64_t progress_ms_ = 0;
  int64_t check_us_ = 0;  // when to ask those whose messages are missing
  std::atomic<bool> stopped_ = false;
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> bytes_received_ = 0;
  std::atomic<int64_t> rejected_ = 0;
  std::atomic<int64_t> undecoded_ = 0;  // that are no messages at all
};

}  // namespace pushpull
