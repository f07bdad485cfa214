// A message from a worker to a server. Plain values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/net/message.h"

namespace pushpull {

// The part of the slices that a worker works with: all of them, or those of its stage in a group
// that divides the model. Plain value.
struct SlicePart {
  int stage = 0;                   // whose slices it pushes
  std::vector<Range> pulled = {};  // slices that it needs, ascending; empty: all
  bool reports = false;            // pushes go to all servers with slices: the run is recorded

  bool needs(int slice) const {
    return pulled.empty() || std::ranges::any_of(pulled, [slice](const Range& range) {
             return range.lo <= slice && slice < range.hi;
           });
  }
};

// Maps slices to connections. A worker has `connections` connections to each server (a key of the
// job), but at most one for each of the server's slices; slices are assigned to them in turn, in
// both directions. Immutable; thread-safe.
class ConnectionMap {
 public:
  // connections: to each server; at least 1.
  ConnectionMap(const SliceMap& map, int64_t connections, SlicePart part = {})
      : map_(map), part_(std::move(part)), servers_(static_cast<size_t>(map.servers())) {
    for (int server = 0; server < servers(); ++server) {
      Server& to = servers_[static_cast<size_t>(server)];
      const std::vector<int> all = map.slices_of(server);
      to.has_slices = !all.empty();
      to.connections = static_cast<int>(std::clamp<int64_t>(std::ssize(all), 1, connections));
      for (const int slice : all) {
        if (part_.needs(slice)) to.pulled.push_back(slice);
        if (map.stage_of(slice) == part_.stage) ++to.pushed;
      }
    }
  }

  const SliceMap& map() const { return map_; }
  const SlicePart& part() const { return part_; }
  int servers() const { return map_.servers(); }
  // The server's slices that the worker pulls, ascending, and the number of those that it pushes.
  const std::vector<int>& pulled(int server) const { return at(server).pulled; }
  int pushed(int server) const { return at(server).pushed; }
  // Returns true if the server counts the worker's pushes, also those without slices.
  bool counts_pushes(int server) const {
    return pushed(server) > 0 || server == 0 || (part_.reports && at(server).has_slices);
  }
  // The number of connections to the server.
  int count(int server) const { return at(server).connections; }
  // The index of the slice's connection among those to its server.
  int of_slice(int slice) const { return slice / servers() % count(map_.server_of(slice)); }

 private:
  struct Server {
    std::vector<int> pulled;
    int pushed = 0;
    bool has_slices = false;
    int connections = 1;
  };
  const Server& at(int server) const { return servers_[static_cast<size_t>(server)]; }

  const SliceMap map_;
  const SlicePart part_;
  std::vector<Server> servers_;
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
