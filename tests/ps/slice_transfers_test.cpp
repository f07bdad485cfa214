#include "ps/server/slice_transfers.h"

#include <gtest/gtest.h>

#include "tests/ps/refusals.h"
#include "tests/ps/rule_fixture.h"

namespace pushpull {
namespace {

class SliceTransfersTest : public RuleTest {
 protected:
  void begin(const std::string& keys, bool load) {
    make(keys);
    transfers_ = std::make_unique<SliceTransfers>(load, 7, *shard_, *gate_, *rule_);
  }
  Checked load(int slice, const std::vector<Payload>& payloads) {
    wire::Load load;
    load.set_slice(slice);
    return transfers_->load("c", load, payloads, outbox_);
  }
  Checked fetch(int slice, int64_t step, bool state = false) {
    wire::Fetch fetch;
    fetch.set_slice(slice);
    fetch.set_step(step);
    fetch.set_state(state);
    return transfers_->fetch("c", fetch, outbox_);
  }
  Message answer() {
    Message out = std::move(outbox_.back().message);
    outbox_.clear();
    return out;
  }

  std::unique_ptr<SliceTransfers> transfers_;
  Outbox outbox_;
};

TEST_F(SliceTransfersTest, ServerIsReadyOnceAllSlicesAreLoaded) {
  begin("", true);
  EXPECT_TRUE(taken(load(0, {constant_payload(1024, 3.0F)})));
  EXPECT_TRUE(answer().header.has_loaded());
  EXPECT_FALSE(transfers_->ready());
  EXPECT_TRUE(taken(fetch(0, 0)));
  EXPECT_TRUE(answer().header.status().not_ready());
  EXPECT_TRUE(taken(load(1, {constant_payload(1024, 4.0F)})));
  EXPECT_TRUE(transfers_->ready());
  EXPECT_TRUE(taken(load(0, {constant_payload(1024, 9.0F)}))) << "a repeat";
  outbox_.clear();
  EXPECT_TRUE(taken(fetch(0, 0)));
  const Message fetched = answer();
  EXPECT_EQ(fetched.header.fetched().updates(), 7);
  EXPECT_EQ(floats_of(fetched.payloads[0])[0], 3.0F) << "the first load counts";
}

TEST_F(SliceTransfersTest, InvalidLoadsAreRefusedWithTheReason) {
  begin("", true);
  EXPECT_EQ(line_of(load(2, {constant_payload(1024, 1.0F)})),
            "[slice] expected a slice of this server, got 2");
  EXPECT_EQ(line_of(load(0, {})), "[slice-payloads] expected 1 to 1, got 0");
  EXPECT_EQ(line_of(load(0, {constant_payload(3, 1.0F)})), "[slice-bytes] expected 4096, got 12");
  begin("", false);
  EXPECT_EQ(reason_of(load(0, {constant_payload(1024, 1.0F)})), "load-start");
  EXPECT_TRUE(outbox_.empty());
}

TEST_F(SliceTransfersTest, OnlyWorkersThatUpdateFetchTheInitialState) {
  begin("optimizer = momentum\n", false);
  EXPECT_EQ(reason_of(fetch(0, 0, true)), "fetch-state");
  EXPECT_EQ(reason_of(fetch(0, -1)), "fetch-step");
  EXPECT_TRUE(taken(fetch(0, 5)));
  EXPECT_TRUE(answer().header.status().not_ready()) << "the snapshot is not held";
  begin("strategy = allreduce:tree\noptimizer = momentum\n", false);
  EXPECT_TRUE(taken(fetch(1, 0, true)));
  EXPECT_EQ(answer().payloads.size(), 2U);
}

TEST_F(SliceTransfersTest, KeptSliceIsStored) {
  begin("strategy = allreduce:tree\ncheckpoint-every = 1\n", false);
  wire::Store store;
  store.set_step(1);
  store.set_updates(1);
  EXPECT_TRUE(taken(transfers_->store("c", store, {constant_payload(1024, 1.0F)}, outbox_)));
  EXPECT_TRUE(answer().header.has_stored());
}

}  // namespace
}  // namespace pushpull
