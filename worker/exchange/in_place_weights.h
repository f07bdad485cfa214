// Knows which servers' weights are read where the server has written them, in host memory or that of a
// device that both share. Falls back, server by server, where weights turn out not to lie in one
// piece. Plain bookkeeping; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pushpull {

class InPlaceWeights {
 public:
  // possible: servers hand out weights as they are, not encoded for the wire.
  InPlaceWeights(int servers, bool possible);

  // The server's memory and ours can be shared from here on, or cannot.
  //   on_device: memory of the device that this worker computes on, too.
  void share(int server, bool shared, bool on_device);

  // A pull goes out to the server.
  //   newest: for whatever version it has.
  void ask(int server, bool newest);
  // How the server was last asked.
  bool asked(int server) const { return at(server).asked; }
  bool asked_on_device(int server) const { return at(server).asked_on_device; }
  // It can be asked so.
  bool shares(int server) const { return at(server).in_place; }
  // Some server may hold on to weights for this worker until it pulls anew.
  bool any() const;

  // The weights that the server has written since it was asked do not lie in one piece.
  void lies_apart(int server, bool newest);

 private:
  struct Server {
    bool in_place = false;
    bool on_device = false;
    bool asked = false;
    bool asked_on_device = false;
  };
  const Server& at(int server) const { return servers_[static_cast<size_t>(server)]; }

  const bool possible_;
  std::vector<Server> servers_;
  bool newest_lies_apart_ = false;
};

}  // namespace pushpull
