// The two ends of shared memory, ServerAttachment of a worker and AttachedWorkers of a server,
// without a socket between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ps/server/attached_workers.h"
#include "worker/exchange/server_attachment.h"

namespace pushpull::server_memory_test {
namespace {

constexpr int64_t kElements = 3000;
constexpr uint64_t kTermId = 11;
constexpr uint64_t kWorker = 101;

class ServerMemoryTest : public testing::Test {
 protected:
  void make(const std::string& keys = "", const std::string& server_keys = "") {
    PushPullSetup setup;
    setup.term_id = kTermId;
    setup.incarnation = kWorker;
    setup.job = job(keys);
    setup.total_elements = kElements;
    setup.barriers = {0, 0, 0, 10};
    push_pull_ = std::make_unique<PushPull>(setup);
    worker_ = std::make_unique<ServerAttachment>(*push_pull_, 3);
    server_ =
        std::make_unique<AttachedWorkers>(job(server_keys.empty() ? keys : server_keys), kTermId,
                                          push_pull_->slices(), [](const std::string&) {});
    server_->on_state(members({kWorker}));
  }
  static Job job(const std::string& keys) {
    return parse_job_text("dataset = dummy\nslice-bytes = 4096\n" + keys, "test");
  }
  static wire::State members(std::initializer_list<uint64_t> incarnations) {
    wire::State state;
    for (const uint64_t incarnation : incarnations) {
      state.add_workers()->set_incarnation(incarnation);
    }
    return state;
  }
  // Delivers the worker's requests to the server, and the answers.
  void attach() {
    for (const ToServer& ask : worker_->due(now_)) {
      Message answer = server_->on_attach("peer", ask.message.header.attach());
      worker_->on_message(0, answer, now_);
    }
  }
  Message push(const std::shared_ptr<float[]>& flat) {
    pushed_.push_back(flat);  // as PushPull does until the server has read it
    Message message;
    wire::Exchange* exchange = message.header.mutable_exchange();
    exchange->mutable_sender()->set_term_id(kTermId);
    exchange->mutable_sender()->set_incarnation(kWorker);
    exchange->mutable_pull()->set_in_place(true);
    for (int slice = 0; slice < push_pull_->slices().slices(); ++slice) {
      exchange->mutable_push()->add_parts()->set_slice(slice);
      message.payloads.push_back(payload(flat, slice));
    }
    return message;
  }
  Message weights(const std::shared_ptr<float[]>& flat) const {
    Message message;
    for (int slice = 0; slice < push_pull_->slices().slices(); ++slice) {
      message.header.mutable_weights()->add_slices()->set_slice(slice);
      message.payloads.push_back(payload(flat, slice));
    }
    return message;
  }
  Payload payload(const std::shared_ptr<float[]>& flat, int slice) const {
    const Range elements = push_pull_->slices().elements(slice);
    return {flat, std::as_bytes(std::span<const float>(flat.get() + elements.lo,
                                                       static_cast<size_t>(elements.size())))};
  }
  // Returns the message as it goes over the wire to the server.
  Message sent(Message message) const {
    ToServer out{0, std::move(message)};
    worker_->on_send(out);
    return std::move(out.message);
  }
  Message answered(Message message, const PeerId& peer = "peer") const {
    Outgoing out{peer, std::move(message)};
    server_->on_send(out);
    return std::move(out.message);
  }

  int64_t now_ = 1'000'000;
  std::vector<std::shared_ptr<float[]>> pushed_;
  std::unique_ptr<PushPull> push_pull_;
  std::unique_ptr<ServerAttachment> worker_;
  std::unique_ptr<AttachedWorkers> server_;
};

TEST_F(ServerMemoryTest, GradientsAndWeightsGoByReferenceBothWays) {
  make();
  testing::internal::CaptureStderr();
  attach();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("worker 3: shared memory with server 0"));
  EXPECT_TRUE(worker_->settled());
  const auto gradient = worker_->gradients()(kElements);
  gradient[2500] = 5.0F;
  Message pushed = sent(push(gradient));
  EXPECT_TRUE(pushed.payloads.empty());
  EXPECT_FALSE(server_->on_message("peer", pushed));
  ASSERT_EQ(pushed.payloads.size(), 3U);
  EXPECT_EQ(pushed.payloads[2].floats()[452], 5.0F);

  const auto flat = server_->weights()(kElements);
  flat[1030] = 6.0F;
  Message pulled = answered(weights(flat));
  EXPECT_TRUE(pulled.payloads.empty());
  EXPECT_TRUE(worker_->on_message(0, pulled, now_));
  ASSERT_EQ(pulled.payloads.size(), 3U);
  EXPECT_EQ(pulled.payloads[1].floats()[6], 6.0F);
}

TEST_F(ServerMemoryTest, WeightsGoOverTheSocketUnlessThePullWantsThemInPlace) {
  make();
  attach();
  Message pull = push(worker_->gradients()(kElements));
  pull.header.mutable_exchange()->mutable_pull()->set_in_place(false);
  ASSERT_FALSE(server_->on_message("peer", pull));
  EXPECT_EQ(answered(weights(server_->weights()(kElements))).payloads.size(), 3U);
}

TEST_F(ServerMemoryTest, NewConnectionIsRecognisedByItsPull) {
  make();
  attach();
  Message pushed = sent(push(worker_->gradients()(kElements)));
  ASSERT_FALSE(server_->on_message("peer anew", pushed));
  EXPECT_TRUE(answered(weights(server_->weights()(kElements)), "peer anew").payloads.empty());
  EXPECT_EQ(answered(weights(server_->weights()(kElements)), "stranger").payloads.size(), 3U);
}

TEST_F(ServerMemoryTest, TcpAndIpcNeverShare) {
  for (const std::string transport : {"transport = tcp\n", "transport = ipc\n"}) {
    make(transport);
    EXPECT_TRUE(worker_->due(now_).empty());
    EXPECT_TRUE(worker_->settled());
    const auto gradient = worker_->gradients()(kElements);
    EXPECT_EQ(sent(push(gradient)).payloads.size(), 3U);
  }
}

TEST_F(ServerMemoryTest, RefusalIsReportedWithItsReasonAndTheSocketIsUsed) {
  for (const bool warned : {false, true}) {
    make(warned ? "transport = shm\n" : "", "transport = tcp\n");
    testing::internal::CaptureStderr();
    attach();
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, testing::HasSubstr("sockets to server 0 (the job's transport"));
    EXPECT_EQ(log.find("warning") != std::string::npos, warned) << log;
    EXPECT_TRUE(worker_->settled());
    EXPECT_EQ(sent(push(worker_->gradients()(kElements))).payloads.size(), 3U);
    EXPECT_TRUE(worker_->due(now_ + 10'000).empty());
  }
}

// Stages of a pipeline allocate while the trainer exchanges messages. Fails under tsan only.
TEST_F(ServerMemoryTest, AnyThreadAllocatesGradientsWhileAServerAnswers) {
  make("", "transport = tcp\n");
  const FloatAllocator gradients = worker_->gradients();
  std::thread stage([&] {
    for (int i = 0; i < 100; ++i) EXPECT_NE(gradients(kElements), nullptr);
  });
  testing::internal::CaptureStderr();
  attach();
  stage.join();
  testing::internal::GetCapturedStderr();
}

TEST_F(ServerMemoryTest, ServerOfAnotherHostRefuses) {
  make();
  wire::Attach attach = worker_->due(now_)[0].message.header.attach();
  attach.set_host("00000000-0000-0000-0000-000000000000 1 0");
  const Message answer = server_->on_attach("peer", attach);
  EXPECT_FALSE(answer.header.attached().ok());
  EXPECT_EQ(answer.header.attached().text(), "it is on another host");
}

TEST_F(ServerMemoryTest, ProbeThatCannotBeOpenedIsARefusalOnEitherSide) {
  make();
  wire::Attach attach = worker_->due(now_)[0].message.header.attach();
  attach.mutable_probe()->set_token(std::string(16, 'x'));
  const Message answer = server_->on_attach("peer", attach);
  EXPECT_FALSE(answer.header.attached().ok());
  EXPECT_THAT(answer.header.attached().text(), testing::HasSubstr("not the memory"));

  make();
  Message good = server_->on_attach("peer", worker_->due(now_)[0].message.header.attach());
  good.header.mutable_attached()->mutable_probe()->set_fd(-1);
  testing::internal::CaptureStderr();
  worker_->on_message(0, good, now_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("names no file"));
  EXPECT_EQ(sent(push(worker_->gradients()(kElements))).payloads.size(), 3U);
}

TEST_F(ServerMemoryTest, AsksAgainUntilTheServerKnowsTheWorker) {
  make();
  server_->on_state(members({}));
  for (int i = 0; i < 100; ++i, now_ += 50) {
    attach();
    EXPECT_FALSE(worker_->settled()) << "the server only answers that it is not ready";
  }
  server_->on_state(members({kWorker}));
  attach();
  EXPECT_TRUE(worker_->settled());
}

TEST_F(ServerMemoryTest, SilentServerIsNotWaitedForButMayAnswerLater) {
  make();
  testing::internal::CaptureStderr();
  for (int i = 0; i <= 40; ++i, now_ += 50) {
    EXPECT_FALSE(worker_->settled());
    worker_->due(now_);
  }
  EXPECT_TRUE(worker_->settled());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("no answer yet"));
  now_ += 1000;
  testing::internal::CaptureStderr();
  attach();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("from here on"));
  EXPECT_TRUE(sent(push(worker_->gradients()(kElements))).payloads.empty());
}

TEST_F(ServerMemoryTest, ServerThatCannotReadAPushGetsTheBytes) {
  make();
  attach();
  Message pushed = sent(push(worker_->gradients()(kElements)));
  pushed.header.mutable_exchange()->mutable_segments(0)->set_fd(0);
  std::optional<Message> refusal = server_->on_message("peer", pushed);
  ASSERT_TRUE(refusal);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(worker_->on_message(0, *refusal, now_));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("over its socket"));
  EXPECT_EQ(sent(push(worker_->gradients()(kElements))).payloads.size(), 3U);
}

TEST_F(ServerMemoryTest, ReferencesWithoutAnAttachAreRefused) {
  make();
  attach();
  const Message pushed = sent(push(worker_->gradients()(kElements)));
  Message stranger = pushed;
  const auto refused = [&](Message message) {
    const std::optional<Message> refusal = server_->on_message("peer", message);
    return refusal && refusal->header.attached().text().find("not attached") != std::string::npos;
  };
  stranger.header.mutable_exchange()->mutable_sender()->set_incarnation(5);
  EXPECT_TRUE(refused(stranger));
  stranger = pushed;
  stranger.header.mutable_exchange()->mutable_sender()->set_term_id(5);
  EXPECT_TRUE(refused(stranger));
  EXPECT_FALSE(refused(pushed));
  server_->on_state(members({}));
  EXPECT_TRUE(refused(pushed));

  make();
  const auto flat = server_->weights()(kElements);
  Message unasked = weights(flat);
  unasked.header.mutable_weights()->mutable_slices(0)->set_segment(1);
  EXPECT_FALSE(worker_->on_message(0, unasked, now_));
  EXPECT_EQ(worker_->rejected(), 1);
}

}  // namespace
}  // namespace pushpull::server_memory_test
