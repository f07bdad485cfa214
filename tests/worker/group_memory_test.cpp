// Two workers of a group on one host, whose messages pass through GroupMemory as through sockets.
#include "worker/group/group_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/job/job.h"

namespace pushpull {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 20;

// One end of the connection.
struct SharingEnd {
  SharingEnd(int stage_of, const Job& job)
      : stage(stage_of),
        memory(job, kMostBytes),
        parts({.term_id = 5,
               .incarnation = static_cast<uint64_t>(100 + stage),
               .max_part_bytes = kMostBytes,
               .lends = memory.lends()}) {}

  void begin(int64_t attempt) {
    const std::vector<GroupMember> members = {{"tcp://h:1", 100, 0}, {"tcp://h:2", 101, 1}};
    parts.begin(attempt, members);
    memory.begin(attempt, members, stage);
  }
  // Returns floats in memory that members may read.
  Payload floats(size_t bytes, float value) const {
    const size_t size = bytes / sizeof(float);
    std::shared_ptr<float[]> out = memory.allocator()(size);
    std::fill_n(out.get(), size, value);
    const auto all = std::as_bytes(std::span<const float>(out.get(), size));
    return {std::move(out), all};
  }
  std::vector<Message> outgoing() {
    std::vector<Message> messages;
    for (ToMember& out : parts.take_outgoing()) {
      memory.on_send(out);
      messages.push_back(std::move(out.message));
    }
    return messages;
  }
  void receive(Message message) {
    if (memory.on_message(message)) parts.on_message(message);
  }

  const int stage;
  GroupMemory memory;
  GroupParts parts;
};

Job job_with(Transport transport) {
  Job job;
  job.transport = transport;
  return job;
}

class GroupMemoryTest : public testing::Test {
 protected:
  static void deliver(SharingEnd& from, SharingEnd& to) {
    for (Message& message : from.outgoing()) to.receive(std::move(message));
  }
  void begin(int64_t attempt) {
    for (SharingEnd* end : {&first_, &second_}) {
      end->begin(attempt);
      end->parts.start(0);
    }
    for (int i = 0; i < 3; ++i) {
      deliver(first_, second_);
      deliver(second_, first_);
    }
    // says to the first that the second maps its memory
    second_.parts.send({0, wire::StagePart::KIND_SQUARES, 0, 0}, second_.floats(8, 1.0F));
    deliver(second_, first_);
  }
  // Sends a part and returns its message.
  Message sent(int64_t index, size_t bytes, float value) {
    first_.parts.send({1, wire::StagePart::KIND_ACTIVATIONS, 0, index},
                      first_.floats(bytes, value));
    std::vector<Message> messages = first_.outgoing();
    EXPECT_EQ(messages.size(), 1U);
    return messages.front();
  }
  std::optional<Payload> taken(int64_t index) {
    return second_.parts.take({0, wire::StagePart::KIND_ACTIVATIONS, 0, index});
  }

  const Job job_ = job_with(Transport::kShm);
  SharingEnd first_{0, job_};
  SharingEnd second_{1, job_};
};

TEST_F(GroupMemoryTest, LargePartIsAReferenceThatItsReceiverCopies) {
  begin(1);
  const Message message = sent(0, 1 << 20, 3.0F);
  EXPECT_TRUE(message.payloads.empty());
  EXPECT_EQ(message.header.stage_part().bytes(), 1 << 20);
  second_.receive(message);
  const auto part = taken(0);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->bytes.size(), size_t{1} << 20);
  EXPECT_EQ(part->floats()[1000], 3.0F);
  EXPECT_EQ(second_.parts.bytes_received(), 1 << 20);
}

TEST_F(GroupMemoryTest, SmallPartAndForeignMemoryAreSentAsTheyAre) {
  begin(1);
  EXPECT_EQ(sent(0, GroupMemory::kLeastBytes - 4, 1.0F).payloads.size(), 1U);
  const auto owner = std::make_shared<const std::vector<float>>(1 << 18);
  first_.parts.send({1, wire::StagePart::KIND_ACTIVATIONS, 0, 1},
                    {owner, std::as_bytes(std::span(*owner))});
  EXPECT_EQ(first_.outgoing().front().payloads.size(), 1U);
}

TEST_F(GroupMemoryTest, NothingIsSharedOverOtherTransports) {
  for (const Transport transport : {Transport::kTcp, Transport::kIpc}) {
    const Job job = job_with(transport);
    SharingEnd end(0, job);
    EXPECT_FALSE(end.memory.lends());
    end.begin(1);
    end.parts.start(0);
    EXPECT_FALSE(end.outgoing().front().header.stage_part().has_segment());
  }
}

TEST_F(GroupMemoryTest, MemberOnAnotherHostGetsTheFloats) {
  for (SharingEnd* end : {&first_, &second_}) {
    end->begin(1);
    end->parts.start(0);
  }
  deliver(second_, first_);
  for (Message& message : first_.outgoing()) {
    message.header.mutable_stage_part()->set_host("elsewhere");
    second_.receive(std::move(message));
  }
  deliver(second_, first_);
  second_.parts.send({0, wire::StagePart::KIND_SQUARES, 0, 0}, second_.floats(8, 1.0F));
  deliver(second_, first_);
  EXPECT_EQ(sent(0, 1 << 20, 1.0F).payloads.size(), 1U);
  EXPECT_EQ(second_.memory.rejected(), 0);
}

TEST_F(GroupMemoryTest, ReferencesThatNoMemberSendsAreRefusedAndEndSharing) {
  using Damage = std::function<void(wire::StagePart*)>;
  const std::vector<Damage> damages = {
      [](auto* part) { part->set_offset(-64); },
      [](auto* part) { part->set_offset(4); },
      [](auto* part) { part->set_offset(1 << 20); },
      [](auto* part) { part->set_offset(INT64_MAX - 63); },
      [](auto* part) { part->set_bytes(0); },
      [](auto* part) { part->set_bytes(-4); },
      [](auto* part) { part->set_bytes(6); },
      [](auto* part) { part->set_bytes(INT64_MAX); },
      [](auto* part) { part->set_bytes(kMostBytes + 4); },
      [](auto* part) { part->mutable_segment()->set_token(std::string(16, 'x')); },
      [](auto* part) { part->mutable_segment()->set_bytes(int64_t{1} << 40); },
      [](auto* part) { part->mutable_segment()->set_fd(0); },
      [](auto* part) { part->mutable_segment()->set_pid(-1); },
      [](auto* part) { part->mutable_segment()->set_device("gpu"); },
  };
  int64_t attempt = 0;
  for (const Damage& damage : damages) {
    begin(++attempt);
    Message message = sent(0, 1 << 20, 2.0F);
    damage(message.header.mutable_stage_part());
    second_.receive(message);
    EXPECT_EQ(second_.memory.rejected(), attempt);
    EXPECT_FALSE(taken(0));
    // the sender hears of it, and repeats the part as it is
    first_.parts.on_tick(0, {});
    for (const int64_t now : {0, 1000}) {
      second_.parts.on_tick(now, GroupParts::Wait{{0, wire::StagePart::KIND_ACTIVATIONS, 0, 0}});
    }
    deliver(second_, first_);
    first_.parts.on_tick(1000, {});
    const std::vector<Message> again = first_.outgoing();
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again.front().payloads.size(), 1U);
    second_.receive(again.front());
    EXPECT_TRUE(taken(0));
  }
}

// The receiver may not have heard that the attempt is over.
TEST_F(GroupMemoryTest, LentPartIsKeptUntilItsReceiverHasBegunAnotherAttempt) {
  begin(1);
  Payload floats = first_.floats(1 << 20, 7.0F);
  const std::weak_ptr<const void> owner = floats.owner;
  first_.parts.send({1, wire::StagePart::KIND_ACTIVATIONS, 0, 0}, std::move(floats));
  const Message message = first_.outgoing().front();
  first_.begin(2);
  first_.parts.start(0);
  EXPECT_FALSE(owner.expired());
  second_.receive(message);
  EXPECT_EQ(taken(0)->floats()[5], 7.0F);
  second_.begin(2);
  second_.parts.start(0);
  deliver(second_, first_);
  EXPECT_TRUE(owner.expired());
}

}  // namespace
}  // namespace pushpull
