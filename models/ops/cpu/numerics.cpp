#include "models/ops/cpu/numerics.h"

#include <cpuid.h>
#include <gnu/libc-version.h>

#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

namespace pushpull {

namespace {

std::string isa_name(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_mic:
      return "avx512_mic";
    case dnnl::cpu_isa::avx512_mic_4ops:
      return "avx512_mic_4ops";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "isa" + std::to_string(static_cast<int>(isa));
  }
}

// oneDNN chooses its blocks, and with them the order of sums, by the cache sizes in CPUID leaf 4;
// if the leaf is empty (AMD) it uses fixed sizes. Returns "" or " cache 48K/2048K/30720K".
std::string caches() {
  constexpr unsigned kCacheLeaf = 4;
  std::string text;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  for (unsigned i = 0; __get_cpuid_count(kCacheLeaf, i, &a, &b, &c, &d) != 0; ++i) {
    const unsigned type = a & 0x1FU;
    if (type == 0) break;
    if (type == 2) continue;  // instruction cache
    const uint64_t ways = (b >> 22U) + 1;
    const uint64_t partitions = ((b >> 12U) & 0x3FFU) + 1;
    const uint64_t line = (b & 0xFFFU) + 1;
    const uint64_t sets = static_cast<uint64_t>(c) + 1;
    text += (text.empty() ? " cache " : "/") +
            std::to_string(ways * partitions * line * sets / 1024) + "K";
  }
  return text;
}

}  // namespace

std::string instruction_set() { return isa_name(dnnl::get_effective_cpu_isa()); }

std::string numerics_fingerprint(ops::Precision precision) {
  const dnnl_version_t* version = dnnl_version();
  return "cpu " + instruction_set() + " oneDNN " + std::to_string(version->major) + "." +
         std::to_string(version->minor) + "." + std::to_string(version->patch) + " glibc " +
         gnu_get_libc_version() + caches() +
         (precision == ops::Precision::kFp32 ? "" : std::string(" ") + to_string(precision));
}

}  // namespace pushpull
