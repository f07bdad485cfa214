// Rows of a table. Backward sorts the places by their ids and sums each row of the gradient in
// rising order of its places: no thread adds to what another one writes.
#include "models/ops/cuda/launch.cuh"
#include "models/ops/cuda/sequence/embedding_pass.h"
#include "models/ops/cuda/sequence/makers.h"
#include "models/ops/cuda/staging.h"

namespace pushpull::ops::cuda {

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
    sort_places(const int32_t* ids, int64_t places, int32_t* order, PlaceRange* ranges) {
  const int64_t warp = (int64_t{blockIdx.x} * kBlock + threadIdx.x) / kWarp;
  const int64_t first = warp * EmbeddingPass::kPlaces;
  if (first >= places) return;  // true for whole warps
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  Rank ranks[EmbeddingPass::kPlaces];
  count_places(ids, places, first, lane, kWarp, ranks);
  PP_UNROLL
  for (int p = 0; p < EmbeddingPass::kPlaces; ++p) {
    const Rank rank{warp_sum(ranks[p].smaller), warp_sum(ranks[p].earlier),
                    warp_sum(ranks[p].equal)};
    if (lane == p && first + p < places) {
      put_place(first + p, ids[first + p], rank, order, ranges);
    }
  }
}

template <class T, bool kPacked>
__global__ void __launch_bounds__(kBlock)
    sum_all_places(const EmbeddingPass pass, const T* dy, const int32_t* order,
                   const PlaceRange* ranges, float unscale, bool adds, float* dw) {
  const int64_t unit = int64_t{blockIdx.x} * kBlock + threadIdx.x;
  sum_places<T, kPacked>(pass, unit, dy, order, ranges, unscale, adds, dw);
}

template <class T>
class CudaEmbedding final : public Operation {
 public:
  CudaEmbedding(Shared& shared, const EmbeddingShape& shape)
      : shared_(shared),
        pass_(shape, kPackSize<T>),
        ranges_bytes_(static_cast<size_t>(pass_.vocabulary) * sizeof(PlaceRange)) {
    shared.need_scratch(padded(ranges_bytes_) +
                        static_cast<size_t>(pass_.places) * sizeof(int32_t));
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
    auto* ranges = static_cast<PlaceRange*>(place_in_scratch(shared_, 0));
    auto* order = static_cast<int32_t*>(place_in_scratch(shared_, padded(ranges_bytes_)));
    PP_CUDA(cudaMemsetAsync(ranges, 0, ranges_bytes_, shared_.stream));
    const int64_t warps = pieces(pass_.places, EmbeddingPass::kPlaces);
    sort_places<<<grid(pieces(warps * kWarp, kBlock)), kBlock, 0, shared_.stream>>>(
        run.x[0].ints(), pass_.places, order, ranges);
    PP_CUDA_LAUNCHED("the order of an embedding's places");
    const auto* dy = as<T>(run.dy.data);
    float* dw = run.dw[0];
    const auto kernel =
        pass_.packed<T>(dy, dw) ? sum_all_places<T, true> : sum_all_places<T, false>;
    kernel<<<grid(pieces(pass_.units(), kBlock)), kBlock, 0, shared_.stream>>>(
        pass_, dy, order, ranges, 1.0F / shared_.loss_scale, (run.adds & 1U) != 0, dw);
    PP_CUDA_LAUNCHED("the gradient of an embedding");
  }
  void backward_data(const Run& /*run*/) override {}

 private:
  Shared& shared_;
  EmbeddingPass pass_;
  size_t ranges_bytes_;
};

}  // namespace

std::unique_ptr<Operation> make_embedding(Shared& shared, const Spec& spec) {
  return make_typed<CudaEmbedding, Operation>(shared, spec_as<EmbeddingSpec>(spec).shape());
}

}  // namespace pushpull::ops::cuda
