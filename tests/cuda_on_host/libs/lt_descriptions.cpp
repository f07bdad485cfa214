// Handles and descriptors of the stand-in for cuBLASLt. The sizes that they accept, and that they
// accept any value, were measured on cuBLASLt 13.1: wrong values are refused when an algorithm is
// requested.
#include "tests/cuda_on_host/libs/lt_descriptions.h"

#include <cstring>

struct cublasLtContext {
  int unused = 0;
};

namespace pushpull::cuda_on_host {

namespace {

// Returns 0 if there is no such attribute.
size_t bytes_of_description(int name) {
  switch (name) {
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
    case CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE:
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER:
      return 8;
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return 1;
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB:
    case CUBLASLT_MATMUL_DESC_TRANSC:
    case CUBLASLT_MATMUL_DESC_FILL_MODE:
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return 4;
    default:
      return 0;
  }
}

size_t bytes_of_preference(int name) {
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return 8;
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
    case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
      return 4;
    default:
      return 0;
  }
}

template <class Made, class Handle>
cublasStatus_t create(Handle* to, Made made) {
  if (to == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *to = reinterpret_cast<Handle>(new Made(std::move(made)));
  return CUBLAS_STATUS_SUCCESS;
}

// Accepts null, like the real one.
template <class Handle>
cublasStatus_t destroy(Handle handle) {
  delete of(handle);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t Attributes::set(int name, size_t expected_bytes, const void* from, size_t bytes) {
  if (from == nullptr || expected_bytes == 0 || bytes != expected_bytes) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  int64_t value = 0;
  if (bytes == sizeof(int32_t)) {
    int32_t narrow = 0;
    std::memcpy(&narrow, from, bytes);
    value = narrow;
  } else {
    std::memcpy(&value, from, bytes);
  }
  given_[name] = value;
  return CUBLAS_STATUS_SUCCESS;
}

int64_t Attributes::get(int name, int64_t otherwise) const {
  const auto found = given_.find(name);
  return found == given_.end() ? otherwise : found->second;
}

}  // namespace pushpull::cuda_on_host

using namespace pushpull::cuda_on_host;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the requested functionality is not supported";
    default:
      return "unrecognized status";
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  return create(layout, MatrixLayout{type, rows, columns, stride});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  const auto compute_value = static_cast<int32_t>(compute);
  const auto scale_value = static_cast<int32_t>(scale);
  Description made;
  made.attributes.set(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 4, &compute_value, 4);
  made.attributes.set(CUBLASLT_MATMUL_DESC_SCALE_TYPE, 4, &scale_value, 4);
  return create(desc, std::move(made));
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return destroy(desc); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name, const void* from,
                                              size_t bytes) {
  if (desc == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return of(desc)->attributes.set(name, bytes_of_description(name), from, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference, Preference{});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* from, size_t bytes) {
  if (preference == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return of(preference)->attributes.set(name, bytes_of_preference(name), from, bytes);
}
