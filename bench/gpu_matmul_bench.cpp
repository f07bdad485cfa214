// Matrix products of a layer on a GPU, alternating with a bare call of cuBLASLt in one run. Shows
// the cost of pushpull's plans, choices and staging, and whether algorithms with a fixed order of
// sums are slower than the library's first choice.
//   gpu_matmul_bench [SIZE [bf16|fp16|tf32|fp32 [DEVICE]]] [--rows]       4096 bf16 0
// Prints one JSON object per product: medians over rounds, and ours / bare. --rows: see
// bench/gpu_parts.h. Exit code 77 without a device: nothing was measured.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/gpu_parts.h"
#include "common/base/error.h"
#include "common/device/cuda_check.h"
#include "common/device/cuda_libraries.h"
#include "models/ops/cuda/matmul.h"
#include "models/ops/cuda/passes.h"

namespace pushpull::ops::cuda {
namespace {

constexpr int kRounds = 31;
constexpr int kRunsPerRound = 10;
constexpr size_t kWorkspace = size_t{32} << 20;

// Calls the library as its documentation shows it, with its first choice of algorithm.
class Bare {
 public:
  Bare(Shared& shared, const MatmulShape& shape) : shared_(shared) {
    const auto& lt = device::cublas_lt();
    const MatmulPlan plan = plan_matmul(shape.product);
    device::check(lt.cublasLtMatmulDescCreate(&description_,
                                              shared.precision == Precision::kTf32
                                                  ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                  : CUBLAS_COMPUTE_32F,
                                              CUDA_R_32F),
                  "cublasLtMatmulDescCreate");
    const int32_t first = plan.first.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t second = plan.second.transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    device::check(lt.cublasLtMatmulDescSetAttribute(description_, CUBLASLT_MATMUL_DESC_TRANSA,
                                                    &first, sizeof first),
                  "cublasLtMatmulDescSetAttribute");
    device::check(lt.cublasLtMatmulDescSetAttribute(description_, CUBLASLT_MATMUL_DESC_TRANSB,
                                                    &second, sizeof second),
                  "cublasLtMatmulDescSetAttribute");
    first_ = layout(plan.first, shape.in);
    second_ = layout(plan.second, shape.in);
    result_ = layout(plan.result, shape.out);
    cublasLtMatmulPreference_t preference = nullptr;
    device::check(lt.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const uint64_t bytes = kWorkspace;
    device::check(lt.cublasLtMatmulPreferenceSetAttribute(
                      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
                  "cublasLtMatmulPreferenceSetAttribute");
    int found = 0;
    device::check(
        lt.cublasLtMatmulAlgoGetHeuristic(shared.lt, description_, first_, second_, result_,
                                          result_, preference, 1, &best_, &found),
        "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0) throw Error(ErrorCode::kDevice, "[bench] cuBLASLt has no algorithm");
    workspace_ = shared.device->allocate(kWorkspace);
  }

  void run(const void* a, const void* b, void* d) {
    const float one = 1.0F;
    const float zero = 0.0F;
    device::check(device::cublas_lt().cublasLtMatmul(
                      shared_.lt, description_, &one, b, first_, a, second_, &zero, d, result_, d,
                      result_, &best_.algo, workspace_.data(), kWorkspace, shared_.stream),
                  "cublasLtMatmul");
  }

 private:
  static cublasLtMatrixLayout_t layout(const ColumnMajor& matrix, cudaDataType_t type) {
    cublasLtMatrixLayout_t made = nullptr;
    device::check(device::cublas_lt().cublasLtMatrixLayoutCreate(
                      &made, type, static_cast<uint64_t>(matrix.rows),
                      static_cast<uint64_t>(matrix.columns), matrix.stride),
                  "cublasLtMatrixLayoutCreate");
    return made;
  }

  // The descriptions are never freed: they live until the program ends.
  Shared& shared_;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr;
  cublasLtMatrixLayout_t second_ = nullptr;
  cublasLtMatrixLayout_t result_ = nullptr;
  cublasLtMatmulHeuristicResult_t best_{};
  device::Memory workspace_;
};

// Returns the milliseconds of one run, the mean over `kRunsPerRound` runs in a row.
template <class Run>
double time_round(const Shared& shared, const Run& run) {
  device::CudaEvent begin;
  device::CudaEvent end;
  PP_CUDA(cudaEventCreate(begin.put()));
  PP_CUDA(cudaEventCreate(end.put()));
  PP_CUDA(cudaEventRecord(begin.get(), shared.stream));
  for (int i = 0; i < kRunsPerRound; ++i) run();
  PP_CUDA(cudaEventRecord(end.get(), shared.stream));
  PP_CUDA(cudaEventSynchronize(end.get()));
  float ms = 0.0F;
  PP_CUDA(cudaEventElapsedTime(&ms, begin.get(), end.get()));
  return static_cast<double>(ms) / kRunsPerRound;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Returns activations in -1..1. Zeros would draw less power, and clocks would be higher than in
// training.
device::Memory numbers(Shared& shared, int64_t count, uint32_t seed) {
  std::vector<float> host(static_cast<size_t>(count));
  for (float& value : host) {
    seed = seed * 1664525U + 1013904223U;
    value = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31F;
  }
  const size_t bytes = host.size() * sizeof(float);
  const device::Memory floats = shared.device->allocate(bytes);
  PP_CUDA(cudaMemcpy(floats.data(), host.data(), bytes, cudaMemcpyHostToDevice));
  device::Memory made = shared.device->allocate(bytes);
  cast_weights(shared, floats.floats(), count, made.data());
  PP_CUDA(cudaStreamSynchronize(shared.stream));
  return made;
}

// The medians of a product's rounds.
struct Compared {
  double our_ms = 0.0;
  double bare_ms = 0.0;
  double work = 0.0;  // 1e9 operations
};

Compared compare(Shared& shared, const MatmulShape& shape) {
  const Product& p = shape.product;
  const device::Memory a = numbers(shared, p.a_elements(), 1);
  const device::Memory b = numbers(shared, p.b_elements(), 2);
  const device::Memory d =
      shared.device->allocate(static_cast<size_t>(p.d_elements()) * bytes_of(shape.out));
  Matmul ours(shared, shape);
  Bare bare(shared, shape);
  std::vector<double> our_ms;
  std::vector<double> bare_ms;
  for (int round = -2; round < kRounds; ++round) {  // two rounds of warm-up
    const double first = time_round(shared, [&] { ours.run(a.data(), b.data(), d.data()); });
    const double second = time_round(shared, [&] { bare.run(a.data(), b.data(), d.data()); });
    if (round < 0) continue;
    our_ms.push_back(first);
    bare_ms.push_back(second);
  }
  return {median(our_ms), median(bare_ms),
          2e-9 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k)};
}

void say(const std::string& name, const Compared& c) {
  std::printf(
      "{\"product\": \"%s\", \"ours_ms\": %.4f, \"bare_ms\": %.4f, \"ours_tflops\": %.1f, "
      "\"bare_tflops\": %.1f, \"ours_of_bare\": %.3f}\n",
      name.c_str(), c.our_ms, c.bare_ms, c.work / c.our_ms, c.work / c.bare_ms,
      c.our_ms / c.bare_ms);
}

void print_row(const std::string& name, const Compared& c) {
  print({.name = name + ", time over a bare call's",
         .value = c.work / c.our_ms,
         .unit = "Tflop/s",
         .floor = c.work / c.bare_ms,
         .ratio = c.our_ms / c.bare_ms,
         .bar = "<=1.05"});
}

Precision precision_of(const std::string& name) {
  if (name == "bf16") return Precision::kBf16;
  if (name == "fp16") return Precision::kFp16;
  if (name == "tf32") return Precision::kTf32;
  if (name == "fp32") return Precision::kFp32;
  throw Error(ErrorCode::kUsage, "[bench] expected bf16, fp16, tf32 or fp32, got '" + name + "'");
}

int64_t number_of(const char* text, int64_t smallest) {
  char* end = nullptr;
  const int64_t value = std::strtoll(text, &end, 10);
  if (*end != '\0' || value < smallest || value > 32768) {
    throw Error(ErrorCode::kUsage,
                std::string("[bench] expected a number up to 32768, got '") + text + "'");
  }
  return value;
}

void run(const std::vector<const char*>& arguments, bool rows) {
  const auto argument = [&](size_t i, const char* otherwise) {
    return i < arguments.size() ? arguments[i] : otherwise;
  };
  const int64_t size = number_of(argument(0, "4096"), 1);
  Shared shared;
  shared.precision = precision_of(argument(1, "bf16"));
  shared.index = static_cast<int>(number_of(argument(2, "0"), 0));
  shared.device = device::open({device::DeviceName::kCuda, shared.index});
  device::use_device(shared.index);
  const auto stream = shared.device->stream();
  shared.stream = device::native_stream(*stream);
  device::check(device::cublas_lt().cublasLtCreate(&shared.lt), "cublasLtCreate");
  const cudaDataType_t type = activation_type(shared.precision);
  const LayerProducts products = layer_products(size, size, size);
  const auto measure = [&](const char* what, const Product& product, cudaDataType_t out) {
    const Compared compared = compare(shared, {product, type, out, Epilogue::kNone});
    const std::string name =
        std::string("product ") + what + " " + product.name() + " " + argument(1, "bf16");
    rows ? print_row(name, compared) : say(name, compared);
  };
  measure("forward", products.forward, type);
  measure("weights", products.weights, CUDA_R_32F);
  measure("data", products.data, type);
  device::check(device::cublas_lt().cublasLtDestroy(shared.lt), "cublasLtDestroy");
}

}  // namespace
}  // namespace pushpull::ops::cuda

int main(int argc, char** argv) {
  const bool rows = pushpull::take_flag(argc, argv, "--rows");
  if (std::string why; pushpull::device::count(&why) == 0) {
    std::fprintf(stderr, "gpu_matmul_bench: not run: %s\n", why.c_str());
    return 77;
  }
  try {
    pushpull::ops::cuda::run({argv + 1, argv + argc}, rows);
  } catch (const pushpull::Error& error) {
    std::fprintf(stderr, "gpu_matmul_bench: %s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}
