// Forward: S = q kᵀ / sqrt(width), softmax, y = P v. Backward computes S again and P from the kept
// logarithms of sums, then dP = dy vᵀ, dS, dq = dS k, dk += dSᵀ q and dv += Pᵀ dy, block after block
// in rising order. Products take packed matrices of each head (attention_pass.h) and write f32.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/error.h"
#include "common/device/cuda_check.h"
#include "models/ops/cuda/attention_kernels.h"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/matmul.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/pointwise.h"

namespace pushpull::ops::cuda {

namespace {

// The sizes of a group's matrices.
struct Sizes {
  int64_t rows = 0;   // of q, k and v: the positions, padded
  int64_t width = 0;  // of a head, padded
  int64_t block = 0;  // queries of a block; the last one may have fewer
  int64_t pairs = 0;  // heads of a group

  int64_t matrix() const { return rows * width; }
  int64_t matrices() const { return pairs * matrix(); }
  int64_t scores() const { return pairs * block * rows; }
};

// Returns the heads of a group: the largest divisor of the heads of all samples with scores that fit.
int64_t pairs_of_group(const AttentionShape& shape, int64_t block, int64_t rows, int64_t scores) {
  const int64_t all = shape.samples * shape.heads;
  int64_t pairs = std::clamp(scores / (block * rows), int64_t{1}, all);
  while (all % pairs != 0) --pairs;
  return pairs;
}

Sizes sizes_of(const AttentionShape& shape, const AttentionLimits& limits) {
  Sizes sizes;
  sizes.rows = whole_packs(shape.positions);
  sizes.width = whole_packs(shape.width);
  sizes.block = std::min(limits.rows, sizes.rows);
  sizes.pairs = pairs_of_group(shape, sizes.block, sizes.rows, limits.scores);
  return sizes;
}

// Offsets in scratch memory, in bytes.
class Areas {
 public:
  explicit Areas(size_t begin) : end_(padded(begin)) {}
  size_t add(int64_t elements, size_t bytes) {
    const size_t place = end_;
    end_ = padded(end_ + static_cast<size_t>(elements) * bytes);
    return place;
  }
  size_t end() const { return end_; }

 private:
  size_t end_;
};

struct Scratch {
  size_t q, k, v, dy;  // matrices of activations
  size_t scores, dp;   // f32
  size_t p, ds;        // activations; in place of the two above if those are f32
  size_t y, dk, dv;    // matrices of f32; dq lies where y does
  size_t of_rows;      // inverses, or sums of dy y
  size_t end;
};

Scratch scratch_of(const Sizes& sizes, size_t workspace, bool short_activations) {
  const size_t bytes = short_activations ? 2 : 4;
  Areas areas(workspace);
  Scratch s{};
  for (size_t* place : {&s.q, &s.k, &s.v, &s.dy}) *place = areas.add(sizes.matrices(), bytes);
  for (size_t* place : {&s.scores, &s.dp}) *place = areas.add(sizes.scores(), sizeof(float));
  s.p = short_activations ? areas.add(sizes.scores(), bytes) : s.scores;
  s.ds = short_activations ? areas.add(sizes.scores(), bytes) : s.dp;
  for (size_t* place : {&s.y, &s.dk, &s.dv}) *place = areas.add(sizes.matrices(), sizeof(float));
  s.of_rows = areas.add(sizes.pairs * sizes.rows, sizeof(float));
  s.end = areas.end();
  return s;
}

// The products of a block of `rows` queries with the first `keys` keys, for all heads of a group.
struct BlockPlan {
  int64_t rows;
  int64_t keys;
  Matmul scores;  // q kᵀ, and dy vᵀ
  Matmul output;  // P v, and dS k
  Matmul sums;    // += dSᵀ q, and Pᵀ dy
};

BlockPlan make_block(Shared& shared, const Sizes& sizes, int64_t rows, int64_t keys) {
  const int64_t width = sizes.width;
  const int64_t matrix = sizes.matrix();
  const int64_t scores = rows * keys;
  const auto make = [&](const Product& product, int64_t a, int64_t b, int64_t d) {
    return Matmul(shared, {.product = product,
                           .in = activation_type(shared.precision),
                           .out = CUDA_R_32F,
                           .epilogue = Epilogue::kNone,
                           .batch = {.count = sizes.pairs, .a = a, .b = b, .d = d},
                           .aligned = true});
  };
  return {rows, keys, make({rows, keys, width, false, true}, matrix, matrix, scores),
          make({rows, width, keys, false, false}, scores, matrix, matrix),
          make({keys, width, rows, true, false}, scores, matrix, matrix)};
}

class CudaAttention final : public Operation {
 public:
  CudaAttention(Shared& shared, const AttentionShape& shape, const AttentionLimits& limits)
      : shared_(shared),
        shape_(shape),
        sizes_(sizes_of(shape, limits)),
        scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.width)))),
        dropout_(shape.dropout) {
    for (int64_t first = 0; first < sizes_.rows; first += sizes_.block) add_block(first, limits);
    size_t workspace = 0;
    for (const BlockPlan& plan : plans_) {
      for (const Matmul* product : {&plan.scores, &plan.output, &plan.sums}) {
        workspace = std::max(workspace, product->scratch_bytes());
      }
    }
    scratch_ = scratch_of(sizes_, workspace, shared.short_activations());
    shared.need_scratch(scratch_.end);
  }

  Needs needs() const override {
    const size_t inputs = (shape_.packed ? 1 : 3) + (shape_.mask ? 1 : 0);
    const int64_t rows = shape_.samples * shape_.heads * shape_.positions;
    return {.inputs = (1U << inputs) - 1U,
            .output = true,
            .kept_bytes = static_cast<size_t>(rows) * sizeof(float)};
  }

  void forward(const Run& run) override {
    PP_ASSERT(run.key != nullptr || !run.training || dropout_.least == 0);
    for_each_group([&](int64_t pair) { forward_group(run, pair); });
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    for_each_group([&](int64_t pair) { backward_group(run, pair); });
  }

 private:
  struct Block {
    int64_t first;  // query
    size_t plan;
  };

  void add_block(int64_t first, const AttentionLimits& limits) {
    const int64_t rows = std::min(sizes_.block, sizes_.rows - first);
    const int64_t step = pieces(pieces(sizes_.rows, limits.extents), sizes_.block) * sizes_.block;
    const int64_t keys =
        shape_.causal ? std::min(pieces(first + rows, step) * step, sizes_.rows) : sizes_.rows;
    const auto same = std::ranges::find_if(
        plans_, [&](const BlockPlan& plan) { return plan.rows == rows && plan.keys == keys; });
    blocks_.push_back({first, static_cast<size_t>(same - plans_.begin())});
    if (same == plans_.end()) plans_.push_back(make_block(shared_, sizes_, rows, keys));
  }

  template <class Body>
  void for_each_group(const Body& body) {
    const int64_t pairs = shape_.samples * shape_.heads;
    for (int64_t pair = 0; pair < pairs; pair += sizes_.pairs) body(pair);
  }

  void* at(size_t place) const { return place_in_scratch(shared_, place); }
  float* floats(size_t place) const { return static_cast<float*>(at(place)); }
  // Returns the matrices' rows from query `first` on, in a matrix of elements of that size.
  void* rows_at(size_t place, int64_t first, size_t bytes) const {
    return static_cast<std::byte*>(at(place)) + static_cast<size_t>(first * sizes_.width) * bytes;
  }
  void* queries_at(size_t place, int64_t first) const {
    return rows_at(place, first, shared_.short_activations() ? 2 : 4);
  }

  HeadsPass heads(int64_t pair, bool packed, int64_t part) const {
    HeadsPass pass =
        heads_pass(shape_.positions, shape_.heads, shape_.width, sizes_.pairs, packed, part);
    pass.first_pair = pair;
    return pass;
  }
  // The pass over q (0), k (1) or v (2), and the input that it lies in.
  HeadsPass part(int64_t pair, int64_t which) const { return heads(pair, shape_.packed, which); }
  size_t input(size_t which) const { return shape_.packed ? 0 : which; }

  void split_inputs(const Run& run, int64_t pair) {
    const size_t places[] = {scratch_.q, scratch_.k, scratch_.v};
    for (size_t which = 0; which < 3; ++which) {
      split_heads(shared_, part(pair, static_cast<int64_t>(which)), run.x[input(which)].data,
                  at(places[which]));
    }
  }

  ScoresPass scores(const Run& run, int64_t pair, const Block& block) const {
    const BlockPlan& plan = plans_[block.plan];
    ScoresPass pass;
    pass.positions = shape_.positions;
    pass.first_pair = pair;
    pass.pairs = sizes_.pairs;
    pass.first = block.first;
    pass.rows = plan.rows;
    pass.keys = plan.keys;
    pass.causal = shape_.causal;
    if (shape_.mask) pass.mask = run.x[shape_.packed ? 1 : 3].ints();
    if (run.training && dropout_.least > 0) {
      pass.dropout = {run.key, dropout_.least, dropout_.factor};
    }
    pass.by_rows = Divider(plan.rows);
    pass.by_packs = Divider(plan.keys / kHeadPack);
    pass.by_heads = Divider(shape_.heads);
    return pass;
  }

  void forward_group(const Run& run, int64_t pair) {
    split_inputs(run, pair);
    for (const Block& block : blocks_) {
      BlockPlan& plan = plans_[block.plan];
      plan.scores.run(queries_at(scratch_.q, block.first), at(scratch_.k), at(scratch_.scores),
                      scale_);
      find_softmax(shared_, scores(run, pair, block), floats(scratch_.scores), at(scratch_.p),
                   floats(scratch_.of_rows),
                   run.training ? static_cast<float*>(run.kept) : nullptr);
      plan.output.run(at(scratch_.p), at(scratch_.v),
                      rows_at(scratch_.y, block.first, sizeof(float)));
    }
    // dividing y costs less than dividing all scores
    join_heads(shared_, heads(pair, false, 0), floats(scratch_.y), floats(scratch_.of_rows),
               run.y.data);
  }

  void backward_group(const Run& run, int64_t pair) {
    const HeadsPass outputs = heads(pair, false, 0);
    split_inputs(run, pair);
    split_heads(shared_, outputs, run.dy.data, at(scratch_.dy));
    multiply_outputs(shared_, outputs, run.y.data, run.dy.data, floats(scratch_.of_rows));
    const size_t bytes = static_cast<size_t>(sizes_.matrices()) * sizeof(float);
    for (const size_t sum : {scratch_.dk, scratch_.dv}) {
      PP_CUDA(cudaMemsetAsync(at(sum), 0, bytes, shared_.stream));
    }
    for (const Block& block : blocks_) backward_block(run, pair, block);
    const size_t places[] = {scratch_.y, scratch_.dk, scratch_.dv};
    for (size_t which = 0; which < 3; ++which) {
      void* dx = run.dx[input(which)].data;
      if (dx == nullptr) continue;
      join_heads(shared_, part(pair, static_cast<int64_t>(which)), floats(places[which]), nullptr,
                 dx);
    }
  }

  void backward_block(const Run& run, int64_t pair, const Block& block) {
    BlockPlan& plan = plans_[block.plan];
    const void* q = queries_at(scratch_.q, block.first);
    const void* dy = queries_at(scratch_.dy, block.first);
    plan.scores.run(q, at(scratch_.k), at(scratch_.scores), scale_);
    plan.scores.run(dy, at(scratch_.v), at(scratch_.dp));
    find_score_gradients(shared_, scores(run, pair, block),
                         {.scores = floats(scratch_.scores),
                          .dp = floats(scratch_.dp),
                          .log_sums = static_cast<const float*>(run.kept),
                          .deltas = floats(scratch_.of_rows),
                          .scale = scale_},
                         at(scratch_.p), at(scratch_.ds));
    plan.sums.run(at(scratch_.p), dy, at(scratch_.dv), 1.0F, 1.0F);
    plan.sums.run(at(scratch_.ds), q, at(scratch_.dk), 1.0F, 1.0F);
    plan.output.run(at(scratch_.ds), at(scratch_.k),
                    rows_at(scratch_.y, block.first, sizeof(float)));
  }

  Shared& shared_;
  const AttentionShape shape_;
  const Sizes sizes_;
  float scale_;
  DropoutRule dropout_;
  std::vector<BlockPlan> plans_;
  std::vector<Block> blocks_;
  Scratch scratch_{};
};

}  // namespace

std::unique_ptr<Operation> make_attention_within(Shared& shared, const AttentionShape& shape,
                                                 const AttentionLimits& limits) {
  return std::make_unique<CudaAttention>(shared, shape, limits);
}

std::unique_ptr<Operation> make_attention(Shared& shared, const Spec& spec) {
  const AttentionShape& shape = spec_as<AttentionSpec>(spec).shape();
  const AttentionLimits limits;
  require_kernel(whole_packs(shape.positions) <= INT32_MAX / limits.rows, shared, spec,
                 "has more than " + std::to_string(INT32_MAX / limits.rows) + " positions (" +
                     std::to_string(shape.positions) + "), which has no kernel");
  return make_attention_within(shared, shape, limits);
}

}  // namespace pushpull::ops::cuda
