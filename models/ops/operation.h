// An operation of a model: its specification, which knows shapes and no backend, and its plan on a
// backend. A plan keeps no state of a run: what backward needs of forward lies in memory that the
// caller gives (`kept`). One header in models/ops is one specification.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/ops/ops.h"

namespace pushpull::ops {

enum class Element {
  kActivation,  // of the type given by the backend's Precision
  kFloat,       // f32
  kInt,         // i32
};

// The sizes of a tensor in C order; the product of the sizes is the number of its elements.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : sizes_(sizes) {}
  explicit Shape(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {}

  int64_t operator[](size_t i) const { return sizes_.at(i); }
  size_t rank() const { return sizes_.size(); }
  int64_t last() const { return sizes_.back(); }
  int64_t size() const;
  const std::vector<int64_t>& sizes() const { return sizes_; }
  std::string text() const;  // "8x16x14x14"

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<int64_t> sizes_;
};

// The type of a value between two operations. kNative is for images [N, C, H, W].
struct ValueType {
  Element element = Element::kActivation;
  Layout layout = Layout::kPlain;
  Shape shape;

  friend bool operator==(const ValueType&, const ValueType&) = default;
};

ValueType activation(Shape shape);
ValueType native_image(const ImageShape& image);
ImageShape image_of(const ValueType& type);

// Returns the size of a value in the backend's memory, in floats. A value in blocks may be larger
// than its shape.
size_t floats_of(const Backend& backend, const ValueType& type);

// Arguments of a run, in memory of the backend. An operation knows their types from its
// specification.
struct In {
  const void* data = nullptr;
  const float* floats() const { return static_cast<const float*>(data); }
  const int32_t* ints() const { return static_cast<const int32_t*>(data); }
};
struct Out {
  void* data = nullptr;
  float* floats() const { return static_cast<float*>(data); }
  int32_t* ints() const { return static_cast<int32_t*>(data); }
};

constexpr size_t kMaxInputs = 4;
constexpr size_t kMaxParams = 4;

// Everything that one run of an operation may touch. It has no heap memory, so a queue may copy it.
struct Run {
  std::array<In, kMaxInputs> x;  // forward: all; backward: those that Needs::inputs names
  Out y;                         // forward writes it; backward reads it if Needs::output
  Out predictions;  // cross-entropy: i32, class of the largest score; null if not wanted
  std::array<const float*, kMaxParams> w{};
  // Gradients of the parameters: overwritten, or added to where `adds` has the bit. Gradients of
  // statistics (UpdateRule::kAverage) are reported by forward.
  std::array<float*, kMaxParams> dw{};
  uint32_t adds = 0;
  Out dy;                            // gradient of y; backward may overwrite it
  std::array<Out, kMaxInputs> dx{};  // overwritten; null: the gradient is not wanted
  void* kept =
      nullptr;  // Needs::kept_bytes bytes, aligned as a cache line, from forward to backward
  // In the backend's memory, for training. Random operations: of (seed, step, micro-batch,
  // operation). Heads: factor of the gradient, weight of the head / denominator.
  const uint64_t* key = nullptr;
  const float* scale = nullptr;
  int64_t valid = 0;  // heads: targets that count; the first ones
  bool training = false;
};

// A plan states here what it needs from the graph around it.
struct Needs {
  uint32_t inputs = 0;  // bit i: backward reads x[i]
  bool output = false;  // backward reads y
  size_t kept_bytes = 0;
  bool in_place = false;           // y may lie in the memory of x[0]
  bool is_view = false;            // y is where `view` says; forward and backward do nothing
  bool gradient_in_place = false;  // dx[0] may lie in the memory of dy
  bool gradient_in_input = false;  // heads: dx[0] may lie in the memory of x[0]
  bool splits = false;  // dw is final after backward_weights; otherwise after backward_data
  uint32_t adds = 0;    // bit k: can add to dw[k]; otherwise the graph adds
};

// An upper bound of the absolute values of a gradient, one per parameter; infinity or NaN if there
// is none.
using GradientBounds = std::array<double, kMaxParams>;
constexpr GradientBounds no_bounds() {
  GradientBounds bounds{};
  bounds.fill(std::numeric_limits<double>::infinity());
  return bounds;
}

// A plan: made once for its shapes. A run neither allocates nor creates anything. On the CPU a run
// is done on return; on a device it is enqueued behind earlier runs. The caller's alignment of
// parameters (to a float) never changes a bit. Not thread-safe.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual Needs needs() const = 0;
  virtual void forward(const Run& run) = 0;
  // Both are called for each backward, in this order; an operation may do all its work in one.
  virtual void backward_weights(const Run& run) = 0;
  virtual void backward_data(const Run& run) = 0;
  // Returns bounds of what the latest backward_weights, with the same `run`, has written or added to
  // dw, where they cost much less than reading dw. Call it before backward_data.
  virtual GradientBounds bounds(const Run& /*run*/) const { return no_bounds(); }
  // Returns where y is, for a view: x[0] unless the backend converts it.
  virtual const void* view(const Run& run) { return run.x[0].data; }
};

// Says which operation a node of a graph is. Immutable; any thread.
class Spec {
 public:
  virtual ~Spec() = default;
  // Returns the operation's name in tables and messages: "layer norm".
  virtual const char* name() const = 0;
  // Checks the inputs and its own sizes; GraphBuilder::add calls it. Throws Error(kUsage) that names
  // the node.
  virtual void check(const std::string& node, std::span<const ValueType> inputs) const = 0;
  virtual ValueType output() const = 0;
  // Returns the shapes of the parameters, in order.
  virtual std::vector<Shape> params() const { return {}; }
  // Returns whether runs need Run::key.
  virtual bool is_random() const { return false; }
  // Returns the floating-point operations of forward and backward; 0 if they do not matter.
  virtual int64_t flops() const { return 0; }
};

// Casts a specification whose name() is the maker's own.
template <class T>
const T& spec_as(const Spec& spec) {
  return static_cast<const T&>(spec);
}

// Throws Error(kUsage) "[models] NODE WHAT" unless `holds`.
void require(bool holds, const std::string& node, const std::string& what);
// Throws Error(kUsage) if a x b elements are more than a kernel counts (2^31), or a or b is not
// positive.
void require_size(const std::string& node, const std::string& what, int64_t a, int64_t b);
// Throws Error(kUsage) unless the input is an activation of that shape in that layout.
void require_input(const std::string& node, const ValueType& input, const ValueType& expected);

}  // namespace pushpull::ops
