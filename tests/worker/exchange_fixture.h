// The worker's exchange. The test plays the servers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/exchange/push_pull.h"

namespace pushpull {

constexpr int64_t kElements = 3000;  // three slices: 0 and 2 at server 0, 1 at server 1

inline Payload constant(int64_t n, float value) {
  auto owner = std::make_shared<std::vector<float>>(static_cast<size_t>(n), value);
  const auto bytes = std::as_bytes(std::span<const float>(*owner));
  return {std::move(owner), bytes};
}

class Exchange : public testing::Test {
 protected:
  void make(const std::string& keys, int64_t global_batch = 8) {
    setup_.term_id = 11;
    setup_.incarnation = 101;
    setup_.job = parse_job_text("dataset = dummy\nglobal-batch = " + std::to_string(global_batch) +
                                    "\nmicro-batch = 2\nslice-bytes = 4096\nsteps = 10\n" + keys,
                                "test");
    setup_.total_elements = kElements;
    setup_.servers = 2;
    setup_.barriers = {setup_.job.eval_every, 0, 0, 10};
    setup_.shares = 2;
    setup_.chunks = 4;
    worker_ = std::make_unique<PushPull>(setup_);
  }
  // Assigns shares [2 * index, 2 * index + 2) of each step.
  void assign(std::initializer_list<int> shares, int64_t version = 1, int64_t from_step = 0) {
    wire::State state;
    state.set_version(version);
    for (const int index : shares) {
      wire::Share* share = state.add_assigned();
      const int64_t lo = int64_t{2} * index;
      share->set_lo(lo);
      share->set_hi(lo + 2);
      share->set_index(index);
      share->set_from_step(from_step);
    }
    worker_->on_state(state, now_);
  }
  Task next() { return worker_->next(now_); }

  // Returns the messages sent to a server since the last call, in order.
  std::vector<wire::Exchange> sent_to(int server) {
    std::vector<wire::Exchange> out;
    for (ToServer& o : worker_->take_outgoing()) unread_.push_back(std::move(o));
    for (auto it = unread_.begin(); it != unread_.end();) {
      if (it->server != server) {
        ++it;
        continue;
      }
      out.push_back(it->message.header.exchange());
      it = unread_.erase(it);
    }
    return out;
  }
  void forget_sent() {
    sent_to(0);
    sent_to(1);
  }
  wire::Pull newest_pull() {
    wire::Pull out;
    for (const int server : {0, 1}) {
      for (const auto& exchange : sent_to(server)) {
        if (exchange.has_pull() && exchange.pull().number() > out.number()) out = exchange.pull();
      }
    }
    return out;
  }

  Message weights(int server, int64_t pull, int64_t version, float value,
                  int64_t pushes_through = 0) {
    Message message;
    wire::Weights* w = message.header.mutable_weights();
    w->set_pull(pull);
    w->set_pushes_through(pushes_through);
    w->set_at_barrier(true);  // matters only if the pull asks for a barrier
    for (const int slice : worker_->slices().slices_of(server)) {
      w->add_slices()->set_slice(slice);
      w->mutable_slices(w->slices_size() - 1)->set_version(version);
      message.payloads.push_back(constant(worker_->slices().elements(slice).size(), value));
    }
    return message;
  }
  // asked: the repeat that it answers.
  Message status(int64_t pull, int64_t pushes_through, bool not_ready = false, int asked = 1,
                 int connection = 0) {
    Message message;
    message.header.mutable_status()->set_asked(asked);
    message.header.mutable_status()->set_lane(connection);
    message.header.mutable_status()->set_pull(pull);
    message.header.mutable_status()->set_pushes_through(pushes_through);
    message.header.mutable_status()->set_not_ready(not_ready);
    return message;
  }
  bool hear(int server, const Message& message) {
    return worker_->on_message(server, message, now_);
  }
  // Lets both servers answer the newest pull.
  void answer(int64_t version, float value, int64_t pushes_through = 0) {
    const int64_t number = newest_pull().number();
    for (const int server : {0, 1})
      hear(server, weights(server, number, version, value, pushes_through));
  }
  // Pulls until there is a task at `clock`, and returns it.
  Task ready_at(int64_t clock, float value = 1.0F) {
    for (int i = 0; i < 3; ++i) {
      const Task task = next();
      if (task.kind != Task::kWait) return task;
      answer(clock, value);
    }
    return next();
  }
  void push(const Task& task, const std::string& data_hash = {}) {
    worker_->begin_push(task.step, task.range);
    for (const Range& node : worker_->nodes(task.range)) {
      for (int slice = 0; slice < 3; ++slice) {
        worker_->add_part(slice, node, constant(worker_->slices().elements(slice).size(), 2.0F));
      }
    }
    worker_->end_push(std::vector<float>(static_cast<size_t>(task.range.size()), 0.5F), 4.0, now_,
                      data_hash);
  }
  void later(int64_t ms) {
    now_ += ms;
    worker_->on_tick(now_);
  }

  PushPullSetup setup_;
  int64_t now_ = 1'000'000;
  std::unique_ptr<PushPull> worker_;
  std::vector<ToServer> unread_;
};

}  // namespace pushpull
