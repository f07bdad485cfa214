#include "models/ops/cpu/primitive.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "common/base/error.h"

namespace pushpull::ops::cpu {

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Buffer allocate(size_t floats) {
  constexpr size_t kAlignment = 64;
  const size_t bytes = (floats * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  auto* data = static_cast<float*>(std::aligned_alloc(kAlignment, bytes == 0 ? kAlignment : bytes));
  if (data == nullptr) {
    throw Error(ErrorCode::kFailed, "[models] no memory for " + std::to_string(bytes >> 20) +
                                        " MiB of activations; lower micro-batch");
  }
  std::memset(data, 0, bytes);
  return {data, floats, std::free};
}

dnnl::memory::desc describe(const dnnl::memory::dims& dims, Tag tag, Type type) {
  return {dims, type, tag};
}

dnnl::memory::desc describe(const dnnl::memory::dims& dims, const dnnl::memory::dims& strides,
                            Type type) {
  return {dims, type, strides};
}

dnnl::memory::dims dims_of(const ImageShape& shape) {
  return {shape.samples, shape.channels, shape.height, shape.width};
}

Tag native_tag() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto avx512 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (isa & avx512) == avx512 ? Tag::nChw16c : Tag::nChw8c;
}

size_t floats_of(const dnnl::memory::desc& desc) {
  return (desc.get_size() + sizeof(float) - 1) / sizeof(float);
}

Primitive::Primitive(Shared& shared, const dnnl::primitive& primitive,
                     const dnnl::memory::desc& scratch, const std::vector<Argument>& arguments)
    : shared_(&shared), primitive_(primitive) {
  const auto add = [this](int name, const dnnl::memory::desc& desc) {
    memories_.emplace_back(desc, shared_->engine, nullptr);
    arguments_.push_back({name, memories_.back().get()});
    bound_.push_back(nullptr);
  };
  for (const Argument& argument : arguments) add(argument.name, argument.desc);
  const size_t scratch_floats = floats_of(scratch);
  needs_scratch_ = scratch_floats > 0;
  if (needs_scratch_) add(DNNL_ARG_SCRATCHPAD, scratch);
  if (scratch_floats > shared.scratch.size()) shared.scratch = allocate(scratch_floats);
}

void Primitive::bind(int name, void* data) {
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (arguments_[i].arg != name) continue;
    if (bound_[i] != data) memories_[i].set_data_handle(data);
    bound_[i] = data;
    return;
  }
  PP_ASSERT(!"the primitive has an argument of that name");
}

void Primitive::bind(int name, const void* data) {
  // oneDNN writes to an input only to zero the padding of a blocked layout, and the backend owns
  // all blocked memory
  bind(name, const_cast<void*>(data));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

void Primitive::run() {
  if (needs_scratch_) bind(DNNL_ARG_SCRATCHPAD, shared_->scratch.data());
  const dnnl_status_t status =
      dnnl_primitive_execute(primitive_.get(), shared_->stream.get(),
                             static_cast<int>(arguments_.size()), arguments_.data());
  require_success(status);
}

void require_success(dnnl_status_t status) {
  if (status == dnnl_success) return;
  throw Error(ErrorCode::kFailed,
              "[models] oneDNN failed with status " + std::to_string(static_cast<int>(status)) +
                  (status == dnnl_out_of_memory ? ": out of memory; lower micro-batch" : ""));
}

Primitive make_reorder(Shared& shared, const dnnl::memory::desc& from,
                       const dnnl::memory::desc& to) {
  const dnnl::reorder::primitive_desc plan(shared.engine, from, shared.engine, to, attributes());
  return {shared,
          dnnl::reorder(plan),
          plan.scratchpad_desc(),
          {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}};
}

}  // namespace pushpull::ops::cpu
