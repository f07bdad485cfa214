#include <gtest/gtest.h>

#include "models/ops/sequence.h"
#include "tests/models/ops/same_bits.h"

namespace pushpull {
namespace {

using ops::EmbeddingShape;
using test::numbers;
using test::OperationRun;

std::vector<ops::ValueType> ids_of(const EmbeddingShape& shape) {
  return {{ops::Element::kInt, ops::Layout::kPlain, {shape.samples, shape.positions}}};
}

// Returns ids that repeat, leave gaps, and do not rise.
std::vector<int32_t> some_ids(const EmbeddingShape& shape, int64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < shape.samples * shape.positions; ++i) {
    const int64_t id = (i * i + 3 * i * seed + seed) % shape.vocabulary;
    ids.push_back(static_cast<int32_t>(id % 5 == 1 ? 0 : id));
  }
  return ids;
}

// Returns what backward adds to `dw`, in double.
std::vector<double> gradient_of(const EmbeddingShape& shape, const std::vector<int32_t>& ids,
                                const std::vector<float>& dy, std::vector<double> dw) {
  for (size_t i = 0; i < dy.size(); ++i) {
    const auto width = static_cast<size_t>(shape.width);
    dw[static_cast<size_t>(ids[i / width]) * width + i % width] += static_cast<double>(dy[i]);
  }
  return dw;
}

const EmbeddingShape kEmbeddingShapes[] = {
    {1, 1, 1, 1}, {2, 3, 5, 7}, {3, 17, 11, 33}, {1, 101, 1009, 16}};

TEST(EmbeddingOperation, ReadsAndSumsTheRowsOfItsIds) {
  for (const EmbeddingShape& shape : kEmbeddingShapes) {
    const ops::EmbeddingSpec spec(shape);
    OperationRun op(1, spec, ids_of(shape));
    const std::vector<int32_t> ids = some_ids(shape, 1);
    const auto width = static_cast<size_t>(shape.width);
    const std::vector<float> w = numbers(shape.vocabulary * shape.width, 2);
    op.set_input(0, test::as_words(ids));
    op.set_param(0, w);
    const std::vector<float> y = op.forward();
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y[i], w[static_cast<size_t>(ids[i / width]) * width + i % width]);
    }
    const std::vector<float> dy = numbers(static_cast<int64_t>(y.size()), 3);
    op.backward(dy);
    test::expect_close("dw", op.dw(0),
                       gradient_of(shape, ids, dy, std::vector<double>(w.size(), 0.0)), 1e-6);
    // tied weights
    op.run.adds = 1;
    op.set_dw(0, numbers(static_cast<int64_t>(w.size()), 4));
    const std::vector<float> before = op.dw(0);
    op.backward(dy);
    test::expect_close("added dw", op.dw(0),
                       gradient_of(shape, ids, dy, {before.begin(), before.end()}), 1e-6);
  }
}

TEST(EmbeddingOperation, SumsThePlacesOfAnIdInRisingOrder) {
  const EmbeddingShape shape{.samples = 1, .positions = 4, .vocabulary = 2, .width = 1};
  const ops::EmbeddingSpec spec(shape);
  OperationRun op(1, spec, ids_of(shape));
  op.set_input(0, test::as_words({1, 0, 1, 1}));
  op.set_param(0, {5, 6});
  EXPECT_EQ(op.forward(), (std::vector<float>{6, 5, 6, 6}));
  // 1 is lost in 1e8 + 1, and would not be if 1e8 - 1e8 came first
  op.backward({1, 7, 1e8F, -1e8F});
  EXPECT_EQ(op.dw(0), (std::vector<float>{7, 0}));
}

TEST(EmbeddingOperation, EvaluatesWithoutSorting) {
  const EmbeddingShape shape{.samples = 1, .positions = 2, .vocabulary = 2, .width = 1};
  const ops::EmbeddingSpec spec(shape);
  OperationRun op(1, spec, ids_of(shape));
  op.set_input(0, test::as_words({1, 0}));
  op.set_param(0, {5, 6});
  op.run.training = false;
  op.run.kept = nullptr;
  EXPECT_EQ(op.forward(), (std::vector<float>{6, 5}));
}

TEST(EmbeddingOperation, HasBitsOfItsInputsAlone) {
  for (const EmbeddingShape& shape :
       {kEmbeddingShapes[0], kEmbeddingShapes[2], EmbeddingShape{2, 64, 97, 999}}) {
    const ops::EmbeddingSpec spec(shape);
    test::expect_bits_of_inputs_alone({.spec = spec,
                                       .inputs = ids_of(shape),
                                       .fill =
                                           [shape](OperationRun& op, int64_t seed) {
                                             op.set_input(0, test::as_words(some_ids(shape, seed)));
                                             op.set_param(
                                                 0, numbers(shape.vocabulary * shape.width, 2));
                                           },
                                       .gradients = 0});
  }
}

}  // namespace
}  // namespace pushpull
