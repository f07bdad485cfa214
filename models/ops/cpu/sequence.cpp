// Operations on the positions of sequences.

#include "models/ops/sequence.h"

#include <algorithm>
#include <cstring>

#include "common/base/error.h"
#include "common/base/simd.h"
#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"

namespace pushpull::ops::cpu {

// Rows of a table. Backward sums the places of an id in rising order: forward sorts the places by
// id with a stable counting sort, so that each row of dw is written by one thread.

namespace {

PUSHPULL_SIMD void add_row(const float* from, int64_t n, float* to) {
  PUSHPULL_ELEMENTWISE
  for (int64_t j = 0; j < n; ++j) to[j] += from[j];
}

template <class T>
class CpuEmbedding final : public Operation {
 public:
  explicit CpuEmbedding(const EmbeddingShape& shape)
      : places_(shape.samples * shape.positions),
        vocabulary_(shape.vocabulary),
        width_(shape.width) {}

  Needs needs() const override {
    return {.kept_bytes = static_cast<size_t>(vocabulary_ + 1 + places_) * sizeof(int32_t),
            .adds = 1};
  }

  void forward(const Run& run) override {
    const int32_t* ids = run.x[0].ints();
    for (int64_t i = 0; i < places_; ++i) PP_ASSERT(ids[i] >= 0 && ids[i] < vocabulary_);
    in_ranges(places_, rows_of_grain(width_), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        copy_row(run.w[0] + ids[i] * width_, elements<T>(run.y) + i * width_);
      }
    });
    if (run.training) sort(ids, ends(run), order(run));
  }

  void backward_weights(const Run& run) override {
    const bool adds = (run.adds & 1U) != 0;
    const int32_t* end_of = ends(run);
    // A row costs its writing and its places. The ranges of ids have about equal costs.
    const int64_t cost = vocabulary_ + places_;
    in_ranges(cost, rows_of_grain(width_), [&](int64_t begin, int64_t end) {
      const int64_t first = first_id(end_of, begin);
      const int64_t last = first_id(end_of, end);
      if (!adds) zero_absent(end_of, first, last, run.dw[0]);
      for (int64_t id = first; id < last; ++id) {
        sum_row(run, order(run), start_of(end_of, id), end_of[id], adds, run.dw[0] + id * width_);
      }
    });
  }
  void backward_data(const Run& /*run*/) override {}

 private:
  // Kept: for each id the end of its places in the order, and the order.
  static int32_t* ends(const Run& run) { return static_cast<int32_t*>(run.kept); }
  int32_t* order(const Run& run) const { return ends(run) + vocabulary_ + 1; }

  void sort(const int32_t* ids, int32_t* end_of, int32_t* order) const {
    std::fill_n(end_of, vocabulary_ + 1, 0);
    for (int64_t i = 0; i < places_; ++i) ++end_of[ids[i] + 1];
    for (int64_t id = 0; id < vocabulary_; ++id) end_of[id + 1] += end_of[id];
    // end_of[id] is the start of id until its places have been put down
    for (int64_t i = 0; i < places_; ++i) order[end_of[ids[i]]++] = static_cast<int32_t>(i);
  }

  // Returns the first id before which the ids cost at least `cost`.
  int64_t first_id(const int32_t* end_of, int64_t cost) const {
    int64_t low = 0;
    int64_t high = vocabulary_;
    while (low < high) {
      const int64_t id = (low + high) / 2;
      const int64_t before = id + start_of(end_of, id);
      if (before < cost) {
        low = id + 1;
      } else {
        high = id;
      }
    }
    return low;
  }

  // Neighbours without a place are zeroed together: a large memset does not read what it overwrites.
  void zero_absent(const int32_t* end_of, int64_t first, int64_t last, float* dw) const {
    for (int64_t id = first; id < last;) {
      int64_t next = id;
      while (next < last && is_absent(end_of, next)) ++next;
      std::fill_n(dw + id * width_, (next - id) * width_, 0.0F);
      id = next + 1;
    }
  }

  static int32_t start_of(const int32_t* end_of, int64_t id) {
    return id == 0 ? 0 : end_of[id - 1];
  }
  static bool is_absent(const int32_t* end_of, int64_t id) {
    return start_of(end_of, id) == end_of[id];
  }

  void sum_row(const Run& run, const int32_t* order, int32_t start, int32_t end, bool adds,
               float* dw) const {
    const T* dy = elements<T>(run.dy);
    if (!adds && start < end) copy_row(dy + order[start++] * width_, dw);
    for (; start < end; ++start) {
      const T* row = dy + order[start] * width_;
      for_each_piece([&](int64_t j, int64_t n) {
        const Reads<T> from(row + j, n);
        add_row(from.data(), n, dw + j);
      });
    }
  }

  template <class Body>
  void for_each_piece(const Body& body) const {
    const int64_t step = std::is_same_v<T, float> ? width_ : kPiece;
    for (int64_t j = 0; j < width_; j += step) body(j, std::min(step, width_ - j));
  }
  // Between parameters or their gradients and activations.
  static void convert(const float* from, int64_t n, float* to) { std::copy_n(from, n, to); }
  static void convert(const float* from, int64_t n, Bf16* to) { narrow(from, n, to); }
  static void convert(const Bf16* from, int64_t n, float* to) { widen(from, n, to); }
  template <class From, class To>
  void copy_row(const From* from, To* to) const {
    convert(from, width_, to);
  }

  int64_t places_;
  int64_t vocabulary_;
  int64_t width_;
};

}  // namespace

std::unique_ptr<Operation> make_embedding(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuEmbedding<T>>(spec_as<EmbeddingSpec>(spec).shape());
  });
}

// Adding learned positions as a plain loop: it waits for memory.

namespace {

PUSHPULL_SIMD void add_rows(const float* x, const float* w, int64_t n, float* y) {
  PUSHPULL_ELEMENTWISE
  for (int64_t j = 0; j < n; ++j) y[j] = x[j] + w[j];
}

template <class T>
class CpuAddPositions final : public Operation {
 public:
  explicit CpuAddPositions(const AddPositionsShape& shape) : shape_(shape) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }

  void forward(const Run& run) override {
    const auto [samples, positions, width, limit] = shape_;
    const int64_t sample = positions * width;
    in_ranges(samples * positions, rows_of_grain(width), [&](int64_t begin, int64_t end) {
      // the rows of w follow each other as those of a sample
      for (int64_t i = begin * width; i < end * width;) {
        const int64_t place = i % sample;
        const int64_t count = std::min({end * width - i, sample - place, kMost});
        const Reads<T> x(elements<T>(run.x[0]) + i, count);
        const Writes<T> y(elements<T>(run.y) + i, count);
        add_rows(x.data(), run.w[0] + place, count, y.data());
        i += count;
      }
    });
  }

  void backward_weights(const Run& run) override {
    const int64_t sample = shape_.positions * shape_.width;
    const T* dy = elements<T>(run.dy);
    float* dw = run.dw[0];
    in_ranges(sample, 1 + kGrain / shape_.samples,
              [&](int64_t begin, int64_t end) { sum(dy, sample, begin, end, dw); });
    std::fill_n(dw + sample, shape_.limit * shape_.width - sample, 0.0F);
  }

  void backward_data(const Run& run) override {
    const T* dy = elements<T>(run.dy);
    T* dx = elements<T>(run.dx[0]);
    if (dx == nullptr || dx == dy) return;
    in_ranges(
        shape_.samples * shape_.positions * shape_.width, kGrain,
        [&](int64_t begin, int64_t end) { std::copy_n(dy + begin, end - begin, dx + begin); });
  }

 private:
  // Elements that are added at once.
  static constexpr int64_t kMost = std::is_same_v<T, float> ? INT64_MAX : kPiece;

  // Sums pieces that stay in the first cache, sample after sample.
  void sum(const T* dy, int64_t sample, int64_t begin, int64_t end, float* dw) const {
    for (int64_t i = begin; i < end; i += kPiece) {
      const int64_t count = std::min(kPiece, end - i);
      std::copy_n(Reads<T>(dy + i, count).data(), count, dw + i);
      for (int64_t n = 1; n < shape_.samples; ++n) {
        const Reads<T> row(dy + n * sample + i, count);
        add_rows(dw + i, row.data(), count, dw + i);
      }
    }
  }

  AddPositionsShape shape_;
};

}  // namespace

std::unique_ptr<Operation> make_add_positions(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuAddPositions<T>>(spec_as<AddPositionsSpec>(spec).shape());
  });
}

// A slice of a dimension as copies of rows.

namespace {

template <class T>
class CpuSelect final : public Operation {
 public:
  explicit CpuSelect(const SelectShape& shape) : shape_(shape) {}

  Needs needs() const override { return {}; }

  void forward(const Run& run) override {
    const auto [outer, size, inner, index] = shape_;
    in_ranges(outer, rows_of_grain(inner), [&](int64_t begin, int64_t end) {
      for (int64_t a = begin; a < end; ++a) {
        const T* from = elements<T>(run.x[0]) + (a * size + index) * inner;
        std::copy_n(from, inner, elements<T>(run.y) + a * inner);
      }
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& run) override {
    if (run.dx[0].data == nullptr) return;
    const auto [outer, size, inner, index] = shape_;
    in_ranges(outer, rows_of_grain(size * inner), [&](int64_t begin, int64_t end) {
      T* dx = elements<T>(run.dx[0]);
      std::fill(dx + begin * size * inner, dx + end * size * inner, T{});
      for (int64_t a = begin; a < end; ++a) {
        std::copy_n(elements<T>(run.dy) + a * inner, inner, dx + (a * size + index) * inner);
      }
    });
  }

 private:
  SelectShape shape_;
};

}  // namespace

std::unique_ptr<Operation> make_select(Shared& shared, const Spec& spec) {
  return by_element(shared.activation, [&]<class T>(T) -> std::unique_ptr<Operation> {
    return std::make_unique<CpuSelect<T>>(spec_as<SelectSpec>(spec).shape());
  });
}

}  // namespace pushpull::ops::cpu
