// Tests PushDelivery without a pull, a strategy or a server.
#include "worker/exchange/push_delivery.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/worker/exchange_parts.h"

namespace pushpull {
namespace {

class Delivery : public testing::Test {
 protected:
  void make(PushDelivery::Options options = {}, int64_t connections = 1) {
    map_ = std::make_unique<ConnectionMap>(three_slices(), connections);
    delivery_ = std::make_unique<PushDelivery>(SenderId{11, 101}, *map_, options, outgoing_);
  }
  void push(int64_t step, std::weak_ptr<const void>* kept = nullptr) {
    delivery_->begin({step, {0, 2}, 1, 1, {7, 8}});
    for (int slice = 0; slice < 3; ++slice) {
      Payload part = floats_of(map_->map().elements(slice).size(), 2.0F);
      if (kept != nullptr && slice == 0) *kept = part.owner;
      delivery_->add_part(slice, {0, 2}, std::move(part));
    }
    delivery_->end(std::vector<float>{0.5F, 0.5F}, 4.0, "hash");
    delivery_->flush_all();
  }
  int sent_to(int server) {
    int out = 0;
    for (const ToServer& message : outgoing_) out += message.server == server ? 1 : 0;
    return out;
  }

  std::vector<ToServer> outgoing_;
  std::unique_ptr<ConnectionMap> map_;
  std::unique_ptr<PushDelivery> delivery_;
};

TEST_F(Delivery, PushNamesItsSenderStepAndReadVersions) {
  make();
  push(3);
  ASSERT_EQ(outgoing_.size(), 2U);
  for (const ToServer& out : outgoing_) {
    const wire::Exchange& exchange = out.message.header.exchange();
    EXPECT_EQ(exchange.sender().term_id(), 11U);
    EXPECT_EQ(exchange.sender().incarnation(), 101U);
    EXPECT_EQ(exchange.push().number(), 1);
    EXPECT_EQ(exchange.push().step(), 3);
    EXPECT_EQ(exchange.push().read_versions(1), 8);
    EXPECT_EQ(exchange.push().squares(), 4.0);
    EXPECT_EQ(exchange.push().parts_total(), out.server == 0 ? 2 : 1);
    EXPECT_EQ(exchange.push().losses_size(), out.server == 0 ? 2 : 0);
  }
}

TEST_F(Delivery, FullMessageIsFlushedBeforeTheNextPart) {
  make({.flush_bytes = 4096});
  delivery_->begin({0, {0, 2}, 1, 1, {0, 0}});
  delivery_->add_part(0, {0, 2}, floats_of(1024, 1.0F));
  EXPECT_TRUE(delivery_->is_full(2, false)) << "slice 2 uses the same connection";
  EXPECT_FALSE(delivery_->is_full(2, true)) << "a reference is short";
  EXPECT_FALSE(delivery_->is_full(1, false));
  EXPECT_TRUE(outgoing_.empty());
  delivery_->flush(0, 0);
  EXPECT_EQ(sent_to(0), 1);
  EXPECT_FALSE(delivery_->is_full(2, false));
}

TEST_F(Delivery, PullIsAddedToTheNextMessageOfItsConnection) {
  make({}, 2);
  wire::Pull pull;
  pull.set_number(5);
  EXPECT_FALSE(delivery_->take_along(0, 0, pull)) << "no message is pending";
  delivery_->begin({0, {0, 2}, 1, 1, {0, 0}});
  EXPECT_TRUE(delivery_->take_along(0, 0, pull));
  for (int slice = 0; slice < 3; ++slice) {
    delivery_->add_part(slice, {0, 2}, floats_of(map_->map().elements(slice).size(), 1.0F));
  }
  delivery_->end({}, 0.0, "");
  EXPECT_TRUE(delivery_->take_along(0, 1, pull));
  EXPECT_EQ(outgoing_.size(), 1U) << "the message is complete, so it is sent at once";
  delivery_->flush_all();
  for (const ToServer& out : outgoing_) {
    EXPECT_EQ(out.message.header.exchange().has_pull(), out.server == 0);
  }
  outgoing_.clear();
  delivery_->send_again(0);
  ASSERT_EQ(outgoing_.size(), 2U);
  EXPECT_FALSE(outgoing_[0].message.header.exchange().has_pull()) << "the pull is not resent";
}

TEST_F(Delivery, OnlyUnacknowledgedPushesAreResent) {
  make();
  push(0);
  push(1);
  outgoing_.clear();
  EXPECT_GT(delivery_->unacknowledged(), 0);
  delivery_->acknowledge(0, 1);
  delivery_->send_again(0);
  ASSERT_EQ(outgoing_.size(), 1U);
  EXPECT_EQ(outgoing_[0].message.header.exchange().push().step(), 1);
  delivery_->acknowledge(0, 2);
  EXPECT_TRUE(delivery_->arrived(0));
  EXPECT_GT(delivery_->unacknowledged(), 0);
  delivery_->acknowledge(1, 9);
  EXPECT_EQ(delivery_->unacknowledged(), 0);
}

TEST_F(Delivery, SharedGradientIsKeptUntilItIsApplied) {
  for (const bool applied_by_then : {false, true}) {
    make({.acknowledged_is_applied = applied_by_then});
    delivery_->shares_memory(0);
    std::weak_ptr<const void> kept;
    push(4, &kept);
    outgoing_.clear();
    delivery_->acknowledge(0, 1);
    EXPECT_EQ(kept.expired(), applied_by_then);
    delivery_->applied(4);
    EXPECT_EQ(kept.expired(), applied_by_then) << "version 4 does not contain step 4";
    delivery_->applied(5);
    EXPECT_TRUE(kept.expired());
  }
}

TEST_F(Delivery, GradientSentOverASocketIsReleasedOnceItIsAcknowledged) {
  make({.acknowledged_is_applied = false});
  std::weak_ptr<const void> kept;
  push(4, &kept);
  outgoing_.clear();
  EXPECT_FALSE(kept.expired());
  delivery_->acknowledge(0, 1);
  EXPECT_TRUE(kept.expired());
}

TEST_F(Delivery, PushesSinceTheCopyAreSentToAReplacementServer) {
  make({.keep = true});
  for (int64_t step = 0; step < 3; ++step) push(step);
  delivery_->acknowledge(0, 2);
  delivery_->acknowledge(1, 2);
  delivery_->copied(1);
  outgoing_.clear();
  delivery_->start_over(1);
  ASSERT_EQ(sent_to(1), 2) << "steps 1 and 2";
  EXPECT_EQ(sent_to(0), 0);
  for (const ToServer& out : outgoing_) {
    EXPECT_EQ(out.message.header.exchange().push().first(), 2);
    EXPECT_TRUE(out.message.header.exchange().push().acknowledge());
  }
  EXPECT_TRUE(delivery_->catches_up(1));
  delivery_->acknowledge(1, 3);
  EXPECT_FALSE(delivery_->catches_up(1));
  outgoing_.clear();
  push(3);
  EXPECT_EQ(outgoing_.back().message.header.exchange().push().first(), 2)
      << "the server may not know the first push yet";
}

TEST_F(Delivery, PushThatEndsAsItsServerIsReplacedNamesTheFirstOneToo) {
  make({.flush_bytes = 4096, .keep = true});
  push(0);
  delivery_->acknowledge(1, 1);
  delivery_->copied(1);
  delivery_->begin({1, {0, 2}, 1, 1, {7, 8}});
  for (int slice = 0; slice < 3; ++slice) {
    delivery_->add_part(slice, {0, 2}, floats_of(map_->map().elements(slice).size(), 2.0F));
  }
  delivery_->end(std::vector<float>{0.5F, 0.5F}, 4.0, "hash");
  outgoing_.clear();
  delivery_->start_over(1);
  EXPECT_EQ(sent_to(1), 0) << "its only message has not been sent yet";
  delivery_->flush_all();
  ASSERT_EQ(sent_to(1), 1);
  for (const ToServer& out : outgoing_) {
    if (out.server != 1) continue;
    EXPECT_EQ(out.message.header.exchange().push().first(), 2);
    EXPECT_TRUE(out.message.header.exchange().push().acknowledge());
  }
}

TEST_F(Delivery, AtMostEightKeptPushesAreUnacknowledged) {
  make({.keep = true});
  for (int64_t step = 0; step < 20; ++step) push(step);
  delivery_->acknowledge(1, 15);
  outgoing_.clear();
  delivery_->start_over(1);
  EXPECT_EQ(sent_to(1), 8);
  push(20);
  EXPECT_EQ(sent_to(1), 9) << "a new push is sent at once";
  outgoing_.clear();
  delivery_->send_again(1);
  EXPECT_EQ(sent_to(1), 9) << "only pushes that were sent";
  outgoing_.clear();
  delivery_->acknowledge(1, 3);
  EXPECT_EQ(sent_to(1), 3);
  delivery_->acknowledge(1, 21);
  EXPECT_TRUE(delivery_->arrived(1));
}

TEST_F(Delivery, CopiedPushIsNotResentEvenIfItIsUnacknowledged) {
  make({.keep = true});
  push(0);
  push(1);
  delivery_->copied(1);
  outgoing_.clear();
  delivery_->start_over(1);
  ASSERT_EQ(sent_to(1), 1);
  EXPECT_EQ(outgoing_[0].message.header.exchange().push().step(), 1);
}

TEST_F(Delivery, NothingIsKeptForServerZeroOrWithoutRecoveryByPeers) {
  for (const bool keep : {false, true}) {
    std::weak_ptr<const void> part;
    make({.keep = keep});
    push(0, &part);  // slice 0 is the first server's
    delivery_->acknowledge(0, 1);
    outgoing_.clear();
    EXPECT_TRUE(part.expired());
  }
}

}  // namespace
}  // namespace pushpull
