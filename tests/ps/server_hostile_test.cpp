// Messages of hostile or broken peers to a server that trains are refused, and the weights do not
// change.
#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull::server_hostile_test {
namespace {

constexpr int64_t kElements = 5000;  // five slices of 4 KiB over two servers
constexpr Range kFirst{0, 2};
constexpr Range kSecond{2, 4};

using Spoil = std::function<void(Message& message, wire::Push* push)>;

class Hostile : public testing::TestWithParam<const char*> {
 protected:
  Hostile()
      : setup_(
            server_setup(job_of(std::string("outer-momentum = 0\nstrategy = ") + GetParam() + "\n"),
                         kElements, 0, 2)) {
    restart();
  }
  void restart() {
    server_ = std::make_unique<Server>(setup_, nullptr);
    server_->on_state(state_with_workers({kAnna, kBert}));
  }
  bool sync() const { return setup_.job.strategy.kind == StrategyKind::kSync; }
  std::vector<std::vector<float>> weights(int64_t number = 1) {
    Message pull = pull_message(kBert, number, 0);
    pull.header.mutable_exchange()->mutable_pull()->set_latest(true);
    EXPECT_TRUE(taken(server_->on_data("bert", pull)));
    std::vector<std::vector<float>> out;
    for (const Outgoing& o : server_->take_outgoing()) {
      for (const Payload& p : o.message.payloads) out.push_back(floats_of(p));
    }
    return out;
  }
  // Sends a choice: under backup a step ends with it. Other strategies ignore it.
  void choose_first() {
    wire::Chosen chosen;
    chosen.add_lo(0);
    server_->on_chosen(chosen);
  }
  // Expects that a push changed by `spoil` is refused for `reason` and changes nothing.
  void expect_refused(const std::string& what, const std::string& reason, const Spoil& spoil) {
    SCOPED_TRACE(what);
    restart();
    const auto before = weights();
    Message message = push_message(setup_, kAnna, 1, 0, kFirst, 1e30F);
    spoil(message, message.header.mutable_exchange()->mutable_push());
    const Checked refusal = server_->on_data("anna", message);
    EXPECT_EQ(reason_of(refusal), reason) << line_of(refusal);
    EXPECT_TRUE(refusal && !refusal->text.empty());
    EXPECT_TRUE(server_->take_outgoing().empty());
    EXPECT_EQ(weights(2), before);
    EXPECT_EQ(server_->stats().updates(), 0);
    EXPECT_EQ(server_->stats().bytes_pushed(), 0);
    // the honest push still counts
    EXPECT_TRUE(taken(server_->on_data("anna", push_message(setup_, kAnna, 1, 0, kFirst, 1.0F))));
    EXPECT_TRUE(taken(server_->on_data("bert", push_message(setup_, kBert, 1, 0, kSecond, 1.0F))));
    choose_first();
    EXPECT_EQ(server_->floor(), 1);
  }

  ServerSetup setup_;
  std::unique_ptr<Server> server_;
};

TEST_P(Hostile, AnotherRunIsRefused) {
  expect_refused("run", "run", [](Message& m, wire::Push*) {
    m.header.mutable_exchange()->mutable_sender()->set_term_id(kTermId + 1);
  });
  expect_refused("no sender", "run",
                 [](Message& m, wire::Push*) { m.header.mutable_exchange()->clear_sender(); });
}

TEST_P(Hostile, UnknownIncarnationChangesNothing) {
  const auto before = weights();
  EXPECT_TRUE(taken(server_->on_data("x", push_message(setup_, 12345, 1, 0, kFirst, 1e30F))));
  EXPECT_TRUE(taken(server_->on_data("x", push_message(setup_, 0, 1, 0, kFirst, 1e30F))));
  server_->take_outgoing();
  EXPECT_EQ(weights(2), before);
}

TEST_P(Hostile, InvalidShareIsRefused) {
  for (const Range range :
       {Range{0, 1}, Range{1, 3}, Range{0, 4}, Range{2, 2}, Range{2, 0}, Range{-2, 2}, Range{4, 6},
        Range{INT32_MIN, INT32_MAX}, Range{INT32_MAX, INT32_MIN}}) {
    expect_refused(std::to_string(range.lo), "push-share", [&](Message&, wire::Push* push) {
      push->set_lo(static_cast<int32_t>(range.lo));
      push->set_hi(static_cast<int32_t>(range.hi));
    });
  }
}

TEST_P(Hostile, StepsOutsideTheRunAreRefused) {
  for (const int64_t step : {int64_t{-1}, int64_t{10}, INT64_MAX, INT64_MIN}) {
    expect_refused(std::to_string(step), "push-step",
                   [&](Message&, wire::Push* push) { push->set_step(step); });
  }
}

TEST_P(Hostile, InvalidNumbersAreRefused) {
  for (const int64_t number : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    expect_refused("number", "push-number",
                   [&](Message&, wire::Push* push) { push->set_number(number); });
  }
}

TEST_P(Hostile, ImpossibleReadVersionsAreRefused) {
  const int own = setup_.rank;
  for (const int64_t version : {int64_t{-1}, INT64_MIN}) {
    for (int server = 0; server < setup_.servers; ++server) {
      expect_refused(std::to_string(version), "push-reads",
                     [&](Message&, wire::Push* push) { push->set_read_versions(server, version); });
    }
  }
  expect_refused("one too few", "push-reads",
                 [](Message&, wire::Push* push) { push->mutable_read_versions()->RemoveLast(); });
  expect_refused("one too many", "push-reads",
                 [](Message&, wire::Push* push) { push->add_read_versions(0); });
  if (setup_.job.strategy.traits().step_versions) return;
  for (const int64_t version : {int64_t{1}, INT64_MAX}) {
    expect_refused("not there yet", "push-reads",
                   [&](Message&, wire::Push* push) { push->set_read_versions(own, version); });
  }
}

TEST_P(Hostile, SlicesOfAnotherServerAreRefused) {
  for (const int slice : {1, 3, 5, 6, -1, -2, INT_MAX, INT_MIN}) {
    expect_refused(std::to_string(slice), "push-slice",
                   [&](Message&, wire::Push* push) { push->mutable_parts(0)->set_slice(slice); });
  }
}

TEST_P(Hostile, PartsThatAreNoSubtreesOfTheShareAreRefused) {
  for (const Range node : {Range{0, 1}, Range{2, 4}, Range{0, 4}, Range{2, 0}, Range{-1, 1},
                           Range{INT32_MIN, INT32_MAX}}) {
    expect_refused(std::to_string(node.lo), "push-node", [&](Message&, wire::Push* push) {
      push->mutable_parts(0)->set_lo(static_cast<int32_t>(node.lo));
      push->mutable_parts(0)->set_hi(static_cast<int32_t>(node.hi));
    });
  }
}

TEST_P(Hostile, PayloadsOfAnotherSizeAreRefused) {
  for (const int64_t n : {0, 1, 1023, 1025, 5000}) {
    expect_refused(std::to_string(n), "push-payload",
                   [&](Message& m, wire::Push*) { m.payloads[0] = constant_payload(n, 1.0F); });
  }
  expect_refused("fewer", "push-payloads", [](Message& m, wire::Push*) { m.payloads.pop_back(); });
  expect_refused("more", "push-payloads",
                 [](Message& m, wire::Push*) { m.payloads.push_back(m.payloads[0]); });
}

TEST_P(Hostile, WrongCountOfPartsIsRefused) {
  for (const int total : {0, 2, 4, -3, INT_MAX, INT_MIN}) {
    expect_refused(std::to_string(total), "push-parts",
                   [&](Message&, wire::Push* push) { push->set_parts_total(total); });
  }
}

TEST_P(Hostile, WrongCountOfLossesIsRefused) {
  expect_refused("one more", "push-losses",
                 [](Message&, wire::Push* push) { push->add_losses(1.0F); });
  expect_refused("one less", "push-losses",
                 [](Message&, wire::Push* push) { push->mutable_losses()->RemoveLast(); });
}

TEST_P(Hostile, PushWithoutItsOwnGrantIsRefused) {
  expect_refused("no grant", "push-grant", [](Message&, wire::Push* push) { push->clear_grant(); });
  expect_refused("of another worker", "push-grant", [&](Message& message, wire::Push*) {
    message.header.mutable_exchange()->mutable_sender()->set_incarnation(kBert);
  });
  expect_refused("of another share", "push-grant", [&](Message&, wire::Push* push) {
    *push->mutable_grant() = Grants(setup_.grant_key).make(kAnna, kSecond, {0, 10});
  });
  expect_refused("of later steps", "push-grant", [&](Message&, wire::Push* push) {
    *push->mutable_grant() = Grants(setup_.grant_key).make(kAnna, kFirst, {5, 10});
  });
  expect_refused("of another run", "push-grant", [&](Message&, wire::Push* push) {
    *push->mutable_grant() = Grants("yesterday's key").make(kAnna, kFirst, {0, 10});
  });
}

TEST_P(Hostile, PartSentTwiceIsNotTheWholePush) {
  Message message = push_message(setup_, kAnna, 1, 0, kFirst, 1.0F);
  wire::Push* push = message.header.mutable_exchange()->mutable_push();
  push->mutable_parts(1)->CopyFrom(push->parts(0));
  message.payloads[1] = message.payloads[0];
  EXPECT_TRUE(taken(server_->on_data("anna", message)));
  EXPECT_TRUE(taken(server_->on_data("bert", push_message(setup_, kBert, 1, 0, kSecond, 1.0F))));
  choose_first();
  EXPECT_EQ(server_->floor(), 0) << "slice 2 of the first share is missing";
  EXPECT_TRUE(taken(server_->on_data("anna", push_message(setup_, kAnna, 1, 0, kFirst, 1.0F))));
  choose_first();
  EXPECT_EQ(server_->floor(), 1);
}

TEST_P(Hostile, OneNumberForTwoPushesIsRefused) {
  Message half = push_message(setup_, kAnna, 1, 0, kFirst, 1.0F);
  half.header.mutable_exchange()->mutable_push()->mutable_parts()->RemoveLast();
  half.payloads.pop_back();
  EXPECT_TRUE(taken(server_->on_data("anna", half)));
  EXPECT_EQ(reason_of(server_->on_data("anna", push_message(setup_, kAnna, 1, 0, kSecond, 1.0F))),
            "push-other");
}

TEST_P(Hostile, UnfinishedPushesAreBounded) {
  for (int64_t number = 1; number < 500; ++number) {
    Message half = push_message(setup_, kAnna, number, 0, kFirst, 1.0F);
    half.header.mutable_exchange()->mutable_push()->mutable_parts()->DeleteSubrange(1, 2);
    half.payloads.resize(1);
    EXPECT_EQ(reason_of(server_->on_data("anna", half)), number <= 18 ? "" : "push-number");
  }
  // Sixteen pushes and one per share are kept, each with one part.
  EXPECT_EQ(server_->stats().bytes_pushed(), 18 * 4096);
}

TEST_P(Hostile, PushesFarAheadAreRefused) {
  EXPECT_TRUE(taken(server_->on_data("anna", push_message(setup_, kAnna, 18, 0, kFirst, 1.0F))));
  EXPECT_EQ(reason_of(server_->on_data("anna", push_message(setup_, kAnna, 19, 0, kFirst, 1.0F))),
            "push-number");
  EXPECT_EQ(
      reason_of(server_->on_data("anna", push_message(setup_, kAnna, INT64_MAX, 0, kFirst, 1.0F))),
      "push-number");
}

TEST_P(Hostile, PullsAtClocksOutsideTheRunAreRefused) {
  for (const int64_t clock : {int64_t{-1}, int64_t{11}, INT64_MAX, INT64_MIN, INT64_MIN + 1}) {
    EXPECT_EQ(reason_of(server_->on_data("anna", pull_message(kAnna, 1, clock))), "pull-clock")
        << clock;
  }
  for (const int64_t number : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    EXPECT_EQ(reason_of(server_->on_data("anna", pull_message(kAnna, number, 0))), "pull-number")
        << number;
  }
  EXPECT_TRUE(server_->take_outgoing().empty());
  EXPECT_EQ(server_->stats().clock_gap_max(), 0);
  EXPECT_TRUE(taken(server_->on_data("anna", pull_message(kAnna, 1, 0))));
  EXPECT_EQ(server_->take_outgoing().size(), 1U);
}

TEST_P(Hostile, InvalidFetchesAndLoadsAreRefused) {
  for (const int64_t step : {int64_t{-1}, INT64_MIN}) {
    Message fetch;
    fetch.header.mutable_fetch()->mutable_sender()->set_term_id(kTermId);
    fetch.header.mutable_fetch()->mutable_sender()->set_incarnation(kCoordinator);
    fetch.header.mutable_fetch()->set_step(step);
    EXPECT_EQ(reason_of(server_->on_data("x", fetch)), "fetch-step") << step;
  }
  Message fetch;
  fetch.header.mutable_fetch()->set_step(0);
  EXPECT_EQ(reason_of(server_->on_data("x", fetch)), "run") << "another run";
  fetch.header.mutable_fetch()->mutable_sender()->set_term_id(kTermId);
  fetch.header.mutable_fetch()->mutable_sender()->set_incarnation(kCoordinator);
  fetch.header.mutable_fetch()->set_slice(1);
  EXPECT_EQ(reason_of(server_->on_data("x", fetch)), "slice") << "a slice of another server";
  const auto before = weights();
  Message load;
  load.header.mutable_load()->mutable_sender()->set_term_id(kTermId);
  load.header.mutable_load()->mutable_sender()->set_incarnation(kCoordinator);
  load.payloads.push_back(constant_payload(1024, 1e30F));
  EXPECT_EQ(reason_of(server_->on_data("x", load)), "load-start")
      << "this run starts from its init rules";
  EXPECT_EQ(weights(2), before);
}

TEST_P(Hostile, InvalidLoadsAreRefusedWhileTheServerWaitsForLoads) {
  setup_.load = true;
  restart();
  Message load;
  load.header.mutable_load()->mutable_sender()->set_term_id(kTermId);
  load.header.mutable_load()->mutable_sender()->set_incarnation(kCoordinator);
  load.payloads.push_back(constant_payload(1023, 1.0F));
  EXPECT_EQ(reason_of(server_->on_data("x", load)), "slice-bytes") << "too short";
  load.payloads[0] = constant_payload(1024, 1.0F);
  load.payloads.push_back(constant_payload(1024, 1.0F));
  EXPECT_EQ(reason_of(server_->on_data("x", load)), "slice-payloads") << "SGD has no state";
  load.payloads.pop_back();
  for (const int slice : {1, -1, 6, INT_MAX}) {
    load.header.mutable_load()->set_slice(slice);
    EXPECT_EQ(reason_of(server_->on_data("x", load)), "slice") << slice;
  }
  load.header.mutable_load()->set_slice(0);
  EXPECT_TRUE(taken(server_->on_data("x", load)));
  EXPECT_FALSE(server_->ready());
}

TEST_P(Hostile, DataHashOfAnotherLengthIsRefused) {
  for (const size_t length : {1, 31, 33, 64}) {
    expect_refused(
        "data_hash of " + std::to_string(length), "push-data-hash",
        [&](Message&, wire::Push* push) { push->set_data_hash(std::string(length, 'x')); });
  }
}

TEST_P(Hostile, ControlMessagesAreRefused) {
  Message message;
  message.header.mutable_hello();
  EXPECT_EQ(reason_of(server_->on_data("x", message)), "message");
  message.header.mutable_state();
  EXPECT_EQ(reason_of(server_->on_data("x", message)), "message");
  message.header.mutable_weights();
  EXPECT_EQ(reason_of(server_->on_data("x", message)), "message");
}

// Sets random fields of honest pushes: the server accepts only what equals an honest push.
TEST_P(Hostile, RandomNumbersNeitherCrashNorMoveTheWeights) {
  std::mt19937_64 random(9);
  const auto before = weights();
  const std::vector<int64_t> extremes{0, 1, -1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 10, 4};
  const auto any = [&] { return extremes[random() % extremes.size()]; };
  for (int i = 0; i < 20000; ++i) {
    Message message = push_message(setup_, kAnna, 1, 0, kFirst, 1e30F);
    wire::Push* push = message.header.mutable_exchange()->mutable_push();
    // The last part is always missing, since a whole push would count.
    push->mutable_parts()->RemoveLast();
    message.payloads.pop_back();
    push->set_number(any());
    push->set_step(any());
    if (random() % 2 == 0) push->set_lo(static_cast<int32_t>(any()));
    if (random() % 2 == 0) push->set_hi(static_cast<int32_t>(any()));
    if (random() % 2 == 0) push->mutable_parts(0)->set_slice(static_cast<int32_t>(any()));
    if (random() % 2 == 0) push->mutable_parts(1)->set_lo(static_cast<int32_t>(any()));
    if (random() % 2 == 0) push->set_parts_total(static_cast<int32_t>(any()));
    if (random() % 2 == 0) push->set_read_versions(0, any());
    server_->on_data("anna", message);
    Message pull = pull_message(kAnna, any(), any());
    pull.header.mutable_exchange()->mutable_pull()->set_barrier(random() % 2 == 0);
    pull.header.mutable_exchange()->mutable_pull()->set_lease_only(random() % 2 == 0);
    server_->on_data("anna", pull);
    server_->take_outgoing();
  }
  EXPECT_EQ(weights(2), before);
  EXPECT_EQ(server_->floor(), 0);
}

std::string strategy_name(const testing::TestParamInfo<const char*>& info) {
  const std::string text = info.param;
  return text.substr(0, text.find(':'));
}

INSTANTIATE_TEST_SUITE_P(Strategies, Hostile,
                         testing::Values("sync", "async", "ssp:2", "local:1", "backup:1"),
                         strategy_name);

}  // namespace
}  // namespace pushpull::server_hostile_test
