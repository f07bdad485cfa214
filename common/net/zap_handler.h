// Who may connect to the Routers of one ZeroMQ context: answers what libzmq asks about each
// connection (ZAP, https://rfc.zeromq.org/spec/27) on a thread of its own, before the first message
// passes. It also counts who was not let in, and says from which address. Used by the thread of the
// Routers, unless stated; it ends after them and before the context.
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
#include "common/net/refusals.h"

namespace pushpull {

// Property "User-Id" of what an observer sends.
inline constexpr const char* kObserverUser = "observer";

class ZapHandler {
 public:
  // One in a context. With Proof::kNone it has no thread, and lets everybody in.
  ZapHandler(zmq::context_t& context, Demand demand);
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;

  zmq::context_t& context() { return context_; }
  bool knows_observers() const { return !demand_.observer.empty(); }

  // Asks whoever connects to `socket` for what is demanded. Call it before it is bound.
  // Throws Error(kFailed) where this libzmq cannot.
  void guard(zmq::socket_t& socket);
  // Before `socket` closes.
  void release(zmq::socket_t& socket);

  // Counts a peer that was let in and then did what its role may not. Any thread.
  void count_refused(const std::string& address, const Refusal& refusal);
  // Connections that were closed before they had shown what is demanded, and the above. Any thread.
  int64_t refused_peers() const { return refused_.load(std::memory_order_relaxed); }
  // Lines for people, not too many. Any thread.
  std::vector<std::string> take_notices();

  // Ends the thread; nobody is let in from now on.
  void stop();

 private:
  struct Watched;

  void loop(const std::stop_token& stop);
  void answer();
  void take_events(Watched& watched);
  zmq::socket_t make_monitor(zmq::socket_t& socket);

  zmq::context_t& context_;
  const Demand demand_;
  zmq::socket_t requests_;  // libzmq's; the thread's once it runs
  WakeFd wake_;
  std::atomic<int64_t> refused_ = 0;
  std::vector<void*> guarded_;  // sockets

  std::mutex mutex_;  // of what follows
  std::vector<zmq::socket_t> fresh_monitors_;
  Refusals refusals_;
  std::vector<std::string> notices_;

  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace pushpull
