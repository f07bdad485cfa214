// A push as one server receives it: one share's gradient of one step, assembled from one or several
// messages. Plain data. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "common/base/hash_sum.h"
#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "ps/aggregation/commit.h"
#include "ps/engine/partial_sum.h"

namespace pushpull {

struct ReceivedPush {
  uint64_t incarnation = 0;  // of the worker
  int rank = -1;             // of the worker
  int64_t step = 0;
  int64_t steps = 1;          // covers [step, step + steps)
  Range range;                // micro-batches
  std::vector<float> losses;  // per micro-batch, step by step; only server 0 gets them
  double squares = 0.0;       // squared norm of its mean gradient; if clipping is per push
  HashSum data_hash = {};     // of the samples drawn
  std::vector<wire::BadGradient> bad = {};  // micro-batches that count as zeros; server 0 only
  std::vector<int64_t> reads = {};          // by server: version that it was computed on
  std::map<int, PartialSum> parts = {};     // by slice, unless the rule has taken them
};

// Makes the commit of a push and moves the losses into it.
//   counted: its micro-batches enter the weights by this push.
inline Commit commit_of(ReceivedPush& push, bool counted) {
  Commit commit{push.incarnation, push.step, push.range, std::move(push.losses), counted};
  commit.data_hash = push.data_hash;
  commit.steps = push.steps;
  commit.bad = std::move(push.bad);
  return commit;
}

}  // namespace pushpull
