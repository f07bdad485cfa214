// A message from a worker to a server. Plain values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/net/message.h"

namespace pushpull {

// Maps slices to connections. A worker has `connections` connections to each server (a key of the
// job), but at most one for each of the server's slices; slices are assigned to them in turn, in
// both directions. Immutable; thread-safe.
class ConnectionMap {
 public:
  // connections: to each server; at least 1.
  ConnectionMap(const SliceMap& map, int64_t connections)
      : map_(map), slices_(static_cast<size_t>(map.servers())) {
    for (int server = 0; server < servers(); ++server) {
      slices_[static_cast<size_t>(server)] = map.slices_of(server);
      counts_.push_back(
          static_cast<int>(std::clamp<int64_t>(std::ssize(slices(server)), 1, connections)));
    }
  }

  const SliceMap& map() const { return map_; }
  int servers() const { return map_.servers(); }
  // The server's slices, ascending.
  const std::vector<int>& slices(int server) const { return slices_[static_cast<size_t>(server)]; }
  // The number of connections to the server.
  int count(int server) const { return counts_[static_cast<size_t>(server)]; }
  // The index of the slice's connection among those to its server.
  int of_slice(int slice) const { return slice / servers() % count(map_.server_of(slice)); }

 private:
  const SliceMap map_;
  std::vector<std::vector<int>> slices_;  // by server
  std::vector<int> counts_;               // by server
};

struct ToServer {
  int server = 0;
  Message message;
  int connection = 0;  // index among those to the server
};

// The sender that every message of a worker names.
struct SenderId {
  uint64_t term_id = 0;
  uint64_t incarnation = 0;

  void put(wire::Sender* sender) const {
    sender->set_term_id(term_id);
    sender->set_incarnation(incarnation);
  }
};

}  // namespace pushpull
