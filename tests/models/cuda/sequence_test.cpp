// Compares the operations on sequences on CUDA with those of the CPU, in each precision: the same
// numbers, rounded to the activations' type, at aligned addresses and not.
#include "models/ops/sequence.h"

#include <gtest/gtest.h>

#include "common/device/cuda_check.h"
#include "common/device/cuda_libraries.h"
#include "models/ops/cuda/attention_kernels.h"
#include "models/ops/norms.h"
#include "tests/models/cuda/cuda_operations.h"

namespace pushpull::sequence_test {
namespace {

using ops::AttentionShape;
using test::Comparison;
using test::kExact;
using test::numbers;

class CudaSequences : public test::OnBothBackends {
 protected:
  // Compares with parameters at aligned addresses and not.
  void compare_all(Comparison c, double tolerance, double roundings = 1.0) const {
    for (const bool aligned : {false, true}) {
      SCOPED_TRACE(aligned ? "aligned parameters" : "unaligned parameters");
      c.aligned_params = aligned;
      compare(c, tolerance, roundings);
    }
  }
  void compare_attention(const AttentionShape& shape,
                         const ops::cuda::AttentionLimits* limits) const;
};

std::vector<int32_t> some_ids(const ops::EmbeddingShape& shape) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < shape.samples * shape.positions; ++i) {
    const int64_t id = (i * i + 3 * i + 1) % shape.vocabulary;
    ids.push_back(static_cast<int32_t>(id % 5 == 1 ? 0 : id));
  }
  return ids;
}

TEST_P(CudaSequences, ReadAndSumRowsOfATable) {
  for (const ops::EmbeddingShape& shape :
       {ops::EmbeddingShape{1, 1, 1, 1}, ops::EmbeddingShape{2, 3, 5, 7},
        ops::EmbeddingShape{3, 17, 11, 32}, ops::EmbeddingShape{1, 101, 1'009, 16},
        ops::EmbeddingShape{2, 70, 3, 264}, ops::EmbeddingShape{3, 200, 2, 36},
        ops::EmbeddingShape{1, 600, 700, 3}}) {
    SCOPED_TRACE(std::to_string(shape.vocabulary) + " x " + std::to_string(shape.width));
    const ops::EmbeddingSpec spec(shape);
    const int64_t weights = shape.vocabulary * shape.width;
    Comparison c{
        .spec = spec,
        .inputs = {{ops::Element::kInt, ops::Layout::kPlain, {shape.samples, shape.positions}}},
        .x = {test::as_words(some_ids(shape))},
        .w = {exact(weights, 2)},
        .wanted = 0,
        .dy = exact(spec.output().shape.size(), 3)};
    compare_all(c, 1e-5, 0.0);  // sums in another order
    c.dw = {numbers(weights, 4)};
    compare_all(c, 1e-5, 0.0);
  }
}

TEST_P(CudaSequences, NormaliseRows) {
  for (const ops::LayerNormShape& shape :
       {ops::LayerNormShape{.rows = 1, .width = 1}, ops::LayerNormShape{.rows = 3, .width = 7},
        ops::LayerNormShape{.rows = 131, .width = 97, .centred = false},
        ops::LayerNormShape{.rows = 200, .width = 264, .epsilon = 1e-3F},
        ops::LayerNormShape{.rows = 5, .width = 2'056}}) {
    SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.width));
    const ops::LayerNormSpec spec(shape, ops::Shape{shape.rows, shape.width});
    std::vector<std::vector<float>> w{numbers(shape.width, 2)};
    if (shape.centred) w.push_back(numbers(shape.width, 3));
    compare_all({.spec = spec,
                 .inputs = {spec.output()},
                 .x = {exact(shape.rows * shape.width, 1)},
                 .w = w,
                 .dy = exact(shape.rows * shape.width, 4)},
                2e-5);
  }
}

TEST_P(CudaSequences, AddAndSumPositions) {
  for (const ops::AddPositionsShape& shape :
       {ops::AddPositionsShape{1, 1, 1, 1}, ops::AddPositionsShape{3, 5, 7, 6},
        ops::AddPositionsShape{19, 4, 8, 9}, ops::AddPositionsShape{2, 330, 16, 330}}) {
    SCOPED_TRACE(std::to_string(shape.positions) + " x " + std::to_string(shape.width));
    const ops::AddPositionsSpec spec(shape);
    compare_all({.spec = spec,
                 .inputs = {spec.output()},
                 .x = {exact(spec.output().shape.size(), 1)},
                 .w = {numbers(shape.limit * shape.width, 2)},
                 .dy = exact(spec.output().shape.size(), 3)},
                kExact);
  }
}

TEST_P(CudaSequences, SelectSlices) {
  for (const ops::SelectShape& shape :
       {ops::SelectShape{1, 1, 1, 0}, ops::SelectShape{3, 4, 5, 2}, ops::SelectShape{70, 3, 16, 1},
        ops::SelectShape{9'000, 2, 1, 1}}) {
    const ops::SelectSpec spec(shape, ops::Shape{shape.outer, shape.inner});
    const int64_t inputs = shape.outer * shape.size * shape.inner;
    compare({.spec = spec,
             .inputs = {ops::activation({inputs})},
             .x = {exact(inputs, 1)},
             .dy = exact(shape.outer * shape.inner, 2)},
            kExact, 0.0);
  }
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

// A plan with other limits than the backend's own.
class Limited {
 public:
  Limited(ops::Backend& backend, ops::Precision precision, const ops::cuda::AttentionLimits& limits)
      : limits_(limits) {
    shared_.device = backend.device();
    shared_.stream = device::native_stream(backend.stream());
    shared_.precision = precision;
    shared_.loss_scale = test::kLossScale;
    device::check(device::cublas_lt().cublasLtCreate(&shared_.lt), "cublasLtCreate");
  }
  ~Limited() { device::cublas_lt().cublasLtDestroy(shared_.lt); }
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;

  std::unique_ptr<ops::Operation> plan(const AttentionShape& shape) {
    return ops::cuda::make_attention_within(shared_, shape, limits_);
  }

 private:
  ops::cuda::AttentionLimits limits_;
  ops::cuda::Shared shared_;
};

//   limits: null: the backend's own.
void CudaSequences::compare_attention(const AttentionShape& shape,
                                      const ops::cuda::AttentionLimits* limits) const {
  SCOPED_TRACE(std::to_string(shape.samples) + " x " + std::to_string(shape.positions) + ", " +
               std::to_string(shape.heads) + " heads of " + std::to_string(shape.width) +
               (shape.causal ? ", causal" : "") + (shape.packed ? ", packed" : "") +
               (shape.mask ? ", mask" : "") + (shape.dropout > 0.0F ? ", dropout" : ""));
  const ops::AttentionSpec spec(shape);
  const int64_t width = shape.heads * shape.width;
  const ops::ValueType value =
      ops::activation({shape.samples, shape.positions, shape.packed ? 3 * width : width});
  Comparison c{.spec = spec, .inputs = {}, .x = {}};
  c.inputs.assign(shape.packed ? 1 : 3, value);
  c.wanted = shape.packed ? 0b1 : 0b111;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    c.x.push_back(exact(value.shape.size(), static_cast<int64_t>(i) + 1, 2.0F));
  }
  if (shape.mask) {
    c.inputs.push_back({ops::Element::kInt, ops::Layout::kPlain, {shape.samples, shape.positions}});
    c.x.push_back(test::as_words(mask_of(shape)));
  }
  c.key = 0x0123456789abcdef;
  c.dy = exact(spec.output().shape.size(), 9);
  std::optional<Limited> limited;
  if (limits != nullptr) {
    limited.emplace(cuda_->backend(), GetParam(), *limits);
    c.on_cuda = [&] { return limited->plan(shape); };
  }
  // rounded on the way: P, y and dS, and the factors of five products
  compare(c, 8.0 * std::ldexp(1.0, -bits(true)) + 8e-6, 8.0);
  c.training = false;
  c.is_trained = false;
  compare(c, 4.0 * std::ldexp(1.0, -bits(true)) + 4e-6, 3.0);
}

// Returns a size with each combination of causal, packed, mask and dropout.
std::vector<AttentionShape> with_all_options(const AttentionShape& size) {
  std::vector<AttentionShape> out;
  for (int bits = 0; bits < 16; ++bits) {
    AttentionShape shape = size;
    shape.causal = (bits & 1) != 0;
    shape.packed = (bits & 2) != 0;
    shape.mask = (bits & 4) != 0;
    shape.dropout = (bits & 8) != 0 ? 0.25F : 0.0F;
    out.push_back(shape);
  }
  return out;
}
AttentionShape shape_of(int64_t samples, int64_t positions, int64_t heads, int64_t width) {
  return {.samples = samples, .positions = positions, .heads = heads, .width = width};
}

TEST_P(CudaSequences, AttendHeadByHead) {
  const ops::cuda::AttentionLimits alone{.rows = 8, .extents = 2, .scores = 1};
  for (const AttentionShape& shape : with_all_options(shape_of(2, 19, 2, 5))) {
    compare_attention(shape, &alone);
  }
}

// Products of several heads at once.
TEST_P(CudaSequences, AttendWithManyHeads) {
  for (const AttentionShape& size : {shape_of(3, 13, 3, 5), shape_of(2, 64, 4, 64)}) {
    for (const AttentionShape& shape : with_all_options(size)) compare_attention(shape, nullptr);
  }
  AttentionShape single = shape_of(2, 1, 1, 1);
  single.packed = true;  // alone, dq and dk would be the rounding of 0
  compare_attention(single, nullptr);
}

TEST_P(CudaSequences, AttendOverManyKeysWithManyHeads) {
  AttentionShape shape = shape_of(1, 2'000, 2, 16);
  shape.packed = true;
  compare_attention(shape, nullptr);
  shape.causal = true;
  shape.dropout = 0.1F;
  compare_attention(shape, nullptr);
}

TEST_P(CudaSequences, RefuseToAttendToTooManyPositions) {
  const ops::AttentionSpec spec(shape_of(1, 9'000'000, 1, 1));
  expect_refusal(spec, "attention has more than 8388607 positions (9000000), which has no kernel");
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaSequences, testing::ValuesIn(test::kPrecisions),
                         test::precision_name);

}  // namespace
}  // namespace pushpull::sequence_test
