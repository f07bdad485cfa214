#include "worker/exchange/encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "common/base/error.h"
#include "common/job/job.h"
#include "common/layout/tensor_table.h"
#include "tests/common/thrown.h"

namespace pushpull {
namespace {

constexpr Range kNode{0, 4};

TensorTable table_of(int64_t weights, int64_t average) {
  TensorTable table;
  TensorInfo info;
  info.name = "fc.weight";
  info.shape = {weights};
  table.add(info);
  if (average > 0) {
    info.name = "norm.mean";
    info.shape = {average};
    info.rule = UpdateRule::kAverage;
    table.add(info);
  }
  return table;
}

Payload payload_of(const std::vector<float>& floats) {
  const auto owner = std::make_shared<std::vector<float>>(floats);
  return {owner, std::as_bytes(std::span<const float>(*owner))};
}

std::vector<float> gradient(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.01F);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

// A worker's encoder and the servers' decoding of the whole vector.
struct Wire {
  Wire(const std::string& codec, TensorTable tensors, int64_t slice_bytes = 8192, int servers = 1,
       const std::string& strategy = "sync", double clip_norm = 0.0)
      : table(std::move(tensors)), map(table.total, slice_bytes, servers) {
    job.codec = Codec::parse(codec);
    job.strategy = Strategy::parse(strategy);
    job.clip_norm = clip_norm;
    codecs = CodecMap(table, job.codec, job.codec_tensors);
    encoder = std::make_unique<Encoder>(job, table, map);
  }

  std::vector<float> send(const std::vector<float>& whole, Range node = kNode) {
    std::vector<float> out(whole.size());
    for (int slice = map.slices() - 1; slice >= 0; --slice) {
      const Range e = map.elements(slice);
      const Payload sent =
          encoder->encode(node, slice, payload_of({whole.begin() + e.lo, whole.begin() + e.hi}));
      const SliceCodec codec = codecs.of_slice(map, slice);
      EXPECT_TRUE(codec.fits(sent.bytes.data(), sent.bytes.size()));
      if (codec.plain()) {
        std::memcpy(out.data() + e.lo, sent.bytes.data(), sent.bytes.size());
      } else {
        codec.decode(sent.bytes.data(), 0, e.size(), out.data() + e.lo);
      }
    }
    return out;
  }

  TensorTable table;
  SliceMap map;
  Job job;
  CodecMap codecs;
  std::unique_ptr<Encoder> encoder;
};

TEST(Encoder, DecodedSumIsTheGradientSumWithoutTheLastResidual) {
  for (const char* codec : {"fp16", "bf16", "int8", "topk:0.05"}) {
    SCOPED_TRACE(codec);
    Wire wire(codec, table_of(5000, 0));
    std::vector<double> wanted(5000);
    std::vector<double> sent(5000);
    double worst_once = 0.0;
    for (uint32_t step = 0; step < 100; ++step) {
      const std::vector<float> g = gradient(5000, step);
      const std::vector<float> d = wire.send(g);
      for (size_t i = 0; i < g.size(); ++i) {
        wanted[i] += g[i];
        sent[i] += d[i];
        worst_once = std::max(worst_once, std::fabs(static_cast<double>(g[i]) - d[i]));
      }
    }
    // pushes of zeros send the last residual, down to the codec's smallest value
    std::vector<float> residual(5000);
    for (size_t i = 0; i < wanted.size(); ++i)
      residual[i] = static_cast<float>(wanted[i] - sent[i]);
    const double bound = *std::max_element(residual.begin(), residual.end(), [](float a, float b) {
      return std::fabs(a) < std::fabs(b);
    });
    EXPECT_GT(worst_once, 0.0);
    if (std::string(codec) != "topk:0.05") {
      // the error of one push, not the sum of a hundred; additions round as well
      EXPECT_LT(std::fabs(bound), 2 * worst_once + 1e-6);
    }
    std::vector<double> drained(5000);
    for (int turn = 0; turn < 100; ++turn) {
      const std::vector<float> d = wire.send(std::vector<float>(5000));
      for (size_t i = 0; i < d.size(); ++i) drained[i] += d[i];
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      // 200 roundings of floats that are at most about 0.2
      ASSERT_NEAR(drained[i], wanted[i] - sent[i], 200 * 0x1p-26) << i;
    }
  }
}

TEST(Encoder, RunningStatisticsAreNotEncoded) {
  Wire wire("topk:0.01", table_of(3000, 1500));
  const std::vector<float> g = gradient(4500, 1);
  const std::vector<float> d = wire.send(g);
  EXPECT_TRUE(std::equal(g.begin() + 2048, g.end(), d.begin() + 2048))
      << "blocks with running statistics are plain";
  EXPECT_FALSE(std::equal(g.begin(), g.begin() + 2048, d.begin()));
}

TEST(Encoder, SliceWithoutACodecIsNotCopied) {
  for (const char* codec : {"fp32", "int8"}) {
    Wire wire(codec, table_of(2048, 2048), 8192);
    const Payload part = payload_of(gradient(2048, 1));
    EXPECT_EQ(wire.encoder->encode(kNode, 1, part).bytes.data(), part.bytes.data());
    EXPECT_EQ(wire.encoder->encode(kNode, 0, part).bytes.data() == part.bytes.data(),
              std::string(codec) == "fp32");
  }
}

TEST(Encoder, BitsDependNeitherOnSlicesNorOnServers) {
  for (const char* codec : {"fp16", "int8", "topk:0.05"}) {
    Wire a(codec, table_of(6000, 500), 1 << 20, 1);
    Wire b(codec, table_of(6000, 500), 4096, 1);
    Wire c(codec, table_of(6000, 500), 8192, 3);
    for (uint32_t step = 0; step < 5; ++step) {
      const std::vector<float> g = gradient(6500, step);
      const std::vector<float> want = a.send(g);
      EXPECT_EQ(b.send(g), want);
      EXPECT_EQ(c.send(g), want);
    }
  }
}

TEST(Encoder, EveryNodeHasItsOwnResidual) {
  Wire both("topk:0.01", table_of(1024, 0));
  Wire first("topk:0.01", table_of(1024, 0));
  Wire second("topk:0.01", table_of(1024, 0));
  for (uint32_t step = 0; step < 5; ++step) {
    const std::vector<float> f = gradient(1024, step);
    const std::vector<float> s = gradient(1024, 100 + step);
    EXPECT_EQ(both.send(f, {0, 4}), first.send(f));
    EXPECT_EQ(both.send(s, {4, 5}), second.send(s));
  }
}

TEST(Encoder, AllLeasesOfAsyncShareOneResidual) {
  Wire roaming("topk:0.01", table_of(1024, 0), 8192, 1, "async");
  Wire fixed("topk:0.01", table_of(1024, 0));
  for (int step = 0; step < 5; ++step) {
    const std::vector<float> g = gradient(1024, static_cast<uint32_t>(step));
    EXPECT_EQ(roaming.send(g, {step, step + 1}), fixed.send(g));
  }
}

TEST(Encoder, KeepsTheDecodedGradientForTheNormOfAClippedPush) {
  Wire clipped("topk:0.01", table_of(3000, 1500), 8192, 2, "async", 1.0);
  const std::vector<float> seen = clipped.send(gradient(4500, 3));
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), clipped.encoder->sent().begin(),
                         clipped.encoder->sent().end()));
  Wire plain("fp32", table_of(3000, 1500), 8192, 2, "async", 1.0);
  plain.send(gradient(4500, 3));
  EXPECT_TRUE(plain.encoder->sent().empty());
}

TEST(Encoder, InfiniteResidualIsAnErrorThatNamesTheTensor) {
  Wire wire("fp16", table_of(2000, 0));
  const std::vector<float> huge(2000, std::numeric_limits<float>::max() / 2);
  wire.send(huge);
  wire.send(huge);
  EXPECT_THAT(thrown(ErrorCode::kNotFinite, [&] { wire.send(huge); }),
              testing::HasSubstr("fc.weight"));
}

// Pages that are never written stay empty: a worker of a group pushes the slices of its stage alone.
TEST(Encoder, TakesMemoryForTheSlicesThatItEncodes) {
  constexpr int64_t kElements = int64_t{16} << 20;
  Wire wire("bf16", table_of(kElements, 0), int64_t{1} << 20, 1, "async", 1.0);
  const auto pages = [] {  // resident ones
    std::ifstream statm("/proc/self/statm");
    int64_t size = 0;
    int64_t resident = 0;
    statm >> size >> resident;
    return resident;
  };
  const std::vector<float> part(static_cast<size_t>(wire.map.elements(0).size()), 0.5F);
  const int64_t before = pages();
  wire.encoder->encode(kNode, 0, payload_of(part));
  EXPECT_EQ(std::ssize(wire.encoder->sent()), kElements);
  EXPECT_LT(pages() - before, 4096);
}

}  // namespace
}  // namespace pushpull
