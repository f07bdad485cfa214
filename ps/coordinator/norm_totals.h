// The norm of the whole gradient, which no server knows alone: each server reports the squares of
// its slices, and the sum over all of them goes back to each. Part of the coordinator's state
// machine; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "common/layout/slice_map.h"
#include "common/net/message.h"

namespace pushpull {

class NormTotals {
 public:
  // kept: steps below the newest whose totals are known, for a server that is sent their pushes again.
  explicit NormTotals(const SliceMap& map, int64_t kept = 0) : map_(map), kept_(kept) {}

  // The squares that one server has of a step. True: `total` answers this server, or, when
  // `all_here_now`, all of them.
  bool take(const wire::Norms& norms);
  // A server is lost: what it has said of a running step counts no longer.
  void forget(uint64_t server) { parts_.erase(server); }
  bool all_here_now() const { return all_here_now_; }
  // Servers that hold slices: the others take no part in a step.
  int servers() const;
  const std::optional<wire::NormTotal>& total() const { return total_; }

 private:
  SliceMap map_;
  int64_t kept_;
  int64_t step_ = -1;
  std::map<uint64_t, wire::Norms> parts_;  // of step_, by the server's incarnation
  bool all_here_now_ = false;
  std::optional<wire::NormTotal> total_;
  std::map<int64_t, double> norms_;  // by step: of the newest steps
};

}  // namespace pushpull
