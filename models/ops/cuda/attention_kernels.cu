// Heads to matrices and back, and the softmax: one warp per row, or one block if there are many keys.
#include "models/ops/cuda/attention_kernels.h"
#include "models/ops/cuda/sums.cuh"

namespace pushpull::ops::cuda {

namespace {

__device__ inline int64_t unit_of_thread() { return int64_t{blockIdx.x} * kBlock + threadIdx.x; }

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    split_all(const HeadsPass pass, const T* tensor, T* matrices) {
  split<T, kPacked>(pass, unit_of_thread(), tensor, matrices);
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    join_all(const HeadsPass pass, const float* matrices, const float* factors, T* tensor) {
  join<T, kPacked>(pass, unit_of_thread(), matrices, factors, tensor);
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    multiply_all(const HeadsPass pass, const T* y, const T* dy, float* deltas) {
  const int64_t row = row_of_group<kWarp>();
  if (row >= pass.pairs * pass.rows()) return;  // true for whole warps
  const int lane = thread_of_group<kWarp>();
  const HeadsPass::Row place = pass.row(static_cast<uint32_t>(row));
  const float sum = group_sum<kWarp>(output_product(pass, place, y, dy, lane, kWarp));
  if (lane == 0) deltas[row] = sum;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kBlock)
    find_exponentials(const ScoresPass pass, const float* scores, T* p, float* inverses,
                      float* log_sums) {
  const int64_t index = row_of_group<kWidth>();
  if (index >= pass.all_rows()) return;
  const int thread = thread_of_group<kWidth>();
  const ScoresPass::Row row = pass.row(static_cast<uint32_t>(index));
  const float* from = scores + index * pass.keys;
  const float top = group_max<kWidth>(top_score(row, from, thread, kWidth));
  const float sum = group_sum<kWidth>(
      score_exponentials(pass, row, top, from, thread, kWidth, p + index * pass.keys));
  if (thread != 0) return;
  const RowSoftmax softmax = softmax_of(top, sum);
  inverses[row.matrix] = softmax.inverse;
  if (log_sums != nullptr && row.visible > 0) log_sums[row.all] = softmax.log_sum;
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    find_gradients(const ScoresPass pass, const ScoreGradients from, T* p, T* ds) {
  score_gradients<T>(pass, unit_of_thread(), from.scores, from.dp, from.log_sums, from.deltas,
                     from.scale, p, ds);
}

unsigned blocks_of(int64_t units) { return grid(pieces(units, kBlock)); }

}  // namespace

void split_heads(Shared& shared, const HeadsPass& pass, const Activation* tensor,
                 Activation* matrices) {
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    const auto kernel = pass.packed(tensor) ? split_all<T, true> : split_all<T, false>;
    kernel<<<blocks_of(pass.units()), kBlock, 0, shared.stream>>>(pass, as<T>(tensor),
                                                                  as<T>(matrices));
  });
  PP_CUDA_LAUNCHED("the splitting of heads");
}

void join_heads(Shared& shared, const HeadsPass& pass, const float* matrices, const float* factors,
                Activation* tensor) {
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    const auto kernel = pass.packed(tensor) ? join_all<T, true> : join_all<T, false>;
    kernel<<<blocks_of(pass.units()), kBlock, 0, shared.stream>>>(pass, matrices, factors,
                                                                  as<T>(tensor));
  });
  PP_CUDA_LAUNCHED("the joining of heads");
}

void multiply_outputs(Shared& shared, const HeadsPass& pass, const Activation* y,
                      const Activation* dy, float* deltas) {
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    multiply_all<<<row_blocks(pass.pairs * pass.rows(), kWarp), kBlock, 0, shared.stream>>>(
        pass, as<T>(y), as<T>(dy), deltas);
  });
  PP_CUDA_LAUNCHED("the products of attention's outputs");
}

void find_softmax(Shared& shared, const ScoresPass& pass, const float* scores, Activation* p,
                  float* inverses, float* log_sums) {
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    const auto kernel =
        by_warp(pass.keys) ? find_exponentials<T, kWarp> : find_exponentials<T, kBlock>;
    kernel<<<row_blocks(pass.all_rows(), pass.keys), kBlock, 0, shared.stream>>>(
        pass, scores, as<T>(p), inverses, log_sums);
  });
  PP_CUDA_LAUNCHED("the softmax of attention");
}

void find_score_gradients(Shared& shared, const ScoresPass& pass, const ScoreGradients& from,
                          Activation* p, Activation* ds) {
  with_type(shared.precision, [&]<class T>(T* /*type*/) {
    find_gradients<<<blocks_of(pass.units()), kBlock, 0, shared.stream>>>(pass, from, as<T>(p),
                                                                          as<T>(ds));
  });
  PP_CUDA_LAUNCHED("the gradients of attention's scores");
}

}  // namespace pushpull::ops::cuda
