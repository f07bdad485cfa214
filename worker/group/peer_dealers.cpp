#include "worker/group/peer_dealers.h"

#include <algorithm>

#include "common/net/data_proof.h"

namespace pushpull {

void PeerDealers::connect(const std::vector<PeerAddress>& all, int self) {
  std::vector<std::unique_ptr<Dealer>> dealers(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int>(i) == self) continue;
    const auto known = std::find(all_.begin(), all_.end(), all[i]) - all_.begin();
    if (known < std::ssize(all_)) dealers[i] = std::move(dealers_[static_cast<size_t>(known)]);
    if (dealers[i]) continue;
    dealers[i] = std::make_unique<Dealer>(context_, all[i].endpoint, limits_,
                                          credentials_.to(listener_name(all[i].incarnation)));
  }
  all_ = all;
  dealers_ = std::move(dealers);
}

int PeerDealers::unready() {
  int found = -1;
  for (size_t i = 0; i < dealers_.size(); ++i) {
    if (!dealers_[i] || dealers_[i]->ready()) continue;
    dealers_[i]->receive();
    if (!dealers_[i]->ready()) found = static_cast<int>(i);
  }
  return found;
}

void PeerDealers::add_unready(std::vector<zmq::pollitem_t>& items) {
  for (const auto& dealer : dealers_) {
    if (dealer && !dealer->ready()) items.push_back({dealer->socket().handle(), 0, ZMQ_POLLIN, 0});
  }
}

std::string PeerDealers::take_warning() {
  for (const auto& dealer : dealers_) {
    std::string line = dealer ? dealer->take_warning() : "";
    if (!line.empty()) return line;
  }
  return "";
}

}  // namespace pushpull
