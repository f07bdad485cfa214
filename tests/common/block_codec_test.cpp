#include "common/update/block_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/layout/slice_map.h"
#include "tests/common/block_codec_width.h"

namespace pushpull {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kLeast = std::numeric_limits<float>::denorm_min();

using Floats = std::vector<float>;

std::vector<std::byte> encoded(const Codec& codec, const Floats& x) {
  const auto n = std::ssize(x);
  std::vector<std::byte> out(encoded_block_bytes(codec, n), std::byte{0xaa});
  encode_block(codec, x.data(), n, out.data());
  return out;
}

Floats decoded(const Codec& codec, const Floats& x) {
  const std::vector<std::byte> bytes = encoded(codec, x);
  EXPECT_TRUE(block_fits(codec, bytes.data(), std::ssize(x)));
  Floats out(x.size(), -7.0F);
  decode_block(codec, bytes.data(), std::ssize(x), out.data());
  return out;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Rounds x to a format with `digits` binary digits. Works in doubles, which hold each value
// exactly.
float on_grid(float x, int digits, int min_exponent, double largest) {
  if (x == 0.0F) return x;
  const int exponent = std::max(std::ilogb(x), min_exponent);
  const double unit = std::ldexp(1.0, exponent - (digits - 1));
  const double rounded = std::nearbyint(static_cast<double>(std::fabs(x)) / unit) * unit;
  return std::copysign(static_cast<float>(std::min(rounded, largest)), x);
}

float as_half(float x) { return on_grid(x, 11, -14, 65504.0); }
float as_bf16(float x) { return on_grid(x, 8, -126, std::ldexp(255.0, 120)); }

// Blocks of numbers of every exponent: zeros of both signs, the limits of each format and the
// floats next to them.
std::vector<Floats> hard_blocks() {
  std::mt19937 random(3);
  std::vector<Floats> out;
  for (int block = 0; block < 200; ++block) {
    Floats x;
    for (int64_t i = 0; i < kBlockElements; ++i) {
      const float any = std::bit_cast<float>(static_cast<uint32_t>(random()));
      x.push_back(std::isfinite(any) ? any : 0.0F);
    }
    out.push_back(x);
  }
  Floats edges = {0.0F,      -0.0F, kLeast,     -kLeast, kLargest,
                  -kLargest, 65504, 65519.996F, 65520,   65536};
  for (int e = -30; e <= 17; ++e) {
    for (const double times : {1.0, 1.5, 1 + 0x1p-11, 1 + 0x3p-11, 1 + 0x1p-8, 1 + 0x3p-8}) {
      const auto edge = static_cast<float>(std::ldexp(times, e));
      edges.insert(edges.end(),
                   {edge, -edge, std::nextafter(edge, 0.0F), std::nextafter(edge, 1e9F)});
    }
  }
  for (size_t i = 0; i < edges.size(); i += kBlockElements) {
    out.emplace_back(
        edges.begin() + static_cast<int64_t>(i),
        edges.begin() + std::min(std::ssize(edges), static_cast<int64_t>(i) + kBlockElements));
  }
  out.emplace_back(kBlockElements, 0.0F);
  out.emplace_back(kBlockElements, kLeast);
  out.emplace_back(kBlockElements, -kLargest);
  for (const size_t n : {1U, 2U, 3U, 5U, 63U, 1023U}) {
    out.emplace_back(out[0].begin(), out[0].begin() + static_cast<int64_t>(n));
  }
  return out;
}

// Random values of a gradient's magnitude.
Floats gradient(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.01F);
  Floats x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

TEST(BlockCodec, HalvesAreTheNearestAndSaturate) {
  for (const Floats& x : hard_blocks()) {
    Floats want;
    for (const float v : x) want.push_back(as_half(v));
    ASSERT_TRUE(same_bits(decoded({CodecKind::kFp16}, x), want)) << x.front();
  }
}

TEST(BlockCodec, Bf16IsTheNearestAndSaturates) {
  for (const Floats& x : hard_blocks()) {
    Floats want;
    for (const float v : x) want.push_back(as_bf16(v));
    ASSERT_TRUE(same_bits(decoded({CodecKind::kBf16}, x), want)) << x.front();
    Floats rounded(x.size());
    round_to_bf16(x.data(), std::ssize(x), rounded.data());
    ASSERT_TRUE(same_bits(rounded, want));
  }
}

TEST(BlockCodec, EveryHalfAndEveryBf16IsUnchangedByARoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    for (const Codec codec : {Codec{CodecKind::kFp16}, Codec{CodecKind::kBf16}}) {
      std::array<uint16_t, 2> in = {static_cast<uint16_t>(bits), 0};
      float wide = 0.0F;
      decode_block(codec, reinterpret_cast<const std::byte*>(in.data()), 1, &wide);
      if (!std::isfinite(wide)) continue;
      std::array<uint16_t, 2> again = {1, 1};
      encode_block(codec, &wide, 1, reinterpret_cast<std::byte*>(again.data()));
      ASSERT_EQ(again, in) << codec.to_string();
    }
  }
}

TEST(BlockCodec, NonFiniteWeightsStayNonFiniteInBf16) {
  const float infinite = std::numeric_limits<float>::infinity();
  const Floats x = {infinite, -infinite, std::nanf(""), std::bit_cast<float>(0x7fffffffU),
                    std::bit_cast<float>(0xff800001U)};
  Floats out(x.size());
  round_to_bf16(x.data(), std::ssize(x), out.data());
  EXPECT_EQ(out[0], infinite);
  EXPECT_EQ(out[1], -infinite);
  for (size_t i = 2; i < x.size(); ++i) EXPECT_TRUE(std::isnan(out[i])) << i;
}

TEST(BlockCodec, Int8IsTheNearestLevelOfTheBlocksScale) {
  for (const Floats& x : hard_blocks()) {
    float most = 0.0F;
    for (const float v : x) most = std::max(most, std::fabs(v));
    const float scale = most / 127.0F;
    Floats want;
    for (const float v : x) {
      const float level =
          scale > 0 ? std::clamp(std::nearbyintf(v / scale), -127.0F, 127.0F) : 0.0F;
      want.push_back(scale * level + 0.0F);  // a level has no sign of zero
    }
    ASSERT_TRUE(same_bits(decoded({CodecKind::kInt8}, x), want)) << x.front();
  }
}

TEST(BlockCodec, Int8ErrsByHalfALevelAtMost) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const Floats x = gradient(1 + seed * 10, seed);
    const Floats y = decoded({CodecKind::kInt8}, x);
    float most = 0.0F;
    for (const float v : x) most = std::max(most, std::fabs(v));
    const double scale = most / 127.0F;
    for (size_t i = 0; i < x.size(); ++i) {
      // the quotient and the product are rounded to floats
      ASSERT_LE(std::fabs(static_cast<double>(x[i]) - y[i]), scale * (0.5 + 127 * 0x1p-22));
    }
  }
}

// The reference: a plain sort by magnitude, largest first, and by index among equals.
Floats top_of(const Floats& x, int64_t k) {
  std::vector<size_t> order(x.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::fabs(x[a]) > std::fabs(x[b]); });
  Floats out(x.size());
  for (int64_t i = 0; i < k; ++i)
    out[order[static_cast<size_t>(i)]] = x[order[static_cast<size_t>(i)]];
  return out;
}

TEST(BlockCodec, TopKSendsTheLargestAndBreaksTiesByIndex) {
  std::vector<Floats> blocks = hard_blocks();
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Floats ties = gradient(kBlockElements, seed);
    for (float& v : ties) v = std::round(v * 100.0F) / 100.0F;  // few values, many of each
    blocks.push_back(ties);
  }
  for (const Floats& x : blocks) {
    for (const double fraction : {0.0001, 0.01, 0.05, 0.5, 1.0}) {
      const int64_t k = top_elements(fraction, std::ssize(x));
      ASSERT_EQ(k, std::max<int64_t>(1, static_cast<int64_t>(
                                            std::ceil(fraction * static_cast<double>(x.size())))));
      ASSERT_TRUE(same_bits(decoded({CodecKind::kTopK, fraction}, x), top_of(x, k))) << fraction;
    }
  }
}

TEST(BlockCodec, BytesAreAsDocumented) {
  EXPECT_EQ(encoded_block_bytes({CodecKind::kFp32}, 1024), 4096U);
  EXPECT_EQ(encoded_block_bytes({CodecKind::kFp16}, 1024), 2048U);
  EXPECT_EQ(encoded_block_bytes({CodecKind::kBf16}, 1023), 2048U);
  EXPECT_EQ(encoded_block_bytes({CodecKind::kInt8}, 1024), 4U + 1024);
  EXPECT_EQ(encoded_block_bytes({CodecKind::kInt8}, 5), 4U + 8);
  EXPECT_EQ(encoded_block_bytes({CodecKind::kTopK, 0.05}, 1024), 52U * 6);
  EXPECT_EQ(encoded_block_bytes({CodecKind::kTopK, 0.05}, 100), 12U + 20);
  const auto as_bytes = [](std::initializer_list<int> values) {
    std::vector<std::byte> out;
    for (const int v : values) out.push_back(static_cast<std::byte>(v));
    return out;
  };
  EXPECT_EQ(encoded({CodecKind::kFp16}, {1.0F, -2.0F, 0.5F}),
            as_bytes({0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38, 0, 0}));
  EXPECT_EQ(encoded({CodecKind::kBf16}, {1.0F}), as_bytes({0x80, 0x3f, 0, 0}));
  EXPECT_EQ(encoded({CodecKind::kInt8}, {127.0F, -3.0F, 2.5F, 3.5F, 0.4F}),
            as_bytes({0, 0, 0x80, 0x3f, 127, 0xfd, 2, 4, 0, 0, 0, 0}));
  EXPECT_EQ(encoded({CodecKind::kTopK, 0.5}, {1.0F, 0.0F, -2.0F, 0.5F, 1.0F}),
            as_bytes({0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0x80, 0x3f}));
}

TEST(BlockCodec, IndicesOutsideTheBlockAreRefused) {
  const Codec codec{CodecKind::kTopK, 0.02};
  const Floats x = gradient(100, 1);  // k = 2
  const std::vector<std::byte> good = encoded(codec, x);
  const auto with = [&](uint16_t first, uint16_t second) {
    std::vector<std::byte> out = good;
    std::memcpy(out.data(), &first, sizeof first);
    std::memcpy(out.data() + 2, &second, sizeof second);
    return block_fits(codec, out.data(), 100);
  };
  EXPECT_TRUE(with(0, 99));
  EXPECT_FALSE(with(0, 100));
  EXPECT_FALSE(with(100, 101));
  EXPECT_FALSE(with(0, 65535));
  EXPECT_FALSE(with(7, 7)) << "twice";
  EXPECT_FALSE(with(8, 7)) << "descending";
}

TEST(BlockCodec, HostileBytesStayWithinTheBlock) {
  std::mt19937 random(9);
  for (int turn = 0; turn < 5'000; ++turn) {
    const auto n = static_cast<int64_t>(random() % kBlockElements + 1);
    const Codec codec{static_cast<CodecKind>(random() % 5),
                      static_cast<double>(random() % 100 + 1) / 100.0};
    std::vector<std::byte> bytes(encoded_block_bytes(codec, n));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    // keep some indices small: then some of these messages are valid
    if (codec.kind == CodecKind::kTopK && turn % 2 == 0) {
      for (int64_t i = 0; i < top_elements(codec.fraction, n); ++i) {
        const auto index = static_cast<uint16_t>(i + static_cast<int64_t>(random() % 100 == 0));
        std::memcpy(bytes.data() + i * 2, &index, sizeof index);
      }
    }
    if (!block_fits(codec, bytes.data(), n)) continue;
    Floats out(static_cast<size_t>(n) + 1, 0.25F);
    decode_block(codec, bytes.data(), n, out.data());
    ASSERT_EQ(out.back(), 0.25F);
  }
}

TEST(BlockCodec, EveryInstructionSetGivesTheSameBits) {
  for (const CodecWidth& width : codec_widths()) {
    for (const Floats& x : hard_blocks()) {
      for (const char* name : {"fp16", "bf16", "int8", "topk:0.05"}) {
        const Codec codec = Codec::parse(name);
        std::vector<std::byte> there(encoded_block_bytes(codec, std::ssize(x)));
        width.encode(codec, x.data(), std::ssize(x), there.data());
        ASSERT_EQ(there, encoded(codec, x)) << name;
        Floats out(x.size());
        width.decode(codec, there.data(), std::ssize(x), out.data());
        ASSERT_TRUE(same_bits(out, decoded(codec, x))) << name;
      }
    }
  }
}

}  // namespace
}  // namespace pushpull
