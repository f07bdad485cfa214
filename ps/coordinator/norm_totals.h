// Computes the norm of the whole gradient over all servers: each server reports the squares of its
// slices, and their total goes back to all servers. Part of the coordinator's state machine. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "common/net/message.h"

namespace pushpull {

class SliceMap;

class NormTotals {
 public:
  //   kept: number of past steps with totals kept for a server that receives their pushes again.
  explicit NormTotals(const SliceMap& map, int64_t kept = 0);

  // Adds a server's squares for a step. Returns true if `total` is the answer: to all servers if
  // `all_here_now`, otherwise to this one.
  bool take(const wire::Norms& norms);
  // Drops a lost server's squares for the running step.
  void forget(uint64_t server) { parts_.erase(server); }
  bool all_here_now() const { return all_here_now_; }
  // Returns the number of servers with slices. Only these take part in a step.
  int servers() const { return servers_; }
  const std::optional<wire::NormTotal>& total() const { return total_; }

 private:
  int servers_;
  int64_t blocks_;  // of the whole vector
  int64_t kept_;
  int64_t step_ = -1;
  std::map<uint64_t, wire::Norms> parts_;  // for step_, by the server's incarnation
  bool all_here_now_ = false;
  std::optional<wire::NormTotal> total_;
  std::map<int64_t, double> norms_;  // of past steps, by step
};

}  // namespace pushpull
