// A steady step of a server (sync, momentum) allocates nothing per slice. Messages are built before
// the count, and the counts with few and many slices are compared.
#include <gtest/gtest.h>

#include <cstdio>
#include <utility>

#include "ps/server/server.h"
#include "tests/datasets/allocations.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

constexpr int kSteps = 6;

struct Counts {
  size_t push = 0;  // both pushes and the update
  size_t pull = 0;  // both pulls and their answers
};

Counts of_a_steady_step(int64_t slices) {
  const Job job = job_of("strategy = sync\noptimizer = momentum\n");
  const ServerSetup setup = server_setup(job, slices * kBlockElements);
  Server server(setup, nullptr);
  server.on_state(state_with_workers({kAnna, kBert}));
  Counts last;
  for (int step = 0; step < kSteps; ++step) {
    Message first = push_message(setup, kAnna, step + 1, step, {0, 2}, 1.0F);
    Message second = push_message(setup, kBert, step + 1, step, {2, 4}, 2.0F);
    Message pulls[] = {pull_message(kAnna, step + 1, step + 1),
                       pull_message(kBert, step + 1, step + 1)};
    const size_t before = allocation_count();
    EXPECT_TRUE(taken(server.take("anna", std::move(first))));
    EXPECT_TRUE(taken(server.take("bert", std::move(second))));
    server.work();
    last.push = allocation_count() - before;
    EXPECT_EQ(server.floor(), step + 1);
    const size_t between = allocation_count();
    EXPECT_TRUE(taken(server.take("anna", std::move(pulls[0]))));
    EXPECT_TRUE(taken(server.take("bert", std::move(pulls[1]))));
    server.work();
    last.pull = allocation_count() - between;
    size_t answered = 0;
    for (const Outgoing& out : server.take_outgoing()) answered += out.message.payloads.size();
    EXPECT_EQ(answered, static_cast<size_t>(2 * slices));
  }
  return last;
}

TEST(ServerAllocation, StepAllocatesNothingPerSlice) {
  const Counts few = of_a_steady_step(16);
  const Counts many = of_a_steady_step(64);
  EXPECT_GT(few.push, 0U) << "the counter works";
  EXPECT_EQ(many.push, few.push);
  std::printf("a step allocates %zu times, two answers of 16 slices %zu\n", few.push, few.pull);
}

TEST(ServerAllocation, AnswerAllocatesOnlyTheEntriesOfItsHeader) {
  const Counts few = of_a_steady_step(16);
  const Counts many = of_a_steady_step(64);
  // Two answers with 48 more entries each, and a few vectors that grow twice more.
  EXPECT_LE(many.pull, few.pull + size_t{2} * (48 + 8));
}

}  // namespace
}  // namespace pushpull
