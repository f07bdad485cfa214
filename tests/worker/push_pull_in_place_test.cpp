// Tests the worker's exchange with servers that share memory: weights are used in place, and a
// gradient is kept until the server has read it.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/worker/exchange_fixture.h"

namespace pushpull {
namespace {

class InPlace : public Exchange {
 protected:
  static inline const float* const kThere = reinterpret_cast<const float*>(uintptr_t{4096});
  // One server, which keeps every generation in one buffer.
  void make_shared(const std::string& keys, int servers = 1) {
    make(keys);
    setup_.servers = servers;
    worker_ = std::make_unique<PushPull>(setup_);
    for (int server = 0; server < servers; ++server) worker_->share_memory(server, true);
  }
  static std::shared_ptr<std::vector<float>> generation(float value) {
    return std::make_shared<std::vector<float>>(kElements, value);
  }
  Message weights_in(const std::shared_ptr<std::vector<float>>& lies, int64_t pull, int64_t version,
                     int64_t pushes_through = 0, int server = 0) {
    Message message = weights(server, pull, version, 0.0F, pushes_through);
    const auto slices = worker_->slices().slices_of(server);
    for (size_t i = 0; i < slices.size(); ++i) {
      const Range elements = worker_->slices().elements(slices[i]);
      const std::span<const float> part(lies->data() + elements.lo,
                                        static_cast<size_t>(elements.size()));
      message.payloads[i] = {lies, std::as_bytes(part)};
    }
    return message;
  }
  // Returns the same slices in one piece of memory, whose access kills the process.
  Message on_device(Message message) const {
    static const auto owner = std::make_shared<int>();
    for (size_t i = 0; i < message.payloads.size(); ++i) {
      const Range e = worker_->slices().elements(static_cast<int>(i));
      const std::span<const float> part(kThere + e.lo, static_cast<size_t>(e.size()));
      message.payloads[i] = {owner, std::as_bytes(part), true};
    }
    return message;
  }
  wire::Pull last_pull() {
    wire::Pull out;
    for (const wire::Exchange& exchange : sent_to(0)) {
      if (exchange.has_pull()) out = exchange.pull();
    }
    return out;
  }
  // Answers pulls until there is a task, and returns it.
  Task answered_from(const std::shared_ptr<std::vector<float>>& lies, int64_t version,
                     int64_t pushes_through = 0) {
    for (int i = 0; i < 3; ++i) {
      const Task task = next();
      if (task.kind != Task::kWait) return task;
      const wire::Pull pull = last_pull();
      if (pull.number() > 0) hear(0, weights_in(lies, pull.number(), version, pushes_through));
    }
    return next();
  }
  // Pushes from one buffer and drops its own reference to it.
  std::weak_ptr<const void> push_from_buffer(const Task& task) {
    auto gradient = generation(2.0F);
    worker_->begin_push(task.step, task.range);
    for (const Range& node : worker_->nodes(task.range)) {
      for (int slice = 0; slice < worker_->slices().slices(); ++slice) {
        const Range elements = worker_->slices().elements(slice);
        const std::span<const float> part(gradient->data() + elements.lo,
                                          static_cast<size_t>(elements.size()));
        worker_->add_part(slice, node, {gradient, std::as_bytes(part)});
      }
    }
    worker_->end_push(std::vector<float>(static_cast<size_t>(task.range.size()), 0.5F), 4.0, now_);
    return gradient;
  }
};

TEST_F(InPlace, SharedWeightsOfOneServerAreUsedInPlace) {
  make_shared("strategy = sync\n");
  assign({0});
  const auto lies = generation(3.0F);
  next();
  const wire::Pull pull = last_pull();
  EXPECT_TRUE(pull.in_place());
  hear(0, weights_in(lies, pull.number(), 4));
  EXPECT_EQ(next().kind, Task::kCompute);
  EXPECT_EQ(worker_->weights().data(), lies->data());
  EXPECT_EQ(worker_->weights().size(), lies->size());
}

TEST_F(InPlace, WeightsThatAreNotSharedAreCopied) {
  make("strategy = sync\n");
  setup_.servers = 1;
  worker_ = std::make_unique<PushPull>(setup_);
  assign({0});
  const auto lies = generation(3.0F);
  next();
  const wire::Pull pull = last_pull();
  EXPECT_FALSE(pull.in_place());
  hear(0, weights_in(lies, pull.number(), 4));
  EXPECT_NE(worker_->weights().data(), lies->data());
  EXPECT_EQ(worker_->weights()[2999], 3.0F);
}

// Memory of one process alone cannot be mapped a second time.
TEST_F(InPlace, PrivateWeightsOfSeveralServersAreCopiedTogether) {
  make_shared("strategy = sync\n", 2);
  assign({0});
  next();
  const int64_t number = newest_pull().number();
  hear(0, weights_in(generation(1.0F), number, 4, 0, 0));
  hear(1, weights_in(generation(2.0F), number, 4, 0, 1));
  EXPECT_EQ(next().kind, Task::kCompute);
  EXPECT_EQ(worker_->weights()[0], 1.0F);
  EXPECT_EQ(worker_->weights()[1024], 2.0F);
  EXPECT_EQ(worker_->weights()[2048], 1.0F);
}

TEST_F(InPlace, WeightsInUseAreHeldUntilTheNextAreComplete) {
  make_shared("strategy = sync\n");
  assign({0});
  auto first = generation(1.0F);
  const std::weak_ptr<const void> held = first;
  const Task task = answered_from(first, 4);
  first.reset();
  EXPECT_EQ(worker_->weights()[5], 1.0F);
  push(task);
  EXPECT_FALSE(held.expired());
  auto second = generation(2.0F);
  hear(0, weights_in(second, last_pull().number(), 5, 1));
  EXPECT_EQ(worker_->weights().data(), second->data());
  push(next());
  hear(0, weights_in(generation(3.0F), last_pull().number(), 6, 2));
  EXPECT_TRUE(held.expired());
}

// A server that lacks the newcomer's share of a step has applied some slices already. They are in
// another generation than the others.
TEST_F(InPlace, NewcomerWithinAStepPullsTheVersionOfAllSlices) {
  make_shared("strategy = sync\n");
  assign({0});
  const auto old = generation(1.0F);
  const auto ahead = generation(2.0F);
  const auto latest = [&](int64_t pull) {
    Message message = weights_in(old, pull, 4);
    message.header.mutable_weights()->mutable_slices(0)->set_version(5);
    message.payloads[0] = weights_in(ahead, pull, 5).payloads[0];
    return message;
  };
  Task task = next();
  for (int i = 0; i < 4 && task.kind == Task::kWait; ++i) {
    const wire::Pull pull = last_pull();
    if (pull.number() > 0) {
      hear(0, pull.latest() ? latest(pull.number()) : weights_in(old, pull.number(), pull.clock()));
    }
    task = next();
  }
  ASSERT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(task.step, 4);
  EXPECT_EQ(worker_->weights().data(), old->data());
}

TEST_F(InPlace, GradientIsKeptUntilItsStepIsAppliedUnderSync) {
  make_shared("strategy = sync\n");
  assign({0});
  const std::weak_ptr<const void> gradient = push_from_buffer(answered_from(generation(1.0F), 4));
  sent_to(0);
  // the push has arrived, but slices wait for the parts of other workers
  Message part = weights_in(generation(2.0F), 2, 5, 1);
  part.header.mutable_weights()->mutable_slices()->DeleteSubrange(1, 2);
  part.payloads.resize(1);
  hear(0, part);
  hear(0, status(2, 1));
  sent_to(0);
  EXPECT_FALSE(gradient.expired());
  later(1000);
  const wire::Pull pull = last_pull();
  ASSERT_EQ(pull.number(), 2);
  hear(0, weights_in(generation(2.0F), pull.number(), 5, 1));
  // the pull began in another generation, so a new pull follows
  answered_from(generation(2.0F), 5, 1);
  sent_to(0);
  EXPECT_TRUE(gradient.expired());
}

TEST_F(InPlace, GradientIsReleasedOnceItIsAcknowledgedUnderSsp) {
  make_shared("strategy = ssp:2\n");
  assign({0});
  const std::weak_ptr<const void> gradient = push_from_buffer(answered_from(generation(1.0F), 0));
  sent_to(0);
  EXPECT_FALSE(gradient.expired());
  hear(0, status(2, 1));
  sent_to(0);
  EXPECT_TRUE(gradient.expired());
}

TEST_F(InPlace, ServerThatStopsSharingGetsANewPull) {
  make_shared("strategy = sync\n");
  assign({0});
  next();
  const int64_t number = last_pull().number();
  Message first = weights_in(generation(1.0F), number, 4);
  first.header.mutable_weights()->mutable_slices()->DeleteSubrange(1, 2);
  first.payloads.resize(1);
  hear(0, first);
  worker_->share_memory(0, false);
  hear(0, weights(0, number, 4, 7.0F));
  EXPECT_EQ(next().kind, Task::kWait);
  const wire::Pull pull = last_pull();
  EXPECT_GT(pull.number(), number);
  EXPECT_FALSE(pull.in_place());
  Task task = next();
  for (int i = 0; i < 2 && task.kind == Task::kWait; ++i) {
    hear(0, weights(0, pull.number() + i, 4, 7.0F));
    task = next();
  }
  EXPECT_EQ(task.kind, Task::kCompute);
  EXPECT_EQ(worker_->weights()[0], 7.0F);
  EXPECT_EQ(worker_->weights()[2999], 7.0F);
}

// Reading these weights would kill the process.
TEST_F(InPlace, DeviceWeightsAreRequestedAndUsedInPlace) {
  make_shared("strategy = sync\n");
  worker_->share_memory(0, true, true);
  assign({0});
  next();
  const wire::Pull pull = last_pull();
  EXPECT_TRUE(pull.in_place());
  EXPECT_TRUE(pull.on_device());
  hear(0, on_device(weights(0, pull.number(), 4, 0.0F)));
  EXPECT_EQ(next().kind, Task::kCompute);
  EXPECT_EQ(worker_->weights().data(), kThere);
}

TEST_F(InPlace, DeviceWeightsInSeveralPiecesAreRequestedOnTheHost) {
  make_shared("strategy = sync\n");
  worker_->share_memory(0, true, true);
  assign({0});
  next();
  wire::Pull pull = last_pull();
  hear(0, on_device(weights(0, pull.number(), 4, 0.0F)));
  push(next());
  pull = last_pull();
  EXPECT_TRUE(pull.on_device());
  Message apart = on_device(weights(0, pull.number(), 5, 0.0F, 1));
  apart.payloads[1].bytes = {apart.payloads[1].bytes.data() + 4, apart.payloads[1].bytes.size()};
  hear(0, apart);
  EXPECT_EQ(next().kind, Task::kWait);
  const wire::Pull again = last_pull();
  EXPECT_GT(again.number(), pull.number());
  EXPECT_TRUE(again.in_place());
  EXPECT_FALSE(again.on_device());
  const auto lies = generation(2.0F);
  hear(0, weights_in(lies, again.number(), 5, 1));
  EXPECT_EQ(next().kind, Task::kCompute);
  EXPECT_EQ(worker_->weights().data(), lies->data());
}

TEST_F(InPlace, UnrequestedDeviceWeightsAreNotRead) {
  make_shared("strategy = sync\n");
  worker_->share_memory(0, false);
  assign({0});
  next();
  const int64_t number = last_pull().number();
  hear(0, on_device(weights(0, number, 4, 0.0F)));
  EXPECT_EQ(next().kind, Task::kWait);
  EXPECT_GT(last_pull().number(), number);
}

TEST_F(InPlace, DeviceWeightsOfSeveralServersAreNotRequested) {
  make_shared("strategy = sync\n", 2);
  for (const int server : {0, 1}) worker_->share_memory(server, true, true);
  assign({0});
  next();
  const wire::Pull pull = last_pull();
  EXPECT_TRUE(pull.in_place());
  EXPECT_FALSE(pull.on_device());
}

TEST_F(InPlace, NewShareDoesNotUseReleasedWeightsUnderSsp) {
  make_shared("strategy = ssp:2\neval-every = 5\n");
  assign({0});
  Task task = answered_from(generation(1.0F), 0);
  while (task.kind == Task::kEvaluate) {
    worker_->finish_evaluation();
    task = answered_from(generation(1.0F), 0);
  }
  ASSERT_EQ(task.kind, Task::kCompute);
  push(task);  // pulls the weights of step 1, too
  const int64_t number = last_pull().number();
  assign({0, 1}, 2, 0);
  EXPECT_EQ(next().kind, Task::kWait);
  EXPECT_GT(last_pull().number(), number);
}

TEST_F(InPlace, ReferencesNeedFewerMessagesThanBytes) {
  make_shared("strategy = sync\n");
  setup_.flush_bytes = 4096;
  worker_ = std::make_unique<PushPull>(setup_);
  assign({0});
  answered_from(generation(1.0F), 4);
  push_from_buffer(next());
  EXPECT_EQ(sent_to(0).size(), 3U);
  worker_ = std::make_unique<PushPull>(setup_);
  worker_->share_memory(0, true);
  assign({0});
  answered_from(generation(1.0F), 4);
  push_from_buffer(next());
  EXPECT_EQ(sent_to(0).size(), 1U);
}

}  // namespace
}  // namespace pushpull
