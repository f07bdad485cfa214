// The contents of cuBLASLt's opaque descriptors in its stand-in.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>

namespace pushpull::cuda_on_host {

// The attributes that were set, widened to 64 bits; a pointer as its address.
class Attributes {
 public:
  // Returns INVALID_VALUE if there is no such attribute or it has another size.
  cublasStatus_t set(int name, size_t expected_bytes, const void* from, size_t bytes);
  int64_t get(int name, int64_t otherwise) const;
  const std::map<int, int64_t>& given() const { return given_; }

 private:
  std::map<int, int64_t> given_;
};

struct Description {
  Attributes attributes;
};

struct MatrixLayout {
  cudaDataType_t type = CUDA_R_32F;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t stride = 0;  // elements from one column to the next
};

struct Preference {
  Attributes attributes;
};

inline Description* of(cublasLtMatmulDesc_t desc) { return reinterpret_cast<Description*>(desc); }
inline MatrixLayout* of(cublasLtMatrixLayout_t layout) {
  return reinterpret_cast<MatrixLayout*>(layout);
}
inline Preference* of(cublasLtMatmulPreference_t preference) {
  return reinterpret_cast<Preference*>(preference);
}

}  // namespace pushpull::cuda_on_host
