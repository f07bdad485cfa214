// A product of row-major matrices through cuBLASLt: D = alpha op(A) op(B) + beta D, with bias and
// ReLU in the same pass where the library can. Its algorithm is chosen when it is made and stays:
// one that sums in a fixed order, so that equal inputs give equal bits (P1). Source: NVIDIA, cuBLAS
// documentation, "Using the cuBLASLt API" and "Results reproducibility".
#pragma once

#include <cublasLt.h>
#include <library_types.h>

#include <cstddef>
#include <string>

#include "common/device/cuda/handle.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/plan/matmul_plan.h"

namespace pushpull::ops::cuda {

// Of activations, as libraries name it.
cudaDataType_t activation_type(Precision precision);
size_t bytes_of(cudaDataType_t type);

enum class Epilogue { kNone, kBias, kBiasRelu };

struct MatmulShape {
  Product product;
  cudaDataType_t in = CUDA_R_32F;   // A and B
  cudaDataType_t out = CUDA_R_32F;  // D and bias; what is summed is f32 always
  Epilogue epilogue = Epilogue::kNone;
};

class Matmul {
 public:
  // Throws Error(kProtocol) where the job's choice does not fit, Error(kDevice) where the library
  // has no algorithm.
  Matmul(Shared& shared, const MatmulShape& shape);

  // Enqueues it. Operands are aligned to their elements; what is not aligned to 16 bytes takes the
  // way over scratch memory, with the same algorithm and so the same bits.
  void run(const void* a, const void* b, void* d, float alpha = 1.0F, float beta = 0.0F);

  // Of an epilogue: n elements of `out`, written before each run.
  void* bias() const { return bias_.data(); }

  // From the beginning of Shared::scratch, in a run.
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
  void set_epilogue(bool fused);
  void adopt(const std::string& key, const std::string& value);
  std::string pick(const std::string& key);
  bool pick(bool fused);
  cublasStatus_t multiply(const void* a, const void* b, void* d, float alpha, float beta,
                          const cublasLtMatmulAlgo_t& algorithm, void* workspace);

  Shared* shared_;
  MatmulShape shape_;
  size_t workspace_bytes_;  // that an algorithm may ask for
  Description description_;
  Layout first_, second_, result_;  // as MatmulPlan
  Buffer bias_;
  cublasLtMatmulAlgo_t algorithm_{};
  bool fused_ = false;  // the epilogue is the algorithm's; else a kernel of ours follows
};

}  // namespace pushpull::ops::cuda
