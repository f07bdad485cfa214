// Simulated time and network, driven by one seed. Time moves only from event to event, so that a
// wait of a second costs nothing. A connection keeps the order of its messages. Faults lose,
// repeat, delay or reorder messages and break connections, as in a reconnect of ZeroMQ: messages in
// flight are lost or late, and the peer has another PeerId afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "common/net/message.h"

namespace pushpull::sim {

// SplitMix64 (Steele et al., OOPSLA 2014).
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t next();
  // Returns a uniform number in [lo, hi].
  int64_t between(int64_t lo, int64_t hi);
  bool chance(double probability);

 private:
  uint64_t state_;
};

class Clock {
 public:
  void after(int64_t delay_us, std::function<void()> event);
  // Runs the next event. Returns false if there is none.
  bool advance();
  int64_t now_us() const { return now_us_; }
  int64_t now_ms() const { return now_us_ / 1000; }
  int64_t events() const { return events_; }

 private:
  struct Event {
    int64_t at_us = 0;
    int64_t number = 0;
    std::shared_ptr<std::function<void()>> run;
    bool operator<(const Event& other) const {
      return at_us != other.at_us ? at_us > other.at_us : number > other.number;
    }
  };
  std::priority_queue<Event> queue_;
  int64_t now_us_ = 0;
  int64_t events_ = 0;
};

struct Faults {
  double lose = 0.0;       // probability per message
  double duplicate = 0.0;  // probability per message
  double reorder = 0.0;    // probability that a message is late and overtaken
  double reset = 0.0;      // probability per connection and kResetMs
  double damage = 0.0;     // the same: one direction delivers nothing until the peer reconnects
  int64_t delay_us = 300;  // longest ordinary delay
  int64_t until_ms = 0;    // end of the faults; later only ordinary delays
};

class Network {
 public:
  using RouterHandler = std::function<void(const PeerId& peer, const Message& message)>;
  using DealerHandler = std::function<void(const Message& message)>;

  Network(Clock& clock, uint64_t seed, const Faults& faults);

  int add_router(RouterHandler handler);
  // lossless: messages are lost only when the connection breaks, and none is very late.
  int add_dealer(int router, DealerHandler handler, bool lossless = false);
  // closed: called when the connection of this dealer has been closed and the next one is open.
  void on_closed(int dealer, std::function<void()> closed) {
    dealers_[static_cast<size_t>(dealer)].closed = std::move(closed);
  }
  void to_router(int dealer, Message message);
  // Returns false if the connection of the peer is closed.
  bool to_dealer(const PeerId& peer, Message message);
  // Delivers nothing on the connection until then, in both directions.
  void silence(int dealer, int64_t until_ms);
  // Delivers nothing on any connection to this router until then, in both directions.
  void cut_off(int router, int64_t until_ms);
  // Calls `hear` with each message to a router before any fault.
  void tap(std::function<void(int dealer, int router, const Message& message)> hear) {
    tap_ = std::move(hear);
  }
  // Returns the dealer at the other end of the connection.
  static int dealer_of(const PeerId& peer) { return std::stoi(peer); }
  // Allows damage on connections to this router.
  void may_damage(int router) { damaged_router_ = router; }
  // Opens a second connection of the owner beside the old one. It replaces the old one if that is
  // damaged.
  void open_second(int dealer);
  // Replaces the process behind a router: all connections to it are made anew.
  void restart_router(int router, RouterHandler handler);
  // Call when the process at this end has ended.
  void close(int dealer);
  bool is_open(int dealer) const { return dealers_[static_cast<size_t>(dealer)].open; }
  bool faulty() const { return clock_.now_ms() < faults_.until_ms; }

 private:
  static constexpr int64_t kResetMs = 10;
  static constexpr int64_t kClosedUs = 1000;
  static constexpr int64_t kBetweenDamagesMs =
      12'000;  // per connection: time to notice the first damage
  struct Dealer {
    int router = 0;
    DealerHandler handler;
    std::function<void()> closed;
    bool lossless = false;
    int64_t epoch = 0;
    bool open = true;
    int64_t silent_until_ms = 0;
    int64_t whole_until_ms = 0;        // no damage before
    int64_t deaf_epoch[2] = {-1, -1};  // newest epoch that is damaged, by direction as `last_us`
    int64_t last_us[2] = {0, 0};       // newest arrival, by direction
  };

  // Returns true if the connection of this epoch delivers nothing more in one direction.
  static bool deaf(const Dealer& dealer, int64_t epoch, bool up) {
    return dealer.deaf_epoch[up ? 1 : 0] == epoch;
  }
  static PeerId peer_of(int dealer, int64_t epoch);
  void transmit(int dealer, bool up, const std::shared_ptr<const Message>& message);
  void arrive(int dealer, int64_t epoch, bool up, const Message& message);
  void break_some();
  void damage_some();
  void reconnect(int dealer);
  void close_and_reconnect(int dealer);

  Clock& clock_;
  Dice dice_;
  Dice damage_dice_;
  int damaged_router_ = -1;
  const Faults faults_;
  const bool trace_;  // prints each message that arrives
  std::vector<RouterHandler> routers_;
  std::vector<Dealer> dealers_;
  std::map<PeerId, int> peers_;
  std::map<int, int64_t> cut_until_ms_;  // by router
  std::function<void(int dealer, int router, const Message& message)> tap_;
};

}  // namespace pushpull::sim
