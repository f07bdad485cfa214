// Compares each operation of a backend with plain loops in double. The backward of these loops is
// checked against finite differences.
#include "models/ops/ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "common/base/error.h"
#include "tests/models/backend_case.h"
#include "tests/models/reference.h"

namespace pushpull {
namespace {

using reference::Values;

// Returns the number of values per channel.
int64_t image_places(const ops::ImageShape& shape) { return shape.size() / shape.channels; }

std::vector<float> to_float(const Values& values) { return {values.begin(), values.end()}; }

class Ops : public OnBackend {
 protected:
  void SetUp() override {
    OnBackend::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) backend_ = GetParam().make(1);
  }

  // Returns different numbers in -1..1, so that no maximum and no ReLU is near a tie. Activations
  // and factors represent them exactly.
  Values numbers(int64_t count, int64_t seed) const {
    Values values;
    for (int64_t i = 0; i < count; ++i) {
      const double number = static_cast<double>((i * 7919 + seed * 104729) % 20011) / 10005.5 - 1.0;
      values.push_back(rounded(number));
    }
    return values;
  }
  double rounded(double value) const {
    if (GetParam().precision == ops::Precision::kFp32)
      return static_cast<double>(static_cast<float>(value));
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    return std::ldexp(std::nearbyint(std::ldexp(fraction, GetParam().bits())),
                      exponent - GetParam().bits());
  }

  // Compares f32 sums of `terms` products of order one, in any order: |error| <= terms * 2^-24 *
  // sum of the absolute values in the worst case, about sqrt(terms) of it in practice; 4 * terms
  // lies between. The error is relative to the largest value, since a sum may cancel to zero.
  // Activations are rounded `roundings` times more.
  void expect_close(const char* what, const std::vector<float>& got, const Values& want,
                    double terms, int roundings = 0) const {
    ASSERT_EQ(got.size(), want.size()) << what;
    double largest = 1e-3;
    for (const double value : want) largest = std::max(largest, std::fabs(value));
    double tolerance = (4.0 * terms + 16.0) * std::numeric_limits<float>::epsilon() * largest;
    if (GetParam().is_short()) tolerance += roundings * std::ldexp(largest, -GetParam().bits());
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance) << what << "[" << i << "]";
    }
  }

  // Compares d `f` / d x[i], summed against dy, with central differences. For values of order one
  // in double, h = 1e-5 leaves a truncation error of h^2 = 1e-10 and a rounding error of 1e-16 / h
  // = 1e-11, times the terms of the sum.
  void expect_gradient(const char* what, const std::function<Values()>& f, Values& x,
                       const Values& dy, const Values& dx) const {
    // the reference is the same for all backends, but rounded numbers may be equal
    if (GetParam().precision != ops::Precision::kFp32) return;
    constexpr double kStep = 1e-5;
    const auto scalar = [&] {
      const Values y = f();
      double sum = 0.0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    const size_t stride = std::max<size_t>(1, x.size() / 40);
    for (size_t i = 0; i < x.size(); i += stride) {
      const double saved = x[i];
      x[i] = saved + kStep;
      const double up = scalar();
      x[i] = saved - kStep;
      const double down = scalar();
      x[i] = saved;
      ASSERT_NEAR(dx[i], (up - down) / (2.0 * kStep), 1e-6 * (1.0 + std::fabs(dx[i])))
          << what << "[" << i << "]";
    }
  }

  // Activations of the backend, made from plain values.
  struct Held {
    ops::Activation* data() const { return data_; }
    ops::Buffer floats;
    std::unique_ptr<ops::Elements> elements;
    ops::Activation* data_ = nullptr;
  };
  Held held(const Values& values) {
    Held held;
    held.floats = floats(values);
    held.elements = ops::make_elements(*backend_, static_cast<int64_t>(values.size()));
    // either held.floats or memory of held.elements: writing to either is allowed
    held.data_ = const_cast<ops::Activation*>(  // NOLINT(cppcoreguidelines-pro-type-const-cast)
        held.elements->in(held.floats.data()));
    return held;
  }
  std::vector<float> values(const ops::Activation* activations, size_t count) {
    const ops::Buffer buffer = backend_->allocate(count);
    ops::make_elements(*backend_, static_cast<int64_t>(count))->out(activations, buffer.data());
    return values(buffer);
  }

  // Returns a buffer of floats: parameters, their gradients or losses.
  ops::Buffer floats(const Values& values) {
    ops::Buffer buffer = backend_->allocate(values.size());
    const std::vector<float> host = to_float(values);
    backend_->write(host.data(), host.size() * sizeof(float), buffer.data());
    return buffer;
  }
  std::vector<float> values(const ops::Buffer& buffer) {
    std::vector<float> host(buffer.size());
    backend_->read(buffer.data(), host.size() * sizeof(float), host.data());
    return host;
  }
  // Returns a buffer that must be overwritten.
  ops::Buffer rubbish(size_t count) { return floats(Values(count, 9.0)); }

  // Labels and predictions.
  struct Integers {
    int32_t* data() const { return reinterpret_cast<int32_t*>(buffer.data()); }
    ops::Buffer buffer;
  };
  Integers integers(const std::vector<int32_t>& values) {
    static_assert(sizeof(int32_t) == sizeof(float));
    Integers integers{backend_->allocate(values.size())};
    backend_->write(values.data(), values.size() * sizeof(int32_t), integers.data());
    return integers;
  }
  std::vector<int32_t> values(const Integers& integers) {
    std::vector<int32_t> host(integers.buffer.size());
    backend_->read(integers.data(), host.size() * sizeof(int32_t), host.data());
    return host;
  }

  // Returns an image in the backend's layout from plain values; plain() converts it back.
  ops::Buffer native(const ops::ImageShape& shape, const Values& values) {
    kept_.push_back(held(values));
    ops::Buffer buffer = empty(shape);
    ops::make_relayout(*backend_, shape)->to_native(kept_.back().data(), buffer.data());
    return buffer;
  }
  ops::Buffer empty(const ops::ImageShape& shape) {
    return backend_->allocate(backend_->image_floats(shape, ops::Layout::kNative));
  }
  std::vector<float> plain(const ops::ImageShape& shape, const ops::Buffer& buffer) {
    const auto count = static_cast<size_t>(shape.size());
    const ops::Buffer plain = backend_->allocate(count);
    ops::make_relayout(*backend_, shape)->to_plain(buffer.data(), plain.data());
    return values(plain.data(), count);
  }

  std::unique_ptr<ops::Backend> backend_;
  std::vector<Held> kept_;  // queued operations may still read it
};

TEST_P(Ops, LinearEqualsItsReference) {
  for (const ops::LinearShape shape :
       {ops::LinearShape{1, 1, 1, false}, ops::LinearShape{8, 64, 64, true},
        ops::LinearShape{7, 33, 10, true}, ops::LinearShape{100, 196, 17, false},
        ops::LinearShape{33, 700, 130, true}}) {
    Values x = numbers(shape.samples * shape.inputs, 1);
    Values w = numbers(shape.outputs * shape.inputs, 2);
    Values b = numbers(shape.outputs, 3);
    const Values dy = numbers(shape.samples * shape.outputs, 4);
    const Values y = reference::linear(shape, x, w, b);
    const auto g = reference::linear_backward(shape, x, w, y, dy);
    if (x.size() * w.size() < 2000000) {
      const auto f = [&] { return reference::linear(shape, x, w, b); };
      expect_gradient("dx", f, x, dy, g.dx);
      expect_gradient("dw", f, w, dy, g.dw);
      expect_gradient("db", f, b, dy, g.db);
    }

    const auto op = ops::make_linear(*backend_, shape);
    const Held xd = held(x);
    const ops::Buffer wd = floats(w);
    const ops::Buffer bd = floats(b);
    const Held dyd = held(dy);
    const ops::Buffer yd = backend_->allocate(y.size());
    const ops::Buffer dxd = rubbish(x.size());
    const ops::Buffer dwd = rubbish(w.size());
    const ops::Buffer dbd = rubbish(b.size());
    op->forward(xd.data(), wd.data(), bd.data(), yd.data());
    op->backward_weights(xd.data(), yd.data(), dyd.data(), dwd.data(), dbd.data());
    op->backward_data(dyd.data(), wd.data(), dxd.data());
    // where no algorithm of a GPU's library has the epilogue, the product is rounded when it is
    // written, and y again when our kernel has added the bias
    expect_close("y", values(yd.data(), y.size()), y, static_cast<double>(shape.inputs), 2);
    expect_close("dw", values(dwd), g.dw, static_cast<double>(shape.samples));
    expect_close("db", values(dbd), g.db, static_cast<double>(shape.samples));
    expect_close("dx", values(dxd.data(), x.size()), g.dx, static_cast<double>(shape.outputs), 1);
  }
}

class OpsConvolution : public Ops {
 protected:
  void check(const ops::ConvolutionShape& shape, bool differences) {
    Values x = numbers(shape.input.size(), 1);
    Values w = numbers(shape.outputs * shape.input.channels * shape.kernel * shape.kernel, 2);
    Values b = numbers(shape.outputs, 3);
    const Values dy = numbers(shape.output().size(), 4);
    const Values y = reference::convolution(shape, x, w, b);
    const auto g = reference::convolution_backward(shape, x, w, dy);
    if (differences) {
      const auto f = [&] { return reference::convolution(shape, x, w, b); };
      expect_gradient("dx", f, x, dy, g.dx);
      expect_gradient("dw", f, w, dy, g.dw);
      expect_gradient("db", f, b, dy, g.db);
    }

    const auto op = ops::make_convolution(*backend_, shape);
    const ops::Buffer wd = floats(w);
    const ops::Buffer bd = floats(b);
    const bool is_plain = shape.input_layout == ops::Layout::kPlain;
    const Held x_plain = held(x);
    const ops::Buffer x_native = native(shape.input, x);
    const ops::Activation* xd = is_plain ? x_plain.data() : x_native.data();
    const ops::Buffer yd = empty(shape.output());
    const ops::Buffer dyd = native(shape.output(), dy);
    const ops::Buffer dwd = rubbish(w.size());
    const ops::Buffer dbd = rubbish(b.size());
    op->forward(xd, wd.data(), bd.data(), yd.data());
    op->backward_weights(xd, dyd.data(), dwd.data(), dbd.data());
    const auto taps = static_cast<double>(shape.input.channels * shape.kernel * shape.kernel);
    const auto places = static_cast<double>(image_places(shape.output()));
    // cuDNN writes y before the bias is added, and dw as activations
    expect_close("y", plain(shape.output(), yd), y, taps, 2);
    expect_close("dw", values(dwd), g.dw, places, 1);
    expect_close("db", values(dbd), g.db, places);
    if (!shape.input_gradient) return;
    const ops::Buffer dxd = empty(shape.input);
    op->backward_data(dyd.data(), wd.data(), dxd.data());
    expect_close("dx", plain(shape.input, dxd), g.dx, taps, 1);
  }
};

TEST_P(OpsConvolution, OfPlainImagesEqualsItsReference) {
  for (const int64_t channels : {1, 2, 3, 4, 5}) {  // oneDNN reads up to 3 channels in place
    check({.input = {4, channels, 9, 7},
           .outputs = 16,
           .kernel = 5,
           .padding = 2,
           .input_layout = ops::Layout::kPlain,
           .input_gradient = false},
          channels == 3);
  }
}

TEST_P(OpsConvolution, EqualsItsReference) {
  check({.input = {3, 16, 6, 5}, .outputs = 32, .kernel = 5, .padding = 2}, true);
  check({.input = {2, 16, 14, 14}, .outputs = 32, .kernel = 5, .padding = 2}, false);
  check({.input = {2, 16, 2, 2}, .outputs = 32, .kernel = 5, .padding = 2}, false);
  check({.input = {2, 8, 5, 6}, .outputs = 24, .kernel = 3, .padding = 1}, true);
  check({.input = {2, 16, 6, 6}, .outputs = 16, .kernel = 1, .padding = 0}, false);
}

TEST_P(OpsConvolution, WorksWithChannelsThatFillNoBlock) {
  check({.input = {2, 5, 6, 5}, .outputs = 11, .kernel = 3, .padding = 1}, true);
  check({.input = {2, 19, 6, 5}, .outputs = 33, .kernel = 5, .padding = 2}, false);
}

TEST_P(Ops, BatchNormEqualsItsReference) {
  for (const bool relu : {false, true}) {
    for (const ops::ImageShape image :
         {ops::ImageShape{3, 16, 5, 4}, ops::ImageShape{2, 32, 1, 1}, ops::ImageShape{2, 5, 3, 3},
          ops::ImageShape{10, 16, 28, 28}}) {
      const ops::BatchNormShape shape{.image = image, .relu = relu};
      Values x = numbers(image.size(), 1);
      Values scale = numbers(image.channels, 2);
      Values shift = numbers(image.channels, 3);
      const Values dy = numbers(image.size(), 4);
      const auto out = reference::batch_norm(shape, x, scale, shift);
      const auto g = reference::batch_norm_backward(shape, x, scale, out, dy);
      if (image.size() < 1000 && image.samples > 2) {
        const auto f = [&] { return reference::batch_norm(shape, x, scale, shift).y; };
        expect_gradient("dx", f, x, dy, g.dx);
        expect_gradient("dscale", f, scale, dy, g.dw);
        expect_gradient("dshift", f, shift, dy, g.db);
      }

      const auto op = ops::make_batch_norm(*backend_, shape);
      const auto channels = static_cast<size_t>(image.channels);
      const ops::Buffer scaled = floats(scale);
      const ops::Buffer shiftd = floats(shift);
      const ops::Buffer mean = rubbish(channels);
      const ops::Buffer variance = rubbish(channels);
      const ops::Buffer dscale = rubbish(channels);
      const ops::Buffer dshift = rubbish(channels);
      const ops::Buffer xd = native(image, x);
      const ops::Buffer dyd = native(image, dy);
      const ops::Buffer yd = empty(image);
      const ops::Buffer dxd = empty(image);
      op->forward(xd.data(), scaled.data(), shiftd.data(), mean.data(), variance.data(), yd.data());
      op->backward(xd.data(), dyd.data(), scaled.data(), shiftd.data(), dxd.data(), dscale.data(),
                   dshift.data());
      const auto count = static_cast<double>(image_places(image));
      // if a channel's two values are close, 1 / sqrt(variance) magnifies their rounding
      const double terms = count < 10 ? 1000 : count;
      expect_close("mean", values(mean), out.mean, count);
      Values unbiased = out.variance;
      for (double& value : unbiased) value *= out.unbiased;
      expect_close("variance", values(variance), unbiased, count);
      expect_close("y", plain(image, yd), out.y, terms, 1);
      expect_close("dscale", values(dscale), g.dw, terms);
      expect_close("dshift", values(dshift), g.db, terms);
      expect_close("dx", plain(image, dxd), g.dx, terms, 1);
    }
  }
}

TEST_P(Ops, BatchNormInfersWithGivenStatistics) {
  const ops::BatchNormShape shape{.image = {3, 16, 5, 4}, .relu = true};
  const Values x = numbers(shape.image.size(), 1);
  const Values scale = numbers(16, 2);
  const Values shift = numbers(16, 3);
  const Values mean = numbers(16, 4);
  Values variance = numbers(16, 5);
  for (double& value : variance) value += 1.5;
  const auto op = ops::make_batch_norm(*backend_, shape);
  const ops::Buffer xf = native(shape.image, x);
  const ops::Buffer yf = empty(shape.image);
  const ops::Buffer scaled = floats(scale);
  const ops::Buffer shiftd = floats(shift);
  const ops::Buffer meand = floats(mean);
  const ops::Buffer varianced = floats(variance);
  op->infer(xf.data(), scaled.data(), shiftd.data(), meand.data(), varianced.data(), yf.data());
  expect_close("y", plain(shape.image, yf),
               reference::normalize(shape, x, scale, shift, mean, variance), 4, 1);
}

TEST_P(Ops, MaxPoolEqualsItsReference) {
  for (const ops::ImageShape image : {ops::ImageShape{2, 16, 6, 6}, ops::ImageShape{2, 16, 7, 5},
                                      ops::ImageShape{3, 3, 4, 9}, ops::ImageShape{1, 32, 2, 2}}) {
    const ops::MaxPoolShape shape{image};
    Values x = numbers(image.size(), 1);
    const Values dy = numbers(shape.output().size(), 2);
    const Values dx = reference::max_pool_backward(shape, x, dy);
    const Values y = reference::max_pool(shape, x);
    expect_gradient(
        "dx", [&] { return reference::max_pool(shape, x); }, x, dy, dx);

    const auto op = ops::make_max_pool(*backend_, shape);
    const ops::Buffer xf = native(image, x);
    const ops::Buffer yf = empty(shape.output());
    const ops::Buffer dyf = native(shape.output(), dy);
    const ops::Buffer dxf = native(image, numbers(image.size(), 3));  // must be overwritten
    op->forward(xf.data(), yf.data());
    op->backward(dyf.data(), dxf.data());
    EXPECT_EQ(plain(shape.output(), yf), to_float(y));  // copies: no rounding
    EXPECT_EQ(plain(image, dxf), to_float(dx));
  }
}

TEST_P(Ops, MaxPoolGivesTheGradientToTheFirstOfEqualValues) {
  const ops::MaxPoolShape shape{{1, 16, 2, 2}};
  const auto op = ops::make_max_pool(*backend_, shape);
  const ops::Buffer xf = native(shape.image, Values(64, 0.5));
  const ops::Buffer yf = empty(shape.output());
  const ops::Buffer dyf = native(shape.output(), Values(16, 2.0));
  const ops::Buffer dxf = empty(shape.image);
  op->forward(xf.data(), yf.data());
  op->backward(dyf.data(), dxf.data());
  const auto dx = plain(shape.image, dxf);
  for (size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i], i % 4 == 0 ? 2.0F : 0.0F);
}

TEST_P(Ops, RelayoutRoundTripKeepsEachBit) {
  const ops::ImageShape shape{3, 19, 5, 7};
  const Values values = numbers(shape.size(), 1);
  EXPECT_EQ(plain(shape, native(shape, values)), to_float(values));
}

TEST_P(Ops, CrossEntropyEqualsItsReference) {
  for (const int64_t classes : {1, 2, 10, 100, 1000}) {
    constexpr int64_t kSamples = 9;
    Values logits = numbers(kSamples * classes, 1);
    for (double& value : logits) value = rounded(10.0 * value);
    std::vector<int32_t> labels;
    for (int64_t n = 0; n < kSamples; ++n) labels.push_back(static_cast<int32_t>(n % classes));
    const Values losses = reference::cross_entropy(classes, logits, labels);
    const Values d = reference::cross_entropy_backward(classes, logits, labels);
    expect_gradient(
        "dlogits", [&] { return reference::cross_entropy(classes, logits, labels); }, logits,
        Values(kSamples, 1.0 / kSamples), d);

    const auto op = ops::make_cross_entropy(*backend_, {kSamples, classes});
    const Held logitsd = held(logits);
    const Integers labelsd = integers(labels);
    const ops::Buffer lossesd = rubbish(kSamples);
    const ops::Buffer dd = rubbish(logits.size());
    op->forward(logitsd.data(), labelsd.data(), kSamples, lossesd.data());
    op->backward(labelsd.data(), dd.data());
    expect_close("losses", values(lossesd), losses, 10);
    expect_close("dlogits", values(dd.data(), logits.size()), d, 10, 1);
  }
}

TEST_P(Ops, LossOfACertainSampleIsExactlyZero) {
  const auto op = ops::make_cross_entropy(*backend_, {1, 3});
  const Held logits = held({7.0, -200.0, -300.0});
  const Integers label = integers({0});
  const ops::Buffer loss = rubbish(1);
  const ops::Buffer d = rubbish(3);
  op->forward(logits.data(), label.data(), 1, loss.data());
  op->backward(label.data(), d.data());
  EXPECT_THAT(values(loss), testing::ElementsAre(0.0F));
  EXPECT_THAT(values(d.data(), 3), testing::Each(0.0F));
}

TEST_P(Ops, LossOfHugeLogitsIsFinite) {
  const auto op = ops::make_cross_entropy(*backend_, {2, 3});
  const double large = rounded(1e4);
  const double huge = GetParam().precision == ops::Precision::kFp16 ? 6e4 : 1e30;
  const Held logits = held({large, -large, 0.0, huge, huge, -huge});
  const Integers labels = integers({1, 0});
  const ops::Buffer lossesd = rubbish(2);
  const ops::Buffer dd = rubbish(6);
  op->forward(logits.data(), labels.data(), 2, lossesd.data());
  op->backward(labels.data(), dd.data());
  const std::vector<float> losses = values(lossesd);
  const std::vector<float> d = values(dd.data(), 6);
  EXPECT_FLOAT_EQ(losses[0], static_cast<float>(2.0 * large));
  EXPECT_TRUE(std::isfinite(losses[1]));
  EXPECT_THAT(d, testing::Each(testing::Truly([](float v) { return std::isfinite(v); })));
  EXPECT_FLOAT_EQ(d[0], 0.5F);
  EXPECT_FLOAT_EQ(d[1], -0.5F);
}

// Memory after the valid samples is neither read nor written.
TEST_P(Ops, CrossEntropyOfTheFirstSamplesIgnoresTheOthers) {
  const auto op = ops::make_cross_entropy(*backend_, {3, 2});
  const Held logits = held({0.0, 0.0, 1.0, 3.0, NAN, NAN});
  const Integers labels = integers({0, 1, -5});
  const ops::Buffer losses = rubbish(3);
  const Integers predictions = integers({7, 7, 7});
  op->forward(logits.data(), labels.data(), 2, losses.data());
  op->predict(logits.data(), 2, predictions.data());
  EXPECT_THAT(values(losses),
              testing::ElementsAre(testing::FloatEq(std::log(2.0F)),
                                   testing::FloatNear(std::log1p(std::exp(-2.0F)), 1e-6F), 9.0F));
  EXPECT_THAT(values(predictions), testing::ElementsAre(0, 1, 7));
}

TEST_P(Ops, PredictTakesTheLowestOfEqualLogits) {
  const auto op = ops::make_cross_entropy(*backend_, {3, 4});
  const Held logits = held({1, 3, 3, 2, 5, 5, 5, 5, -4, -3, -2, -2});
  const Integers predictions = integers({-1, -1, -1});
  op->predict(logits.data(), 3, predictions.data());
  EXPECT_THAT(values(predictions), testing::ElementsAre(1, 0, 2));
}

TEST_P(Ops, ElementsRoundTripKeepsRepresentableValues) {
  const Values whole{0.0, -1.0, 0.5, 96.0, -0.375, 3.0};  // 8 bits are enough
  EXPECT_EQ(values(held(whole).data(), whole.size()), to_float(whole));
}

TEST_P(Ops, InvalidLabelsAndShapesAreRefused) {
  for (const int32_t label : {-1, 4}) {
    EXPECT_THROW(ops::check_labels({1, 4}, {&label, 1}), Error);
  }
  const std::vector<int32_t> labels{0, 3};
  EXPECT_NO_THROW(ops::check_labels({2, 4}, labels));
  EXPECT_THROW(ops::check_labels({1, 4}, labels), Error);
  EXPECT_THROW(ops::make_linear(*backend_, {0, 1, 1, false}), Error);
  EXPECT_THROW(ops::make_linear(*backend_, {1 << 20, 1 << 20, 1, false}), Error);
  EXPECT_THROW(ops::make_max_pool(*backend_, {{1, 1, 1, 1}}), Error);
  EXPECT_THROW(ops::make_batch_norm(*backend_, {.image = {1, 16, 1, 1}}), Error);
  EXPECT_THROW(ops::make_convolution(*backend_, {.input = {1, 1, 2, 2}, .outputs = 1, .kernel = 3}),
               Error);
  EXPECT_THROW(ops::make_elements(*backend_, 0), Error);
}

// Two threads split the work differently.
BackendCase two_threads() {
  return {.name = "CpuTwoThreads", .make = [](int) { return ops::make_cpu_backend(2); }};
}

INSTANTIATE_TEST_SUITE_P(Threads, Ops, testing::Values(two_threads()), case_name);
INSTANTIATE_TEST_SUITE_P(Threads, OpsConvolution, testing::Values(two_threads()), case_name);
INSTANTIATE_TEST_SUITE_P(Backends, Ops, testing::ValuesIn(all_backends()), case_name);
INSTANTIATE_TEST_SUITE_P(Backends, OpsConvolution, testing::ValuesIn(all_backends()), case_name);

}  // namespace
}  // namespace pushpull
