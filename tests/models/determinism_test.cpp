// A model has the same bits for any model object, thread and alignment of the caller's memory, and
// after any other calls (P1).
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <thread>

#include "tests/models/backend_case.h"
#include "tests/models/fixture.h"

namespace pushpull {
namespace {

// Memory with its first float at `shift` floats after the start of a cache line.
class Shifted {
 public:
  Shifted(const std::vector<float>& values, size_t shift) : size_(values.size()) {
    memory_.resize(size_ + 64);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    const size_t to_line = (64 - address % 64) % 64 / sizeof(float);
    data_ = memory_.data() + to_line + shift;
    std::ranges::copy(values, data_);
  }
  std::span<float> span() { return {data_, size_}; }

 private:
  std::vector<float> memory_;
  float* data_;
  size_t size_;
};

Result train_shifted(Model& model, const std::vector<float>& weights, const Inputs& inputs,
                     size_t weights_shift, size_t gradients_shift, size_t block_shift) {
  Shifted w(weights, weights_shift);
  Shifted g(std::vector<float>(weights.size(), -77.0F), gradients_shift);
  Samples samples = inputs.view();
  Shifted x(inputs.block, block_shift);
  samples.block = x.span();
  Result result;
  result.loss = model.train(w.span(), samples, g.span(), [](size_t) {});
  result.gradients.assign(g.span().begin(), g.span().end());
  return result;
}

class DeterminismOn : public OnBackend {
 protected:
  // A device has no number of threads.
  std::vector<int64_t> threads() const {
    return GetParam().name == "Cpu" ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1};
  }
};

TEST_P(DeterminismOn, AlignmentOfTheCallersMemoryChangesNoBit) {
  for (const int64_t threads : threads()) {
    for (const Case& c : on(all_cases(threads))) {
      SCOPED_TRACE(describe(c));
      const auto model = c.make();
      const std::vector<float> weights = initial_weights(model->table(), 1);
      const Inputs inputs(c);
      const Result want = train_shifted(*model, weights, inputs, 0, 0, 0);
      Shifted aligned(weights, 0);
      const HeadSums want_sums = evaluate(*model, aligned.span(), inputs, c.micro_batch);
      for (size_t shift = 1; shift < 16; shift += static_cast<size_t>(threads)) {
        EXPECT_EQ(train_shifted(*model, weights, inputs, shift, 0, 0), want) << shift;
        EXPECT_EQ(train_shifted(*model, weights, inputs, 0, shift, 0), want) << shift;
        EXPECT_EQ(train_shifted(*model, weights, inputs, 0, 0, shift), want) << shift;
        EXPECT_EQ(train_shifted(*model, weights, inputs, shift, 15 - shift, shift / 2), want);
        Shifted w(weights, shift);
        Samples samples = inputs.view();
        Shifted x(inputs.block, 16 - shift);
        samples.block = x.span();
        std::vector<HeadSums> sums(1);
        model->evaluate(w.span(), samples, sums);
        EXPECT_EQ(sums.front(), want_sums) << shift;
      }
    }
  }
}

TEST_P(DeterminismOn, TwoModelsGiveTheSameBitsEvenWithOtherCallsBetween) {
  for (const int64_t threads : threads()) {
    for (const Case& c : on(all_cases(threads))) {
      SCOPED_TRACE(describe(c));
      const auto a = c.make();
      const auto b = c.make();
      const std::vector<float> weights = initial_weights(a->table(), 1);
      const std::vector<float> others = initial_weights(a->table(), 2);
      const Inputs inputs(c);
      const Inputs noise(c, 99);
      const Result want = train(*a, weights, inputs);
      for (int i = 0; i < 3; ++i) {
        train(*b, others, noise);
        evaluate(*b, others, noise, c.micro_batch / 2);
        EXPECT_EQ(train(*b, weights, inputs), want);
        EXPECT_EQ(train(*a, weights, inputs), want);
      }
      EXPECT_FALSE(train(*a, others, inputs) == want);
    }
  }
}

TEST_P(DeterminismOn, ThreadThatDidNotMakeTheModelGetsTheSameBits) {
  for (const Case& c : on(all_cases())) {
    SCOPED_TRACE(describe(c));
    const auto model = c.make();
    const std::vector<float> weights = initial_weights(model->table(), 1);
    const Inputs inputs(c);
    const Result want = train(*model, weights, inputs);
    Result got;
    std::unique_ptr<Model> elsewhere;
    std::thread([&] {
      got = train(*model, weights, inputs);
      elsewhere = c.make();
    }).join();
    EXPECT_EQ(got, want);
    EXPECT_EQ(train(*elsewhere, weights, inputs), want);
  }
}

TEST(Determinism, TheJobsThreadsOverrideTheCallers) {
  const Case c{.model = "convnet", .input = {1, 12, 12}, .micro_batch = 16, .threads = 2};
  const auto model = c.make();
  const std::vector<float> weights = initial_weights(model->table(), 1);
  const Inputs inputs(c);
  const Result want = train(*model, weights, inputs);
  const int saved = omp_get_max_threads();
  for (const int callers : {1, 3}) {
    omp_set_num_threads(callers);
    const auto other = c.make();
    EXPECT_EQ(train(*other, weights, inputs), want);
    EXPECT_EQ(train(*model, weights, inputs), want);
    EXPECT_EQ(omp_get_max_threads(), callers);  // the caller's number does not change
  }
  omp_set_num_threads(saved);
}

INSTANTIATE_TEST_SUITE_P(Backends, DeterminismOn, testing::ValuesIn(all_backends()), case_name);

}  // namespace
}  // namespace pushpull
