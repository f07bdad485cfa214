#include "worker/all_reduce/peer_dealers.h"

#include "common/net/data_proof.h"

namespace pushpull {

PeerDealers::PeerDealers(zmq::context_t& context, const std::vector<PeerAddress>& all, int rank,
                         const EndpointLimits& limits, const Credentials& credentials)
    : dealers_(all.size()) {
  for (size_t r = 0; r < all.size(); ++r) {
    if (static_cast<int>(r) == rank) continue;
    dealers_[r] = std::make_unique<Dealer>(context, all[r].endpoint, limits,
                                           credentials.to(listener_name(all[r].incarnation)));
  }
}

int PeerDealers::unready() {
  int found = -1;
  for (size_t r = 0; r < dealers_.size(); ++r) {
    if (!dealers_[r] || dealers_[r]->ready()) continue;
    dealers_[r]->receive();
    if (!dealers_[r]->ready()) found = static_cast<int>(r);
  }
  return found;
}

void PeerDealers::add_unready(std::vector<zmq::pollitem_t>& items) {
  for (const auto& dealer : dealers_) {
    if (dealer && !dealer->ready()) items.push_back({dealer->socket().handle(), 0, ZMQ_POLLIN, 0});
  }
}

}  // namespace pushpull
