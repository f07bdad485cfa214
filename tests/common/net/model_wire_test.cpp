#include "common/net/model_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

#include "common/base/error.h"
#include "common/layout/tensor_table.h"
#include "common/net/frames.h"
#include "tests/common/thrown.h"

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
  return thrown(ErrorCode::kProtocol, [&] { from_wire(heads); });
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
  for (const char* name : {"", "start.", "a b", "\n"}) {
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

namespace {

using testing::HasSubstr;

TensorInfo tensor(const std::string& name, std::vector<int64_t> shape,
                  UpdateRule rule = UpdateRule::kOptimizer) {
  TensorInfo info;
  info.name = name;
  info.shape = std::move(shape);
  info.rule = rule;
  info.init = InitKind::kUniform;
  info.value = 0.25F;
  info.average_momentum = 0.5F;
  return info;
}

TensorTable two_tensors() {
  TensorTable table;
  table.add(tensor("layer.weight", {10, 3, 5, 5}));
  table.add(tensor("norm.running_mean", {10}, UpdateRule::kAverage));
  return table;
}

WireTensors wire_of(const TensorTable& table) {
  WireTensors out;
  to_wire(table, &out);
  return out;
}

// Returns the Error(kProtocol) of a good table in which `spoil` has changed one tensor.
template <class Spoil>
std::string refusal(const Spoil& spoil) {
  WireTensors tensors = wire_of(two_tensors());
  spoil(*tensors.Mutable(1));
  return thrown(ErrorCode::kProtocol, [&] { from_wire(tensors); });
}

TEST(TensorWire, ATableSurvivesTheWire) {
  const TensorTable table = two_tensors();
  EXPECT_EQ(from_wire(wire_of(table)), table);
}

TEST(TensorWire, EachInitKindSurvivesTheWire) {
  for (const InitKind kind : {InitKind::kConstant, InitKind::kUniform, InitKind::kNormal}) {
    TensorTable table;
    table.add(tensor("weight", {4}));
    table.tensors[0].init = kind;
    EXPECT_EQ(from_wire(wire_of(table)), table);
  }
}

TEST(TensorWire, ATensorWithoutWeightDecaySurvivesTheWire) {
  TensorTable table = two_tensors();
  EXPECT_FALSE(wire_of(table)[0].no_decay());
  table.tensors[0].decay = false;
  EXPECT_TRUE(wire_of(table)[0].no_decay());
  EXPECT_EQ(from_wire(wire_of(table)), table);
  EXPECT_EQ(difference(two_tensors(), table),
            "tensor 0: the job has layer.weight [10, 3, 5, 5], this worker has layer.weight [10, "
            "3, 5, 5] without weight decay");
}

TEST(TensorWire, AScalarHasOneElement) {
  TensorTable table;
  table.add(tensor("scale", {}));
  EXPECT_EQ(from_wire(wire_of(table)).total, 1);
}

TEST(TensorWire, AModelHasAtLeastOneTensor) { EXPECT_THROW(from_wire(WireTensors()), Error); }

TEST(TensorWire, ImpossibleShapesAreRefusedWithTheTensorsName) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const int64_t d : {int64_t{0}, int64_t{-1}, -kHuge - 1, kHuge, (int64_t{1} << 36) + 1}) {
    const std::string why = refusal([&](wire::Tensor& t) { t.set_shape(0, d); });
    EXPECT_THAT(why, HasSubstr("norm.running_mean")) << d;
    EXPECT_THAT(why, HasSubstr("shape")) << d;
  }
  EXPECT_THAT(refusal([](wire::Tensor& t) {
                for (int i = 0; i < 7; ++i) t.add_shape(1 << 20);  // 2^140 and more: overflows
              }),
              HasSubstr("shape"));
  EXPECT_THAT(refusal([](wire::Tensor& t) {
                for (int i = 0; i < 9; ++i) t.add_shape(1);
              }),
              HasSubstr("dimensions"));
}

TEST(TensorWire, UnknownRulesAndNonFiniteValuesAreRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const int rule : {-1, 2, 1 << 30}) {
    EXPECT_THAT(refusal([&](wire::Tensor& t) { t.set_rule(rule); }), HasSubstr("rule"));
  }
  for (const int init : {-1, 3, 1 << 30}) {
    EXPECT_THAT(refusal([&](wire::Tensor& t) { t.set_init(init); }), HasSubstr("rule"));
  }
  for (const float value : {nan, inf, -inf}) {
    EXPECT_THAT(refusal([&](wire::Tensor& t) { t.set_value(value); }), HasSubstr("value"));
  }
  for (const float momentum : {nan, -0.1F, 1.5F, inf}) {
    EXPECT_THAT(refusal([&](wire::Tensor& t) { t.set_average_momentum(momentum); }),
                HasSubstr("momentum"));
  }
}

TEST(TensorWire, TwoTensorsOfOneNameAreRefused) {
  EXPECT_THAT(refusal([](wire::Tensor& t) { t.set_name("layer.weight"); }),
              HasSubstr("layer.weight"));
}

TEST(TensorWire, TooManyTensorsOrElementsAreRefused) {
  WireTensors many;
  for (int i = 0; i < 100'001; ++i) {
    wire::Tensor* t = many.Add();
    t->set_name("t" + std::to_string(i));
    t->add_shape(1);
  }
  EXPECT_THROW(from_wire(many), Error);
  many.RemoveLast();
  EXPECT_EQ(from_wire(many).total, 100'000);
  many.Mutable(0)->set_shape(0, int64_t{1} << 36);  // the total is too large
  EXPECT_THROW(from_wire(many), Error);
}

TEST(TensorWire, TheFirstDifferenceIsDescribed) {
  const TensorTable table = two_tensors();
  EXPECT_EQ(difference(table, table), "");
  TensorTable other;
  other.add(tensor("layer.weight", {10, 3, 3, 3}));
  other.add(tensor("norm.running_mean", {10}, UpdateRule::kAverage));
  EXPECT_EQ(
      difference(table, other),
      "tensor 0: the job has layer.weight [10, 3, 5, 5], this worker has layer.weight [10, 3, "
      "3, 3]");
  TensorTable longer = table;
  longer.add(tensor("more", {1}));
  EXPECT_THAT(difference(table, longer), HasSubstr("2 tensors, this worker's has 3"));
}

}  // namespace

}  // namespace pushpull
