// Shared memory, server's side, with weights on a device. tests/worker/server_memory_test.cpp
// covers weights in host memory.
#include "ps/server/attached_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "tests/common/thrown.h"
#include "tests/device/fake_device.h"

namespace pushpull::attached_workers_test {
namespace {

using device::FakeDevice;
using device::FakeOptions;
using testing::HasSubstr;

constexpr int64_t kElements = 3000;
constexpr uint64_t kTermId = 11;
constexpr uint64_t kWorker = 101;
constexpr int64_t kDeadlineMs = 1000;

// Another GPU of the same host.
class OtherDevice : public FakeDevice {
 public:
  std::string id() const override { return "another"; }
};

class Unshared : public FakeDevice {
 public:
  device::Memory allocate_shared(size_t /*bytes*/, std::string& /*handle*/) override {
    throw Error(ErrorCode::kDevice, "[device] shares nothing");
  }
};

// Tests of a worker with a device and a server with its weights on a device.
class DeviceAttachedWorkers : public testing::Test {
 protected:
  DeviceAttachedWorkers() { serve(std::make_shared<FakeDevice>()); }

  void serve(std::shared_ptr<FakeDevice> device, const std::string& keys = "") {
    generations_.clear();
    server_.reset();
    device_ = std::move(device);
    const Job job = parse_job_text("dataset = dummy\nslice-bytes = 4096\n" + keys, "test");
    server_ = std::make_unique<AttachedWorkers>(
        job, kTermId, map_, [this](const std::string& why) { warnings_.push_back(why); }, device_);
    wire::State state;
    state.add_workers()->set_incarnation(kWorker);
    server_->on_state(state);
  }

  wire::Attach attach_of(const std::string& probes) {
    wire::Attach attach;
    attach.mutable_sender()->set_term_id(kTermId);
    attach.mutable_sender()->set_incarnation(kWorker);
    attach.set_host(host_identity());
    host_probe_ = pool_.get(1);
    *attach.mutable_probe() =
        pool_.find(std::as_bytes(std::span(host_probe_.get(), 1))).segment->description();
    if (probes == "device") {
      device_probe_ = device_pool_.get(1);
      *attach.mutable_device_probe() =
          device_pool_.find(std::as_bytes(std::span(device_probe_.get(), 1)))
              .segment->description();
    }
    return attach;
  }
  wire::Attached attach(const std::string& probes = "device") {
    return server_->on_attach("peer", attach_of(probes)).header.attached();
  }

  // A push of slice 0 with its payload at `gradient`.
  Message push(const std::shared_ptr<float[]>& gradient, bool on_device) const {
    Message push;
    wire::Exchange* exchange = push.header.mutable_exchange();
    exchange->mutable_sender()->set_term_id(kTermId);
    exchange->mutable_sender()->set_incarnation(kWorker);
    exchange->mutable_push()->add_parts()->set_slice(0);
    push.payloads.push_back(
        {gradient, std::as_bytes(std::span<const float>(gradient.get(), 1024)), on_device});
    refer(push, pool_, map_, &device_pool_);
    EXPECT_TRUE(push.payloads.empty());
    return push;
  }
  std::optional<Message> pull(bool in_place, bool on_device) {
    Message message;
    wire::Exchange* exchange = message.header.mutable_exchange();
    exchange->mutable_sender()->set_term_id(kTermId);
    exchange->mutable_sender()->set_incarnation(kWorker);
    exchange->mutable_pull()->set_number(++pulls_);
    exchange->mutable_pull()->set_in_place(in_place);
    exchange->mutable_pull()->set_on_device(on_device);
    return server_->on_message("peer", message);
  }

  // Weights 0, 1, ... of a generation, in the server's device memory.
  std::shared_ptr<float[]> generation() {
    const FloatAllocator memory = server_->weights();
    std::shared_ptr<float[]> out;
    if (memory) {
      out = memory(kElements);
    } else {
      auto plain = std::make_shared<device::Memory>(device_->allocate(kElements * sizeof(float)));
      out = {plain, plain->floats()};
    }
    std::vector<float> values(kElements);
    std::iota(values.begin(), values.end(), 0.0F);
    const auto stream = device_->stream();
    stream->copy_in(values.data(), values.size() * sizeof(float), out.get());
    stream->synchronize(kDeadlineMs);
    generations_.push_back(out);
    return out;
  }
  Message weights(const std::shared_ptr<float[]>& generation) const {
    Message message;
    for (int slice = 0; slice < map_.slices(); ++slice) {
      const Range elements = map_.elements(slice);
      message.header.mutable_weights()->add_slices()->set_slice(slice);
      message.payloads.push_back(
          {generation,
           std::as_bytes(std::span<const float>(generation.get() + elements.lo,
                                                static_cast<size_t>(elements.size()))),
           true});
    }
    return message;
  }
  Message sent(Message message, const PeerId& peer = "peer") {
    Outgoing out{peer, std::move(message)};
    server_->on_send(out);
    return std::move(out.message);
  }
  std::vector<float> read(const Payload& payload) const {
    EXPECT_TRUE(payload.on_device);
    std::vector<float> out(payload.float_count());
    const device::Memory copy = worker_->allocate(payload.bytes.size());
    const auto stream = worker_->stream();
    stream->copy_in(payload.address(), payload.bytes.size(), copy.data());
    stream->copy_out(copy.data(), payload.bytes.size(), out.data());
    stream->synchronize(kDeadlineMs);
    return out;
  }

  SliceMap map_{kElements, 4096, 1};
  std::vector<std::string> warnings_;
  int64_t pulls_ = 0;
  // the worker's side
  std::shared_ptr<FakeDevice> worker_ = std::make_shared<FakeDevice>(FakeOptions{.seed = 1});
  SegmentPool pool_{[](const std::string& why) { FAIL() << why; }};
  DevicePool device_pool_{worker_, [](const std::string& why) { FAIL() << why; }};
  std::shared_ptr<float[]> host_probe_;
  std::shared_ptr<float[]> device_probe_;
  PeerMemory peer_{max_segment_bytes(map_), {}, worker_};
  // the server's side
  std::shared_ptr<FakeDevice> device_;
  std::unique_ptr<AttachedWorkers> server_;
  std::vector<std::shared_ptr<float[]>> generations_;
};

TEST_F(DeviceAttachedWorkers, WeightsAreReadOnTheDevice) {
  const wire::Attached attached = attach();
  ASSERT_TRUE(attached.ok());
  EXPECT_EQ(attached.device_text(), "");
  EXPECT_EQ(peer_.map(attached.device_probe()).bytes.size(), sizeof(float));
  ASSERT_FALSE(pull(true, true));
  const int64_t runs = device_->runs();
  Message message = weights(generation());
  const int64_t filled = device_->runs() - runs;
  message = sent(std::move(message));
  EXPECT_TRUE(message.payloads.empty());
  EXPECT_EQ(device_->runs(), runs + filled) << "no copy was made";
  resolve(message, peer_, map_);
  ASSERT_EQ(message.payloads.size(), 3U);
  EXPECT_EQ(read(message.payloads[0]).at(3), 3.0F);
  EXPECT_EQ(read(message.payloads[2]).at(951), 2999.0F);
}

TEST_F(DeviceAttachedWorkers, WorkerThatSharesOnlyHostMemoryReadsAHostCopy) {
  ASSERT_TRUE(attach("").ok());
  ASSERT_FALSE(pull(true, true)) << "the worker has not attached device memory";
  const auto there = generation();
  Message message = sent(weights(there));
  EXPECT_TRUE(message.payloads.empty());
  resolve(message, peer_, map_);
  ASSERT_EQ(message.payloads.size(), 3U);
  EXPECT_EQ(message.payloads[2].floats()[951], 2999.0F);
  // all payloads lie in one buffer
  EXPECT_EQ(message.payloads[1].floats(), message.payloads[0].floats() + 1024);
}

TEST_F(DeviceAttachedWorkers, OtherWorkersGetTheBytes) {
  attach();
  const auto there = generation();
  for (const auto& [in_place, peer] : {std::pair{false, "peer"}, std::pair{true, "a stranger"}}) {
    ASSERT_FALSE(pull(in_place, true));
    const Message message = sent(weights(there), peer);
    ASSERT_EQ(message.payloads.size(), 3U);
    EXPECT_EQ(message.payloads[1].floats()[1], 1025.0F);
  }
}

TEST_F(DeviceAttachedWorkers, OneHostCopyServesAllPulls) {
  ASSERT_TRUE(attach("").ok());
  ASSERT_FALSE(pull(true, false));
  const auto there = generation();
  const Message first = sent(weights(there), "a stranger");
  const int64_t runs = device_->runs();
  const Message second = sent(weights(there), "another");
  Message referred = sent(weights(there));
  EXPECT_EQ(device_->runs(), runs);
  EXPECT_EQ(first.payloads[0].floats(), second.payloads[0].floats());
  EXPECT_TRUE(referred.payloads.empty());
}

TEST_F(DeviceAttachedWorkers, WeightsOutsideSharedMemoryAreCopied) {
  attach();
  ASSERT_FALSE(pull(true, true));
  Message fetched;
  fetched.header.mutable_fetched()->set_slice(1);
  fetched.payloads = {weights(generation()).payloads[1], weights(generation()).payloads[1]};
  fetched = sent(std::move(fetched));
  ASSERT_EQ(fetched.payloads.size(), 2U);
  EXPECT_EQ(fetched.payloads[0].floats()[0], 1024.0F);
  EXPECT_EQ(fetched.payloads[1].floats()[1023], 2047.0F);
}

TEST_F(DeviceAttachedWorkers, GradientsAreReadOnTheDevice) {
  const auto gradient = device_pool_.get(kElements);
  const Message sent = push(gradient, true);
  Message early = sent;
  const std::optional<Message> refused = server_->on_message("peer", early);
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->header.attached().text(), HasSubstr("not attached"));

  ASSERT_TRUE(attach().ok());
  Message forged = sent;
  forged.header.mutable_exchange()->mutable_segments(0)->set_handle("x");
  EXPECT_TRUE(server_->on_message("peer", forged));
  Message taken = sent;
  ASSERT_FALSE(server_->on_message("peer", taken));
  ASSERT_EQ(taken.payloads.size(), 1U);
  EXPECT_TRUE(taken.payloads[0].on_device);
}

TEST_F(DeviceAttachedWorkers, GradientsInHostMemoryAreRegisteredOnce) {
  ASSERT_TRUE(attach("").ok());
  const auto gradient = pool_.get(kElements);
  const size_t before = device_->registrations();
  for (int i = 0; i < 3; ++i) {
    Message taken = push(gradient, false);
    ASSERT_FALSE(server_->on_message("peer", taken));
    ASSERT_EQ(taken.payloads.size(), 1U);
    EXPECT_EQ(device_->registrations(), before + 1);
  }
  server_->on_state({});
  EXPECT_EQ(device_->registrations(), before) << "the worker is gone";
}

TEST_F(DeviceAttachedWorkers, TheNewestPullDecidesTheMemory) {
  ASSERT_TRUE(attach().ok());
  ASSERT_FALSE(pull(true, true));
  ASSERT_FALSE(pull(true, false));
  Message message = sent(weights(generation()));
  resolve(message, peer_, map_);
  EXPECT_EQ(message.payloads[0].floats()[3], 3.0F);
}

TEST_F(DeviceAttachedWorkers, ServerInHostMemoryReportsIt) {
  serve(nullptr);
  const wire::Attached attached = attach();
  EXPECT_TRUE(attached.ok());
  EXPECT_FALSE(attached.has_device_probe());
  EXPECT_EQ(attached.device_text(), "its weights are in host memory");
}

TEST_F(DeviceAttachedWorkers, AnotherGpuIsReported) {
  serve(std::make_shared<OtherDevice>());
  const wire::Attached attached = attach();
  EXPECT_TRUE(attached.ok());
  EXPECT_FALSE(attached.has_device_probe());
  EXPECT_EQ(attached.device_text(), "its weights are on another GPU, fake:0");
  ASSERT_FALSE(pull(true, true));
  Message message = sent(weights(generation()));
  resolve(message, peer_, map_);
  EXPECT_EQ(message.payloads[0].floats()[3], 3.0F);
}

TEST_F(DeviceAttachedWorkers, ProbeThatCannotBeOpenedFallsBackToHostMemory) {
  wire::Attach ask = attach_of("device");
  ask.mutable_device_probe()->set_handle("x");
  const wire::Attached attached = server_->on_attach("peer", ask).header.attached();
  EXPECT_TRUE(attached.ok());
  EXPECT_FALSE(attached.has_device_probe());
  EXPECT_THAT(attached.device_text(), HasSubstr("fake:0 shares no such memory"));
}

TEST_F(DeviceAttachedWorkers, DeviceThatCannotShareMemoryStillServes) {
  serve(std::make_shared<Unshared>());
  const auto there = generation();
  EXPECT_THAT(warnings_, testing::ElementsAre("[device] shares nothing"));
  const wire::Attached attached = attach();
  EXPECT_TRUE(attached.ok());
  EXPECT_THAT(attached.device_text(), HasSubstr("others cannot read"));
  ASSERT_FALSE(pull(true, true));
  Message message = sent(weights(there));
  resolve(message, peer_, map_);
  EXPECT_EQ(message.payloads[0].floats()[3], 3.0F);
}

TEST_F(DeviceAttachedWorkers, WithoutSharedMemoryTheDeviceIsPrivateToTheServer) {
  serve(std::make_shared<FakeDevice>(), "transport = tcp\n");
  EXPECT_FALSE(attach().ok());
  EXPECT_FALSE(server_->weights());
  const Message message = sent(weights(generation()));
  ASSERT_EQ(message.payloads.size(), 3U);
  EXPECT_EQ(message.payloads[2].floats()[0], 2048.0F);
}

TEST_F(DeviceAttachedWorkers, SlowerCopiesAreReportedOnce) {
  serve(std::make_shared<FakeDevice>(FakeOptions{.registers = false}));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(sent(weights(generation())).payloads[0].floats()[3], 3.0F);
  EXPECT_THAT(warnings_, testing::ElementsAre(HasSubstr("copies to the host take longer")));
  ASSERT_TRUE(attach("").ok());
  for (int i = 0; i < 2; ++i) {
    const auto gradient = pool_.get(kElements);
    Message taken = push(gradient, false);
    ASSERT_FALSE(server_->on_message("peer", taken)) << "an unregistered gradient is still read";
  }
  EXPECT_THAT(warnings_,
              testing::ElementsAre(testing::_,
                                   HasSubstr("copies of workers' gradients to the device take")));
}

// A lost device is the server's fault: it does not make the worker fall back to the socket.
TEST_F(DeviceAttachedWorkers, LostDeviceEndsTheServer) {
  const wire::Attach ask = attach_of("device");
  serve(std::make_shared<FakeDevice>(FakeOptions{.lost_after = 0}));
  EXPECT_NE(thrown(ErrorCode::kDevice, [&] { server_->on_attach("peer", ask); }), "");
}

}  // namespace
}  // namespace pushpull::attached_workers_test
