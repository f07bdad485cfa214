#include "worker/exchange/in_place_weights.h"

#include <algorithm>

namespace pushpull {

InPlaceWeights::InPlaceWeights(int servers, bool possible)
    : possible_(possible), servers_(static_cast<size_t>(servers)) {}

// Weights of several servers are put together, or mapped side by side, by the host.
void InPlaceWeights::share(int server, bool shared, bool on_device) {
  Server& s = servers_[static_cast<size_t>(server)];
  s.in_place = shared && possible_;
  s.on_device = s.in_place && on_device && servers_.size() == 1;
}

void InPlaceWeights::ask(int server, bool newest) {
  Server& s = servers_[static_cast<size_t>(server)];
  s.asked = s.in_place && !(newest && newest_lies_apart_);
  s.asked_on_device = s.asked && s.on_device;
}

bool InPlaceWeights::any() const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [](const Server& server) { return server.in_place || server.asked; });
}

// Weights of whatever versions there are may lie in two generations. Otherwise the server shares
// memory no more, or had none for a generation. Such weights are copied from here on, those on a
// device by the server.
void InPlaceWeights::lies_apart(int server, bool newest) {
  Server& s = servers_[static_cast<size_t>(server)];
  if (newest) {
    newest_lies_apart_ = true;
  } else if (s.asked_on_device) {
    s.on_device = false;
  } else {
    s.in_place = false;
  }
}

}  // namespace pushpull
