#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "common/base/error.h"
#include "common/net/frames.h"
#include "common/net/model_wire.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

const std::vector<HeadInfo> kHeads = {{"start", Metric::kExactMatch, 1},
                                      {"next", Metric::kPerplexity, 1024}};

WireHeads wire_of(const std::vector<HeadInfo>& heads) {
  WireHeads out;
  to_wire(heads, &out);
  return out;
}

std::string refusal(const WireHeads& heads) {
  try {
    from_wire(heads);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    return error.what();
  }
  return "";
}

TEST(HeadWire, HeadsAreEqualAfterTheWire) {
  EXPECT_EQ(from_wire(wire_of(kHeads)), kHeads);
  EXPECT_TRUE(from_wire(WireHeads()).empty());
}

TEST(HeadWire, ImpossibleHeadsAreRefused) {
  const auto changed = [](const auto& change) {
    WireHeads heads = wire_of(kHeads);
    change(heads);
    return refusal(heads);
  };
  EXPECT_THAT(changed([](WireHeads& h) { h[1].set_name("start"); }), HasSubstr("called start"));
  for (const char* name : {"", "Start", "a b", "\n"}) {
    EXPECT_THAT(changed([&](WireHeads& h) { h[0].set_name(name); }), HasSubstr("name")) << name;
  }
  EXPECT_THAT(changed([](WireHeads& h) { h[0].set_name(std::string(65, 'a')); }),
              HasSubstr("name"));
  EXPECT_THAT(changed([](WireHeads& h) { h[0].set_metric("speed"); }), HasSubstr("metric"));
  for (const int64_t targets : {int64_t{0}, int64_t{-1}, (int64_t{1} << 20) + 1, INT64_MAX}) {
    EXPECT_THAT(changed([&](WireHeads& h) { h[0].set_targets(targets); }), HasSubstr("targets"));
  }
  EXPECT_THAT(changed([](WireHeads& h) {
                for (int i = 0; i < 63; ++i) *h.Add() = h[0];
              }),
              HasSubstr("65 heads"));
}

TEST(HeadWire, DifferenceNamesBothHeads) {
  EXPECT_EQ(difference(kHeads, kHeads), "");
  EXPECT_EQ(
      difference(kHeads, {kHeads[0], {"next", Metric::kPerplexity, 512}}),
      "head 1: the job has next (perplexity, 1024 targets), this worker has next (perplexity, "
      "512 targets)");
  EXPECT_THAT(difference(kHeads, {kHeads[0]}), HasSubstr("has 2 heads, this worker's has 1"));
}

// The bound of an evaluation's chunks in ps/members/declarations.cpp.
TEST(HeadWire, SumsOfTheLargestEvaluationFitIntoOneHeader) {
  wire::EvalResult result;
  const HeadSums large{1e300, int64_t{1} << 51, 1e300};
  for (int64_t chunk = 0; chunk < 1000; ++chunk) {
    wire::ChunkResult* out = result.add_chunks();
    out->set_chunk(450'000 + chunk);
    to_wire(std::array{large}, out);
  }
  EXPECT_LT(result.ByteSizeLong() / 1000 * 450'000, kMaxHeaderBytes);
}

}  // namespace
}  // namespace pushpull
