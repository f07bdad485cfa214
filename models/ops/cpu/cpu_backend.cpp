// The CPU backend: oneDNN on OpenMP threads.
#include <omp.h>

#include <cstring>
#include <string>

#include "common/base/error.h"
#include "models/ops/cpu/numerics.h"
#include "models/ops/cpu/operations.h"

namespace pushpull::ops {

namespace {

// Turns oneDNN's failures while planning into Error.
template <class Make>
auto planned(const char* what, Make make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    throw Error(ErrorCode::kFailed, std::string("[models] oneDNN cannot plan a ") + what + ": " +
                                        error.what() + "; lower micro-batch or the model's sizes");
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(int threads, Precision precision) : threads_(threads), precision_(precision) {
    shared_.threads = threads;
    if (precision == Precision::kBf16) shared_.activation = cpu::Type::bf16;
  }

  Buffer allocate(size_t floats) override { return cpu::allocate(floats); }

  size_t image_floats(const ImageShape& shape, Layout layout) const override {
    const auto tag = layout == Layout::kPlain ? cpu::Tag::nchw : cpu::native_tag();
    return cpu::floats_of(cpu::describe(cpu::dims_of(shape), tag, shared_.activation));
  }
  size_t activation_bytes() const override {
    return dnnl::memory::data_type_size(shared_.activation);
  }

  void write(const void* host, size_t bytes, void* to) override { std::memcpy(to, host, bytes); }
  void read(const void* from, size_t bytes, void* host) override { std::memcpy(host, from, bytes); }

  std::string numerics() const override { return numerics_fingerprint(precision_); }

  std::unique_ptr<Operation> plan(const Spec& spec) override {
    for (const auto& [name, maker] : cpu::kMakers) {
      if (name != spec.name()) continue;
      const Scope scope(*this);
      return planned(spec.name(), [&, make = maker] { return make(shared_, spec); });
    }
    return this->Backend::plan(spec);
  }

 private:
  // oneDNN splits work, and with it the order of sums, by the number of threads. The job sets that
  // number, regardless of OMP_NUM_THREADS and OMP_DYNAMIC.
  int enter() override {
    const int saved = omp_get_max_threads();
    omp_set_dynamic(0);
    omp_set_num_threads(threads_);
    return saved;
  }
  void leave(int saved) override { omp_set_num_threads(saved); }

  int threads_;
  Precision precision_;
  cpu::Shared shared_;
};

// Throws Error(kUsage) if this processor does not compute in that precision.
void refuse_precision(Precision precision) {
  if (precision == Precision::kFp32) return;
  const std::string key = std::string("[models] precision = ") + to_string(precision);
  if (precision != Precision::kBf16) {
    throw Error(ErrorCode::kUsage, key +
                                       " needs a GPU: start workers with --device cuda, or set "
                                       "precision = fp32 or bf16");
  }
  if (cpu_has_bf16()) return;
  throw Error(ErrorCode::kUsage, key +
                                     " needs AVX512_BF16 or AMX-BF16, and this processor has "
                                     "neither (oneDNN uses " +
                                     instruction_set() +
                                     "): start workers on other processors or with --device "
                                     "cuda, or set precision = fp32");
}

}  // namespace

bool cpu_has_bf16() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto bf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & bf16) == bf16;
}

std::unique_ptr<Backend> make_cpu_backend(int threads, Precision precision) {
  PP_ASSERT(threads > 0);
  refuse_precision(precision);
  if (threads > omp_get_thread_limit()) {
    throw Error(ErrorCode::kUsage,
                "[models] threads = " + std::to_string(threads) + ", but OMP_THREAD_LIMIT allows " +
                    std::to_string(omp_get_thread_limit()) + "; raise it or lower threads");
  }
  return std::make_unique<CpuBackend>(threads, precision);
}

}  // namespace pushpull::ops
