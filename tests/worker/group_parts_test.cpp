// Tests GroupParts: repetition, silence, hostile messages; and whole groups on a network that loses,
// repeats and reorders messages, with members that are replaced.
#include "worker/group/group_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <tuple>

#include "common/base/error.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

constexpr uint64_t kGroupRun = 77;
constexpr int64_t kPartBytes = int64_t{1} << 22;

using Part = GroupParts::Part;
using GroupWait = GroupParts::Wait;
using testing::HasSubstr;
constexpr auto kActivations = wire::StagePart::KIND_ACTIVATIONS;
constexpr auto kGradients = wire::StagePart::KIND_GRADIENTS;
constexpr auto kReturned = wire::StagePart::KIND_RETURNED;
constexpr auto kEvaluated = wire::StagePart::KIND_EVALUATED;
constexpr auto kSquares = wire::StagePart::KIND_SQUARES;
constexpr auto kStart = wire::StagePart::KIND_START;

Payload floats(std::vector<float> values) {
  auto owner = std::make_shared<const std::vector<float>>(std::move(values));
  return {owner, std::as_bytes(std::span(*owner))};
}

Payload zeros(int64_t bytes) {
  return floats(std::vector<float>(static_cast<size_t>(bytes) / sizeof(float)));
}

GroupSetup setup_of(uint64_t incarnation, int64_t timeout_ms = 10'000) {
  return {.term_id = kGroupRun,
          .incarnation = incarnation,
          .timeout_ms = timeout_ms,
          .max_part_bytes = kPartBytes};
}

std::vector<GroupMember> group(int stages) {
  std::vector<GroupMember> out;
  for (int s = 0; s < stages; ++s) {
    out.push_back(
        {"tcp://host" + std::to_string(s) + ":1", static_cast<uint64_t>(100 + s), 10 + s});
  }
  return out;
}

// Two stages on a network that delivers what a test lets it.
class TwoStages : public testing::Test {
 protected:
  GroupParts& at(int stage) { return stage == 0 ? first_ : second_; }

  // Delivers all messages of this stage to the other one, and returns their number.
  int deliver(int from) {
    const std::vector<ToMember> messages = at(from).take_outgoing();
    for (ToMember out : messages) {
      EXPECT_EQ(out.stage, 1 - from);
      at(1 - from).on_message(out.message);
    }
    return static_cast<int>(messages.size());
  }
  void deliver_all() {
    while (deliver(0) + deliver(1) > 0) {
    }
  }
  // Begins an attempt at both, and agrees on its first step.
  void begin(int64_t attempt = 1) {
    for (const int stage : {0, 1}) {
      at(stage).begin(attempt, group(2));
      at(stage).start(5);
    }
    deliver_all();
    for (const int stage : {0, 1}) at(stage).on_tick(0, {});
  }

  GroupParts first_{setup_of(100)};
  GroupParts second_{setup_of(101)};
};

TEST_F(TwoStages, PartArrivesOnceWithItsBytes) {
  begin();
  first_.send({1, kActivations, 5, 3}, floats({1.0F, 2.0F}));
  deliver_all();
  EXPECT_FALSE(second_.take({0, kActivations, 5, 2}));
  EXPECT_FALSE(second_.take({0, kGradients, 5, 3}));
  const auto part = second_.take({0, kActivations, 5, 3});
  ASSERT_TRUE(part);
  ASSERT_EQ(part->float_count(), 2U);
  EXPECT_EQ(part->floats()[1], 2.0F);
  EXPECT_FALSE(second_.take({0, kActivations, 5, 3}));
  EXPECT_EQ(first_.bytes_sent(), 8);
  EXPECT_EQ(second_.bytes_received(), 8);
}

TEST_F(TwoStages, PayloadIsNotCopiedAndIsReleasedWhenItHasArrived) {
  begin();
  Payload sent = zeros(4096);
  const std::weak_ptr<const void> owner = sent.owner;
  first_.send({1, kActivations, 5, 0}, sent);
  std::vector<ToMember> messages = first_.take_outgoing();
  EXPECT_EQ(messages[0].message.payloads[0].bytes.data(), sent.bytes.data());
  sent = {};
  messages.clear();
  EXPECT_FALSE(owner.expired()) << "it may have to be sent again";
  first_.on_tick(0, {});
  for (const int64_t now : {0, 1000}) second_.on_tick(now, GroupWait{{0, kActivations, 5, 0}});
  deliver(1);
  first_.on_tick(1000, {});
  deliver(0);
  EXPECT_FALSE(owner.expired()) << "no report is due for a single part";
  second_.send({0, kGradients, 5, 0}, zeros(8));
  deliver(1);
  second_.take({0, kActivations, 5, 0});
  EXPECT_TRUE(owner.expired());
}

TEST_F(TwoStages, LostPartIsSentAgainASecondAfterItsReceiverBeganToWait) {
  begin();
  first_.send({1, kActivations, 5, 0}, floats({1.0F}));
  EXPECT_EQ(first_.take_outgoing().size(), 1U);  // lost
  first_.on_tick(0, {});
  const GroupWait wait{{0, kActivations, 5, 0}};
  second_.on_tick(100, wait);
  second_.on_tick(1099, wait);
  EXPECT_EQ(deliver(1), 0);
  second_.on_tick(1100, wait);
  EXPECT_EQ(deliver(1), 1);
  first_.on_tick(1101, {});
  EXPECT_EQ(deliver(0), 1);
  EXPECT_TRUE(second_.take(wait.part));
  EXPECT_EQ(first_.repeated(), 1);
  EXPECT_EQ(second_.bytes_received(), 4);
}

// The receiver asked before the part was sent: it is on its way.
TEST_F(TwoStages, PartThatWasJustSentIsNotRepeated) {
  begin();
  const GroupWait wait{{0, kActivations, 5, 0}};
  for (const int64_t now : {0, 1000, 2000, 3000}) second_.on_tick(now, wait);
  first_.on_tick(10, {});
  first_.send({1, kActivations, 5, 0}, floats({1.0F}));
  deliver(1);
  first_.on_tick(3001, {});  // it has computed meanwhile
  std::vector<ToMember> messages = first_.take_outgoing();
  ASSERT_EQ(messages.size(), 2U) << "the part, and one answer to three questions";
  EXPECT_TRUE(messages[0].message.header.has_stage_part());
  EXPECT_TRUE(messages[1].message.header.has_stage_arrived());
  EXPECT_EQ(first_.repeated(), 0);
}

TEST_F(TwoStages, TimeUntilARepetitionDoubles) {
  begin();
  first_.send({1, kActivations, 5, 0}, floats({1.0F}));
  const GroupWait wait{{0, kActivations, 5, 0}};
  std::vector<int64_t> sent;
  for (int64_t now = 0; now < 130'000; now += 100) {
    second_.on_tick(now, wait);
    deliver(1);
    first_.on_tick(now, {});
    for (const ToMember& out : first_.take_outgoing()) {
      if (out.message.header.has_stage_part()) {
        sent.push_back(now);
      } else {
        second_.on_message(const_cast<Message&>(out.message));
      }
    }
  }
  EXPECT_EQ(sent,
            (std::vector<int64_t>{0, 1000, 3000, 7000, 15'000, 31'000, 63'000, 95'000, 127'000}));
}

TEST_F(TwoStages, AttemptStartsAtTheLowestStepOfItsMembers) {
  first_.begin(1, group(2));
  second_.begin(1, group(2));
  EXPECT_FALSE(first_.agreed());
  first_.start(7);
  EXPECT_FALSE(first_.agreed());
  second_.start(6);
  deliver_all();
  EXPECT_EQ(first_.agreed(), 6);
  EXPECT_EQ(second_.agreed(), 6);
}

// Otherwise the later one would wait a second for it.
TEST_F(TwoStages, StartReachesAMemberThatBeginsLater) {
  first_.begin(1, group(2));
  first_.start(7);
  deliver_all();
  second_.begin(1, group(2));
  second_.start(7);
  deliver_all();
  EXPECT_EQ(first_.agreed(), 7);
  EXPECT_EQ(second_.agreed(), 7);
  EXPECT_EQ(second_.rejected(), 0);
}

TEST_F(TwoStages, LostStartIsAskedFor) {
  for (const int stage : {0, 1}) {
    at(stage).begin(1, group(2));
    at(stage).start(stage);
    at(stage).take_outgoing();  // lost
  }
  for (const int64_t now : {0, 1000, 1001}) {
    for (const int stage : {0, 1}) at(stage).on_tick(now, {});
    deliver_all();
  }
  EXPECT_EQ(first_.agreed(), 0);
  EXPECT_EQ(second_.agreed(), 0);
}

TEST_F(TwoStages, AnotherAttemptKnowsNoPartOfTheEarlierOne) {
  begin(1);
  first_.send({1, kActivations, 5, 0}, floats({1.0F}));
  deliver_all();
  first_.send({1, kActivations, 5, 1}, floats({2.0F}));
  std::vector<ToMember> late = first_.take_outgoing();
  first_.send({1, kActivations, 5, 2}, floats({2.0F}));
  second_.forget_before(6);
  begin(2);
  for (ToMember& out : late) second_.on_message(out.message);
  EXPECT_FALSE(second_.take({0, kActivations, 5, 0}));
  EXPECT_FALSE(second_.take({0, kActivations, 5, 1}));
  EXPECT_EQ(first_.kept_bytes() + second_.kept_bytes(), 0);
  EXPECT_EQ(second_.rejected(), 0);
  first_.send({1, kActivations, 5, 1}, floats({2.0F}));
  first_.begin(3, group(2));
  EXPECT_TRUE(first_.take_outgoing().empty()) << "its receiver may be another worker";
  begin(4);
  first_.send({1, kActivations, 5, 0}, floats({3.0F}));
  deliver_all();
  EXPECT_EQ(second_.take({0, kActivations, 5, 0})->floats()[0], 3.0F);
}

TEST_F(TwoStages, PartsOfEarlierStepsAreForgotten) {
  begin();
  for (const int64_t step : {5, 6}) {
    first_.send({1, kActivations, step, 0}, floats({1.0F}));
    deliver_all();
    second_.forget_before(6);
    EXPECT_EQ(second_.take({0, kActivations, step, 0}).has_value(), step == 6);
  }
  first_.send({1, kActivations, 5, 1}, floats({1.0F}));
  deliver_all();
  EXPECT_FALSE(second_.take({0, kActivations, 5, 1}));
  second_.send({0, kGradients, 6, 0}, floats({1.0F}));
  deliver_all();
  EXPECT_EQ(first_.kept_bytes(), 4) << "the gradient only: the forgotten part has arrived, too";
  EXPECT_EQ(second_.rejected(), 0);
}

// ---- silence ----

TEST_F(TwoStages, SilentMemberIsNamedWithWhatItWasToSend) {
  begin();
  const GroupWait wait{{1, kGradients, 12, 3}};
  EXPECT_EQ(first_.waiting_for(wait),
            "the gradients of micro-batch 3 of step 12 from worker 11 (stage 1)");
  first_.on_tick(0, wait);
  for (int64_t now = 0; now <= 11'000; now += 50) first_.on_tick(now, wait);
  EXPECT_EQ(
      thrown(ErrorCode::kUnreachable, [&] { first_.on_tick(11'050, wait); }),
      "[stages] worker 11 (stage 1) at tcp://host1:1 has not answered for 10 s, waiting for the "
      "gradients of micro-batch 3 of step 12");
}

TEST_F(TwoStages, MissingStartNamesItsMember) {
  first_.begin(1, group(2));
  first_.start(0);
  EXPECT_EQ(first_.waiting_for({}), "the first step of worker 11 (stage 1)");
  EXPECT_THAT(
      thrown(ErrorCode::kUnreachable,
             [&] {
               for (int64_t now = 0; now < 12'000; now += 50) first_.on_tick(now, {});
             }),
      HasSubstr(
          "worker 11 (stage 1) at tcp://host1:1 has not answered for 10 s, waiting for the step"));
}

TEST_F(TwoStages, MemberThatAnswersButDeliversNothingIsNotSilent) {
  begin();
  const GroupWait wait{{1, kGradients, 5, 0}};
  for (int64_t now = 0; now < 600'000; now += 500) {
    first_.on_tick(now, wait);
    deliver(0);
    second_.on_tick(now, {});
    deliver(1);
  }
}

// While it computes it neither listens nor asks.
TEST_F(TwoStages, WorkerThatHasComputedForLongAsksBeforeItAccuses) {
  begin();
  first_.on_tick(0, GroupWait{{1, kGradients, 5, 0}});
  first_.on_tick(4000, GroupWait{{1, kGradients, 5, 0}});
  first_.on_tick(8000, GroupWait{{1, kGradients, 5, 1}});
  first_.on_tick(3'600'000, GroupWait{{1, kGradients, 5, 1}});
  first_.on_tick(7'200'000, {});
  for (int64_t now = 9'000'000; now <= 9'011'000; now += 100)
    first_.on_tick(now, GroupWait{{1, kGradients, 5, 2}});
  EXPECT_THROW(first_.on_tick(9'011'100, GroupWait{{1, kGradients, 5, 2}}), Error);
}

// A trainer also exchanges messages when it waits for a server.
TEST_F(TwoStages, TicksWithoutAWaitInBetweenDoNotEndIt) {
  begin();
  const GroupWait wait{{1, kGradients, 5, 0}};
  int questions = 0;
  for (int64_t now = 0; now <= 3000; now += 100) {
    first_.on_tick(now, wait);
    first_.on_tick(now + 50, {});
    questions += static_cast<int>(first_.take_outgoing().size());
  }
  EXPECT_EQ(questions, 3);
}

TEST_F(TwoStages, ShortTimeoutHasRoomForThreeQuestions) {
  GroupParts hasty(setup_of(100, 300));
  hasty.begin(1, group(2));
  hasty.start(0);
  int questions = -1;  // without the START
  int64_t now = 0;
  EXPECT_THROW(
      for (; now < 2000; now += 10) {
        hasty.on_tick(now, {});
        questions += static_cast<int>(hasty.take_outgoing().size());
      },
      Error);
  EXPECT_GE(questions, 3);
  EXPECT_LE(now, 400);
}

// ---- hostile messages ----

// A message of stage 0 to stage 1, which a test damages.
Message part_message(int64_t number, int64_t index = 0) {
  Message message;
  wire::StagePart* part = message.header.mutable_stage_part();
  part->mutable_sender()->set_term_id(kGroupRun);
  part->mutable_sender()->set_incarnation(100);
  part->mutable_sender()->set_rank(10);
  part->set_attempt(1);
  part->set_number(number);
  part->set_arrived(1);
  part->set_kind(kActivations);
  part->set_step(5);
  part->set_index(index);
  message.payloads.push_back(floats({1.0F}));
  return message;
}

TEST_F(TwoStages, MessagesThatNoMemberSendsAreRefused) {
  begin();
  using Damage = std::function<void(wire::StagePart*, std::vector<Payload>*)>;
  const std::vector<Damage> damages = {
      [](auto* part, auto*) { part->mutable_sender()->set_term_id(kGroupRun + 1); },
      [](auto* part, auto*) { part->mutable_sender()->set_incarnation(4711); },
      [](auto* part, auto*) {  // the receiver's own
        part->mutable_sender()->set_incarnation(101);
        part->mutable_sender()->set_rank(11);
        part->set_arrived(0);
      },
      [](auto* part, auto*) { part->mutable_sender()->set_rank(11); },
      [](auto* part, auto*) { part->clear_sender(); },
      [](auto* part, auto*) { part->set_attempt(0); },
      [](auto* part, auto*) { part->set_attempt(INT64_MIN); },
      [](auto* part, auto*) { part->set_number(0); },
      [](auto* part, auto*) { part->set_number(-1); },
      [](auto* part, auto*) { part->set_number(1); },  // a START
      [](auto* part, auto*) { part->set_number(1 + GroupParts::kMaxKept + 1); },
      [](auto* part, auto*) { part->set_number(INT64_MAX); },
      [](auto* part, auto*) { part->set_arrived(-1); },
      [](auto* part, auto*) { part->set_arrived(2); },  // the receiver has sent one part
      [](auto* part, auto*) { part->set_step(-1); },
      [](auto* part, auto*) { part->set_index(INT64_MIN); },
      [](auto* part, auto*) {
        part->set_kind(static_cast<wire::StagePart::Kind>(wire::StagePart::Kind_MAX + 1));
      },
      [](auto* part, auto*) { part->set_kind(static_cast<wire::StagePart::Kind>(-1)); },
      [](auto* part, auto*) { part->set_kind(kStart); },
      [](auto* part, auto* payloads) {
        part->set_kind(kStart);
        payloads->clear();
      },
      [](auto*, auto* payloads) { payloads->clear(); },
      [](auto*, auto* payloads) { payloads->front() = floats({}); },
      [](auto*, auto* payloads) { payloads->front() = zeros(kPartBytes + 4); },
      [](auto*, auto* payloads) { payloads->push_back(payloads->front()); },
  };
  int64_t refused = 0;
  for (const Damage& damage : damages) {
    Message message = part_message(2);
    damage(message.header.mutable_stage_part(), &message.payloads);
    second_.on_message(message);
    EXPECT_EQ(second_.rejected(), ++refused);
  }
  for (const auto& change : std::vector<std::function<void(wire::Header*)>>{
           [](wire::Header* header) { header->mutable_heartbeat()->set_incarnation(100); },
           [](wire::Header* header) { header->mutable_stage_ask()->set_attempt(1); },
           [](wire::Header* header) { header->mutable_stage_arrived()->set_arrived(1); }}) {
    Message message;
    change(&message.header);
    second_.on_message(message);
    EXPECT_EQ(second_.rejected(), ++refused);
  }
  EXPECT_FALSE(second_.take({0, kActivations, 5, 0}));
  EXPECT_EQ(second_.kept_bytes(), 0);
  Message right = part_message(2);
  second_.on_message(right);
  EXPECT_TRUE(second_.take({0, kActivations, 5, 0}));
  EXPECT_EQ(second_.rejected(), refused);
}

TEST_F(TwoStages, PartWithAnotherNumberIsRefused) {
  begin();
  Message first = part_message(2);
  Message again = part_message(3);
  second_.on_message(first);
  second_.on_message(again);
  EXPECT_EQ(second_.rejected(), 1);
  EXPECT_EQ(second_.kept_bytes(), 4);
}

TEST_F(TwoStages, MemberCannotMakeThisWorkerKeepMoreThanItsLimit) {
  begin();
  for (int64_t i = 0; i < 10'000; ++i) {
    Message message = part_message(2 + i, i);
    second_.on_message(message);
  }
  const auto most = static_cast<int64_t>(GroupParts::kMaxKept);
  EXPECT_EQ(second_.rejected(), 10'000 - most);
  EXPECT_EQ(second_.kept_bytes(), 4 * most);
  EXPECT_TRUE(second_.take({0, kActivations, 5, 7}));
  Message next = part_message(2 + most, most);
  second_.on_message(next);
  EXPECT_TRUE(second_.take({0, kActivations, 5, most}));
}

TEST(GroupParts, MembersAreThoseOfTheState) {
  wire::Group group;
  for (int s = 0; s < 2; ++s) {
    wire::GroupMember* member = group.add_members();
    member->set_endpoint("tcp://h:" + std::to_string(s + 1));
    member->set_rank(s);
  }
  ASSERT_EQ(members_of(group).size(), 2U);
  EXPECT_EQ(members_of(group)[1].rank, 1);
  EXPECT_EQ(members_of(group)[1].endpoint, "tcp://h:2");
}

// ---- whole groups ----

// A worker that trains: its program is a list of parts to send and to take.
struct Action {
  bool sends = false;
  Part part;
};

constexpr int64_t kSteps = 6;

std::vector<Action> program(int stage, int stages, int64_t first_step) {
  std::vector<Action> out;
  const int last = stages - 1;
  const int64_t micro_batches = 4;
  for (int64_t step = first_step; step < kSteps; ++step) {
    if (step % 2 == 0) {  // an evaluation
      for (int64_t chunk = 0; chunk < 20; ++chunk) {
        if (stage > 0) out.push_back({false, {stage - 1, kEvaluated, step, chunk}});
        if (stage < last) out.push_back({true, {stage + 1, kEvaluated, step, chunk}});
      }
    }
    for (int64_t m = 0; m < micro_batches; ++m) {
      if (stage > 0) out.push_back({false, {stage - 1, kActivations, step, m}});
      if (stage < last) out.push_back({true, {stage + 1, kActivations, step, m}});
    }
    for (int64_t m = 0; m < micro_batches; ++m) {
      if (stage == last && last > 1) out.push_back({true, {0, kReturned, step, m}});
      if (stage < last) out.push_back({false, {stage + 1, kGradients, step, m}});
      if (stage > 0) out.push_back({true, {stage - 1, kGradients, step, m}});
    }
    for (int64_t m = 0; m < micro_batches && stage == 0 && last > 1; ++m) {
      out.push_back({false, {last, kReturned, step, m}});
    }
    for (const bool sends : {true, false}) {
      for (int other = 0; other < stages; ++other) {
        if (other != stage) out.push_back({sends, {other, kSquares, step, 0}});
      }
    }
  }
  return out;
}

// Returns what a part contains, so that a wrong one is noticed.
std::vector<float> contents(int64_t attempt, int from, int to, const Part& part) {
  return {static_cast<float>(attempt),   static_cast<float>(from),
          static_cast<float>(to),        static_cast<float>(part.kind),
          static_cast<float>(part.step), static_cast<float>(part.index)};
}

class Group {
 public:
  Group(int stages, unsigned seed) : random_(seed), members_(group(stages)) {
    loss_ = chance(50) ? 0 : 1 + below(40);
    twice_ = chance(50) ? 0 : 1 + below(40);
    longest_ms_ = chance(30) ? 0 : 1 + below(700);
    replacements_ = chance(50) ? 0 : 1 + below(3);
    for (int s = 0; s < stages; ++s) {
      workers_.push_back(std::make_unique<Worker>(members_[static_cast<size_t>(s)].incarnation));
    }
    change();
  }

  // Runs until all members have run their programs. Returns false if that takes too long.
  bool run() {
    const int64_t heals_ms = 60'000;
    for (; now_ms_ < heals_ms + 300'000; now_ms_ += 1 + below(60)) {
      if (now_ms_ >= heals_ms) loss_ = 0;
      if (replacements_ > 0 && now_ms_ < heals_ms && chance(1)) replace();
      for (int s = 0; s < stages(); ++s) {
        if (!chance(20)) turn(s);  // otherwise it computes
      }
      if (now_ms_ > heals_ms && all_done()) return true;
      if (loss_ == 0 && replacements_ == 0 && all_done()) return true;
    }
    return false;
  }

  int stages() const { return static_cast<int>(members_.size()); }
  bool undisturbed() const { return attempt_ == 1; }
  int64_t rejected() const {
    int64_t sum = 0;
    for (const auto& worker : workers_) sum += worker->parts.rejected();
    return sum;
  }
  int64_t repeated() const {
    int64_t sum = 0;
    for (const auto& worker : workers_) sum += worker->parts.repeated();
    return sum;
  }
  int64_t sent() const {
    int64_t sum = 0;
    for (const auto& worker : workers_) sum += worker->parts.bytes_sent();
    return sum;
  }
  int64_t received() const {
    int64_t sum = 0;
    for (const auto& worker : workers_) sum += worker->parts.bytes_received();
    return sum;
  }

 private:
  struct Worker {
    explicit Worker(uint64_t incarnation) : parts(setup_of(incarnation, 1'000'000)) {}
    GroupParts parts;
    std::vector<GroupMember> news;  // of the attempt that it is to begin
    int64_t news_attempt = 0;
    int64_t news_ms = 0;
    int64_t step = 0;  // that it can start from
    bool started = false;
    std::vector<Action> program;
    size_t next = 0;
    std::set<Part> taken;  // in this attempt
  };
  struct Flying {
    int64_t at_ms;
    int64_t order;
    uint64_t to;  // incarnation
    Message message;
  };

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool chance(int percent) { return below(100) < percent; }

  bool all_done() const {
    return std::ranges::all_of(workers_, [&](const auto& worker) {
      return worker->parts.attempt() == attempt_ && worker->started &&
             worker->next == worker->program.size();
    });
  }

  // Tells all of another attempt, each at its own time.
  void change() {
    ++attempt_;
    for (const auto& worker : workers_) {
      worker->news = members_;
      worker->news_attempt = attempt_;
      worker->news_ms = now_ms_ + below(600);
    }
  }

  void replace() {
    --replacements_;
    const auto stage = static_cast<size_t>(below(stages()));
    members_[stage].incarnation += 1000;
    members_[stage].rank += 100;
    const int64_t step = workers_[stage]->step;
    workers_[stage] = std::make_unique<Worker>(members_[stage].incarnation);
    workers_[stage]->step = step;
    change();
  }

  void turn(int stage) {
    Worker& worker = *workers_[static_cast<size_t>(stage)];
    if (worker.news_attempt > worker.parts.attempt() && now_ms_ >= worker.news_ms) {
      worker.parts.begin(worker.news_attempt, worker.news);
      worker.parts.start(worker.step);
      worker.started = false;
      worker.taken.clear();
    }
    receive(worker.parts, members_[static_cast<size_t>(stage)].incarnation);
    if (worker.parts.attempt() == 0) return;
    const std::optional<int64_t> first = worker.parts.agreed();
    if (first && !worker.started) {
      worker.started = true;
      worker.program = program(stage, stages(), *first);
      worker.next = 0;
    }
    while (worker.started && worker.next < worker.program.size() && act(worker, stage)) {
    }
    std::optional<GroupWait> wait;
    if (worker.started && worker.next < worker.program.size()) {
      const Action& action = worker.program[worker.next];
      wait = GroupWait{action.part};
    }
    worker.parts.on_tick(now_ms_, wait);
    // with the members as this worker knows them
    for (ToMember& out : worker.parts.take_outgoing()) post(worker, out);
  }

  // Does the next action. Returns false if it must wait.
  bool act(Worker& worker, int stage) {
    const Action& action = worker.program[worker.next];
    const Part& part = action.part;
    if (action.sends) {
      worker.parts.send(part, floats(contents(worker.parts.attempt(), stage, part.stage, part)));
    } else {
      const auto got = worker.parts.take(part);
      if (!got) return false;
      const std::vector<float> want = contents(worker.parts.attempt(), part.stage, stage, part);
      EXPECT_EQ(std::vector<float>(got->floats(), got->floats() + got->float_count()), want);
      EXPECT_TRUE(worker.taken.insert(part).second);
      EXPECT_FALSE(worker.parts.take(part));
      worker.step = std::max(worker.step, part.step);
    }
    ++worker.next;
    return !chance(10);
  }

  void post(const Worker& from, const ToMember& out) {
    if (chance(loss_)) return;
    const uint64_t to = from.news[static_cast<size_t>(out.stage)].incarnation;
    for (int copies = chance(twice_) ? 2 : 1; copies > 0; --copies) {
      const int64_t late_ms = longest_ms_ == 0 ? 0 : below(static_cast<int>(longest_ms_));
      flying_.push_back({now_ms_ + late_ms, order_++, to, out.message});
    }
  }

  void receive(GroupParts& parts, uint64_t incarnation) {
    std::vector<Flying> here;
    std::vector<Flying> rest;
    for (Flying& flying : flying_) {
      const bool arrives = flying.to == incarnation && flying.at_ms <= now_ms_;
      (arrives ? here : rest).push_back(std::move(flying));
    }
    flying_ = std::move(rest);
    std::ranges::sort(here, {}, [](const Flying& f) { return std::tuple(f.at_ms, f.order); });
    for (Flying& flying : here) parts.on_message(flying.message);
  }

  std::mt19937 random_;
  std::vector<GroupMember> members_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Flying> flying_;
  int64_t order_ = 0;
  int64_t attempt_ = 0;
  int64_t now_ms_ = 0;
  int loss_ = 0;   // percent
  int twice_ = 0;  // percent
  int64_t longest_ms_ = 0;
  int replacements_ = 0;
};

TEST(GroupParts, EachPartArrivesOnceOnEveryNetwork) {
  int64_t repeated = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    const int stages = 2 + static_cast<int>(seed % 3);
    Group all(stages, seed);
    ASSERT_TRUE(all.run()) << "seed " << seed;
    EXPECT_EQ(all.rejected(), 0) << "seed " << seed;
    repeated += all.repeated();
    if (all.undisturbed()) {
      EXPECT_EQ(all.sent(), all.received()) << "seed " << seed;
    }
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(repeated, 1000) << "the networks lose nothing";
}

}  // namespace
}  // namespace pushpull
