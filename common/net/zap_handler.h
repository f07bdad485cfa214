// Decides which peers may connect to the Routers of one ZeroMQ context. Answers libzmq's request
// about each connection (ZAP, https://rfc.zeromq.org/spec/27) on a thread of its own, before the
// first message passes. Also closes connections beyond the caps of ConnectionCaps, counts refused
// peers and reports their addresses. Used by the thread
// of the Routers, unless stated; destroyed after them and before the context.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "common/base/process.h"
#include "common/keys/credentials.h"
#include "common/keys/used_nonces.h"
#include "common/net/connection_caps.h"
#include "common/net/refusals.h"

namespace pushpull {

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
