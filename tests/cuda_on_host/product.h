// A matrix product with its memory, for calls of cuBLASLt's stand-in.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <vector>

#include "tests/cuda_on_host/bytes.h"
#include "tests/cuda_on_host/opened.h"

namespace pushpull::cuda_on_host {

inline cudaDataType_t library_type(Number type) {
  if (type == Number::kF32) return CUDA_R_32F;
  return type == Number::kBf16 ? CUDA_R_16BF : CUDA_R_16F;
}

// Column-major and packed; op(A) is [m, k], op(B) [k, n].
struct ProductCase {
  size_t m = 16;
  size_t n = 24;
  size_t k = 40;
  bool transpose_a = false;
  bool transpose_b = false;
  Number in = Number::kF32;
  Number out = Number::kF32;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  float alpha = 0.5F;
  float beta = 0.0F;
};

class Product {
 public:
  Product(const device::CublasLt& library, const ProductCase& asked)
      : lt(library),
        of(asked),
        a_values(some_values(of.m * of.k, 1)),
        b_values(some_values(of.k * of.n, 2)),
        d_values(some_values(of.m * of.n, 3)),
        bias_values(some_values(of.m, 4)),
        a(4 * a_values.size() + 256),
        b(4 * b_values.size() + 256),
        d(4 * d_values.size() + 256),
        bias(4 * bias_values.size() + 256) {
    write(a_values, of.in, a.at());
    write(b_values, of.in, b.at());
    write(d_values, of.out, d.at());
    write(bias_values, of.out, bias.at());
    EXPECT_EQ(lt.cublasLtCreate(&handle), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(lt.cublasLtMatmulDescCreate(&desc, of.compute, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSA, of.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set<int32_t>(CUBLASLT_MATMUL_DESC_TRANSB, of.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, of.epilogue);
    set<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.at());
    layout(a_layout, of.in, of.transpose_a ? of.k : of.m, of.transpose_a ? of.m : of.k);
    layout(b_layout, of.in, of.transpose_b ? of.n : of.k, of.transpose_b ? of.k : of.n);
    layout(d_layout, of.out, of.m, of.n);
    EXPECT_EQ(lt.cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    prefer<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    prefer<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                     CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    align(16);
  }
  ~Product() {
    forget_descriptions();
    lt.cublasLtDestroy(handle);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  void forget_descriptions() {
    lt.cublasLtMatmulPreferenceDestroy(preference);
    lt.cublasLtMatmulDescDestroy(desc);
    for (auto* const gone : {a_layout, b_layout, d_layout}) lt.cublasLtMatrixLayoutDestroy(gone);
    preference = nullptr;
    desc = nullptr;
    a_layout = b_layout = d_layout = nullptr;
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t name, T value) {
    EXPECT_EQ(lt.cublasLtMatmulDescSetAttribute(desc, name, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void prefer(cublasLtMatmulPreferenceAttributes_t name, T value) {
    EXPECT_EQ(lt.cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  void align(uint32_t bytes) {
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(name, bytes);
    }
  }
  void layout(cublasLtMatrixLayout_t& to, Number type, size_t rows, size_t columns) {
    lt.cublasLtMatrixLayoutDestroy(to);
    EXPECT_EQ(lt.cublasLtMatrixLayoutCreate(&to, library_type(type), rows, columns,
                                            static_cast<int64_t>(rows)),
              CUBLAS_STATUS_SUCCESS);
  }

  cublasStatus_t ask() {
    int count = 0;
    results.resize(8);
    const cublasStatus_t status =
        lt.cublasLtMatmulAlgoGetHeuristic(handle, desc, a_layout, b_layout, d_layout, d_layout,
                                          preference, 8, results.data(), &count);
    results.resize(static_cast<size_t>(count));
    return status;
  }

  // shift: bytes between the buffer's begin and A
  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm, size_t workspace_bytes = kWorkspace,
                     size_t shift = 0, size_t workspace_shift = 0) {
    return lt.cublasLtMatmul(handle, desc, &of.alpha, a.at(shift), a_layout, b.at(), b_layout,
                             &of.beta, d.at(), d_layout, d.at(), d_layout, &algorithm,
                             workspace.at(workspace_shift), workspace_bytes, nullptr);
  }

  // Returns the right value of element (i, j) of D.
  float expected(size_t i, size_t j) const {
    double sum = 0.0;
    for (size_t at = 0; at < of.k; ++at) {
      sum += a_values[of.transpose_a ? i * of.k + at : at * of.m + i] *
             b_values[of.transpose_b ? at * of.n + j : j * of.k + at];
    }
    double value = of.alpha * sum + of.beta * d_values[j * of.m + i];
    const bool relu =
        of.epilogue == CUBLASLT_EPILOGUE_RELU || of.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    if ((of.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) value += bias_values[i];
    if (relu && value < 0.0) value = 0.0;
    std::array<std::byte, 4> rounded{};
    store(static_cast<float>(value), rounded.data(), of.out, 0);
    return load(rounded.data(), of.out, 0);
  }
  float result(size_t i, size_t j) const { return load(d.at(), of.out, j * of.m + i); }

  static constexpr size_t kWorkspace = size_t{4} << 20;

  const device::CublasLt& lt;
  ProductCase of;
  std::vector<double> a_values, b_values, d_values, bias_values;
  Bytes a, b, d, bias;
  Bytes workspace{kWorkspace + 256};
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a_layout = nullptr;
  cublasLtMatrixLayout_t b_layout = nullptr;
  cublasLtMatrixLayout_t d_layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> results;
};

}  // namespace pushpull::cuda_on_host
