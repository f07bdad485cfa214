// Operations on the positions of sequences.

#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/sequence_pass.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/cuda/sums.cuh"

namespace pushpull::ops::cuda {

// Rows of a table. Backward sorts the places by their rows and sums the rows of the gradient in
// chunks of that order: no thread adds to what another one writes.

namespace {

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    read_all_rows(const EmbeddingPass pass, const int32_t* ids, const float* w, T* y) {
  read_rows<T, kPacked>(pass, blockIdx.x, static_cast<int>(threadIdx.x), ids, w, y);
}

__device__ inline int32_t warp_sum(int32_t value) {
  PP_UNROLL
  for (int reach = kWarp / 2; reach > 0; reach /= 2) {
    value += __shfl_xor_sync(~0U, value, reach);
  }
  return value;
}

__global__ void __launch_bounds__(kBlock)
    sort_tiles(const int32_t* ids, int64_t places, uint64_t* sorted) {
  __shared__ uint64_t keys[EmbeddingPass::kTile];
  const int64_t first = int64_t{blockIdx.x} * EmbeddingPass::kTile;
  const int64_t place = first + threadIdx.x;
  const uint64_t key = place < places ? key_of(ids[place], place) : kNoKey;
  keys[threadIdx.x] = key;
  __syncthreads();
  if (place < places) sorted[first + rank_in_tile(keys, key)] = key;
}

// One warp per key, one lane per piece.
__global__ void __launch_bounds__(kBlock)
    merge_pieces(const uint64_t* keys, int64_t places, int64_t piece, uint64_t* merged) {
  const int64_t at = (int64_t{blockIdx.x} * kBlock + threadIdx.x) / kWarp;
  if (at >= places) return;  // true for whole warps
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int32_t rank = warp_sum(rank_in_piece(keys, places, piece, at, lane));
  if (lane == 0) merged[first_of_merge(at, piece) + rank] = keys[at];
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    sum_all_runs(const EmbeddingPass pass, const uint64_t* keys, const T* dy, float unscale,
                 bool adds, float* partials, float* dw) {
  const int64_t unit = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  sum_runs<T, kPacked>(pass, unit, keys, dy, unscale, adds, partials, dw);
}

// One block per chunk and tile of columns: adds the partial sums of the run that begins there.
__global__ void __launch_bounds__(kBlock)
    finish_runs(const EmbeddingPass pass, const uint64_t* keys, const float* partials,
                float unscale, bool adds, float* dw) {
  const int64_t chunk = pass.by_tiles.quotient(blockIdx.x);
  const LongRun run = long_run(pass, keys, chunk);
  if (run.chunks == 0) return;  // true for whole blocks
  const int64_t tile = blockIdx.x - chunk * pass.tiles;
  const int64_t column = tile * kWarp + threadIdx.x % kWarp;
  const bool is_inside = column < pass.width;
  const double sum = sum_over_warps(is_inside ? run.chunks : 0, [&](int64_t i) {
    return partial_sum(pass, partials, chunk, column, i);
  });
  if (threadIdx.x >= kWarp || !is_inside) return;
  float* to = dw + run.row * pass.width + column;
  *to = (adds ? *to : 0.0F) + unscaled(sum, unscale);
}

template <class T>
class CudaEmbedding final : public Operation {
 public:
  CudaEmbedding(Shared& shared, const EmbeddingShape& shape)
      : shared_(shared),
        pass_(shape, kPackSize<T>),
        keys_bytes_(padded(static_cast<size_t>(pass_.places) * sizeof(uint64_t))) {
    shared.need_scratch(2 * keys_bytes_ + static_cast<size_t>(pass_.partials()) * sizeof(float));
  }

  Needs needs() const override { return {.inputs = 1, .splits = true, .adds = 1}; }

  void forward(const Run& run) override {
    auto* y = as<T>(run.y.data);
    const float* w = run.w[0];
    const auto kernel = pass_.packed<T>(y, w) ? read_all_rows<T, true> : read_all_rows<T, false>;
    const int64_t count = pass_.places * pass_.width;
    kernel<<<grid(flat_blocks(count)), kBlock, 0, shared_.stream>>>(pass_, run.x[0].ints(), w, y);
    PP_CUDA_LAUNCHED("an embedding");
  }

  void backward_weights(const Run& run) override {
    const uint64_t* keys = sort(run.x[0].ints());
    auto* partials = static_cast<float*>(place_in_scratch(shared_, 2 * keys_bytes_));
    const auto* dy = as<T>(run.dy.data);
    float* dw = run.dw[0];
    const float unscale = 1.0F / shared_.loss_scale;
    const bool adds = (run.adds & 1U) != 0;
    if (!adds) {  // rows without a place
      const auto weights = static_cast<size_t>(pass_.vocabulary * pass_.width);
      PP_CUDA(cudaMemsetAsync(dw, 0, weights * sizeof(float), shared_.stream));
    }
    const auto kernel = pass_.packed<T>(dy, dw) ? sum_all_runs<T, true> : sum_all_runs<T, false>;
    kernel<<<grid(pieces(pass_.units(), kBlock)), kBlock, 0, shared_.stream>>>(
        pass_, keys, dy, unscale, adds, partials, dw);
    PP_CUDA_LAUNCHED("the sums of an embedding's gradient");
    if (pass_.chunks == 1) return;
    finish_runs<<<grid((pass_.chunks - 1) * pass_.tiles), kBlock, 0, shared_.stream>>>(
        pass_, keys, partials, unscale, adds, dw);
    PP_CUDA_LAUNCHED("the gradient of an embedding");
  }
  void backward_data(const Run& /*run*/) override {}

 private:
  // Returns the sorted keys of the places, in scratch memory.
  const uint64_t* sort(const int32_t* ids) {
    auto* keys = static_cast<uint64_t*>(place_in_scratch(shared_, 0));
    auto* other = static_cast<uint64_t*>(place_in_scratch(shared_, keys_bytes_));
    sort_tiles<<<grid(pieces(pass_.places, EmbeddingPass::kTile)), kBlock, 0, shared_.stream>>>(
        ids, pass_.places, keys);
    PP_CUDA_LAUNCHED("the order of an embedding's places");
    for (int64_t piece = EmbeddingPass::kTile; piece < pass_.places; piece *= kWarp) {
      merge_pieces<<<grid(pieces(pass_.places * kWarp, kBlock)), kBlock, 0, shared_.stream>>>(
          keys, pass_.places, piece, other);
      PP_CUDA_LAUNCHED("the order of an embedding's places");
      std::swap(keys, other);
    }
    return keys;
  }

  Shared& shared_;
  EmbeddingPass pass_;
  size_t keys_bytes_;
};

}  // namespace

std::unique_ptr<Operation> make_embedding(Shared& shared, const Spec& spec) {
  return make_typed<CudaEmbedding, Operation>(shared, spec_as<EmbeddingSpec>(spec).shape());
}

// Adding learned positions: one pass over the activations in either direction.

namespace {

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    add_all_positions(const PositionsPass pass, const T* x, const float* w, T* y) {
  add_positions<T, kPacked>(pass, blockIdx.x, static_cast<int>(threadIdx.x), x, w, y);
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    sum_all_positions(const PositionsPass pass, const T* dy, float unscale, float* dw) {
  sum_positions<T, kPacked>(pass, int64_t{blockIdx.x} * kBlock + threadIdx.x, dy, unscale, dw);
}

template <class T>
class CudaAddPositions final : public Operation {
 public:
  CudaAddPositions(Shared& shared, const AddPositionsShape& shape)
      : shared_(shared), pass_(shape), count_(pass_.samples * pass_.sample) {}

  Needs needs() const override {
    return {.in_place = true, .gradient_in_place = true, .splits = true};
  }

  void forward(const Run& run) override {
    const auto* x = as<T>(run.x[0].data);
    auto* y = as<T>(run.y.data);
    const auto kernel =
        pass_.packed<T>(x, y, run.w[0]) ? add_all_positions<T, true> : add_all_positions<T, false>;
    kernel<<<grid(flat_blocks(count_)), kBlock, 0, shared_.stream>>>(pass_, x, run.w[0], y);
    PP_CUDA_LAUNCHED("the addition of positions");
  }

  void backward_weights(const Run& run) override {
    const auto* dy = as<T>(run.dy.data);
    const auto kernel = pass_.packed<T>(dy, dy, run.dw[0]) ? sum_all_positions<T, true>
                                                           : sum_all_positions<T, false>;
    const int64_t packs = pieces(pass_.weights, kPackSize<T>);
    kernel<<<grid(pieces(packs, kBlock)), kBlock, 0, shared_.stream>>>(
        pass_, dy, 1.0F / shared_.loss_scale, run.dw[0]);
    PP_CUDA_LAUNCHED("the gradient of positions");
  }

  void backward_data(const Run& run) override {
    const void* dy = run.dy.data;
    void* dx = run.dx[0].data;
    if (dx == nullptr || dx == dy) return;
    copy(shared_, dy, static_cast<size_t>(count_) * sizeof(T), dx);
  }

 private:
  Shared& shared_;
  PositionsPass pass_;
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_add_positions(Shared& shared, const Spec& spec) {
  return make_typed<CudaAddPositions, Operation>(shared, spec_as<AddPositionsSpec>(spec).shape());
}

// A slice of a dimension: one pass over the output, in either direction.

namespace {

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock) select_all(const SelectPass pass, const T* x, T* y) {
  select<T, kPacked>(pass, blockIdx.x, static_cast<int>(threadIdx.x), x, y);
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    select_gradients(const SelectPass pass, const T* dy, T* dx) {
  select_gradient<T, kPacked>(pass, blockIdx.x, static_cast<int>(threadIdx.x), dy, dx);
}

template <class T>
class CudaSelect final : public Operation {
 public:
  CudaSelect(Shared& shared, const SelectShape& shape) : shared_(shared), pass_(shape) {}

  Needs needs() const override { return {}; }

  void forward(const Run& run) override {
    const auto* x = as<T>(run.x[0].data);
    auto* y = as<T>(run.y.data);
    const auto kernel = pass_.packed<T>(x, y) ? select_all<T, true> : select_all<T, false>;
    kernel<<<blocks(1), kBlock, 0, shared_.stream>>>(pass_, x, y);
    PP_CUDA_LAUNCHED("a selection");
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    const auto* dy = as<T>(run.dy.data);
    auto* dx = as<T>(run.dx[0].data);
    const auto kernel =
        pass_.packed<T>(dy, dx) ? select_gradients<T, true> : select_gradients<T, false>;
    kernel<<<blocks(pass_.shape.size), kBlock, 0, shared_.stream>>>(pass_, dy, dx);
    PP_CUDA_LAUNCHED("the gradient of a selection");
  }

 private:
  unsigned blocks(int64_t slices) const {
    return grid(flat_blocks(pass_.shape.outer * slices * pass_.shape.inner));
  }

  Shared& shared_;
  SelectPass pass_;
};

}  // namespace

std::unique_ptr<Operation> make_select(Shared& shared, const Spec& spec) {
  return make_typed<CudaSelect, Operation>(shared, spec_as<SelectSpec>(spec).shape());
}

}  // namespace pushpull::ops::cuda
