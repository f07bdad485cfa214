// Dropout. Backward draws the same words again, which costs less than reading a stored mask from
// memory would save.
#include "models/ops/dropout.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/base/simd.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"

namespace pushpull::ops::cpu {

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

}  // namespace pushpull::ops::cpu
