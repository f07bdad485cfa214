// A server on a device answers with the bits of a server on the host.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/device_lab.h"
#include "tests/ps/refusals.h"

namespace pushpull {
namespace {

// Two servers, the second on a device. They get the same messages and must give the same answers.
class ServerPair {
 public:
  ServerPair(const Lab& lab, const std::string& keys) : lab_(lab) {
    setup_ = server_setup(job_of(keys), 5000);
    host_ = std::make_unique<Server>(setup_, nullptr);
    ServerSetup on_device = setup_;
    on_device.engine = lab.engine();
    device_ = std::make_unique<Server>(on_device, nullptr);
    for (Server* server : both()) server->on_state(state_with_workers({kAnna, kBert}));
  }

  void push(uint64_t who, int64_t number, Range share, float value, int64_t read) {
    Message message = push_message(setup_, who, number, number - 1, share, value);
    message.header.mutable_exchange()->mutable_push()->set_read_versions(0, read);
    send(who, message);
  }
  void pull(uint64_t who, int64_t number, int64_t clock) {
    send(who, pull_message(who, number, clock));
  }
  // Sends a total norm, as the coordinator does.
  void end_norms() {
    if (!host_->waiting_norms()) return;
    ASSERT_TRUE(device_->waiting_norms());
    EXPECT_EQ(device_->waiting_norms()->SerializeAsString(),
              host_->waiting_norms()->SerializeAsString());
    wire::NormTotal total;
    total.set_step(host_->waiting_norms()->step());
    if (host_->waiting_norms()->of_tensors()) {
      total.set_of_tensors(true);
      for (size_t t = 0; t < setup_.table.tensors.size(); ++t)
        total.add_trust(0.5 + static_cast<double>(t));
    }
    total.set_norm(12.5);
    for (Server* server : both()) server->on_norm_total(total);
    compare();
    end_norms();  // of tensors
  }
  int compared() const { return compared_; }

 private:
  std::array<Server*, 2> both() const { return {host_.get(), device_.get()}; }

  void send(uint64_t who, const Message& message) {
    for (Server* server : both()) EXPECT_TRUE(taken(server->on_data(std::to_string(who), message)));
    compare();
  }

  void compare() {
    const auto want = host_->take_outgoing();
    const auto got = device_->take_outgoing();
    ASSERT_EQ(got.size(), want.size());
    for (size_t m = 0; m < want.size(); ++m) {
      EXPECT_EQ(got[m].message.header.SerializeAsString(),
                want[m].message.header.SerializeAsString());
      ASSERT_EQ(got[m].message.payloads.size(), want[m].message.payloads.size());
      for (size_t p = 0; p < want[m].message.payloads.size(); ++p) {
        EXPECT_TRUE(got[m].message.payloads[p].on_device);
        EXPECT_TRUE(same_bits(lab_.read(got[m].message.payloads[p]),
                              floats_of(want[m].message.payloads[p])));
        ++compared_;
      }
    }
  }

  const Lab& lab_;
  ServerSetup setup_;
  std::unique_ptr<Server> host_;
  std::unique_ptr<Server> device_;
  int compared_ = 0;
};

using ServerOn = AnyEngine;
INSTANTIATE_TEST_SUITE_P(, ServerOn, testing::ValuesIn(device_cases()),
                         [](const auto& of) { return std::string(of.param.name); });

TEST_P(ServerOn, DeviceAnswersWithTheHostsBits) {
  const Lab lab(GetParam().make(4));
  for (const std::string keys :
       {"strategy = sync\noptimizer = adam\nclip-norm = 1\ncheckpoint-every = 2\n",
        "strategy = sync\noptimizer = lamb\nclip-norm = 1\nweight-decay = 0.1\n",
        "strategy = async\noptimizer = momentum\ndelay-compensation = 0.25\n",
        "strategy = ssp:2\noptimizer = adamw\n"}) {
    ServerPair pair(lab, keys);
    const bool sync = keys.find("sync\nopt") == std::string("strategy = ").size();
    pair.pull(kAnna, 1, 0);
    pair.pull(kBert, 1, 0);
    for (int64_t step = 1; step <= 4; ++step) {
      const int64_t updates = sync ? 0 : 2 * (step - 1);
      pair.push(kAnna, step, {0, 2}, 0.5F * static_cast<float>(step), updates);
      pair.push(kBert, step, {2, 4}, 1.5F, updates);
      pair.end_norms();
      pair.pull(kAnna, step + 1, step);
      pair.pull(kBert, step + 1, step);
    }
    EXPECT_GE(pair.compared(), 10) << keys;
  }
}

// A replacement server gets pushes of later steps, and the worker may end before their step begins.
TEST_P(ServerOn, PushesOfLaterStepsAreKeptInTheServersMemory) {
  const Lab lab(GetParam().make(4));
  ServerSetup setup = server_setup(job_of("lr = 1\n"), 5000);
  setup.replays = true;
  Server host(setup, nullptr);
  setup.engine = lab.engine();
  Server device(setup, nullptr);
  for (Server* server : {&host, &device}) server->on_state(state_with_workers({kAnna, kBert}));
  const auto push = [&](uint64_t who, int64_t step, Range share, float value) {
    Message message = push_message(setup, who, step + 1, step, share, value);
    EXPECT_TRUE(taken(host.on_data(std::to_string(who), message)));
    for (Payload& payload : message.payloads) {
      payload = lab.put(floats_of(payload), Lab::kOnDevice);
    }
    EXPECT_TRUE(taken(device.on_data(std::to_string(who), message)));
    for (const Payload& payload : message.payloads) lab.overwrite(payload, std::nanf(""));
  };
  push(kAnna, 1, {0, 2}, 0.5F);
  push(kBert, 1, {2, 4}, 1.5F);
  push(kAnna, 0, {0, 2}, 2.0F);
  push(kBert, 0, {2, 4}, 3.0F);
  for (Server* server : {&host, &device}) {
    EXPECT_TRUE(taken(server->on_data("anna", pull_message(kAnna, 1, 2))));
  }
  const std::vector<Outgoing> want = host.take_outgoing();
  const std::vector<Outgoing> got = device.take_outgoing();
  ASSERT_EQ(got.size(), want.size());
  ASSERT_FALSE(want.back().message.payloads.empty());
  for (size_t i = 0; i < want.back().message.payloads.size(); ++i) {
    EXPECT_TRUE(same_bits(lab.read(got.back().message.payloads[i]),
                          floats_of(want.back().message.payloads[i])));
  }
}

}  // namespace
}  // namespace pushpull
