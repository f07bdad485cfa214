// Replaces CUDA's language in .cu files that are compiled for the host (translate.py); the compiler
// includes it first. The kernels' own text does the computing; only the conversions that they ask
// the hardware for are the toolkit's host versions.
#pragma once

// before the macros below, so that these headers see a host compiler
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_on_host/block.h"

#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#undef __host__
#undef __device__
#undef __global__
#undef __launch_bounds__
#define __host__
#define __device__
#define __global__
#define __launch_bounds__(...)

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace cuda_on_host {

// Checks a launch and puts it into the stream's order.
void enqueue(Launch launch, cudaStream_t stream);

// Copies the arguments now and passes them to every thread when the launch runs.
template <class Kernel, class... Arguments>
void launch(Place place, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            const Kernel& kernel, const Arguments&... arguments) {
  static_assert((std::is_trivially_copyable_v<Arguments> && ...));
  enqueue(
      {place, grid, block, shared_bytes,
       [kernel, copies = std::tuple<Arguments...>(arguments...)] { std::apply(kernel, copies); }},
      stream);
}

template <class T, size_t kAlign>
T& block_memory(const char* function, int line) {
  return *static_cast<T*>(shared_variable(function, line, sizeof(T), kAlign));
}
template <class T>
T* launch_memory() {
  return static_cast<T*>(shared_of_launch(alignof(T)));
}

inline void ptx_cvt_f32_f16(float& to, uint16_t from) {
  to = __half2float(__half(__half_raw{from}));
}
inline void ptx_cvt_rn_f16_f32(uint16_t& to, float from) {
  to = static_cast<__half_raw>(__float2half_rn(from)).x;
}
inline void ptx_cvt_rn_bf16_f32(uint16_t& to, float from) {
  to = static_cast<__nv_bfloat16_raw>(__float2bfloat16_rn(from)).x;
}

}  // namespace cuda_on_host

// NOLINTBEGIN: CUDA's names
inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  cuda_on_host::barrier({file, line}, false);
}
inline int __syncthreads_or(int predicate, const char* file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
  return static_cast<int>(cuda_on_host::barrier({file, line}, predicate != 0));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int reach, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  static_assert(std::is_arithmetic_v<T>);
  cuda_on_host::exchange({file, line}, mask, static_cast<uint32_t>(reach), &value, sizeof(T));
  return value;
}
// one thread runs at a time
inline int atomicOr(int* address, int value) { return std::exchange(*address, *address | value); }
inline unsigned __float_as_uint(float value) {
  unsigned bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* kernel) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
// NOLINTEND
