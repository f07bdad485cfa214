// The products and algorithms that the stand-in for cuBLASLt supports. Source: NVIDIA, cuBLAS
// documentation, "cublasLtMatmul()" (types and refusals), and the comments of cublasLt.h. Some
// algorithms exist to be refused: they need more workspace or stricter alignment than promised, or
// add in any order.
#include "tests/cuda_on_host/libs/lt_matmul.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "tests/cuda_on_host/libs/enqueue.h"
#include "tests/cuda_on_host/libs/lt_descriptions.h"

namespace pushpull::cuda_on_host {

namespace {

constexpr uint64_t kMark = 0x70757368'70756C6CU;  // first word of our algorithms
constexpr size_t kVector = 16;                    // bytes per load
constexpr size_t kWorkspaceAlignment = 256;

// Best first, like the result of a heuristic.
constexpr std::array<Algorithm, 6> kAlgorithms{{
    {11, 8, false, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, kVector, size_t{64} << 20},
    {12, 1, true, CUBLASLT_REDUCTION_SCHEME_NONE, 256, 0},
    {13, 4, false, CUBLASLT_REDUCTION_SCHEME_INPLACE, kVector, 0},
    {14, 4, false, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, kVector, 1},
    {15, 1, false, CUBLASLT_REDUCTION_SCHEME_NONE, kVector, 0},
    {16, 2, true, CUBLASLT_REDUCTION_SCHEME_NONE, 1, 0},
}};

std::optional<Number> number(cudaDataType_t type) {
  if (type == CUDA_R_32F) return Number::kF32;
  if (type == CUDA_R_16BF) return Number::kBf16;
  if (type == CUDA_R_16F) return Number::kF16;
  return {};
}

// Reports cases that are not modelled: a caller would take the status for the library's refusal.
cublasStatus_t not_modelled(const char* what, int64_t value) {
  std::fprintf(stderr, "[cuda_on_host] cuBLASLt's stand-in does not model %s %lld\n", what,
               static_cast<long long>(value));
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t read(const MatrixLayout& from, Matrix& to) {
  const std::optional<Number> type = number(from.type);
  if (!type) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool possible = from.rows > 0 && from.columns > 0 && from.stride > 0 &&
                        static_cast<uint64_t>(from.stride) >= from.rows;
  if (!possible) return CUBLAS_STATUS_INVALID_VALUE;
  to = {*type, from.rows, from.columns, static_cast<size_t>(from.stride)};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t read_transpose(int64_t operation, bool& to) {
  if (operation != CUBLAS_OP_N && operation != CUBLAS_OP_T && operation != CUBLAS_OP_C) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  to = operation != CUBLAS_OP_N;
  return CUBLAS_STATUS_SUCCESS;
}

// The rows of cublasLtMatmul()'s table of data types that compute in f32.
cublasStatus_t read_types(const Attributes& attributes, Problem& p) {
  if (attributes.get(CUBLASLT_MATMUL_DESC_SCALE_TYPE, 0) != CUDA_R_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const bool all_f32 = p.a.type == Number::kF32 && p.d.type == Number::kF32;
  if (p.a.type != p.b.type || p.c.type != p.d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  switch (attributes.get(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, 0)) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC: {
      const bool known = p.d.type == p.a.type || p.d.type == Number::kF32;
      return known ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    }
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      p.rounding = Rounding::kTf32;
      break;
    case CUBLAS_COMPUTE_32F_FAST_16F:
      p.rounding = Rounding::kF16;
      break;
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      p.rounding = Rounding::kBf16;
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return all_f32 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t read_epilogue(const Attributes& attributes, cudaDataType_t d_type, Problem& p) {
  const int64_t epilogue = attributes.get(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  p.relu = epilogue == CUBLASLT_EPILOGUE_RELU || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
  p.bias = epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
  if (!p.relu && !p.bias && epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    return not_modelled("epilogue", epilogue);
  }
  p.bias_at = reinterpret_cast<const void*>(attributes.get(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 0));
  const int64_t type = attributes.get(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, -1);
  return !p.bias || type == -1 || type == d_type ? CUBLAS_STATUS_SUCCESS
                                                 : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t refuse_others(const Attributes& attributes) {
  for (const auto& [name, value] : attributes.given()) {
    switch (name) {
      case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      case CUBLASLT_MATMUL_DESC_TRANSA:
      case CUBLASLT_MATMUL_DESC_TRANSB:
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        break;
      case CUBLASLT_MATMUL_DESC_FILL_MODE:
        if (value != CUBLAS_FILL_MODE_FULL) return not_modelled("fill mode", value);
        break;
      default:  // the others' default is 0, or their first enumerator, which is 0
        if (value != 0) return not_modelled("attribute", name);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

struct Asked {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, c, d;
};

#define RETURN_IF_REFUSED(call) \
  if (const cublasStatus_t status = (call); status != CUBLAS_STATUS_SUCCESS) return status

cublasStatus_t read(const Asked& asked, Problem& p) {
  if (asked.handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool there = asked.desc != nullptr && asked.a != nullptr && asked.b != nullptr &&
                     asked.c != nullptr && asked.d != nullptr;
  if (!there) return CUBLAS_STATUS_INVALID_VALUE;
  const Attributes& attributes = of(asked.desc)->attributes;
  RETURN_IF_REFUSED(read(*of(asked.a), p.a));
  RETURN_IF_REFUSED(read(*of(asked.b), p.b));
  RETURN_IF_REFUSED(read(*of(asked.c), p.c));
  RETURN_IF_REFUSED(read(*of(asked.d), p.d));
  RETURN_IF_REFUSED(
      read_transpose(attributes.get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N), p.transpose_a));
  RETURN_IF_REFUSED(
      read_transpose(attributes.get(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N), p.transpose_b));
  p.m = p.transpose_a ? p.a.columns : p.a.rows;
  p.k = p.transpose_a ? p.a.rows : p.a.columns;
  p.n = p.transpose_b ? p.b.rows : p.b.columns;
  const size_t k_of_b = p.transpose_b ? p.b.columns : p.b.rows;
  const bool agree = k_of_b == p.k && p.c.rows == p.m && p.c.columns == p.n && p.d.rows == p.m &&
                     p.d.columns == p.n;
  if (!agree) return CUBLAS_STATUS_INVALID_VALUE;
  RETURN_IF_REFUSED(read_types(attributes, p));
  RETURN_IF_REFUSED(read_epilogue(attributes, of(asked.d)->type, p));
  return refuse_others(attributes);
}

// An algorithm belongs to one combination of types and operations.
uint64_t signature(const Problem& p) {
  uint64_t text = static_cast<uint64_t>(p.a.type);
  for (const uint64_t part :
       {static_cast<uint64_t>(p.d.type), static_cast<uint64_t>(p.rounding), uint64_t{p.transpose_a},
        uint64_t{p.transpose_b}, uint64_t{p.bias}, uint64_t{p.relu}}) {
    text = text * 8 + part;
  }
  return text;
}

cublasLtMatmulAlgo_t write(const Algorithm& algorithm, const Problem& p) {
  cublasLtMatmulAlgo_t to{};
  to.data[0] = kMark;
  to.data[1] = algorithm.id;
  to.data[2] = signature(p);
  return to;
}

// Returns null if it is not one of our algorithms for this problem.
const Algorithm* parse(const cublasLtMatmulAlgo_t& from, const Problem& p) {
  if (from.data[0] != kMark || from.data[2] != signature(p)) return nullptr;
  const auto* const found =
      std::find_if(kAlgorithms.begin(), kAlgorithms.end(),
                   [&](const Algorithm& algorithm) { return algorithm.id == from.data[1]; });
  return found == kAlgorithms.end() ? nullptr : found;
}

void write(const Algorithm& algorithm, const Problem& p, cublasLtMatmulHeuristicResult_t& to) {
  to.workspaceSize = algorithm.workspace(p);
  to.state = CUBLAS_STATUS_SUCCESS;
  to.wavesCount = 1.0F;
}

bool allows(const Attributes& preference, const Algorithm& algorithm, const Problem& p) {
  const auto value = [&](cublasLtMatmulPreferenceAttributes_t name, int64_t otherwise) {
    return static_cast<uint64_t>(preference.get(name, otherwise));
  };
  if (algorithm.workspace(p) > value(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0)) return false;
  const uint64_t reductions =
      value(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_MASK);
  if ((algorithm.reduction & ~reductions) != 0) return false;
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    if (value(name, 256) < algorithm.alignment) return false;
  }
  return true;
}

// Returns the first algorithm that fits the call; the documentation calls it an implicit query with
// the default preferences.
const Algorithm* implied(const Problem& p, size_t workspace_bytes) {
  const auto* const found =
      std::find_if(kAlgorithms.begin(), kAlgorithms.end(), [&](const Algorithm& algorithm) {
        return algorithm.fits(p) && algorithm.workspace(p) <= workspace_bytes;
      });
  return found == kAlgorithms.end() ? nullptr : found;
}

// Whether the pointers have the alignment of the kernel's loads and stores.
bool pointers_fit(const Problem& p, const Algorithm& algorithm, const Operands& at) {
  const auto fits = [&](const void* pointer, Number type) {
    return is_aligned(pointer, std::max(algorithm.alignment, bytes_of(type)));
  };
  return fits(at.a, p.a.type) && fits(at.b, p.b.type) && fits(at.d, p.d.type) &&
         (at.beta == 0.0F || fits(at.c, p.c.type));
}

}  // namespace

size_t Algorithm::workspace(const Problem& p) const {
  if (min_workspace == 0) return 0;
  return std::max(min_workspace, slices * p.m * p.n * sizeof(float));
}

bool Algorithm::fits(const Problem& p) const {
  if (p.bias && !is_aligned(p.bias_at, bytes_of(p.d.type))) return false;
  if (alignment == 1) return true;
  return p.a.columns_are_aligned(kVector) && p.b.columns_are_aligned(kVector) &&
         p.c.columns_are_aligned(kVector) && p.d.columns_are_aligned(kVector) &&
         (!p.bias || is_aligned(p.bias_at, kVector));
}

}  // namespace pushpull::cuda_on_host

using namespace pushpull::cuda_on_host;

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int room,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  Problem p;
  if (count != nullptr) *count = 0;
  RETURN_IF_REFUSED(read({handle, desc, a, b, c, d}, p));
  if (preference == nullptr || results == nullptr || count == nullptr || room <= 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const Algorithm& algorithm : kAlgorithms) {
    if (*count == room) break;
    if (!algorithm.fits(p) || !allows(of(preference)->attributes, algorithm, p)) continue;
    results[*count] = {};
    results[*count].algo = write(algorithm, p);
    write(algorithm, p, results[(*count)++]);
  }
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  Problem p;
  RETURN_IF_REFUSED(read({handle, desc, a, b, c, d}, p));
  if (algo == nullptr || result == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const Algorithm* const algorithm = parse(*algo, p);
  if (algorithm == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (!algorithm->fits(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
  write(*algorithm, p, *result);  // keeps its algo
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  Problem p;
  RETURN_IF_REFUSED(read({handle, desc, a_layout, b_layout, c_layout, d_layout}, p));
  const bool there = alpha != nullptr && beta != nullptr && a != nullptr && b != nullptr &&
                     d != nullptr && (!p.bias || p.bias_at != nullptr);
  if (!there) return CUBLAS_STATUS_INVALID_VALUE;
  const Operands at{
      a, b, c, d, workspace, *static_cast<const float*>(alpha), *static_cast<const float*>(beta)};
  if (at.beta != 0.0F && c == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  // in place: both need the same layout
  if (c == d && p.c.stride != p.d.stride) return CUBLAS_STATUS_INVALID_VALUE;
  const Algorithm* const algorithm =
      algo == nullptr ? implied(p, workspace_bytes) : parse(*algo, p);
  if (algorithm == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const size_t needed = algorithm->workspace(p);
  if (needed > workspace_bytes || (needed > 0 && workspace == nullptr) ||
      !is_aligned(workspace, kWorkspaceAlignment)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!algorithm->fits(p) || !pointers_fit(p, *algorithm, at)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool taken = enqueue(stream, [p, algorithm, at] { multiply(p, *algorithm, at); });
  return taken ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
