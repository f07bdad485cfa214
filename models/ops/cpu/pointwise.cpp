// Operations on each element. Activation functions are in activate.cpp, which is compiled with
// other flags.

#include "models/ops/pointwise.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/simd.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"

namespace pushpull::ops::cpu {

// Addition as a plain loop: it waits for memory.

namespace {

PUSHPULL_SIMD void add_values(const float* a, const float* b, int64_t n, float* y) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

template <class T>
class CpuAdd final : public Operation {
 public:
  explicit CpuAdd(int64_t count) : count_(count) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }

  void forward(const Run& run) override {
    in_pieces<T>(count_, kGrain, [&run](int64_t first, int64_t n) {
      const Reads<T> a(elements<T>(run.x[0]) + first, n);
      const Reads<T> b(elements<T>(run.x[1]) + first, n);
      const Writes<T> y(elements<T>(run.y) + first, n);
      add_values(a.data(), b.data(), n, y.data());
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    for (size_t i : {0, 1}) {
      const T* dy = elements<T>(run.dy);
      T* dx = elements<T>(run.dx[i]);
      if (dx == nullptr || dx == dy) continue;
      in_ranges(count_, kGrain, [dy, dx](int64_t begin, int64_t end) {
        std::copy_n(dy + begin, end - begin, dx + begin);
      });
    }
  }

 private:
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_add(Shared& shared, const Spec& spec) {
  const ValueType type = spec.output();
  return by_element(shared, type, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuAdd<T>>(stored_elements(type));
  });
}

// Dropout. Backward draws the same words again, which costs less than reading a stored mask from
// memory would save.

namespace {

PUSHPULL_SIMD void keep_some(const float* x, const uint32_t* words, uint32_t least, float factor,
                             int64_t n, float* y) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) {
    // a mask, because a choice between floats does not vectorise on AVX2
    const uint32_t mask = words[i] >= least ? ~0U : 0U;
    y[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i] * factor) & mask);
  }
}

template <class T>
class CpuDropout final : public Operation {
 public:
  explicit CpuDropout(const DropoutSpec& spec)
      : count_(spec.shape().size()), rule_(spec.probability()) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }

  void forward(const Run& run) override { drop(run, elements<T>(run.x[0]), elements<T>(run.y)); }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) drop(run, elements<T>(run.dy), elements<T>(run.dx[0]));
  }

 private:
  void drop(const Run& run, const T* x, T* y) const {
    if (!run.training || rule_.least == 0) {
      if (x == y) return;
      in_ranges(count_, kGrain, [=](int64_t begin, int64_t end) {
        std::copy_n(x + begin, end - begin, y + begin);
      });
      return;
    }
    PP_ASSERT(run.key != nullptr);
    const uint64_t key = *run.key;
    in_ranges((count_ + kPiece - 1) / kPiece, 4, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) drop_piece(key, piece * kPiece, x, y);
    });
  }

  // The words of a piece lie on the stack.
  void drop_piece(uint64_t key, int64_t first, const T* x, T* y) const {
    std::array<uint32_t, kPiece> words;
    const int64_t n = std::min(kPiece, count_ - first);
    fill_dropout_words(key, static_cast<uint64_t>(first / 4), (n + 3) / 4, words.data());
    const Reads<T> from(x + first, n);
    const Writes<T> to(y + first, n);
    keep_some(from.data(), words.data(), rule_.least, rule_.factor, n, to.data());
  }

  int64_t count_;
  DropoutRule rule_;
};

}  // namespace

std::unique_ptr<Operation> make_dropout(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuDropout<T>>(spec_as<DropoutSpec>(spec));
  });
}

// Fields of floats as activations: nothing is copied unless activations are bf16.

namespace {

class CpuElements final : public Operation {
 public:
  Needs needs() const override { return {.is_view = true}; }
  void forward(const Run& /*run*/) override {}
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& /*run*/) override {}
};

class CpuShortElements final : public Operation {
 public:
  explicit CpuShortElements(int64_t count) : count_(count) {}
  Needs needs() const override { return {}; }
  void forward(const Run& run) override {
    in_ranges(count_, kGrain, [&run](int64_t begin, int64_t end) {
      narrow(run.x[0].floats() + begin, end - begin, elements<Bf16>(run.y) + begin);
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& /*run*/) override {}

 private:
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_elements(Shared& shared, const Spec& spec) {
  if (shared.activation == Type::f32) return std::make_unique<CpuElements>();
  return std::make_unique<CpuShortElements>(spec_as<ElementsSpec>(spec).shape().size());
}

// Copies images between C order and the backend's blocks.

namespace {

class CpuFlatten final : public Operation {
 public:
  CpuFlatten(Shared& shared, const ImageShape& image)
      : to_plain_(make_reorder(shared, describe(dims_of(image), native_tag(), shared.activation),
                               describe(dims_of(image), Tag::nchw, shared.activation))),
        to_native_(make_reorder(shared, describe(dims_of(image), Tag::nchw, shared.activation),
                                describe(dims_of(image), native_tag(), shared.activation))) {}

  Needs needs() const override { return {}; }
  void forward(const Run& run) override { copy(to_plain_, run.x[0].data, run.y.data); }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data != nullptr) copy(to_native_, run.dy.data, run.dx[0].data);
  }

 private:
  static void copy(Primitive& reorder, const void* from, void* to) {
    reorder.bind(DNNL_ARG_FROM, from);
    reorder.bind(DNNL_ARG_TO, to);
    reorder.run();
  }

  Primitive to_plain_;
  Primitive to_native_;
};

}  // namespace

std::unique_ptr<Operation> make_flatten(Shared& shared, const Spec& spec) {
  return std::make_unique<CpuFlatten>(shared, spec_as<FlattenSpec>(spec).image());
}

}  // namespace pushpull::ops::cpu
