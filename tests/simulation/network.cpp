#include "tests/simulation/network.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>

namespace pushpull::sim {

uint64_t Dice::next() {
  state_ += 0x9e3779b97f4a7c15ULL;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

int64_t Dice::between(int64_t lo, int64_t hi) {
  return lo + static_cast<int64_t>(next() % static_cast<uint64_t>(hi - lo + 1));
}

bool Dice::chance(double probability) {
  return static_cast<double>(next() >> 11) * 0x1p-53 < probability;
}

void Clock::after(int64_t delay_us, std::function<void()> event) {
  queue_.push({now_us_ + delay_us, events_ + static_cast<int64_t>(queue_.size()),
               std::make_shared<std::function<void()>>(std::move(event))});
}

bool Clock::advance() {
  if (queue_.empty()) return false;
  const Event event = queue_.top();
  queue_.pop();
  now_us_ = event.at_us;
  ++events_;
  (*event.run)();
  return true;
}

Network::Network(Clock& clock, uint64_t seed, const Faults& faults)
    : clock_(clock),
      dice_(seed),
      damage_dice_(seed + 1),
      faults_(faults),
      trace_(std::getenv("PUSHPULL_SIM_TRACE") != nullptr) {
  if (faults_.reset > 0) clock_.after(kResetMs * 1000, [this] { break_some(); });
  if (faults_.damage > 0) clock_.after(kResetMs * 1000, [this] { damage_some(); });
}

int Network::add_router(RouterHandler handler) {
  routers_.push_back(std::move(handler));
  return static_cast<int>(routers_.size()) - 1;
}

int Network::add_dealer(int router, DealerHandler handler, bool lossless) {
  const auto id = static_cast<int>(dealers_.size());
  Dealer dealer;
  dealer.router = router;
  dealer.handler = std::move(handler);
  dealer.lossless = lossless;
  dealers_.push_back(std::move(dealer));
  peers_[peer_of(id, 0)] = id;
  return id;
}

PeerId Network::peer_of(int dealer, int64_t epoch) {
  return std::to_string(dealer) + "." + std::to_string(epoch);
}

void Network::to_router(int dealer, Message message) {
  const Dealer& d = dealers_[static_cast<size_t>(dealer)];
  if (!d.open) return;
  if (tap_) tap_(dealer, d.router, message);
  transmit(dealer, true, std::make_shared<const Message>(std::move(message)));
}

bool Network::to_dealer(const PeerId& peer, Message message) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return false;
  transmit(found->second, false, std::make_shared<const Message>(std::move(message)));
  return true;
}

void Network::transmit(int dealer, bool up, const std::shared_ptr<const Message>& message) {
  Dealer& d = dealers_[static_cast<size_t>(dealer)];
  int copies = 1;
  if (faulty()) {
    if (!d.lossless && dice_.chance(faults_.lose)) copies = 0;
    if (dice_.chance(faults_.duplicate)) ++copies;
  }
  if (clock_.now_ms() < d.silent_until_ms || deaf(d, d.epoch, up)) copies = 0;
  const auto cut = cut_until_ms_.find(d.router);
  if (cut != cut_until_ms_.end() && clock_.now_ms() < cut->second) copies = 0;
  for (int i = 0; i < copies; ++i) {
    int64_t at = clock_.now_us() + dice_.between(20, faults_.delay_us);
    if (faulty() && !d.lossless && (i > 0 || dice_.chance(faults_.reorder))) {
      // most are a little late, some later than any retry interval
      at += dice_.chance(0.1) ? dice_.between(1'000'000, 3'000'000) : dice_.between(0, 50'000);
    } else {
      at = std::max(at, d.last_us[up ? 1 : 0]);
      d.last_us[up ? 1 : 0] = at;
    }
    clock_.after(at - clock_.now_us(), [this, dealer, epoch = d.epoch, up, message] {
      arrive(dealer, epoch, up, *message);
    });
  }
}

void Network::arrive(int dealer, int64_t epoch, bool up, const Message& message) {
  const Dealer& d = dealers_[static_cast<size_t>(dealer)];
  if (deaf(d, epoch, up)) return;  // also what was sent before the damage
  if (trace_) {
    std::cerr << clock_.now_us() << (up ? " from " : " to ") << peer_of(dealer, epoch) << " "
              << message.header.ShortDebugString() << "\n";
  }
  // a router may still read received messages after the connection has ended; all others are lost
  const bool current = d.open && epoch == d.epoch;
  if (!current && (!up || !dice_.chance(0.5))) return;
  if (up) {
    routers_[static_cast<size_t>(d.router)](peer_of(dealer, epoch), message);
  } else {
    d.handler(message);
  }
}

void Network::break_some() {
  if (!faulty()) return;
  for (size_t i = 0; i < dealers_.size(); ++i) {
    Dealer& d = dealers_[i];
    if (!d.open || !dice_.chance(faults_.reset)) continue;
    close_and_reconnect(static_cast<int>(i));
  }
  clock_.after(kResetMs * 1000, [this] { break_some(); });
}

void Network::damage_some() {
  if (!faulty()) return;
  for (Dealer& d : dealers_) {
    if (!d.open || d.router != damaged_router_ || clock_.now_ms() < d.whole_until_ms) continue;
    if (!damage_dice_.chance(faults_.damage)) continue;
    d.deaf_epoch[damage_dice_.between(0, 1)] = d.epoch;
    d.whole_until_ms = clock_.now_ms() + kBetweenDamagesMs;
  }
  clock_.after(kResetMs * 1000, [this] { damage_some(); });
}

void Network::open_second(int dealer) {
  const Dealer& d = dealers_[static_cast<size_t>(dealer)];
  const bool damaged = deaf(d, d.epoch, false) || deaf(d, d.epoch, true);
  if (d.open && damaged) reconnect(dealer);
}

void Network::reconnect(int dealer) {
  Dealer& d = dealers_[static_cast<size_t>(dealer)];
  peers_.erase(peer_of(dealer, d.epoch));
  peers_[peer_of(dealer, ++d.epoch)] = dealer;
  d.last_us[0] = d.last_us[1] = clock_.now_us();
}

// The owner hears of it a little later, as from libzmq's monitor.
void Network::close_and_reconnect(int dealer) {
  reconnect(dealer);
  clock_.after(kClosedUs, [this, dealer] {
    const Dealer& d = dealers_[static_cast<size_t>(dealer)];
    if (d.open && d.closed) d.closed();
  });
}

void Network::restart_router(int router, RouterHandler handler) {
  routers_[static_cast<size_t>(router)] = std::move(handler);
  for (size_t i = 0; i < dealers_.size(); ++i) {
    if (dealers_[i].open && dealers_[i].router == router) close_and_reconnect(static_cast<int>(i));
  }
}

void Network::silence(int dealer, int64_t until_ms) {
  Dealer& d = dealers_[static_cast<size_t>(dealer)];
  d.silent_until_ms = std::max(d.silent_until_ms, until_ms);
}

void Network::cut_off(int router, int64_t until_ms) {
  int64_t& until = cut_until_ms_[router];
  until = std::max(until, until_ms);
}

void Network::close(int dealer) {
  Dealer& d = dealers_[static_cast<size_t>(dealer)];
  d.open = false;
  peers_.erase(peer_of(dealer, d.epoch));
}

}  // namespace pushpull::sim
