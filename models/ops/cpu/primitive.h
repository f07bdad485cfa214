// oneDNN primitives with arguments that are bound once: a run costs a microsecond, and allocates
// nothing outside oneDNN. For the CPU operations, on the thread that runs the model.
#pragma once

#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "models/ops/ops.h"

namespace pushpull::ops::cpu {

// State shared by all operations of one CPU backend. It owns the scratch memory, instead of
// oneDNN's thread-local pool, so that one thread can build a model and another can run it.
struct Shared {
  int threads = 1;
  dnnl::memory::data_type activation = dnnl::memory::data_type::f32;  // or bf16
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  Buffer scratch;  // as large as any primitive needs; grows while plans are made
};

// Attributes of every primitive: take scratch memory from Shared.
dnnl::primitive_attr attributes();

Buffer allocate(size_t floats);

// oneDNN's description of a tensor.
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;
dnnl::memory::desc describe(const dnnl::memory::dims& dims, Tag tag, Type type = Type::f32);
dnnl::memory::desc describe(const dnnl::memory::dims& dims, const dnnl::memory::dims& strides,
                            Type type = Type::f32);
dnnl::memory::dims dims_of(const ImageShape& shape);

// The blocked image layout: one block is one vector register of channels.
Tag native_tag();

// Returns the size of a tensor in floats, including padding, rounded up.
size_t floats_of(const dnnl::memory::desc& desc);

class Primitive {
 public:
  struct Argument {
    int name;  // DNNL_ARG_...
    dnnl::memory::desc desc;
  };

  // Binds a primitive to its arguments. Primitives of a class without primitive_desc (reorder) pass
  // an empty scratch description.
  Primitive(Shared& shared, const dnnl::primitive& primitive, const dnnl::memory::desc& scratch,
            const std::vector<Argument>& arguments);

  // Sets the address of an argument; cheap if it does not change. oneDNN takes inputs through the
  // same untyped pointer, hence the const overload.
  void bind(int name, void* data);
  void bind(int name, const void* data);

  // Runs the primitive; all arguments must be bound. Throws Error(kFailed) if oneDNN reports a
  // failure.
  void run();

 private:
  Shared* shared_;
  dnnl::primitive primitive_;
  bool needs_scratch_ = false;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;  // refer to memories_
  std::vector<void*> bound_;
};

// Throws Error(kFailed) unless a call of oneDNN succeeded.
void require_success(dnnl_status_t status);

// Copies a tensor between two layouts and types, which may be equal.
Primitive make_reorder(Shared& shared, const dnnl::memory::desc& from,
                       const dnnl::memory::desc& to);

}  // namespace pushpull::ops::cpu
