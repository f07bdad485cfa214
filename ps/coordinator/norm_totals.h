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
  explicit NormTotals(const SliceMap& map) : map_(map) {}

  // The squares that one server has of a step. True: `total` answers this server, or, when
  // `all_here_now`, all of them.
  bool take(const wire::Norms& norms);
  bool all_here_now() const { return all_here_now_; }
  // Servers that hold slices: the others take no part in a step.
  int servers() const;
  const std::optional<wire::NormTotal>& total() const { return total_; }

 private:
  SliceMap map_;
  int64_t step_ = -1;
  std::map<uint64_t, wire::Norms> parts_;  // of step_, by the server's incarnation
  bool all_here_now_ = false;
  std::optional<wire::NormTotal> total_;
};

}  // namespace pushpull
