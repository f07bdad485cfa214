// A product of row-major matrices through cuBLASLt: D = alpha op(A) op(B) + beta D, with bias and
// ReLU in the same pass if the library supports it. The algorithm is chosen once, at construction,
// among those that sum in a fixed order, so that equal inputs give equal bits (P1). Source: NVIDIA,
// cuBLAS documentation, "Using the cuBLASLt API" and "Results reproducibility". Used on the
// backend's thread.
#pragma once

#include <cublasLt.h>
#include <library_types.h>

#include <cstddef>
#include <string>

#include "common/device/cuda_check.h"
#include "models/ops/cuda/plans.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

// The activations' type, as CUDA libraries name it.
cudaDataType_t activation_type(Precision precision);
size_t bytes_of(cudaDataType_t type);

enum class Epilogue { kNone, kBias, kBiasRelu };

struct MatmulShape {
  Product product;
  cudaDataType_t in = CUDA_R_32F;       // A and B
  cudaDataType_t out = CUDA_R_32F;      // of D and bias; sums are always f32
  Epilogue epilogue = Epilogue::kNone;  // of a single product only
  Batch batch = {};
  bool aligned = false;  // all operands of all runs are 16-byte aligned
};

class Matmul {
 public:
  // Throws Error(kProtocol) if the job's choice does not fit, Error(kDevice) if the library has no
  // algorithm.
  Matmul(Shared& shared, const MatmulShape& shape);

  // Enqueues the product, or the batch. Operands need only be aligned to their elements, unless
  // MatmulShape::aligned; an operand that is not 16-byte aligned is copied through scratch memory, so
  // the algorithm and the bits stay the same.
  void run(const void* a, const void* b, void* d, float alpha = 1.0F, float beta = 0.0F);

  // Returns the epilogue's bias: n elements of type `out`. Write it before each run.
  void* bias() const { return bias_.data(); }

  // Returns the number of bytes that a run uses at the start of Shared::scratch.
  size_t scratch_bytes() const;

 private:
  static cublasStatus_t destroy(cublasLtMatmulDesc_t desc);
  static cublasStatus_t destroy(cublasLtMatrixLayout_t layout);
  using Description =
      device::UniqueHandle<cublasLtMatmulDesc_t,
                           static_cast<cublasStatus_t (*)(cublasLtMatmulDesc_t)>(&Matmul::destroy)>;
  using Layout = device::UniqueHandle<cublasLtMatrixLayout_t,
                                      static_cast<cublasStatus_t (*)(cublasLtMatrixLayout_t)>(
                                          &Matmul::destroy)>;

  void describe();
  void describe_batch(cublasLtMatrixLayout_t layout, int64_t distance) const;
  void set_epilogue(bool fused);
  void adopt(const std::string& key, const std::string& value);
  std::string pick(const std::string& key);
  bool pick(bool fused);
  cublasStatus_t multiply(const void* a, const void* b, void* d, float alpha, float beta,
                          const cublasLtMatmulAlgo_t& algorithm, void* workspace);

  Shared* shared_;
  MatmulShape shape_;
  size_t workspace_bytes_;  // limit for an algorithm's workspace
  Description description_;
  Layout first_, second_, result_;  // as in MatmulPlan
  Buffer bias_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool fused_ = false;  // the algorithm applies the epilogue; if false, our own kernel follows
};

}  // namespace pushpull::ops::cuda
