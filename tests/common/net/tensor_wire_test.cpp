#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "common/base/error.h"
#include "common/layout/tensor_table.h"
#include "common/net/model_wire.h"

namespace pushpull {
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
  try {
    from_wire(tensors);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kProtocol);
    return e.what();
  }
  return "accepted";
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
