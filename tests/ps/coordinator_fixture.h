// A coordinator in which the test plays the members: it sends their messages and reads the answers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/net/model_wire.h"
#include "ps/run/coordinator.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull {

constexpr uint64_t kSelf = 1;
constexpr uint64_t kCarl = 103;

class CoordinatorTest : public testing::Test {
 protected:
  void make(const std::string& keys, int servers = 1, int workers = 2) {
    CoordinatorOptions options;
    options.job = job_of(keys);
    options.term_id = kTermId;
    options.servers = servers;
    options.workers = workers;
    options.self.incarnation = kSelf;
    options.self.host = "head";
    options.self.pid = 1;
    options.self.data_endpoint = "tcp://127.0.0.1:5556";
    coordinator_ = std::make_unique<Coordinator>(options);
  }
  // Starts the training of a job with two workers.
  void train(const std::string& keys) {
    make(keys);
    join(kAnna);
    join(kBert);
    ASSERT_TRUE(coordinator_->wants_start());
    begin();
    EXPECT_EQ(write_snapshots(), 0) << "the initial weights are hashed";
    tick();
  }
  void begin(const Start& start = {}) { run_ = &coordinator_->start(now_, start, heard_); }
  // Gathers and writes the snapshots that are due. Returns the step of the last one, or -1.
  int64_t write_snapshots() { return pushpull::write_snapshots(*run_); }

  static PeerId peer_of(uint64_t who) { return "peer " + std::to_string(who); }
  // Returns true if the coordinator accepts the message, else sets `reason_`.
  bool send(uint64_t who, const Message& message) {
    reason_ = reason_of(coordinator_->on_message(now_, peer_of(who), message));
    return reason_.empty();
  }
  // Returns the reason for which the coordinator refuses the message, or "" if it accepts it.
  std::string why_not(uint64_t who, const Message& message) {
    send(who, message);
    return reason_;
  }
  bool hello(uint64_t who, wire::Role role = wire::ROLE_WORKER, std::string endpoint = "own") {
    if (endpoint == "own") endpoint = "tcp://127.0.0.1:" + std::to_string(6000 + who);
    Message message;
    wire::Hello* hello = message.header.mutable_hello();
    hello->set_role(role);
    hello->set_incarnation(who);
    hello->set_host("node");
    hello->set_pid(static_cast<int64_t>(1000 + who));
    if (role == wire::ROLE_SERVER) hello->set_data_endpoint(endpoint);
    return send(who, message);
  }
  static Message declaration(uint64_t who) {
    Message message;
    wire::Declare* declare = message.header.mutable_declare();
    declare->set_incarnation(who);
    to_wire(table_of(3000), declare->mutable_tensors());
    declare->set_train_samples(64);
    declare->set_test_samples(16);
    declare->set_data_digest("0123456789abcdef");
    declare->set_numerics("cpu avx2");
    return message;
  }
  void join(uint64_t who) {
    EXPECT_TRUE(hello(who));
    EXPECT_TRUE(send(who, declaration(who)));
  }
  bool heartbeat(uint64_t who, int64_t state_version = 0) {
    Message message;
    message.header.mutable_heartbeat()->set_incarnation(who);
    message.header.mutable_heartbeat()->set_state_version(state_version);
    return send(who, message);
  }
  bool leave(uint64_t who, int code, const std::string& text = "") {
    Message message;
    message.header.mutable_leave()->set_incarnation(who);
    message.header.mutable_leave()->set_code(code);
    message.header.mutable_leave()->set_text(text);
    return send(who, message);
  }
  // Advances the time and collects the outgoing messages: the newest state of each receiver,
  // refusals, jobs.
  void tick(int64_t ms = 1) {
    now_ += ms;
    coordinator_->on_tick(now_);
    collect();
  }
  void collect() {
    for (const Outgoing& out : coordinator_->take_outgoing()) {
      if (out.message.header.has_state()) states_[out.to] = out.message.header.state();
      if (out.message.header.has_refused()) refused_[out.to] = out.message.header.refused();
      if (out.message.header.has_job_text()) jobs_[out.to] = out.message.header.job_text();
    }
  }
  const wire::State& state_of(uint64_t who) { return states_[who == kSelf ? "" : peer_of(who)]; }
  std::vector<Range> shares_of(uint64_t who) {
    std::vector<Range> out;
    for (const auto& share : state_of(who).assigned()) out.push_back({share.lo(), share.hi()});
    return out;
  }
  std::string refusal_of(uint64_t who) {
    collect();
    return refused_[peer_of(who)].text();
  }
  std::string notices() {
    std::string out;
    for (const std::string& line : coordinator_->take_notices()) out += line + "\n";
    return out;
  }
  // Advances the time. All members in `alive` send heartbeats.
  void live(int64_t ms, std::initializer_list<uint64_t> alive) {
    for (int64_t t = 0; t < ms; t += 100) {
      for (const uint64_t who : alive) heartbeat(who);
      tick(100);
    }
  }
  void commit(uint64_t who, int64_t step, Range range) {
    run_->on_commit(
        {who, step, range, std::vector<float>(static_cast<size_t>(range.size()), 1.0F), true});
  }
  void commit_all(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) {
      commit(kAnna, step, {0, 2});
      commit(kBert, step, {2, 4});
    }
  }
  // Reports all chunks as this worker. Only those assigned to it count.
  void evaluate(uint64_t who, int64_t step) {
    Message message;
    wire::EvalResult* result = message.header.mutable_eval_result();
    result->set_incarnation(who);
    result->set_step(step);
    for (int i = 0; i < 8; ++i) result->add_chunks()->set_chunk(i);
    EXPECT_TRUE(send(who, message));
  }
  void evaluate(int64_t step) {
    std::vector<uint64_t> workers;
    for (const auto& [incarnation, member] : coordinator_->members().all()) {
      if (member.role == wire::ROLE_WORKER) workers.push_back(incarnation);
    }
    for (const uint64_t worker : workers) evaluate(worker, step);
  }

  int64_t now_ = 1'000'000;
  StoringListener heard_;
  std::unique_ptr<Coordinator> coordinator_;
  TrainingRun* run_ = nullptr;  // of the coordinator, once it has begun
  std::string reason_;          // reason for which the newest message was refused
  std::map<PeerId, wire::State> states_;
  std::map<PeerId, wire::Refused> refused_;
  std::map<PeerId, wire::JobText> jobs_;
};

}  // namespace pushpull
