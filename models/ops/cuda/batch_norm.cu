// Batch normalisation with its ReLU, two kernels per direction: the first sums chunks; in the
// second every block merges the sums of its channel, which is cheaper than a kernel in between.
// Backward recomputes the mask from x, so that only a mean and a deviation per channel are kept.
#include "models/ops/cuda/batch_norm_pass.h"
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/norms.h"

namespace pushpull::ops::cuda {

namespace {

static_assert(std::is_trivially_default_constructible_v<ChannelState>);
static_assert(std::is_trivially_default_constructible_v<NormalGradient>);

// The kernels' arguments other than images: vectors [C].
struct Affine {
  const float* scale;
  const float* shift;
  float epsilon;
  bool relu;

  __device__ Normal of(uint32_t channel, const ChannelState& state) const {
    return normal_of(state, scale[channel], shift[channel], relu);
  }
};

template <class T, int kVector>
__global__ void __launch_bounds__(kBlock)
    sum_moments(const ImagePass pass, const T* x, Moments* chunks) {
  const ImagePass::Block block = pass.block(blockIdx.x);
  Moments all;
  for (uint32_t first = block.first; first < block.last; first += kRound) {
    float values[kPerThread];
    load_round<kVector>(x, pass, block, first, threadIdx.x, values);
    const uint32_t count = round_count(first, block.last);
    const float mean = block_sum(sum_of(values)) / static_cast<float>(count);
    const float squares = block_sum(squares_of<T>(values, mean, first, block.last, threadIdx.x));
    all = merge(all, {static_cast<double>(count), mean, squares});
  }
  if (threadIdx.x == 0) chunks[blockIdx.x] = all;
}

// Processes the rest of a block's rounds; the first one is already loaded.
template <class T, int kVector>
__device__ void normalise_rounds(const ImagePass& pass, const ImagePass::Block& block,
                                 const Normal& normal, const T* x, float (&values)[kPerThread],
                                 T* y) {
  for (uint32_t first = block.first;;) {
    normalise(normal, values);
    store_round<kVector>(values, pass, block, first, threadIdx.x, y);
    first += kRound;
    if (first >= block.last) return;
    load_round<kVector>(x, pass, block, first, threadIdx.x, values);
  }
}

template <class T, int kVector>
__global__ void __launch_bounds__(kBlock)
    normalise_batch(const ImagePass pass, const Affine affine, const Moments* chunks, const T* x,
                    ChannelState* states, float* mean, float* variance, T* y) {
  __shared__ ChannelState state;
  const ImagePass::Block block = pass.block(blockIdx.x);
  float values[kPerThread];  // loads are in flight while the first warp merges
  load_round<kVector>(x, pass, block, block.first, threadIdx.x, values);
  if (threadIdx.x < kWarp) {
    const Moments moments = merge_chunks(chunks + static_cast<int64_t>(block.channel) * pass.chunks,
                                         pass.chunks, static_cast<double>(pass.places));
    if (threadIdx.x == 0) {
      state = state_of(moments, affine.epsilon);
      if (block.chunk == 0) {
        states[block.channel] = state;
        mean[block.channel] = state.mean;
        variance[block.channel] = unbiased_variance(moments);
      }
    }
  }
  __syncthreads();
  normalise_rounds<T, kVector>(pass, block, affine.of(block.channel, state), x, values, y);
}

template <class T, int kVector>
__global__ void __launch_bounds__(kBlock)
    normalise_given(const ImagePass pass, const Affine affine, const T* x, const float* mean,
                    const float* variance, T* y) {
  __shared__ ChannelState state;
  const ImagePass::Block block = pass.block(blockIdx.x);
  float values[kPerThread];
  load_round<kVector>(x, pass, block, block.first, threadIdx.x, values);
  if (threadIdx.x == 0) {
    state = {mean[block.channel], inverse_deviation(variance[block.channel], affine.epsilon)};
  }
  __syncthreads();
  normalise_rounds<T, kVector>(pass, block, affine.of(block.channel, state), x, values, y);
}

template <class T, int kVector>
__global__ void __launch_bounds__(kBlock)
    sum_gradients(const ImagePass pass, const Affine affine, const ChannelState* states, const T* x,
                  const T* dy, GradientSums* chunks) {
  const ImagePass::Block block = pass.block(blockIdx.x);
  const Normal normal = affine.of(block.channel, states[block.channel]);
  GradientSums sums;
  for (uint32_t first = block.first; first < block.last; first += kRound) {
    float inputs[kPerThread];
    float gradients[kPerThread];
    load_round<kVector>(x, pass, block, first, threadIdx.x, inputs);
    load_round<kVector>(dy, pass, block, first, threadIdx.x, gradients);
    add_gradients<T>(normal, inputs, gradients, sums);
  }
  float both[2] = {sums.dy, sums.product};
  block_sum(both);
  if (threadIdx.x == 0) chunks[blockIdx.x] = {both[0], both[1]};
}

template <class T, int kVector>
__global__ void __launch_bounds__(kBlock)
    find_input_gradients(const ImagePass pass, const Affine affine, const ChannelState* states,
                         const GradientSums* chunks, float unscale, const T* x, const T* dy,
                         float* dscale, float* dshift, T* dx) {
  __shared__ NormalGradient of_x;
  const ImagePass::Block block = pass.block(blockIdx.x);
  const ChannelState state = states[block.channel];
  float inputs[kPerThread];
  float gradients[kPerThread];
  load_round<kVector>(x, pass, block, block.first, threadIdx.x, inputs);
  load_round<kVector>(dy, pass, block, block.first, threadIdx.x, gradients);
  if (threadIdx.x < kWarp) {
    const ChannelGradient gradient =
        merge_gradients(chunks + static_cast<int64_t>(block.channel) * pass.chunks, pass.chunks,
                        static_cast<double>(pass.places), state, unscale);
    if (threadIdx.x == 0) {
      of_x = gradient.of_x;
      if (block.chunk == 0) {
        dscale[block.channel] = gradient.scale;
        dshift[block.channel] = gradient.shift;
      }
    }
  }
  __syncthreads();
  const Normal normal = affine.of(block.channel, state);
  for (uint32_t first = block.first;;) {
    input_gradients<T>(normal, of_x, gradients, inputs);
    store_round<kVector>(inputs, pass, block, first, threadIdx.x, dx);
    first += kRound;
    if (first >= block.last) return;
    load_round<kVector>(x, pass, block, first, threadIdx.x, inputs);
    load_round<kVector>(dy, pass, block, first, threadIdx.x, gradients);
  }
}

template <class T>
class CudaBatchNorm final : public Operation {
 public:
  CudaBatchNorm(Shared& shared, const BatchNormShape& shape)
      : shared_(shared), shape_(shape), pass_(shape.image) {
    shared.need_scratch(static_cast<size_t>(pass_.blocks()) * sizeof(Moments));
    static_assert(sizeof(GradientSums) <= sizeof(Moments));
  }

  // Parameters: scale, shift, mean, variance. Kept: the state of each channel.
  Needs needs() const override {
    return {.inputs = 1,
            .kept_bytes = static_cast<size_t>(pass_.channels) * sizeof(ChannelState),
            .gradient_in_place = true};
  }

  void forward(const Run& run) override {
    const T* x = as<T>(run.x[0].data);
    T* y = as<T>(run.y.data);
    const unsigned blocks = grid(pass_.blocks());
    with_vector({x, y}, [&]<int kVector>() {
      if (!run.training) {
        normalise_given<T, kVector>
            <<<blocks, kBlock, 0, shared_.stream>>>(pass_, affine(run), x, run.w[2], run.w[3], y);
        PP_CUDA_LAUNCHED("batch normalisation with given statistics");
        return;
      }
      auto* chunks = static_cast<Moments*>(shared_.scratch.data());
      sum_moments<T, kVector><<<blocks, kBlock, 0, shared_.stream>>>(pass_, x, chunks);
      PP_CUDA_LAUNCHED("batch normalisation's moments");
      normalise_batch<T, kVector><<<blocks, kBlock, 0, shared_.stream>>>(
          pass_, affine(run), chunks, x, static_cast<ChannelState*>(run.kept), run.dw[2], run.dw[3],
          y);
      PP_CUDA_LAUNCHED("batch normalisation");
    });
  }

  void backward_weights(const Run& /*run*/) override {}

  void backward_data(const Run& run) override {
    const T* x = as<T>(run.x[0].data);
    const T* dy = as<T>(run.dy.data);
    T* dx = as<T>(run.dx[0].data != nullptr ? run.dx[0].data : run.dy.data);
    const unsigned blocks = grid(pass_.blocks());
    auto* chunks = static_cast<GradientSums*>(shared_.scratch.data());
    const auto* states = static_cast<const ChannelState*>(run.kept);
    const float unscale = 1.0F / shared_.loss_scale;
    with_vector({x, dy, dx}, [&]<int kVector>() {
      sum_gradients<T, kVector>
          <<<blocks, kBlock, 0, shared_.stream>>>(pass_, affine(run), states, x, dy, chunks);
      PP_CUDA_LAUNCHED("batch normalisation's sums of gradients");
      find_input_gradients<T, kVector><<<blocks, kBlock, 0, shared_.stream>>>(
          pass_, affine(run), states, chunks, unscale, x, dy, run.dw[0], run.dw[1], dx);
      PP_CUDA_LAUNCHED("batch normalisation's gradients");
    });
  }

 private:
  template <class Launch>
  void with_vector(std::initializer_list<const void*> images, const Launch& launch) const {
    cuda::with_vector<T>(pass_.vector<T>(are_aligned(images)), launch);
  }

  Affine affine(const Run& run) const { return {run.w[0], run.w[1], shape_.epsilon, shape_.relu}; }

  Shared& shared_;
  BatchNormShape shape_;
  ImagePass pass_;
};

}  // namespace

std::unique_ptr<Operation> make_batch_norm(Shared& shared, const Spec& spec) {
  return make_typed<CudaBatchNorm, Operation>(shared, spec_as<BatchNormSpec>(spec).shape());
}

}  // namespace pushpull::ops::cuda
