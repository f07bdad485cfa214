// A rule of aggregation on its own shard, without a server.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/thread_pool.h"
#include "common/job/job.h"
#include "common/layout/slice_map.h"
#include "ps/engine/shard.h"
#include "ps/server/aggregation.h"
#include "ps/server/barrier_gate.h"
#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {

// Two slices, one server, two shares of two micro-batches each.
class RuleTest : public testing::Test {
 protected:
  static constexpr int64_t kElements = 2048;

  void make(const std::string& keys) {
    job_ = job_of(keys);
    const ServerSetup setup = server_setup(job_, kElements);
    shard_ = std::make_unique<Shard>(SliceMap(kElements, job_.slice_bytes, 1), 0, setup.table,
                                     server_optimizer(job_));
    shard_->initialise(1);
    shard_->set_start(0, 0);
    gate_ = std::make_unique<BarrierGate>(barriers_of(job_, 0, job_.steps), *shard_, observer_);
    AggregationSetup rule{job_, *shard_, *gate_, serial_, observer_};
    rule.record = [this](wire::Applied applied) { applied_.push_back(std::move(applied)); };
    rule.shares = 2;
    rule.total_steps = 10;
    rule_ = make_aggregation(std::move(rule));
  }
  // Gives a whole push of a share to the rule: every gradient is `value`, computed on the newest
  // weights or on version `read`.
  void give(uint64_t who, int64_t step, Range share, float value = 1.0F, int64_t read = 0) {
    ReceivedPush push;
    push.incarnation = who;
    push.rank = static_cast<int>(who - kAnna);
    push.step = step;
    push.range = share;
    push.losses.assign(static_cast<size_t>(share.size()), 0.5F);
    push.reads = {read};
    for (const int slice : shard_->slices()) {
      for (const Range node : rule_->nodes_of(share)) {
        rule_->take_part(push, slice, {node, constant_payload(shard_->elements(slice), value)});
      }
    }
    rule_->take_push(std::move(push));
  }
  // Returns the version that answers a pull of slice 0 at `clock`, if there is one.
  std::optional<int64_t> version(int64_t clock, bool latest = false) const {
    wire::Pull pull;
    pull.set_clock(clock);
    pull.set_latest(latest);
    const auto answer = rule_->answer(pull, 0);
    return answer ? std::optional(answer->version) : std::nullopt;
  }
  float weight() const { return shard_->weights(0).floats()[0]; }

  Job job_;
  Serial serial_;
  ListeningObserver observer_;
  std::vector<wire::Applied> applied_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<BarrierGate> gate_;
  std::unique_ptr<Aggregation> rule_;
};

}  // namespace pushpull
