#include "models/ops/cuda/matmul.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/device/cuda_libraries.h"
#include "models/ops/cuda/passes.h"
#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

namespace {

constexpr int kCandidates = 8;

// Returns the workspace that NVIDIA recommends: 32 MiB from sm_90 on, 4 MiB before. It is part of
// the choice, because it determines which algorithms are available.
size_t workspace_of(int device) {
  int major = 0;
  PP_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return size_t{major >= 9 ? 32U : 4U} << 20;
}

cublasComputeType_t compute_type(Precision precision) {
  return precision == Precision::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

const char* name_of(cudaDataType_t type) {
  if (type == CUDA_R_16BF) return "bf16";
  return type == CUDA_R_16F ? "fp16" : "fp32";
}

// "matmul/512x4096x784nt/bf16-fp32/bias-relu": everything that the available algorithms depend on.
std::string key_of(const MatmulShape& shape, Precision precision) {
  const char* epilogue = shape.epilogue == Epilogue::kNone   ? ""
                         : shape.epilogue == Epilogue::kBias ? "/bias"
                                                             : "/bias-relu";
  const char* in = precision == Precision::kTf32 ? "tf32" : name_of(shape.in);
  return "matmul/" + shape.product.name() + shape.batch.name() + "/" + in + "-" +
         name_of(shape.out) + epilogue;
}

std::string hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::array<unsigned char, sizeof algorithm> bytes;
  std::memcpy(bytes.data(), &algorithm, sizeof algorithm);
  static const char* digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

bool parse_hex(const std::string& text, cublasLtMatmulAlgo_t& algorithm) {
  std::array<unsigned char, sizeof algorithm> bytes{};
  if (text.size() != 2 * bytes.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = std::string("0123456789abcdef").find(text[i]);
    if (digit == std::string::npos) return false;
    bytes[i / 2] = static_cast<unsigned char>(bytes[i / 2] << 4 | digit);
  }
  std::memcpy(&algorithm, bytes.data(), bytes.size());
  return true;
}

// Sizes of the three operands, with all products of a batch, in bytes.
struct Operands {
  size_t a = 0;
  size_t b = 0;
  size_t d = 0;
};

Operands operands(const MatmulShape& shape) {
  const auto bytes = [&](int64_t elements, int64_t distance, cudaDataType_t type) {
    return static_cast<size_t>(shape.batch.spanned(elements, distance)) * bytes_of(type);
  };
  return {bytes(shape.product.a_elements(), shape.batch.a, shape.in),
          bytes(shape.product.b_elements(), shape.batch.b, shape.in),
          bytes(shape.product.d_elements(), shape.batch.d, shape.out)};
}

// Offsets of the three operands after the workspace, and the total size.
struct Places {
  size_t a = 0;
  size_t b = 0;
  size_t d = 0;
  size_t end = 0;
};

Places places(const MatmulShape& shape, size_t workspace) {
  const Operands bytes = operands(shape);
  Places p;
  p.a = workspace;
  p.b = p.a + padded(bytes.a);
  p.d = p.b + padded(bytes.b);
  p.end = p.d + padded(bytes.d);
  return p;
}

}  // namespace

cudaDataType_t activation_type(Precision precision) {
  if (precision == Precision::kBf16) return CUDA_R_16BF;
  return precision == Precision::kFp16 ? CUDA_R_16F : CUDA_R_32F;
}

size_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

cublasStatus_t Matmul::destroy(cublasLtMatmulDesc_t desc) {
  return device::cublas_lt().cublasLtMatmulDescDestroy(desc);
}

cublasStatus_t Matmul::destroy(cublasLtMatrixLayout_t layout) {
  return device::cublas_lt().cublasLtMatrixLayoutDestroy(layout);
}

Matmul::Matmul(Shared& shared, const MatmulShape& shape)
    : shared_(&shared), shape_(shape), workspace_bytes_(workspace_of(shared.index)) {
  const std::string key = key_of(shape, shared.precision);
  if (shape.epilogue != Epilogue::kNone) {
    bias_ = shared.buffer(static_cast<size_t>(shape.product.n));
  }
  describe();
  if (const std::string* value = chosen(shared, key)) {
    adopt(key, *value);
    shared.made.set(key, std::string(*value));
  } else {
    shared.made.set(key, pick(key));
  }
  shared.need_scratch(scratch_bytes());
}

size_t Matmul::scratch_bytes() const {
  return shape_.aligned ? workspace_bytes_ : places(shape_, workspace_bytes_).end;
}

void Matmul::describe() {
  const auto& lt = device::cublas_lt();
  const MatmulPlan plan = plan_matmul(shape_.product);
  const auto layout = [&lt](const ColumnMajor& matrix, cudaDataType_t type, Layout& to) {
    device::check(
        lt.cublasLtMatrixLayoutCreate(to.put(), type, static_cast<uint64_t>(matrix.rows),
                                      static_cast<uint64_t>(matrix.columns), matrix.stride),
        "cublasLtMatrixLayoutCreate");
  };
  layout(plan.first, shape_.in, first_);
  layout(plan.second, shape_.in, second_);
  layout(plan.result, shape_.out, result_);
  if (shape_.batch.count > 1) {
    describe_batch(first_.get(), shape_.batch.b);
    describe_batch(second_.get(), shape_.batch.a);
    describe_batch(result_.get(), shape_.batch.d);
  }
  device::check(
      lt.cublasLtMatmulDescCreate(description_.put(), compute_type(shared_->precision), CUDA_R_32F),
      "cublasLtMatmulDescCreate");
  const auto transpose = [&](cublasLtMatmulDescAttributes_t name, bool on) {
    const int32_t value = on ? CUBLAS_OP_T : CUBLAS_OP_N;
    device::check(lt.cublasLtMatmulDescSetAttribute(description_.get(), name, &value, sizeof value),
                  "cublasLtMatmulDescSetAttribute(TRANS)");
  };
  transpose(CUBLASLT_MATMUL_DESC_TRANSA, plan.first.transpose);
  transpose(CUBLASLT_MATMUL_DESC_TRANSB, plan.second.transpose);
}

void Matmul::describe_batch(cublasLtMatrixLayout_t layout, int64_t distance) const {
  PP_ASSERT(shape_.epilogue == Epilogue::kNone);
  const auto set = [layout](cublasLtMatrixLayoutAttribute_t name, auto value) {
    device::check(device::cublas_lt_batches().cublasLtMatrixLayoutSetAttribute(layout, name, &value,
                                                                               sizeof value),
                  "cublasLtMatrixLayoutSetAttribute");
  };
  set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(shape_.batch.count));
  set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, distance);
}

// Called before algorithms are queried: they depend on the epilogue and on the bias's alignment.
void Matmul::set_epilogue(bool fused) {
  fused_ = fused;
  uint32_t value = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  if (fused) {
    // a row of D in column-major order is a column in row-major order: one bias value per row
    value =
        shape_.epilogue == Epilogue::kBias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU_BIAS;
    bias = bias_.data();
  }
  const auto& lt = device::cublas_lt();
  device::check(lt.cublasLtMatmulDescSetAttribute(description_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                  &value, sizeof value),
                "cublasLtMatmulDescSetAttribute(EPILOGUE)");
  device::check(lt.cublasLtMatmulDescSetAttribute(
                    description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
                "cublasLtMatmulDescSetAttribute(BIAS_POINTER)");
}

// value: "fused HEX" or "apart HEX".
void Matmul::adopt(const std::string& key, const std::string& value) {
  const size_t blank = value.find(' ');
  const std::string word = value.substr(0, blank);
  const bool fused = word == "fused";
  if ((!fused && word != "apart") || (fused && shape_.epilogue == Epilogue::kNone) ||
      !parse_hex(blank == std::string::npos ? "" : value.substr(blank + 1), algorithm_)) {
    refuse_choice(*shared_, key, value, "does not name an algorithm of a product");
  }
  set_epilogue(fused);
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = device::cublas_lt().cublasLtMatmulAlgoCheck(
      shared_->lt, description_.get(), first_.get(), second_.get(), result_.get(), result_.get(),
      &algorithm_, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.state != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > workspace_bytes_) {
    refuse_choice(*shared_, key, value, "is refused by cuBLASLt");
  }
}

std::string Matmul::pick(const std::string& key) {
  const bool found = (shape_.epilogue != Epilogue::kNone && pick(true)) || pick(false);
  if (!found) {
    throw Error(ErrorCode::kDevice,
                "[cuda] cuBLASLt has no algorithm with a fixed order of sums for " + key + " on " +
                    shared_->device->name() + "; use precision = fp32, or sizes in multiples of 8");
  }
  return (fused_ ? "fused " : "apart ") + hex(algorithm_);
}

bool Matmul::pick(bool fused) {
  const auto& lt = device::cublas_lt();
  set_epilogue(fused);
  cublasLtMatmulPreference_t made = nullptr;
  device::check(lt.cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate");
  const auto destroy_preference = [&lt](cublasLtMatmulPreference_t p) {
    const cublasStatus_t status = lt.cublasLtMatmulPreferenceDestroy(p);
    if (status != CUBLAS_STATUS_SUCCESS) device::log_failed_end("a preference", status, nullptr);
  };
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, decltype(destroy_preference)> preference(
      made, destroy_preference);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
    device::check(lt.cublasLtMatmulPreferenceSetAttribute(made, name, &value, sizeof value),
                  "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{workspace_bytes_});
  // if a sum is split, partial sums are f32 and a separate step adds them in a fixed order
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(name, uint32_t{kAlignment});
  }
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
  int count = 0;
  const cublasStatus_t status = lt.cublasLtMatmulAlgoGetHeuristic(
      shared_->lt, description_.get(), first_.get(), second_.get(), result_.get(), result_.get(),
      made, kCandidates, results.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
  device::check(status, "cublasLtMatmulAlgoGetHeuristic");

  const Places at = places(shape_, workspace_bytes_);
  const device::Memory memory = shared_->device->allocate(at.end);
  auto* const bytes = static_cast<std::byte*>(memory.data());
  const int best = choose(*shared_, count, [&](int i) {
    const auto& result = results[static_cast<size_t>(i)];
    return result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes_ &&
           multiply(bytes + at.a, bytes + at.b, bytes + at.d, 1.0F, 0.0F, result.algo, bytes) ==
               CUBLAS_STATUS_SUCCESS;
  });
  PP_CUDA(cudaStreamSynchronize(shared_->stream));  // before the operands are freed
  if (best >= 0) algorithm_ = results[static_cast<size_t>(best)].algo;
  return best >= 0;
}

cublasStatus_t Matmul::multiply(const void* a, const void* b, void* d, float alpha, float beta,
                                const cublasLtMatmulAlgo_t& algorithm, void* workspace) {
  return device::cublas_lt().cublasLtMatmul(
      shared_->lt, description_.get(), &alpha, b, first_.get(), a, second_.get(), &beta, d,
      result_.get(), d, result_.get(), &algorithm, workspace, workspace_bytes_, shared_->stream);
}

void Matmul::run(const void* a, const void* b, void* d, float alpha, float beta) {
  const Product& p = shape_.product;
  PP_ASSERT(!shape_.aligned || (is_aligned(a) && is_aligned(b) && is_aligned(d)));
  const Places at = places(shape_, workspace_bytes_);
  const Operands bytes = operands(shape_);
  const void* const first = stage_in(*shared_, a, bytes.a, at.a);
  const void* const second = stage_in(*shared_, b, bytes.b, at.b);
  void* const to = is_aligned(d) ? d : place_in_scratch(*shared_, at.d);
  if (to != d && beta != 0.0F) copy(*shared_, d, bytes.d, to);
  device::check(multiply(first, second, to, alpha, beta, algorithm_, place_in_scratch(*shared_, 0)),
                "cublasLtMatmul");
  if (shape_.epilogue != Epilogue::kNone && !fused_) {
    add_row(*shared_, {p.m, p.n}, bias_.data(), shape_.epilogue == Epilogue::kBiasRelu, to);
  }
  if (to != d) copy(*shared_, to, bytes.d, d);
}

}  // namespace pushpull::ops::cuda
