// The two ends of a device's shared memory, ServerAttachment of a worker and AttachedWorkers of a
// server, without a socket between them. Each has its own fake, and both stand for the same device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "ps/server/attached_workers.h"
#include "tests/common/thrown.h"
#include "tests/device/fake_device.h"
#include "worker/exchange/server_attachment.h"

namespace pushpull {
namespace {

using device::FakeDevice;
using device::FakeOptions;
using testing::HasSubstr;

constexpr int64_t kElements = 3000;  // on one server: slices of 1,024, 1,024 and 952
constexpr uint64_t kTermId = 11;
constexpr uint64_t kWorker = 101;
constexpr int64_t kDeadlineMs = 1000;

class ServerDeviceMemory : public testing::Test {
 protected:
  using Devices = std::vector<std::shared_ptr<FakeDevice>>;

  // at_servers: null for a server in host memory.
  void make(Devices at_servers, const FakeOptions& at_worker = {.seed = 1}) {
    worker_.reset();
    servers_.clear();
    PushPullSetup setup;
    setup.term_id = kTermId;
    setup.incarnation = kWorker;
    setup.job = parse_job_text("dataset = dummy\nslice-bytes = 4096\n", "test");
    setup.total_elements = kElements;
    setup.servers = static_cast<int>(at_servers.size());
    setup.barriers = {0, 0, 0, 10};
    push_pull_ = std::make_unique<PushPull>(setup);
    device_ = std::make_shared<FakeDevice>(at_worker);
    worker_ = std::make_unique<ServerAttachment>(*push_pull_, 3, PagesMapped(), device_);
    wire::State state;
    state.add_workers()->set_incarnation(kWorker);
    for (size_t i = 0; i < at_servers.size(); ++i) {
      servers_.push_back(std::make_unique<AttachedWorkers>(
          setup.job, kTermId, push_pull_->slices(), [](const std::string& why) { FAIL() << why; },
          at_servers[i], static_cast<int>(i)));
      servers_.back()->on_state(state);
    }
  }
  static std::shared_ptr<FakeDevice> fake(int index = 0) {
    return std::make_shared<FakeDevice>(FakeOptions{.seed = 2, .index = index});
  }
  // Delivers the worker's requests to the servers, and their answers. Returns the worker's log.
  std::string attach() {
    testing::internal::CaptureStderr();
    for (const ToServer& ask : worker_->due(now_)) {
      const auto server = static_cast<size_t>(ask.server);
      Message answer = servers_[server]->on_attach("peer", ask.message.header.attach());
      worker_->on_message(ask.server, answer, now_);
    }
    return testing::internal::GetCapturedStderr();
  }
  std::string hear(Message message) {
    testing::internal::CaptureStderr();
    worker_->on_message(0, message, now_);
    return testing::internal::GetCapturedStderr();
  }
  static Message refusal(const std::string& why) {
    Message message;
    message.header.mutable_attached()->set_text(why);
    return message;
  }

  // Returns the numbers 0, 1, ... in a device's memory.
  static std::shared_ptr<float[]> filled(const FloatAllocator& memory, FakeDevice& device) {
    std::vector<float> values(kElements);
    std::iota(values.begin(), values.end(), 0.0F);
    const auto out = memory(kElements);
    const auto stream = device.stream();
    stream->copy_in(values.data(), values.size() * sizeof(float), out.get());
    stream->synchronize(kDeadlineMs);
    return out;
  }
  static std::vector<float> read(const Payload& payload, FakeDevice& device) {
    EXPECT_TRUE(payload.on_device);
    std::vector<float> out(payload.float_count());
    const device::Memory copy = device.allocate(payload.bytes.size());
    const auto stream = device.stream();
    stream->copy_in(payload.address(), payload.bytes.size(), copy.data());
    stream->copy_out(copy.data(), payload.bytes.size(), out.data());
    return out;
  }
  Payload payload(const std::shared_ptr<float[]>& flat, int slice) const {
    const Range e = push_pull_->slices().elements(slice);
    const std::span<const float> part(flat.get() + e.lo, static_cast<size_t>(e.size()));
    return {flat, std::as_bytes(part), true};
  }
  // Returns a push as it goes to the first server.
  Message pushed(const std::shared_ptr<float[]>& flat) {
    gradients_.push_back(flat);  // as PushPull does until servers have read it
    ToServer out;
    wire::Exchange* exchange = out.message.header.mutable_exchange();
    exchange->mutable_sender()->set_term_id(kTermId);
    exchange->mutable_sender()->set_incarnation(kWorker);
    exchange->mutable_pull()->set_in_place(true);
    exchange->mutable_pull()->set_on_device(true);
    for (int slice = 0; slice < push_pull_->slices().slices(); ++slice) {
      exchange->mutable_push()->add_parts()->set_slice(slice);
      out.message.payloads.push_back(payload(flat, slice));
    }
    worker_->on_send(out);
    return std::move(out.message);
  }
  Message pulled(const std::shared_ptr<float[]>& flat) {
    Outgoing out{"peer", {}};
    for (int slice = 0; slice < push_pull_->slices().slices(); ++slice) {
      out.message.header.mutable_weights()->add_slices()->set_slice(slice);
      out.message.payloads.push_back(payload(flat, slice));
    }
    servers_[0]->on_send(out);
    return std::move(out.message);
  }
  static void expect_bytes(const Message& message) {
    ASSERT_EQ(message.payloads.size(), 3U);
    for (const Payload& p : message.payloads) EXPECT_FALSE(p.on_device);
    EXPECT_EQ(message.payloads[1].floats()[1], 1025.0F);
  }

  int64_t now_ = 1'000'000;
  std::shared_ptr<FakeDevice> device_;  // the worker's device
  std::vector<std::shared_ptr<float[]>> gradients_;
  std::unique_ptr<PushPull> push_pull_;
  std::unique_ptr<ServerAttachment> worker_;
  std::vector<std::unique_ptr<AttachedWorkers>> servers_;
};

TEST_F(ServerDeviceMemory, GradientsAndWeightsAreReadOnTheDeviceBothWays) {
  const auto at_server = fake();
  make({at_server});
  EXPECT_THAT(attach(), HasSubstr("worker 3: shared device memory with server 0\n"));
  EXPECT_TRUE(worker_->settled());
  Message push = pushed(filled(worker_->device_gradients(), *device_));
  EXPECT_TRUE(push.payloads.empty());
  ASSERT_FALSE(servers_[0]->on_message("peer", push));
  ASSERT_EQ(push.payloads.size(), 3U);
  EXPECT_EQ(read(push.payloads[2], *at_server).at(951), 2999.0F);

  const auto weights = filled(servers_[0]->weights(), *at_server);
  Message pull = pulled(weights);
  EXPECT_TRUE(pull.payloads.empty());
  EXPECT_TRUE(worker_->on_message(0, pull, now_));
  ASSERT_EQ(pull.payloads.size(), 3U);
  EXPECT_EQ(read(pull.payloads[1], *device_).at(0), 1024.0F);
}

TEST_F(ServerDeviceMemory, ServerInHostMemoryIsNamed) {
  make({nullptr});
  EXPECT_THAT(attach(), HasSubstr("shared memory with server 0 (its weights are in host memory)"));
  EXPECT_FALSE(worker_->device_gradients());
}

TEST_F(ServerDeviceMemory, ServerOnAnotherGpuIsNamed) {
  make({fake(1)});
  EXPECT_THAT(attach(), HasSubstr("shared memory with server 0 (its weights are on another GPU, "
                                  "fake:1)"));
  EXPECT_FALSE(worker_->device_gradients());
}

TEST_F(ServerDeviceMemory, GradientsStayOnTheDeviceOnlyIfAllServersReadThemThere) {
  make({fake(), nullptr});
  EXPECT_THAT(attach(), HasSubstr("shared device memory with server 0; shared memory with server 1 "
                                  "(its weights are in host memory)"));
  EXPECT_FALSE(worker_->device_gradients());
  make({fake(), fake()});
  attach();
  EXPECT_TRUE(worker_->device_gradients());
}

TEST_F(ServerDeviceMemory, ServerThatCanNoLongerReadTheDeviceGetsTheBytes) {
  make({fake()});
  attach();
  const auto gradient = filled(worker_->device_gradients(), *device_);
  Message push = pushed(gradient);
  push.header.mutable_exchange()->mutable_segments(0)->set_handle("x");
  std::optional<Message> refused = servers_[0]->on_message("peer", push);
  ASSERT_TRUE(refused);
  EXPECT_THAT(hear(*refused), HasSubstr("server 0 shares host memory from here on: [device]"));
  expect_bytes(pushed(gradient));
  EXPECT_THAT(hear(refusal("no more")), HasSubstr("over its socket: no more"));
  expect_bytes(pushed(gradient));
}

TEST_F(ServerDeviceMemory, WeightsThatCannotBeOpenedArePulledOnTheHost) {
  const auto at_server = fake();
  make({at_server});
  attach();
  Message push = pushed(filled(worker_->device_gradients(), *device_));
  ASSERT_FALSE(servers_[0]->on_message("peer", push));
  const auto weights = filled(servers_[0]->weights(), *at_server);
  Message pull = pulled(weights);
  pull.header.mutable_weights()->mutable_segments(0)->set_handle("x");
  EXPECT_THAT(hear(pull), HasSubstr("server 0 shares host memory from here on: [device]"));
  EXPECT_EQ(worker_->rejected(), 1);
}

TEST_F(ServerDeviceMemory, ProbeThatCannotBeOpenedFallsBackToHostMemory) {
  make({fake()});
  const std::vector<ToServer> asked = worker_->due(now_);
  Message answer = servers_[0]->on_attach("peer", asked[0].message.header.attach());
  answer.header.mutable_attached()->mutable_device_probe()->set_handle("x");
  EXPECT_THAT(hear(answer), HasSubstr("shared memory with server 0 ([device] fake:0 shares no"));
  EXPECT_FALSE(worker_->device_gradients());
}

// A lost device of the worker is not the server's fault.
TEST_F(ServerDeviceMemory, LostDeviceEndsTheWorker) {
  make({fake()}, {.seed = 1, .lost_after = 3});
  const std::vector<ToServer> asked = worker_->due(now_);
  Message answer = servers_[0]->on_attach("peer", asked[0].message.header.attach());
  const auto stream = device_->stream();
  EXPECT_THROW(
      {
        for (int i = 0; i < 3; ++i) device::enqueue(*stream, [] {});
        stream->synchronize(kDeadlineMs);
      },
      Error);
  EXPECT_NE(thrown(ErrorCode::kDevice, [&] { worker_->on_message(0, answer, now_); }), "");
}

}  // namespace
}  // namespace pushpull
