// Runs one operation on the CPU and on CUDA with the same numbers, and returns plain values of both.
// Activations of CUDA are converted on the host. Outputs are poisoned before each run.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/ops/number.h"
#include "models/ops/operation.h"
#include "tests/models/ops/blocks.h"

namespace pushpull::test {

constexpr float kLossScale = 4.0F;

// The operation, inputs and options of a comparison. Values are plain, in C order; ints are floats of their bits.
struct Comparison {
  const ops::Spec& spec;
  std::vector<ops::ValueType> inputs;
  std::vector<std::vector<float>> x;
  std::vector<std::vector<float>> w = {};
  uint32_t wanted = 1;  // bit i: the gradient of input i
  bool training = true;
  bool in_place = false;  // y in x[0] and dx[0] in dy, or a head's in x[0], where it is allowed
  size_t shift = 0;       // elements by which CUDA's activations miss an aligned address
  bool is_head = false;   // a loss, with the fields below
  int64_t valid = 0;      // targets
  float scale = 1.0F;     // of the gradient
  uint64_t key = 0;       // of a random operation
  std::vector<float> dy = {};  // of an operation that is no head
  bool is_trained = true;      // false: forward only
  // Gradients of parameters that backward adds to; empty: it overwrites them. CUDA gets them divided
  // by the loss scale.
  std::vector<std::vector<float>> dw = {};
  bool aligned_params = false;  // false: parameters and their gradients are aligned to a float only
  std::function<std::unique_ptr<ops::Operation>()> on_cuda = {};  // the plan; empty: the backend's
};

struct Outcome {
  std::vector<float> y;
  std::vector<int32_t> predictions;
  std::vector<std::vector<float>> dx, dw;  // of the wanted inputs; of all parameters
};

// One backend with the form of its values.
class Side {
 public:
  explicit Side(std::shared_ptr<ops::Backend> backend, ops::Precision precision)
      : backend_(std::move(backend)),
        precision_(precision),
        is_cpu_(backend_->device() == nullptr) {}

  // Returns the values as they are after storing them as activations.
  std::vector<float> rounded(std::vector<float> values) const {
    for (float& value : values) {
      if (precision_ == ops::Precision::kBf16) value = ops::rounded<ops::Bf16>(value);
      if (precision_ == ops::Precision::kFp16) value = ops::rounded<ops::Fp16>(value);
    }
    return values;
  }
  Outcome run(const Comparison& c) const;
  ops::Backend& backend() const { return *backend_; }

 private:
  // Memory of one value; poisoned unless it is filled.
  struct Place {
    ops::Buffer buffer;
    std::byte* first = nullptr;
    size_t bytes = 0;
  };

  bool is_short(const ops::ValueType& type) const {
    return !is_cpu_ && type.element == ops::Element::kActivation &&
           (precision_ == ops::Precision::kBf16 || precision_ == ops::Precision::kFp16);
  }
  Place place(const ops::ValueType& type, size_t shift) const {
    const size_t each = is_short(type) ? 2 : sizeof(float);
    const size_t count = ops::floats_of(*backend_, type);
    const size_t from = is_cpu_ || type.element != ops::Element::kActivation ? 0 : shift * each;
    Place out{backend_->allocate(count + 16), nullptr, count * each};
    const std::vector<uint32_t> poison(count + 16, 0x7fff7fffU);  // NaN in every type
    backend_->write(poison.data(), poison.size() * sizeof(uint32_t), out.buffer.data());
    out.first = reinterpret_cast<std::byte*>(out.buffer.data()) + from;
    return out;
  }
  void fill(const ops::ValueType& type, const std::vector<float>& values, const Place& to) const {
    const bool blocked = is_cpu_ && type.layout == ops::Layout::kNative;
    const std::vector<float> stored = blocked ? in_blocks(ops::image_of(type), values) : values;
    if (!is_short(type)) return backend_->write(stored.data(), to.bytes, to.first);
    std::vector<uint16_t> words;
    for (const float value : stored) {
      words.push_back(precision_ == ops::Precision::kBf16 ? ops::from_float<ops::Bf16>(value).bits
                                                          : ops::from_float<ops::Fp16>(value).bits);
    }
    backend_->write(words.data(), to.bytes, to.first);
  }
  std::vector<float> values(const ops::ValueType& type, const void* from) const {
    std::vector<float> out;
    if (is_short(type)) {
      std::vector<uint16_t> words(static_cast<size_t>(type.shape.size()));
      backend_->read(from, words.size() * 2, words.data());
      for (const uint16_t word : words) {
        out.push_back(precision_ == ops::Precision::kBf16 ? ops::to_float(ops::Bf16{word})
                                                          : ops::to_float(ops::Fp16{word}));
      }
      return out;
    }
    out.resize(ops::floats_of(*backend_, type));
    backend_->read(from, out.size() * sizeof(float), out.data());
    const bool blocked = is_cpu_ && type.layout == ops::Layout::kNative;
    return blocked ? from_blocks(ops::image_of(type), out) : out;
  }

  std::shared_ptr<ops::Backend> backend_;
  ops::Precision precision_;
  bool is_cpu_;
};

inline Outcome Side::run(const Comparison& c) const {
  const ops::Backend::Scope scope(*backend_);
  c.spec.check("node", c.inputs);
  const std::unique_ptr<ops::Operation> op =
      !is_cpu_ && c.on_cuda ? c.on_cuda() : backend_->plan(c.spec);
  const ops::Needs needs = op->needs();
  const ops::ValueType output = c.spec.output();
  std::vector<Place> x, dx, w, dw;
  ops::Run run;
  run.training = c.training;
  run.valid = c.valid;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    x.push_back(place(c.inputs[i], c.shift));
    fill(c.inputs[i], c.x[i], x.back());
    run.x.at(i).data = x.back().first;
    dx.push_back(place(c.inputs[i], c.shift));
    if ((c.wanted >> i & 1U) != 0) run.dx.at(i).data = dx.back().first;
  }
  const std::vector<ops::Shape> params = c.spec.params();
  for (size_t i = 0; i < params.size(); ++i) {
    const ops::ValueType type{ops::Element::kFloat, ops::Layout::kPlain, params[i]};
    w.push_back(place(type, 0));
    if (!c.aligned_params) w.back().first += sizeof(float);
    fill(type, c.w[i], w.back());
    dw.push_back(place(type, 0));
    if (!c.aligned_params) dw.back().first += 3 * sizeof(float);
    if (!c.dw.empty()) {
      std::vector<float> before = c.dw[i];
      for (float& value : before) value /= is_cpu_ ? 1.0F : kLossScale;
      fill(type, before, dw.back());
      run.adds |= 1U << i;
    }
    run.w.at(i) = reinterpret_cast<float*>(w.back().first);
    run.dw.at(i) = reinterpret_cast<float*>(dw.back().first);
  }
  const Place y = place(output, c.shift);
  const Place dy = place(output, c.shift);
  run.y.data = c.in_place && needs.in_place ? x[0].first : y.first;
  run.dy.data = dy.first;
  const ops::Buffer kept = backend_->allocate((needs.kept_bytes + 3) / 4 + 1);
  run.kept = kept.data();
  const auto targets = static_cast<size_t>(output.shape.size());
  const ops::Buffer predictions = backend_->allocate(targets);
  const ops::Buffer scalars = backend_->allocate(4);  // the scale, and the key
  backend_->write(&c.scale, sizeof c.scale, scalars.data());
  backend_->write(&c.key, sizeof c.key, scalars.data() + 2);
  run.scale = scalars.data();
  run.key = reinterpret_cast<const uint64_t*>(scalars.data() + 2);
  if (c.is_head) run.predictions.data = predictions.data();

  Outcome out;
  if (needs.is_view) {
    out.y = values(output, op->view(run));
    return out;
  }
  op->forward(run);
  out.y = values(output, run.y.data);
  out.predictions.resize(targets);
  backend_->read(predictions.data(), targets * sizeof(int32_t), out.predictions.data());
  if (!c.is_trained) return out;
  if (c.in_place && c.is_head && needs.gradient_in_input) run.dx[0].data = x[0].first;
  if (c.in_place && !c.is_head && needs.gradient_in_place) run.dx[0].data = dy.first;
  if (!c.is_head) fill(output, c.dy, dy);
  op->backward_weights(run);
  op->backward_data(run);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (run.dx.at(i).data != nullptr) out.dx.push_back(values(c.inputs[i], run.dx.at(i).data));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    out.dw.push_back(values({ops::Element::kFloat, ops::Layout::kPlain, params[i]}, run.dw.at(i)));
  }
  return out;
}

}  // namespace pushpull::test
