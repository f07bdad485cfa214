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
#include "models/ops/pointwise.h"

namespace pushpull::ops::cpu {

namespace {

constexpr int64_t kBlockRows = 64;
constexpr int64_t kGroupScores = 256 << 10;  // scores of a block: 1 MiB, about a second-level cache
constexpr int64_t kMostExtents = 16;

int64_t rounded_up(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

// A batch of matrices, one for each head of a group.
dnnl::memory::desc matrices(Type type, const dnnl::memory::dims& dims,
                            const dnnl::memory::dims& strides) {
  return describe(dims, strides, type);
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

void run_products(Primitive& primitive, const void* a, const void* b, void* c) {
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

// The distances in memory of a part's heads and positions, in elements.
struct Strides {
  int64_t head;
  int64_t position;
};

// Where a plan's matrices lie. The scores are row by row.
struct Places {
  Strides x;       // q, k, v and dq
  Strides y;       // y and dy
  Strides output;  // P v before the division
  Strides sums;    // dk and dv
};

// type: of activations and of the factors P and dS; scores and sums are f32.
BlockPlan make_block(Shared& shared, const Places& at, int64_t group, int64_t rows, int64_t keys,
                     int64_t width, float scale) {
  const Type type = shared.activation;
  const auto queries = matrices(type, {group, rows, width}, {at.x.head, at.x.position, 1});
  const auto values = matrices(type, {group, keys, width}, {at.x.head, at.x.position, 1});
  const auto transposed = matrices(type, {group, width, keys}, {at.x.head, 1, at.x.position});
  const auto outputs =
      matrices(Type::f32, {group, rows, width}, {at.output.head, at.output.position, 1});
  const auto dy = matrices(type, {group, rows, width}, {at.y.head, at.y.position, 1});
  const auto sums = matrices(Type::f32, {group, keys, width}, {at.sums.head, at.sums.position, 1});
  const auto scores = matrices(Type::f32, {group, rows, keys}, {rows * keys, keys, 1});
  const auto factors = matrices(type, {group, rows, keys}, {rows * keys, keys, 1});
  const auto factors_transposed = matrices(type, {group, keys, rows}, {rows * keys, 1, keys});
  return {rows,
          keys,
          make_products(shared, queries, transposed, scores, scale, false),
          make_products(shared, factors, values, outputs, 1.0F, false),
          make_products(shared, dy, transposed, scores, 1.0F, false),
          make_products(shared, factors, values, queries, 1.0F, false),
          make_products(shared, factors_transposed, queries, sums, 1.0F, true),
          make_products(shared, factors_transposed, dy, sums, 1.0F, true)};
}

// Returns the heads of a group: the largest divisor of all heads whose scores fit.
int64_t heads_of_group(const AttentionShape& shape, int64_t rows) {
  const int64_t most = std::clamp(kGroupScores / (rows * shape.positions), int64_t{1}, shape.heads);
  int64_t group = most;
  while (shape.heads % group != 0) --group;
  return group;
}

// One of q, k, v and its gradient, at the first head of the first position of a sample.
template <class T>
struct Part {
  const T* x = nullptr;
  T* dx = nullptr;
};

// Returns the sum of a[i] b[i].
float dot_of(const float* a, const float* b, int64_t count) { return dot(a, b, count); }
float dot_of(const Bf16* a, const Bf16* b, int64_t count) {
  float sum = 0.0F;
  for (int64_t i = 0; i < count; i += kPiece) {
    const int64_t n = std::min(kPiece, count - i);
    sum += dot(Reads<Bf16>(a + i, n).data(), Reads<Bf16>(b + i, n).data(), n);
  }
  return sum;
}

// For bf16 the products that are read by other loops, or are sums over blocks, lie in scratch as f32,
// and the factors P and dS in scratch as bf16.
template <class T>
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
    if constexpr (kShort) {
      factors_ = allocate((scores + 1) / 2);
      gradient_factors_ = allocate((scores + 1) / 2);
      output_ = allocate(static_cast<size_t>(group_ * rows_ * shape.width));
      for (Buffer& sum : sums_) {
        sum = allocate(static_cast<size_t>(group_ * shape.width * shape.positions));
      }
    }
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
    for_each_group([&](int64_t sample, int64_t head) {
      for_each_block(sample, head, [&](const Block& block) { forward_block(run, block); });
    });
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    for_each_group([&](int64_t sample, int64_t head) {
      clear_sums(run, {sample, head});
      for_each_block(sample, head, [&](const Block& block) { backward_block(run, block); });
      if constexpr (kShort) finish_sums(run, {sample, head});
    });
  }

 private:
  static constexpr bool kShort = !std::is_same_v<T, float>;

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
      const int64_t width = shape_.width;
      const Strides x{width, x_stride_};
      const Strides y{width, embedding_};
      const Places at = kShort ? Places{x, y, {rows * width, width}, {width, group_ * width}}
                               : Places{x, y, y, x};
      plans_.push_back(make_block(shared, at, group_, rows, keys, width, scale_));
    }
  }

  // Calls body(sample, first head).
  template <class Body>
  void for_each_group(const Body& body) {
    for (int64_t sample = 0; sample < shape_.samples; ++sample) {
      for (int64_t head = 0; head < shape_.heads; head += group_) body(sample, head);
    }
  }
  template <class Body>
  void for_each_block(int64_t sample, int64_t head, const Body& body) {
    int64_t first = 0;
    for (const size_t plan : plan_of_block_) {
      body(Block{sample, head, first, &plans_[plan]});
      first += rows_;
    }
  }

  // Returns q (0), k (1) or v (2) of the block's sample and first head, at position 0.
  Part<T> part(const Run& run, const Block& block, size_t which) const {
    const int64_t offset = block.sample * shape_.positions * x_stride_ + block.head * shape_.width;
    const size_t input = shape_.packed ? 0 : which;
    const int64_t place = offset + (shape_.packed ? static_cast<int64_t>(which) * embedding_ : 0);
    T* dx = elements<T>(run.dx[input]);
    return {elements<T>(run.x[input]) + place, dx == nullptr ? nullptr : dx + place};
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

  // Returns the factors P or dS of products: the loops' own floats, or these rounded.
  const void* factors(const Buffer& floats, const Buffer& rounded) const {
    return kShort ? rounded.data() : floats.data();
  }
  void round_row(const Buffer& floats, const Buffer& rounded, int64_t first, int64_t count) const {
    if constexpr (!kShort) return;
    narrow(floats.data() + first, count, reinterpret_cast<Bf16*>(rounded.data()) + first);
  }

  void forward_block(const Run& run, const Block& block) {
    BlockPlan& plan = *block.plan;
    const T* q = part(run, block, 0).x + block.first * x_stride_;
    T* y = elements<T>(run.y) + output_place(block);
    run_products(plan.scores, q, part(run, block, 1).x, scores_.data());
    const int64_t rows = group_ * plan.rows;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t head = r / plan.rows;
      const int64_t row = r % plan.rows;
      const Softmax softmax =
          softmax_row(keys_of(run, block, head, row), scores_.data() + r * plan.keys);
      round_row(scores_, factors_, r * plan.keys, plan.keys);
      inverses_.data()[r] = softmax.inverse;
      if (run.training) log_sum(run, block, head, row) = softmax.log_sum;
    }
    void* output = kShort ? static_cast<void*>(output_.data()) : y;
    run_products(plan.output, factors(scores_, factors_), part(run, block, 2).x, output);
    // dividing y costs less than dividing all scores
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      T* y_row = y + r % plan.rows * embedding_ + r / plan.rows * shape_.width;
      float* row = written(y_row, output_.data() + r * shape_.width);
      multiply(row, shape_.width, inverses_.data()[r]);
      finish(row, shape_.width, y_row);
    }
  }

  // dk (1) and dv (2) are sums over the blocks of a group: at the place of the gradient for floats.
  float* sum_of(const Run& run, const Block& block, size_t which) {
    T* dx = part(run, block, which).dx;
    return dx == nullptr ? nullptr : written(dx, sums_[which - 1].data());
  }

  void clear_sums(const Run& run, const Block& group) {
    for (const size_t which : {size_t{1}, size_t{2}}) {
      float* sum = sum_of(run, group, which);
      if (sum == nullptr) continue;
      const int64_t count = group_ * shape_.width;
      const int64_t stride = kShort ? count : x_stride_;
#pragma omp parallel for schedule(static)
      for (int64_t n = 0; n < shape_.positions; ++n) std::fill_n(sum + n * stride, count, 0.0F);
    }
  }

  void finish_sums(const Run& run, const Block& group) {
    for (const size_t which : {size_t{1}, size_t{2}}) {
      T* dx = part(run, group, which).dx;
      if (dx == nullptr) continue;
      const int64_t count = group_ * shape_.width;
      const float* sum = sums_[which - 1].data();
#pragma omp parallel for schedule(static)
      for (int64_t n = 0; n < shape_.positions; ++n) {
        finish(sum + n * count, count, dx + n * x_stride_);
      }
    }
  }

  void backward_block(const Run& run, const Block& block) {
    BlockPlan& plan = *block.plan;
    const Part<T> q = part(run, block, 0);
    const Part<T> k = part(run, block, 1);
    const Part<T> v = part(run, block, 2);
    const T* y = elements<T>(run.y) + output_place(block);
    const T* dy = elements<T>(run.dy) + output_place(block);
    const int64_t queries = block.first * x_stride_;
    run_products(plan.scores, q.x + queries, k.x, scores_.data());
    run_products(plan.gradient, dy, v.x, gradient_.data());
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < group_ * plan.rows; ++r) {
      const int64_t head = r / plan.rows;
      const int64_t row = r % plan.rows;
      const int64_t place = row * embedding_ + head * shape_.width;
      softmax_gradient_row(keys_of(run, block, head, row), log_sum(run, block, head, row),
                           dot_of(dy + place, y + place, shape_.width), scale_,
                           scores_.data() + r * plan.keys, gradient_.data() + r * plan.keys);
      round_row(scores_, factors_, r * plan.keys, plan.keys);
      round_row(gradient_, gradient_factors_, r * plan.keys, plan.keys);
    }
    const void* p = factors(scores_, factors_);
    const void* ds = factors(gradient_, gradient_factors_);
    if (v.dx != nullptr) run_products(plan.dv, p, dy, sum_of(run, block, 2));
    if (k.dx != nullptr) run_products(plan.dk, ds, q.x + queries, sum_of(run, block, 1));
    if (q.dx != nullptr) run_products(plan.dq, ds, k.x, q.dx + queries);
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
  // For bf16: P and dS; P v; dk and dv of a group.
  Buffer factors_;
  Buffer gradient_factors_;
  Buffer output_;
  std::array<Buffer, 2> sums_;
};

}  // namespace

std::unique_ptr<Operation> make_attention(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuAttention<T>>(shared, spec_as<AttentionSpec>(spec).shape());
  });
}

}  // namespace pushpull::ops::cpu
