// Attention on oneDNN's matmul, batched over heads that lie side by side in memory, with own loops
// for the softmax. A block is up to kBlockRows queries of a group of heads; its scores stay in the
// cache between the products. Blocks, groups and extents of keys depend on the shape alone, so bits
// depend on the number of threads only as far as oneDNN divides sums by it.
#include "models/ops/attention.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "models/ops/cpu/attention_row.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/dropout.h"

namespace pushpull::ops::cpu {

namespace {

constexpr int64_t kBlockRows = 64;
constexpr int64_t kGroupScores = 256 << 10;  // scores of a block: 1 MiB, about a second-level cache
constexpr int64_t kMostExtents = 16;

int64_t rounded_up(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

// A batch of matrices, one for each head of a group.
dnnl::memory::desc matrices(int64_t heads, int64_t rows, int64_t columns, int64_t head_stride,
                            int64_t row_stride, int64_t column_stride = 1) {
  return describe({heads, rows, columns},
                  dnnl::memory::dims{head_stride, row_stride, column_stride});
}

// c = factor a b for each head, or c += a b.
Primitive make_products(Shared& shared, const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                        const dnnl::memory::desc& c, float factor, bool adds) {
  dnnl::primitive_attr attr = attributes();
  if (factor != 1.0F) attr.set_output_scales(0, {factor});
  if (adds) {
    dnnl::post_ops post;
    post.append_sum(1.0F);
    attr.set_post_ops(post);
  }
  const dnnl::matmul::primitive_desc plan({a, b, c}, attr, shared.engine);
  return {shared,
          dnnl::matmul(plan),
          plan.scratchpad_desc(),
          {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}}};
}

void run_products(Primitive& primitive, const float* a, const float* b, float* c) {
  primitive.bind(DNNL_ARG_SRC, a);
  primitive.bind(DNNL_ARG_WEIGHTS, b);
  primitive.bind(DNNL_ARG_DST, c);
  primitive.run();
}

// The products of a block of `rows` queries with the first `keys` keys.
struct BlockPlan {
  int64_t rows;
  int64_t keys;
  Primitive scores;    // q kᵀ / sqrt(width)
  Primitive output;    // P v
  Primitive gradient;  // dy vᵀ
  Primitive dq;        // dS k
  Primitive dk;        // += dSᵀ q
  Primitive dv;        // += Pᵀ dy
};

BlockPlan make_block(Shared& shared, const AttentionShape& shape, int64_t group, int64_t rows,
                     int64_t keys, float scale) {
  const int64_t width = shape.width;
  const int64_t y_stride = shape.heads * width;
  const int64_t x_stride = (shape.packed ? 3 : 1) * y_stride;
  const auto queries = matrices(group, rows, width, width, x_stride);
  const auto values = matrices(group, keys, width, width, x_stride);
  const auto values_transposed = matrices(group, width, keys, width, 1, x_stride);
  const auto outputs = matrices(group, rows, width, width, y_stride);
  const auto scores = matrices(group, rows, keys, rows * keys, keys);
  const auto scores_transposed = matrices(group, keys, rows, rows * keys, 1, keys);
  return {rows,
          keys,
          make_products(shared, queries, values_transposed, scores, scale, false),
          make_products(shared, scores, values, outputs, 1.0F, false),
          make_products(shared, outputs, values_transposed, scores, 1.0F, false),
          make_products(shared, scores, values, queries, 1.0F, false),
          make_products(shared, scores_transposed, queries, values, 1.0F, true),
          make_products(shared, scores_transposed, outputs, values, 1.0F, true)};
}

// Returns the heads of a group: the largest divisor of all heads whose scores fit.
int64_t heads_of_group(const AttentionShape& shape, int64_t rows) {
  const int64_t most = std::clamp(kGroupScores / (rows * shape.positions), int64_t{1}, shape.heads);
  int64_t group = most;
  while (shape.heads % group != 0) --group;
  return group;
}

// One of q, k, v and its gradient, at the first head of the first position of a sample.
struct Part {
  const float* x = nullptr;
  float* dx = nullptr;
};

class CpuAttention final : public Operation {
 public:
  CpuAttention(Shared& shared, const AttentionShape& shape)
      : shape_(shape),
        embedding_(shape.heads * shape.width),
        x_stride_((shape.packed ? 3 : 1) * embedding_),
        rows_(std::min(kBlockRows, shape.positions)),
        group_(heads_of_group(shape, rows_)),
        scale_(static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.width)))),
        dropout_(shape.dropout) {
    for (int64_t first = 0; first < shape.positions; first += rows_) add_block(shared, first);
    const auto scores = static_cast<size_t>(group_ * rows_ * shape.positions);
    scores_ = allocate(scores);
    gradient_ = allocate(scores);
    inverses_ = allocate(static_cast<size_t>(group_ * rows_));
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
    for_each_block([&](const Block& block) { forward_block(run, block); });
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    clear_sums(run);
    for_each_block([&](const Block& block) { backward_block(run, block); });
  }

 private:
  // Queries of a group of heads of one sample.
  struct Block {
    int64_t sample = 0;
    int64_t head = 0;   // the first
    int64_t first = 0;  // query
    BlockPlan* plan = nullptr;
  };

  void add_block(Shared& shared, int64_t first) {
    const int64_t rows = std::min(rows_, shape_.positions - first);
    const int64_t step = rounded_up((shape_.positions + kMostExtents - 1) / kMostExtents, rows_);
    const int64_t keys = shape_.causal ? std::min(rounded_up(first + rows, step), shape_.positions)
                                       : shape_.positions;
    const auto same = std::ranges::find_if(
        plans_, [&](const BlockPlan& plan) { return plan.rows == rows && plan.keys == keys; });
    plan_of_block_.push_back(static_cast<size_t>(same - plans_.begin()));
    if (same == plans_.end()) {
      plans_.push_back(make_block(shared, shape_, group_, rows, keys, scale_));
    }
  }

  template <class Body>
  void for_each_block(const Body& body) {
    for (int64_t sample = 0; sample < shape_.samples; ++sample) {
      for (int64_t head = 0; head < shape_.heads; head += group_) {
        int64_t first = 0;
        for (const size_t plan : plan_of_block_) {
          body({sample, head, first, &plans_[plan]});
          first += rows_;
        }
      }
    }
  }

  // Returns q (0), k (1) or v (2) of the block's sample and first head, at position 0.
  Part part(const Run& run, const Block& block, size_t which) const {
    const int64_t offset = block.sample * shape_.positions * x_stride_ + block.head * shape_.width;
    const size_t input = shape_.packed ? 0 : which;
    const int64_t place = offset + (shape_.packed ? static_cast<int64_t>(which) * embedding_ : 0);
    float* dx = run.dx[input].floats();
    return {run.x[input].floats() + place, dx == nullptr ? nullptr : dx + place};
  }

  // Returns the place of the block's first query and head in y and dy.
  int64_t output_place(const Block& block) const {
    return (block.sample * shape_.positions + block.first) * embedding_ + block.head * shape_.width;
  }

  float& log_sum(const Run& run, const Block& block, int64_t head, int64_t row) const {
    const int64_t of_head = (block.sample * shape_.heads + block.head + head) * shape_.positions;
    return static_cast<float*>(run.kept)[of_head + block.first + row];
  }

  RowOfKeys keys_of(const Run& run, const Block& block, int64_t head, int64_t row) const {
    const int64_t query = block.first + row;
    RowOfKeys out;
    out.keys = block.plan->keys;
    out.visible = shape_.causal ? query + 1 : shape_.positions;
    if (shape_.mask) {
      out.mask = run.x[shape_.packed ? 1 : 3].ints() + block.sample * shape_.positions;
    }
    if (run.training && dropout_.least > 0) {
      const int64_t of_head = block.sample * shape_.heads + block.head + head;
      const int64_t element = (of_head * shape_.positions + query) * shape_.positions;
      out.dropout = {*run.key, static_cast<uint64_t>(element), dropout_.least, dropout_.factor};
    }
    return out;
  }

  void forward_block(const Run& run, const Block& block) {
    BlockPlan& plan = *block.plan;
    const float* q = part(run, block, 0).x + block.first * x_stride_;
    float* y = run.y.floats() + output_place(block);
    run_products(plan.scores, q, part(run, block, 1).x, scores_.data());
    const int64_t rows = group_ * plan.rows;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t head = r / plan.rows;
      const int64_t row = r % plan.rows;
      const Softmax softmax =
          softmax_row(keys_of(run, block, head, row), scores_.data() + r * plan.keys);
      inverses_.data()[r] = softmax.inverse;
      if (run.training) log_sum(run, block, head, row) = softmax.log_sum;
    }
    run_products(plan.output, scores_.data(), part(run, block, 2).x, y);
    // dividing y costs less than dividing all scores
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      multiply(y + r % plan.rows * embedding_ + r / plan.rows * shape_.width, shape_.width,
               inverses_.data()[r]);
    }
  }

  // dk and dv are sums over blocks.
  void clear_sums(const Run& run) const {
    const int64_t rows = shape_.samples * shape_.positions;
    for (const size_t which : {size_t{1}, size_t{2}}) {
      float* dx = part(run, {}, which).dx;
      if (dx == nullptr) continue;
#pragma omp parallel for schedule(static)
      for (int64_t n = 0; n < rows; ++n) std::fill_n(dx + n * x_stride_, embedding_, 0.0F);
    }
  }

  void backward_block(const Run& run, const Block& block) {
    BlockPlan& plan = *block.plan;
    const Part q = part(run, block, 0);
    const Part k = part(run, block, 1);
    const Part v = part(run, block, 2);
    const float* y = run.y.floats() + output_place(block);
    const float* dy = run.dy.floats() + output_place(block);
    const int64_t queries = block.first * x_stride_;
    run_products(plan.scores, q.x + queries, k.x, scores_.data());
    run_products(plan.gradient, dy, v.x, gradient_.data());
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < group_ * plan.rows; ++r) {
      const int64_t head = r / plan.rows;
      const int64_t row = r % plan.rows;
      const int64_t place = row * embedding_ + head * shape_.width;
      softmax_gradient_row(keys_of(run, block, head, row), log_sum(run, block, head, row),
                           dot(dy + place, y + place, shape_.width), scale_,
                           scores_.data() + r * plan.keys, gradient_.data() + r * plan.keys);
    }
    if (v.dx != nullptr) run_products(plan.dv, scores_.data(), dy, v.dx);
    if (k.dx != nullptr) run_products(plan.dk, gradient_.data(), q.x + queries, k.dx);
    if (q.dx != nullptr) run_products(plan.dq, gradient_.data(), k.x, q.dx + queries);
  }

  const AttentionShape shape_;
  int64_t embedding_;  // E
  int64_t x_stride_;   // from one position of q, k or v to the next
  int64_t rows_;       // of a block; the last one may have fewer
  int64_t group_;      // heads of a block
  float scale_;
  DropoutRule dropout_;
  std::vector<BlockPlan> plans_;
  std::vector<size_t> plan_of_block_;
  // Scratch of one block.
  Buffer scores_;
  Buffer gradient_;
  Buffer inverses_;
};

}  // namespace

std::unique_ptr<Operation> make_attention(Shared& shared, const Spec& spec) {
  return std::make_unique<CpuAttention>(shared, spec_as<AttentionSpec>(spec).shape());
}

}  // namespace pushpull::ops::cpu
