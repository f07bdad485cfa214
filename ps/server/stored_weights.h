// All-reduce: workers sum gradients and update the weights among themselves. The server provides
// the first weights and optimizer state, collects losses (server 0), and keeps the weights that
// workers store at checkpoints. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ps/server/aggregation.h"
#include "ps/server/barrier_gate.h"
#include "ps/server/ledger.h"

namespace pushpull {

class StoredWeights : public Aggregation {
 public:
  explicit StoredWeights(AggregationSetup setup);

  // A push contains only the losses of its share; in a group, that of the last stage has them.
  std::vector<Range> nodes_of(Range /*share*/) const override { return {}; }
  Checked check(const wire::Push& push) const override;
  // Workers continue until kMaxReports losses are unanswered; no pull holds them back.
  bool puts_off(const wire::Push& push) const override {
    return setup_.gate.holds(push.step() + kMaxReports + 2);
  }
  Checked check(const wire::Pull& pull) const override;
  Checked check(const wire::Store& store) const override;
  void take_part(ReceivedPush& /*push*/, int /*slice*/, PartialSum /*part*/) override {}
  void take_push(ReceivedPush push) override;
  bool apply_due() override { return false; }
  std::optional<SliceAnswer> answer(const wire::Pull& /*pull*/, int /*slice*/) const override {
    return std::nullopt;
  }
  bool asks_for_one_version(const wire::Pull& /*pull*/) const override { return true; }
  // Opens a checkpoint's barrier once all its slices are here and, at server 0, all earlier losses.
  bool try_open_barrier() override;
  bool take_stored(const wire::Store& store, std::span<const Payload> payloads) override;
  bool start_has_state() const override { return true; }

 private:
  Ledger ledger_;
  int64_t storing_step_ = -1;  // barrier of the slices that are arriving
  int64_t stored_slices_ = 0;
};

}  // namespace pushpull
