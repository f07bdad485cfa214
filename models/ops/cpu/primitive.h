// oneDNN primitives whose arguments are bound once: running one costs a microsecond and makes no
// allocation of ours. Used by the CPU operations, on the thread that runs the model.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "models/ops/ops.h"

namespace pushpull::ops::cpu {

// What all operations of one CPU backend share. Scratch memory is ours (not oneDNN's thread-local
// pool), so that a model may be built by one thread and run by another.
struct Shared {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Buffer scratch;  // as large as the neediest primitive asks for; grows while plans are made
};

// Attributes of every primitive: scratch memory from Shared.
dnnl::primitive_attr attributes();

Buffer allocate(size_t floats);

// An oneDNN f32 description of a tensor.
using Tag = dnnl::memory::format_tag;
dnnl::memory::desc describe(const dnnl::memory::dims& dims, Tag tag);
dnnl::memory::desc describe(const dnnl::memory::dims& dims, const dnnl::memory::dims& strides);
dnnl::memory::dims dims_of(const ImageShape& shape);

// The blocked layout of images: one block is one vector register of channels.
Tag native_tag();

// Floats that a description takes, padding included.
size_t floats_of(const dnnl::memory::desc& desc);

class Primitive {
 public:
  struct Argument {
    int name;  // DNNL_ARG_...
    dnnl::memory::desc desc;
  };

  // A primitive and its arguments. Primitives without a primitive_desc of their own class
  // (reorder) pass an empty scratch description.
  Primitive(Shared& shared, const dnnl::primitive& primitive, const dnnl::memory::desc& scratch,
            std::initializer_list<Argument> arguments);

  // Where an argument lies from now on; cheap where it does not change. oneDNN takes inputs through
  // the same untyped pointer, hence the const overload.
  void bind(int name, float* data);
  void bind(int name, const float* data);

  // All arguments are bound. Throws Error(kFailed) where oneDNN reports a failure.
  void run();

 private:
  Shared* shared_;
  dnnl::primitive primitive_;
  bool needs_scratch_ = false;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;  // of memories_
  std::vector<float*> bound_;
};

// A copy between two layouts of one tensor, which may be equal.
Primitive make_reorder(Shared& shared, const dnnl::memory::desc& from,
                       const dnnl::memory::desc& to);

}  // namespace pushpull::ops::cpu
