// cuBLASLt, loaded when the first model needs it. Any thread.
#pragma once

#include <cublasLt.h>

#include <string>
#include <string_view>

#include "common/device/cuda_check.h"

namespace pushpull::device {

// The functions that the library exports; the *Init functions of its header are inline.
#define PUSHPULL_CUBLASLT(F)              \
  F(cublasLtCreate)                       \
  F(cublasLtDestroy)                      \
  F(cublasLtGetVersion)                   \
  F(cublasLtGetStatusString)              \
  F(cublasLtMatmul)                       \
  F(cublasLtMatmulAlgoCheck)              \
  F(cublasLtMatmulAlgoGetHeuristic)       \
  F(cublasLtMatmulDescCreate)             \
  F(cublasLtMatmulDescDestroy)            \
  F(cublasLtMatmulDescSetAttribute)       \
  F(cublasLtMatmulPreferenceCreate)       \
  F(cublasLtMatmulPreferenceDestroy)      \
  F(cublasLtMatmulPreferenceSetAttribute) \
  F(cublasLtMatrixLayoutCreate)           \
  F(cublasLtMatrixLayoutDestroy)

// Those that only batches of products need.
#define PUSHPULL_CUBLASLT_BATCHES(F) F(cublasLtMatrixLayoutSetAttribute)

struct CublasLt {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name is declared
#define PUSHPULL_MEMBER(name) decltype(&::name) name = nullptr;
  PUSHPULL_CUBLASLT(PUSHPULL_MEMBER)
};
struct CublasLtBatches {
  PUSHPULL_CUBLASLT_BATCHES(PUSHPULL_MEMBER)
#undef PUSHPULL_MEMBER
};

// Loads the library on first use. Throws Error(kDevice) that lists the files tried, or names the
// symbol that the library lacks.
const CublasLt& cublas_lt();
// The same for the functions of batches: a library without them computes single products.
const CublasLtBatches& cublas_lt_batches();
// Returns the path of the loaded library.
const std::string& cublas_lt_path();

inline void check(cublasStatus_t status, std::string_view call, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  cuda_failed("cublasLt", cublas_lt().cublasLtGetStatusString(status), call, file, line);
}

}  // namespace pushpull::device
