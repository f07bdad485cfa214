// Servers with narrow pushes and narrow weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "common/update/block_codec.h"
#include "common/update/codec.h"
#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull::server_codec_test {
namespace {

constexpr int64_t kElements = 5000;
constexpr Range kFirst{0, 2};
constexpr Range kSecond{2, 4};

Payload owned(std::vector<float> floats) {
  auto owner = std::make_shared<std::vector<float>>(std::move(floats));
  const auto bytes = std::as_bytes(std::span<const float>(*owner));
  return {std::move(owner), bytes};
}

// A server, and pushes to it: encoded by the job's codec, or decoded to floats again.
struct Side {
  Side(const std::string& keys, const std::string& codec_keys, bool encodes)
      : encoded(encodes),
        setup(server_setup(job_of(keys + (encodes ? codec_keys : "")), kElements, 0, 2)),
        map(kElements, setup.job.slice_bytes, 2),
        codecs(setup.table, job_of(keys + codec_keys).codec,
               job_of(keys + codec_keys).codec_tensors),
        server(setup, nullptr) {
    server.on_state(state_with_workers({kAnna, kBert}));
  }

  Message push(uint64_t who, int64_t number, int64_t step, Range share) {
    Message message = push_message(setup, who, number, step, share, 0.0F);
    wire::Push* push = message.header.mutable_exchange()->mutable_push();
    for (int i = 0; i < push->parts_size(); ++i) {
      const int slice = push->parts(i).slice();
      const int64_t n = map.elements(slice).size();
      const auto seed = static_cast<uint64_t>(step * 1000 + slice * 10 + push->parts(i).lo());
      const std::vector<float> x = floats_of(random_payload(n, seed));
      const SliceCodec codec = codecs.of_slice(map, slice);
      if (codec.plain()) {
        message.payloads[static_cast<size_t>(i)] = owned(x);
        continue;
      }
      std::vector<float> bytes(codec.bytes() / sizeof(float));
      auto* out = reinterpret_cast<std::byte*>(bytes.data());
      for (int64_t b = 0; b < codec.blocks(); ++b) {
        const Range e = codec.elements(b);
        encode_block(codec.codec(b), x.data() + e.lo, e.size(), out + codec.offset(b));
      }
      std::vector<float> decoded(static_cast<size_t>(n));
      codec.decode(out, 0, n, decoded.data());
      message.payloads[static_cast<size_t>(i)] = owned(encoded ? bytes : decoded);
    }
    return message;
  }

  // Trains some steps with two workers. Answers norms and sets as the coordinator does.
  void train(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) {
      for (const auto& [who, share] : {std::pair{kAnna, kFirst}, {kBert, kSecond}}) {
        Message message = push(who, step + 1, step, share);
        wire::Push* body = message.header.mutable_exchange()->mutable_push();
        const int64_t here = server.stats().updates();
        for (int i = 0; i < 2; ++i) body->set_read_versions(i, here);
        body->set_squares(9.0);
        ASSERT_TRUE(taken(server.on_data("x", message)));
      }
      if (server.waiting_arrived()) {
        wire::Chosen chosen;
        chosen.set_step(step);
        chosen.add_lo(0);
        server.on_chosen(chosen);
      }
      if (server.waiting_norms()) {
        wire::NormTotal total;
        total.set_step(step);
        double squares = 0.0;
        for (const wire::NormNode& node : server.waiting_norms()->nodes())
          squares += node.squares();
        total.set_norm(std::sqrt(squares));
        server.on_norm_total(total);
      }
      ASSERT_EQ(server.floor(), step + 1);
    }
  }

  std::vector<Payload> pull(const wire::Pull& wanted) {
    Message message = pull_message(kBert, wanted.number(), wanted.clock());
    *message.header.mutable_exchange()->mutable_pull() = wanted;
    server.take_outgoing();
    EXPECT_TRUE(taken(server.on_data("bert", message)));
    std::vector<Payload> out;
    for (const Outgoing& o : server.take_outgoing()) {
      out.insert(out.end(), o.message.payloads.begin(), o.message.payloads.end());
    }
    return out;
  }

  std::vector<std::vector<float>> weights(int64_t number) {
    wire::Pull latest;
    latest.set_number(number);
    latest.set_latest(true);
    std::vector<std::vector<float>> out;
    for (const Payload& p : pull(latest)) out.push_back(floats_of(p));
    return out;
  }

  bool encoded;
  ServerSetup setup;
  SliceMap map;
  CodecMap codecs;
  Server server;
};

class NarrowPushes : public testing::TestWithParam<const char*> {};

TEST_P(NarrowPushes, MoveTheWeightsLikeTheirDecodedFloats) {
  for (const std::string codec : {"fp16", "bf16", "int8", "topk:0.05"}) {
    for (const std::string clip : {"", "clip-norm = 0.5\n"}) {
      SCOPED_TRACE(codec + clip);
      const std::string keys =
          std::string("optimizer = adam\nstrategy = ") + GetParam() + "\n" + clip;
      const std::string codec_keys = "codec = " + codec + "\ncodec-tensors = *.bias=fp32\n";
      Side narrow(keys, codec_keys, true);
      Side wide(keys, codec_keys, false);
      narrow.train(4);
      wide.train(4);
      const auto got = narrow.weights(1);
      ASSERT_EQ(got.size(), 3U);
      EXPECT_EQ(got, wide.weights(1));
      EXPECT_LT(narrow.server.stats().bytes_pushed(), wide.server.stats().bytes_pushed());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, NarrowPushes,
                         testing::Values("sync", "async", "ssp:2", "backup:1", "local:1"));

// ---- hostile ----

class HostileCodec : public testing::Test {
 protected:
  // Spoils the first payload of an honest push. Returns true if the server accepts it.
  bool takes(const std::string& codec, const std::function<void(Payload&)>& spoil) {
    Side side("", "codec = " + codec + "\n", true);
    Message message = side.push(kAnna, 1, 0, kFirst);
    spoil(message.payloads[0]);
    const bool fits = taken(side.server.on_data("anna", message));
    if (!fits) {
      EXPECT_EQ(side.server.stats().bytes_pushed(), 0);
      EXPECT_TRUE(taken(side.server.on_data("anna", side.push(kAnna, 1, 0, kFirst))))
          << "the honest push still counts";
    }
    return fits;
  }
};

TEST_F(HostileCodec, PayloadOfAnotherSizeIsRefused) {
  for (const std::string codec : {"fp16", "bf16", "int8", "topk:0.05"}) {
    SCOPED_TRACE(codec);
    EXPECT_FALSE(takes(codec, [](Payload& p) { p = constant_payload(1024, 1.0F); })) << "plain";
    EXPECT_FALSE(takes(codec, [](Payload& p) { p = constant_payload(1, 1.0F); }));
    EXPECT_FALSE(takes(codec, [](Payload& p) { p.bytes = p.bytes.first(p.bytes.size() - 4); }));
    EXPECT_FALSE(takes(codec, [](Payload& p) { p.bytes = {}; }));
    EXPECT_TRUE(takes(codec, [](Payload&) {}));
  }
  EXPECT_FALSE(takes("fp32", [](Payload& p) { p = constant_payload(512, 1.0F); }))
      << "narrow, where the job has no codec";
}

TEST_F(HostileCodec, IndicesOutsideTheSliceAreRefused) {
  const auto with_index = [](int place, uint16_t index) {
    return [=](Payload& p) {
      std::vector<float> copy = floats_of(p);
      std::memcpy(reinterpret_cast<uint16_t*>(copy.data()) + place, &index, sizeof index);
      p = owned(copy);
    };
  };
  EXPECT_FALSE(takes("topk:0.05", with_index(0, 65535)));
  EXPECT_FALSE(takes("topk:0.05", with_index(51, 1024)));
  EXPECT_FALSE(takes("topk:0.05", with_index(51, 0)));
  EXPECT_TRUE(takes("topk:0.05", with_index(51, 1023)));
}

// A worker may spoil the weights, as with plain floats, but not the memory.
TEST_F(HostileCodec, NonFiniteValuesAreAccepted) {
  EXPECT_TRUE(takes("int8", [](Payload& p) {
    std::vector<float> copy = floats_of(p);
    copy[0] = std::numeric_limits<float>::quiet_NaN();
    p = owned(copy);
  }));
  EXPECT_TRUE(takes("fp32", [](Payload& p) {
    p = constant_payload(1024, std::numeric_limits<float>::quiet_NaN());
  }));
}

// ---- pulls ----

std::vector<float> widened(const Payload& narrow, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  from_bf16(reinterpret_cast<const uint16_t*>(narrow.bytes.data()), n, out.data());
  return out;
}

TEST(NarrowPulls, GiveRoundedWeightsExceptToEvaluations) {
  for (const std::string strategy : {"sync", "async", "backup:1"}) {
    SCOPED_TRACE(strategy);
    const std::string keys = "strategy = " + strategy + "\neval-every = 3\n";
    Side narrow(keys, "pull-codec = bf16\n", true);
    Side wide(keys, "pull-codec = bf16\n", false);
    for (Side* side : {&narrow, &wide}) side->train(2);
    const auto whole = wide.weights(1);
    wire::Pull latest;
    latest.set_number(1);
    latest.set_latest(true);
    const std::vector<Payload> got = narrow.pull(latest);
    ASSERT_EQ(got.size(), whole.size());
    int64_t bytes = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      std::vector<float> rounded = whole[i];
      const auto n = std::ssize(rounded);
      round_to_bf16(rounded.data(), n, rounded.data());
      EXPECT_EQ(got[i].bytes.size(), static_cast<size_t>(n + 1) / 2 * 4);
      EXPECT_EQ(widened(got[i], n), rounded);
      bytes += std::ssize(got[i].bytes);
    }
    EXPECT_EQ(narrow.server.stats().bytes_pulled(), bytes);
    EXPECT_EQ(narrow.pull(latest)[0].bytes.data(), got[0].bytes.data()) << "encoded once";
  }
}

TEST(NarrowPulls, WeightsOfAnEvaluationAreExact) {
  for (const std::string strategy : {"sync", "async", "backup:1"}) {
    SCOPED_TRACE(strategy);
    const std::string keys = "strategy = " + strategy + "\neval-every = 3\n";
    Side narrow(keys, "pull-codec = bf16\n", true);
    Side wide(keys, "pull-codec = bf16\n", false);
    for (Side* side : {&narrow, &wide}) side->train(3);
    wire::Pull at_three;
    at_three.set_number(1);
    at_three.set_clock(3);
    at_three.set_barrier(strategy != "sync");
    const std::vector<Payload> got = narrow.pull(at_three);
    const std::vector<Payload> want = wide.pull(at_three);
    ASSERT_EQ(got.size(), 3U);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(floats_of(got[i]), floats_of(want[i]));
  }
}

}  // namespace
}  // namespace pushpull::server_codec_test
