// Compares the kernels for sequences, computed block by block and thread by thread on the host, with
// the CPU backend. Inputs are rounded to the activations' type, so that only results differ.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "common/base/random.h"
#include "models/ops/cuda/sequence_pass.h"
#include "models/ops/sequence.h"
#include "tests/models/cuda/sequence_blocks.h"
#include "tests/models/kernel_numbers.h"
#include "tests/models/ops/operation_run.h"

namespace pushpull::sequence_passes_test {
namespace {

using namespace blocks;  // NOLINT(google-build-using-namespace)
using numbers::converted;
using numbers::floats;
using numbers::roundoff;
using test::OperationRun;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr uint64_t kKey = 0x0123456789abcdef;

template <class T>
class SequencePasses : public testing::Test {};
using Types = testing::Types<float, Bf16, Fp16>;
TYPED_TEST_SUITE(SequencePasses, Types);

// Returns different numbers in -1..1 that activations represent exactly.
template <class T>
std::vector<float> exact(int64_t count, int64_t seed, float times = 1.0F) {
  std::vector<float> out = test::numbers(count, seed);
  for (float& value : out) value *= times;
  return floats(converted<T>(out));
}

// The tolerance is relative to the largest value, or `least`: `of_fp32`, and some roundings to `T`.
template <class T>
void expect_near(const char* what, const std::vector<float>& got, const std::vector<float>& want,
                 double of_fp32, double roundings, double least = 1e-3) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = least;
  for (const float value : want) {
    largest = std::max(largest, std::fabs(static_cast<double>(value)));
  }
  const double tolerance = largest * (of_fp32 + roundings * roundoff<T>());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance) << what << "[" << i << "]";
  }
}

std::vector<LayerNormShape> norms() {
  return {{.rows = 1, .width = 1},
          {.rows = 3, .width = 7},
          {.rows = 65, .width = 16, .epsilon = 1e-3F},
          {.rows = 131, .width = 97, .centred = false},
          {.rows = 130, .width = 264},
          {.rows = 1'100, .width = 9},
          {.rows = 3, .width = 2'056}};
}

template <class T, bool kPacked>
LayerNormKernels<T, kPacked> run_norm(const LayerNormShape& shape, int group,
                                      const std::vector<T>& x, const std::vector<T>& dy,
                                      const std::vector<float>& scale,
                                      const std::vector<float>& shift, std::vector<T>& y,
                                      std::vector<T>& dx) {
  LayerNormKernels<T, kPacked> kernels(shape, group);
  y.assign(x.size(), from_float<T>(kNan));
  kernels.forward(x.data(), scale.data(), shape.centred ? shift.data() : nullptr, y.data());
  dx = dy;  // in place
  kernels.backward(x.data(), dx.data(), scale.data(), 0.5F, dx.data());
  return kernels;
}

TYPED_TEST(SequencePasses, NormaliseRowsLikeTheCpu) {
  using T = TypeParam;
  for (const LayerNormShape& shape : norms()) {
    SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.width));
    const int64_t count = shape.rows * shape.width;
    const LayerNormSpec spec(shape, Shape{shape.rows, shape.width});
    const std::vector<float> x = exact<T>(count, 1);
    const std::vector<float> dy = exact<T>(count, 4);
    const std::vector<float> scale = test::numbers(shape.width, 2);
    const std::vector<float> shift = test::numbers(shape.width, 3);
    OperationRun op(1, spec, {spec.output()});
    op.set_input(0, x);
    op.set_param(0, scale);
    if (shape.centred) op.set_param(1, shift);
    const std::vector<float> want = op.forward();
    op.backward(dy);
    for (const int group : {kWarp, kBlock}) {
      std::vector<T> y;
      std::vector<T> dx;
      const auto got =
          run_norm<T, false>(shape, group, converted<T>(x), converted<T>(dy), scale, shift, y, dx);
      expect_near<T>("y", floats(y), want, 2e-6, 1.0);
      expect_near<T>("dx", floats(dx), op.dx(0), 2e-5, 1.0);
      std::vector<float> half = op.dw(0);
      for (float& value : half) value *= 0.5F;
      expect_near<float>("dscale", got.dscale, half, 2e-6, 1.0);
      if (shape.centred) {
        half = op.dw(1);
        for (float& value : half) value *= 0.5F;
        expect_near<float>("dshift", got.dshift, half, 2e-6, 1.0);
      }
      if (shape.width % kPackSize<T> != 0) continue;
      std::vector<T> packed_y;  // the width of loads changes no bit
      std::vector<T> packed_dx;
      const auto packed = run_norm<T, true>(shape, group, converted<T>(x), converted<T>(dy), scale,
                                            shift, packed_y, packed_dx);
      EXPECT_EQ(floats(packed_y), floats(y));
      EXPECT_EQ(floats(packed_dx), floats(dx));
      EXPECT_EQ(packed.dscale, got.dscale);
      EXPECT_EQ(packed.dshift, got.dshift);
    }
  }
}

// Returns ids that repeat, leave gaps, and do not rise.
std::vector<int32_t> some_ids(const EmbeddingShape& shape) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < shape.samples * shape.positions; ++i) {
    const int64_t id = (i * i + 3 * i + 1) % shape.vocabulary;
    ids.push_back(static_cast<int32_t>(id % 5 == 1 ? 0 : id));
  }
  return ids;
}
// One place and many; places in part of a chunk, one chunk, several, and more than one merge; rows
// with no place, few and many, and of whole packs or not.
std::vector<EmbeddingShape> embeddings() {
  return {{1, 1, 1, 1},        {2, 3, 5, 7},     {1, 32, 1, 3},    {3, 17, 11, 32},
          {1, 101, 1'009, 16}, {1, 70, 1, 8},    {2, 300, 2, 40},  {1, 257, 3, 5},
          {3, 200, 1'009, 4},  {1, 8'300, 2, 1}, {1, 8'193, 50, 8}};
}

TEST(SequencePassesOrder, SortsThePlacesOfRowsInRisingOrder) {
  for (const EmbeddingShape& shape : embeddings()) {
    const std::vector<int32_t> ids = some_ids(shape);
    std::vector<uint64_t> want;
    for (size_t i = 0; i < ids.size(); ++i) want.push_back(key_of(ids[i], static_cast<int64_t>(i)));
    std::ranges::sort(want);
    EXPECT_EQ(sorted_keys(ids), want);
  }
}

TEST(SequencePassesOrder, FindsTheRunsThatCrossChunks) {
  const auto runs_of = [](const std::vector<int32_t>& lengths) {
    std::vector<int32_t> ids;  // sorted; their rows are 0, 1, ...
    for (size_t row = 0; row < lengths.size(); ++row) {
      ids.insert(ids.end(), static_cast<size_t>(lengths[row]), static_cast<int32_t>(row));
    }
    const EmbeddingPass pass({1, std::ssize(ids), std::ssize(lengths), 1}, 1);
    const std::vector<uint64_t> keys = sorted_keys(ids);
    std::vector<std::pair<int64_t, int64_t>> found;  // row and chunks by chunk
    for (int64_t chunk = 0; chunk + 1 < pass.chunks; ++chunk) {
      const LongRun run = long_run(pass, keys.data(), chunk);
      found.emplace_back(run.chunks == 0 ? -1 : run.row, run.chunks);
    }
    return found;
  };
  using Found = std::vector<std::pair<int64_t, int64_t>>;
  constexpr int32_t kChunk = EmbeddingPass::kChunk;
  EXPECT_EQ(runs_of({kChunk}), Found{});
  EXPECT_EQ(runs_of({kChunk, 5}), (Found{{-1, 0}}));
  EXPECT_EQ(runs_of({kChunk + 1}), (Found{{0, 2}}));
  EXPECT_EQ(runs_of({1, 3 * kChunk - 1, kChunk}), (Found{{1, 3}, {-1, 0}, {-1, 0}}));
  EXPECT_EQ(runs_of({1, kChunk, kChunk, 1}), (Found{{1, 2}, {2, 2}}));
}

// Returns the gradient of a table, summed in double.
std::vector<float> plain_gradient(const EmbeddingShape& shape, const std::vector<int32_t>& ids,
                                  const std::vector<float>& dy, double times, bool adds,
                                  const std::vector<float>& before) {
  std::vector<double> sums(before.size());
  const auto width = static_cast<size_t>(shape.width);
  for (size_t i = 0; i < dy.size(); ++i) {
    sums[static_cast<size_t>(ids[i / width]) * width + i % width] += times * double{dy[i]};
  }
  std::vector<float> out;
  for (size_t i = 0; i < sums.size(); ++i) {
    out.push_back(static_cast<float>(sums[i] + (adds ? double{before[i]} : 0.0)));
  }
  return out;
}

std::vector<float> sizes_of(std::vector<float> values) {
  for (float& value : values) value = std::fabs(value);
  return values;
}

TYPED_TEST(SequencePasses, ReadAndSumRowsOfATable) {
  using T = TypeParam;
  for (const EmbeddingShape& shape : embeddings()) {
    const EmbeddingSpec spec(shape);
    const std::vector<int32_t> ids = some_ids(shape);
    const int64_t count = spec.output().shape.size();
    const int64_t weights = shape.vocabulary * shape.width;
    OperationRun op(1, spec, {{Element::kInt, Layout::kPlain, {shape.samples, shape.positions}}});
    op.set_input(0, test::as_words(ids));
    op.set_param(0, test::numbers(weights, 2));
    const std::vector<float> want = op.forward();
    const EmbeddingPass pass(shape, kPackSize<T>);
    std::vector<T> y(static_cast<size_t>(count), from_float<T>(kNan));
    const std::vector<float> w = test::numbers(weights, 2);
    for_each_flat(count, [&](int64_t block, int t) {
      read_rows<T, false>(pass, block, t, ids.data(), w.data(), y.data());
    });
    EXPECT_EQ(floats(y), floats(converted<T>(want)));

    const std::vector<float> dy = exact<T>(count, 3);
    for (const bool adds : {false, true}) {
      SCOPED_TRACE(std::to_string(shape.vocabulary) + " x " + std::to_string(shape.width) +
                   (adds ? " adds" : ""));
      const std::vector<float> before = test::numbers(weights, 4);
      const std::vector<float> dw =
          embedding_gradient<T, false>(shape, ids, converted<T>(dy), 0.25F, adds, before);
      const std::vector<float> sums = plain_gradient(shape, ids, dy, 0.25, adds, before);
      const std::vector<float> sizes =
          plain_gradient(shape, ids, sizes_of(dy), 0.25, adds, sizes_of(before));
      for (size_t i = 0; i < dw.size(); ++i) {  // a few roundings of the terms
        ASSERT_NEAR(dw[i], sums[i], 0x1p-22 * static_cast<double>(sizes[i])) << i;
      }
      if (shape.width % kPackSize<T> != 0) continue;
      EXPECT_EQ((embedding_gradient<T, true>(shape, ids, converted<T>(dy), 0.25F, adds, before)),
                dw);
    }
  }
}

TYPED_TEST(SequencePasses, AddAndSumPositions) {
  using T = TypeParam;
  for (const AddPositionsShape& shape :
       {AddPositionsShape{1, 1, 1, 1}, AddPositionsShape{3, 5, 7, 6},
        AddPositionsShape{19, 4, 8, 9}, AddPositionsShape{2, 33, 16, 33}}) {
    const AddPositionsSpec spec(shape);
    const int64_t count = spec.output().shape.size();
    const std::vector<float> x = exact<T>(count, 1);
    const std::vector<float> dy = exact<T>(count, 2);
    const std::vector<float> w = test::numbers(shape.limit * shape.width, 3);
    OperationRun op(1, spec, {spec.output()});
    op.set_input(0, x);
    op.set_param(0, w);
    const std::vector<float> want = op.forward();
    std::vector<float> half = dy;
    for (float& value : half) value *= 0.5F;
    op.backward(half);
    const PositionsPass pass(shape);
    const auto compare = [&]<bool kPacked>() {
      std::vector<T> y = converted<T>(x);  // in place
      for_each_flat(count, [&](int64_t block, int t) {
        add_positions<T, kPacked>(pass, block, t, y.data(), w.data(), y.data());
      });
      EXPECT_EQ(floats(y), floats(converted<T>(want)));
      std::vector<float> dw(w.size(), kNan);
      const std::vector<T> gradients = converted<T>(dy);
      for_each_unit(pieces(pass.weights, kPackSize<T>), [&](int64_t unit) {
        sum_positions<T, kPacked>(pass, unit, gradients.data(), 0.5F, dw.data());
      });
      EXPECT_EQ(dw, op.dw(0)) << "the same sums in the same order";
    };
    compare.template operator()<false>();
    if (pass.packed<T>(nullptr, nullptr, nullptr)) compare.template operator()<true>();
  }
}

TYPED_TEST(SequencePasses, SelectSlices) {
  using T = TypeParam;
  for (const SelectShape& shape : {SelectShape{1, 1, 1, 0}, SelectShape{3, 4, 5, 2},
                                   SelectShape{70, 3, 16, 1}, SelectShape{700, 2, 1, 1}}) {
    const SelectSpec spec(shape, Shape{shape.outer, shape.inner});
    const int64_t inputs = shape.outer * shape.size * shape.inner;
    const std::vector<float> x = exact<T>(inputs, 1);
    const std::vector<float> dy = exact<T>(shape.outer * shape.inner, 2);
    OperationRun op(1, spec, {activation({inputs})});
    op.set_input(0, x);
    const std::vector<float> want = op.forward();
    op.backward(dy);
    const SelectPass pass(shape);
    const auto compare = [&]<bool kPacked>() {
      const std::vector<T> from = converted<T>(x);
      const std::vector<T> gradients = converted<T>(dy);
      std::vector<T> y(gradients.size(), from_float<T>(kNan));
      std::vector<T> dx(from.size(), from_float<T>(kNan));
      for_each_flat(std::ssize(y), [&](int64_t block, int t) {
        select<T, kPacked>(pass, block, t, from.data(), y.data());
      });
      for_each_flat(std::ssize(dx), [&](int64_t block, int t) {
        select_gradient<T, kPacked>(pass, block, t, gradients.data(), dx.data());
      });
      EXPECT_EQ(floats(y), want);
      EXPECT_EQ(floats(dx), op.dx(0));
    };
    compare.template operator()<false>();
    if (pass.packed<T>(nullptr, nullptr)) compare.template operator()<true>();
  }
}

TEST(SequencePassesDropout, DrawTheWordsOfTheStream) {
  const DropoutRule rule(0.4F);
  for (const uint64_t element : {0UL, 1UL, 2UL, 3UL, 4UL, 4'294'967'294UL, 1'000'000'000'001UL}) {
    float factors[8];
    dropout_factors({&kKey, rule.least, rule.factor}, element, factors);
    for (uint64_t i = 0; i < 8; ++i) {
      const uint32_t word = dropout_words(kKey, (element + i) / 4)[(element + i) % 4];
      EXPECT_EQ(factors[i], word >= rule.least ? rule.factor : 0.0F) << element << " + " << i;
    }
  }
}

struct AttentionCase {
  AttentionShape shape;
  int64_t pairs = 1;
  int64_t rows = 8;
  int threads = kWarp;
};

// Sizes that are whole packs and not, in one group and several, with all combinations of causal,
// packed, mask and dropout.
std::vector<AttentionCase> attentions() {
  std::vector<AttentionCase> out;
  for (int bits = 0; bits < 16; ++bits) {
    const bool causal = (bits & 1) != 0;
    const bool packed = (bits & 2) != 0;
    const bool mask = (bits & 4) != 0;
    const float dropout = (bits & 8) != 0 ? 0.25F : 0.0F;
    out.push_back({{1, 1, 1, 1, causal, packed, mask, dropout}, 1, 256, kWarp});
    out.push_back({{3, 13, 2, 5, causal, packed, mask, dropout}, 3, 8, kWarp});
    out.push_back({{2, 32, 2, 16, causal, packed, mask, dropout}, 4, 256, kBlock});
    out.push_back({{2, 27, 3, 8, causal, packed, mask, dropout}, 2, 16, kWarp});
  }
  return out;
}

// Hides the last third of each sample, and all of the second sample.
std::vector<int32_t> mask_of(const AttentionShape& shape) {
  std::vector<int32_t> out;
  for (int64_t n = 0; n < shape.samples; ++n) {
    for (int64_t j = 0; j < shape.positions; ++j) {
      out.push_back(n != 1 && j * 3 < shape.positions * 2 ? 1 : 0);
    }
  }
  return out;
}

template <class T>
std::vector<std::vector<T>> converted_all(const std::vector<std::vector<float>>& from) {
  std::vector<std::vector<T>> out;
  for (const std::vector<float>& each : from) out.push_back(converted<T>(each));
  return out;
}

template <class T>
void compare_attention(const AttentionCase& c) {
  const AttentionShape& shape = c.shape;
  const int64_t width = shape.heads * shape.width;
  const int64_t rows = shape.samples * shape.positions;
  const ValueType value =
      activation({shape.samples, shape.positions, shape.packed ? 3 * width : width});
  std::vector<ValueType> types(shape.packed ? 1 : 3, value);
  std::vector<std::vector<float>> x;
  for (size_t i = 0; i < types.size(); ++i) {
    x.push_back(exact<T>(value.shape.size(), static_cast<int64_t>(i) + 1, 2.0F));
  }
  const std::vector<int32_t> mask = mask_of(shape);
  if (shape.mask)
    types.push_back({Element::kInt, Layout::kPlain, {shape.samples, shape.positions}});
  const AttentionSpec spec(shape);
  OperationRun op(1, spec, types);
  for (size_t i = 0; i < x.size(); ++i) op.set_input(i, x[i]);
  if (shape.mask) op.set_input(x.size(), test::as_words(mask));
  op.run.key = &kKey;
  const std::vector<float> dy = exact<T>(rows * width, 9);
  const std::vector<float> want = op.forward();
  op.backward(dy);

  AttentionKernels<T> kernels(shape, c.pairs, c.rows, c.threads);
  const std::vector<std::vector<T>> from = converted_all<T>(x);
  std::vector<T> y(want.size(), from_float<T>(kNan));
  std::vector<std::vector<T>> dx = from;
  kernels.forward(from, mask, &kKey, y);
  kernels.backward(from, mask, &kKey, y, converted<T>(dy), dx);
  // Rounded on the way: P, y and dS. A query with one key has gradients of 0 as differences of terms
  // up to 1.
  expect_near<T>("y", floats(y), want, 4e-6, 3.0);
  for (size_t i = 0; i < dx.size(); ++i) {
    expect_near<T>("dx", floats(dx[i]), op.dx(i), 8e-6, 8.0, 1.0);
  }
}

TYPED_TEST(SequencePasses, AttendLikeTheCpu) {
  for (const AttentionCase& c : attentions()) {
    SCOPED_TRACE(std::to_string(c.shape.positions) + (c.shape.causal ? " causal" : "") +
                 (c.shape.packed ? " packed" : "") + (c.shape.mask ? " mask" : "") +
                 (c.shape.dropout > 0.0F ? " dropout" : ""));
    compare_attention<TypeParam>(c);
  }
}

}  // namespace
}  // namespace pushpull::sequence_passes_test
