// Decides which peers may connect to the Routers of one ZeroMQ context. Answers libzmq's request
// about each connection (ZAP, https://rfc.zeromq.org/spec/27) on a thread of its own, before the
// first message passes. Also closes connections beyond the caps of ConnectionCaps, counts refused
// peers and reports their addresses. Used by the thread
// of the Routers, unless stated; destroyed after them and before the context.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "common/base/process.h"
#include "common/net/credentials.h"
#include "common/net/data_proof.h"
#include "common/net/refusals.h"

namespace pushpull {

// Decides which connections a process closes as soon as it has accepted them, so that strangers
// cannot use up its memory and its descriptors: those beyond a number of connections whose handshake
// is not done. The last descriptors stay free for files (common/base/accept_limit.h). Does no I/O
// and reads no clock. One thread.
class ConnectionCaps {
 public:
  // libzmq closes connections whose handshake takes longer (ZMQ_HANDSHAKE_IVL).
  static constexpr int64_t kHandshakeMs = 5000;
  static constexpr int64_t kMaxUnfinished = 512;
  static constexpr int64_t kMaxSpare = 256;

  // descriptors: soft limit of the process (RLIMIT_NOFILE).
  explicit ConnectionCaps(int64_t descriptors, int64_t max_unfinished = kMaxUnfinished)
      : unfinished_(std::min<int64_t>(max_unfinished, descriptors / 4)),
        spare_(std::min<int64_t>(kMaxSpare, descriptors / 4)),
        descriptors_(descriptors) {}

  // Returns why the connection is to be closed at once, or nullopt. It counts until `closed`.
  std::optional<Refusal> accepted(int descriptor, int64_t now_ms);
  // A handshake has succeeded. libzmq does not say on which connection.
  void finished(int64_t now_ms) { finished_ms_.push_back(now_ms); }
  void closed(int descriptor);

  // The lowest descriptor that no connection gets, and the reason why one was closed for that.
  int64_t first_kept() const { return descriptors_ - spare_; }
  Refusal no_descriptor() const {
    return {"descriptors", "this process may have " + std::to_string(descriptors_) +
                               " descriptors (ulimit -n) and keeps the last " +
                               std::to_string(spare_) + " for files"};
  }

  // Connections accepted within the time of a handshake and still open, without as many as have
  // finished theirs.
  int64_t unfinished(int64_t now_ms);

 private:
  struct Young {
    int descriptor;
    int64_t accepted_ms;
  };

  const int64_t unfinished_;
  const int64_t spare_;
  const int64_t descriptors_;
  std::deque<Young> young_;         // oldest first; some may be closed
  std::map<int, int64_t> open_ms_;  // those of young_ that are open: when they were accepted
  std::deque<int64_t> finished_ms_;
};

inline int64_t ConnectionCaps::unfinished(int64_t now_ms) {
  while (!young_.empty() && now_ms - young_.front().accepted_ms > kHandshakeMs) {
    const auto open = open_ms_.find(young_.front().descriptor);
    if (open != open_ms_.end() && open->second == young_.front().accepted_ms) open_ms_.erase(open);
    young_.pop_front();
  }
  while (!finished_ms_.empty() && now_ms - finished_ms_.front() > kHandshakeMs) {
    finished_ms_.pop_front();
  }
  return std::max<int64_t>(0, std::ssize(open_ms_) - std::ssize(finished_ms_));
}

inline std::optional<Refusal> ConnectionCaps::accepted(int descriptor, int64_t now_ms) {
  const int64_t before = unfinished(now_ms);
  young_.push_back({descriptor, now_ms});
  open_ms_[descriptor] = now_ms;
  if (before >= unfinished_) {
    return Refusal{"unfinished",
                   std::to_string(before) + " connections have not finished their handshake"};
  }
  return std::nullopt;
}

inline void ConnectionCaps::closed(int descriptor) { open_ms_.erase(descriptor); }

// Property "User-Id" of an observer's messages.
inline constexpr const char* kObserverUser = "observer";

class ZapHandler {
 public:
  // One per context. With Proof::kNone it admits every peer up to the caps.
  ZapHandler(zmq::context_t& context, Demand demand,
             ConnectionCaps caps = ConnectionCaps(descriptor_limit()));
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;

  zmq::context_t& context() { return context_; }
  bool accepts_observers() const { return !demand_.observer.empty(); }
  // Returns whether members ask these Routers for a proof, and the proof for a member's nonce.
  bool is_challenged() const { return demand_.proof == Proof::kChallenge; }
  std::string proof(const std::string& nonce) const;

  // Returns the soft limit of open descriptors of this process.
  static int64_t descriptor_limit();

  // Demands the credentials from each peer that connects to `socket`. Call it before the socket is
  // bound. Throws Error(kFailed) if this libzmq cannot.
  void guard(zmq::socket_t& socket);
  // Call it before `socket` closes.
  void release(zmq::socket_t& socket);

  // Counts an admitted peer that did something its role does not allow. Any thread.
  void count_refused(const std::string& address, const Refusal& refusal);
  // Returns the number of connections that closed before they presented the credentials, plus those
  // of count_refused. Any thread.
  int64_t refused_peers() const { return refused_.load(std::memory_order_relaxed); }
  // Returns a limited number of lines for users. Any thread.
  std::vector<std::string> take_notices();

  // Ends the thread; no peer is admitted from now on.
  void stop();

 private:
  struct Watched;

  void loop(const std::stop_token& stop);
  void answer();
  void take_events(Watched& watched);
  void take_event(Watched& watched, int event, int fd);
  zmq::socket_t make_monitor(zmq::socket_t& socket);
  void demand(zmq::socket_t& socket) const;

  zmq::context_t& context_;
  const Demand demand_;
  ConnectionCaps caps_;  // the thread only
  zmq::socket_t
      requests_;  // requests of libzmq, unless Proof::kNone; the thread only, once it runs
  UsedNonces used_nonces_;  // the thread only
  WakeFd wake_;
  std::atomic<int64_t> refused_ = 0;
  std::vector<void*> guarded_;  // sockets

  std::mutex mutex_;  // guards the members below, except the thread
  std::vector<zmq::socket_t> fresh_monitors_;
  Refusals refusals_;
  std::vector<std::string> notices_;

  std::jthread thread_;  // last, so that it ends before the members that it uses
};

}  // namespace pushpull
