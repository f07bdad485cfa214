#include <gtest/gtest.h>

#include <random>

#include "common/layout/slice_map.h"
#include "common/layout/tensor_table.h"
#include "common/update/block_codec.h"
#include "common/update/codec.h"

namespace pushpull {
namespace {

TensorInfo tensor(const std::string& name, int64_t size, UpdateRule rule = UpdateRule::kOptimizer) {
  TensorInfo info;
  info.name = name;
  info.shape = {size};
  info.rule = rule;
  return info;
}

// Blocks 0 and 1: only a.weight; 2: a.weight, a.bias, norm.mean; 3: only norm.mean; 4: only
// b.weight.
TensorTable table() {
  TensorTable out;
  out.add(tensor("a.weight", 2100));
  out.add(tensor("a.bias", 100));
  out.add(tensor("norm.mean", 1896, UpdateRule::kAverage));
  out.add(tensor("b.weight", 504));
  return out;
}

std::string codecs(const std::string& codec, const std::string& tensors,
                   int64_t slice_bytes = 65536) {
  const TensorTable t = table();
  const SliceMap map(t.total, slice_bytes, 1);
  const CodecMap blocks(t, Codec::parse(codec), TensorCodecs::parse(tensors));
  std::string out;
  for (int slice = 0; slice < map.slices(); ++slice) {
    const SliceCodec of_slice = blocks.of_slice(map, slice);
    EXPECT_LE(of_slice.bytes(), static_cast<size_t>(map.elements(slice).size()) * sizeof(float));
    if (of_slice.plain()) out += "plain ";
    for (int64_t b = 0; b < of_slice.blocks(); ++b) out += of_slice.codec(b).to_string() + " ";
  }
  return out;
}

TEST(CodecMap, BlocksWithRunningStatisticsStayPlain) {
  EXPECT_EQ(codecs("int8", ""), "int8 int8 fp32 fp32 int8 ");
  EXPECT_EQ(codecs("fp32", ""), "plain ");
}

TEST(CodecMap, TheMostExactCodecOfABlockWins) {
  EXPECT_EQ(codecs("topk:0.1", "norm.*=topk:0.1,b.*=fp16"), "topk:0.1 topk:0.1 fp32 fp32 fp16 ");
  TensorTable t;
  t.add(tensor("a", 500));
  t.add(tensor("b", 500));
  const SliceMap map(t.total, 4096, 1);
  const std::vector<std::string> order = {"topk:0.01", "topk:0.1", "int8", "bf16", "fp16"};
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    for (const bool swapped : {false, true}) {
      const CodecMap blocks(t, Codec::parse(order[swapped ? i + 1 : i]),
                            TensorCodecs::parse("b=" + order[swapped ? i : i + 1]));
      EXPECT_EQ(blocks.of_slice(map, 0).codec(0).to_string(), order[i + 1]);
    }
  }
}

TEST(CodecMap, TheFirstMatchingPatternDecides) {
  const auto of = [](const std::string& rules, const std::string& name) {
    const auto found = TensorCodecs::parse(rules).of(name);
    return found ? found->to_string() : std::string("none");
  };
  EXPECT_EQ(of("fc.*=int8,*=bf16", "fc.weight"), "int8");
  EXPECT_EQ(of("*=bf16,fc.*=int8", "fc.weight"), "bf16");
  EXPECT_EQ(of("fc.*=int8", "conv.weight"), "none");
  EXPECT_EQ(of("fc=int8", "fc.weight"), "none");
  EXPECT_EQ(of("*.bias=int8", "layer1.0.bias"), "int8");
  EXPECT_EQ(of("*.bias=int8", "layer1.0.biased"), "none");
  EXPECT_EQ(of("layer*.0.*=int8", "layer12.0.bn.weight"), "int8");
  EXPECT_EQ(of("layer*.0.*=int8", "layer12.1.bn.weight"), "none");
  EXPECT_EQ(of("*ab*ab=int8", "xabyab"), "int8");
  EXPECT_EQ(of("*ab*ab=int8", "xab"), "none");
  EXPECT_EQ(of("a*a=int8", "a"), "none");
}

TEST(CodecMap, BlocksThatWouldNotShrinkStayPlain) {
  EXPECT_EQ(codecs("topk:0.7", ""), "plain ");
  EXPECT_EQ(codecs("topk:0.6", ""), "topk:0.6 topk:0.6 fp32 fp32 topk:0.6 ");
}

TEST(CodecMap, SlicesAreCutFromTheSameBlocks) {
  EXPECT_EQ(codecs("int8", "", 4096), "int8 int8 plain plain int8 ");
  EXPECT_EQ(codecs("int8", "", 8192), "int8 int8 plain int8 ");
}

TEST(SliceCodec, DecodesAnyBlocksOfASlice) {
  const TensorTable t = table();
  const CodecMap blocks(t, Codec::parse("int8"), TensorCodecs::parse("b.*=fp16"));
  const SliceMap map(t.total, 65536, 1);
  const SliceCodec codec = blocks.of_slice(map, 0);
  std::mt19937 random(1);
  std::vector<float> x(static_cast<size_t>(t.total));
  for (float& v : x) v = static_cast<float>(random()) * 1e-9F;
  std::vector<std::byte> bytes(codec.bytes());
  std::vector<float> want(x.size());
  for (int64_t b = 0; b < codec.blocks(); ++b) {
    const Range e = codec.elements(b);
    encode_block(codec.codec(b), x.data() + e.lo, e.size(), bytes.data() + codec.offset(b));
    decode_block(codec.codec(b), bytes.data() + codec.offset(b), e.size(), want.data() + e.lo);
  }
  EXPECT_TRUE(codec.fits(bytes.data(), bytes.size()));
  EXPECT_FALSE(codec.fits(bytes.data(), bytes.size() - 4));
  for (int64_t lo = 0; lo < t.total; lo += kBlockElements) {
    for (int64_t hi = lo + kBlockElements;; hi += kBlockElements) {
      hi = std::min(hi, t.total);
      std::vector<float> out(static_cast<size_t>(hi - lo));
      codec.decode(bytes.data(), lo, hi - lo, out.data());
      ASSERT_TRUE(std::equal(out.begin(), out.end(), want.begin() + lo));
      if (hi == t.total) break;
    }
  }
}

}  // namespace
}  // namespace pushpull
