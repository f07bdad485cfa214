// Compares the kernels on a device with the same blocks and threads on the host, bit by bit: the
// device neither contracts, flushes nor reorders. Tensors at an unaligned address give the same
// bits. (Exponentials are the device's own: cross-entropy may differ by a few units in the last
// place.)
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/device/cuda_check.h"
#include "models/ops/cuda/makers.h"
#include "models/ops/cuda/passes.h"
#include "models/ops/losses.h"
#include "models/ops/norms.h"
#include "models/ops/pointwise.h"
#include "models/ops/pool.h"
#include "tests/device/need_device.h"
#include "tests/models/kernel_blocks.h"
#include "tests/models/kernel_numbers.h"

namespace pushpull {
namespace {

using namespace ops;  // NOLINT(google-build-using-namespace)
using numbers::converted;
using numbers::floats;
using numbers::ordinary;

template <class T>
Precision precision_of() {
  if (std::is_same_v<T, Bf16>) return Precision::kBf16;
  return std::is_same_v<T, Fp16> ? Precision::kFp16 : Precision::kFp32;
}

template <class T>
class KernelsOnDevice : public testing::Test {
 protected:
  void SetUp() override {
    PP_NEED_DEVICE();
    shared_.device = device::open({device::DeviceName::kCuda, 0});
    shared_.precision = precision_of<T>();
    shared_.loss_scale = 4.0F;
    device::use_device(shared_.index);
    stream_ = shared_.device->stream();
    shared_.stream = device::native_stream(*stream_);
  }

  // step: distance of the tensor from an aligned address, in elements.
  template <class N>
  N* upload(const std::vector<N>& host, size_t step) {
    memory_.push_back(shared_.device->allocate((host.size() + step) * sizeof(N)));
    N* first = static_cast<N*>(memory_.back().data()) + step;
    PP_CUDA(cudaMemcpyAsync(first, host.data(), host.size() * sizeof(N), cudaMemcpyHostToDevice,
                            shared_.stream));
    PP_CUDA(cudaStreamSynchronize(shared_.stream));
    return first;
  }
  void* room(size_t bytes) {
    memory_.push_back(shared_.device->allocate(bytes));
    return memory_.back().data();
  }
  template <class N>
  std::vector<N> download(const N* from, size_t count) {
    std::vector<N> host(count);
    PP_CUDA(cudaMemcpyAsync(host.data(), from, count * sizeof(N), cudaMemcpyDeviceToHost,
                            shared_.stream));
    PP_CUDA(cudaStreamSynchronize(shared_.stream));
    return host;
  }

  cuda::Shared shared_;

 private:
  std::unique_ptr<device::Stream> stream_;
  std::vector<device::Memory> memory_;
};
using Types = testing::Types<float, Bf16, Fp16>;
TYPED_TEST_SUITE(KernelsOnDevice, Types);

const std::vector<ImageShape>& images() {
  static const std::vector<ImageShape> shapes{
      {3, 16, 5, 4}, {2, 5, 3, 3}, {10, 3, 28, 28}, {30, 2, 14, 14}, {2100, 1, 32, 32}};
  return shapes;
}

TYPED_TEST(KernelsOnDevice, NormaliseBatchesLikeTheHost) {
  using T = TypeParam;
  for (const ImageShape& image : images()) {
    const BatchNormShape shape{.image = image, .relu = true};
    const auto channels = static_cast<size_t>(image.channels);
    const std::vector<T> x = converted<T>(ordinary(image.size(), 1));
    const std::vector<T> dy = converted<T>(ordinary(image.size(), 4));
    const std::vector<float> scale = ordinary(image.channels, 2);
    const std::vector<float> shift = ordinary(image.channels, 3);
    blocks::BatchNormKernels<T, 1> host(shape);
    std::vector<T> y(x.size());
    std::vector<T> dx(x.size());
    std::vector<T> inferred(x.size());
    host.forward(x.data(), scale.data(), shift.data(), y.data());
    host.backward(x.data(), dy.data(), scale.data(), shift.data(), 0.25F, dx.data());
    host.infer(x.data(), scale.data(), shift.data(), host.mean.data(), host.variance.data(),
               inferred.data());

    const auto op = cuda::make_batch_norm(this->shared_, BatchNormSpec(shape));
    for (const size_t step : {0, 1}) {
      Run run;
      run.x[0].data = this->upload(x, step);
      run.y.data = run.dx[0].data = this->upload(std::vector<T>(x.size()), step);
      run.w = {this->upload(scale, step), this->upload(shift, step), this->upload(host.mean, step),
               this->upload(host.variance, step)};
      for (float*& dw : run.dw) dw = this->upload(std::vector<float>(channels), step);
      run.kept = this->room(op->needs().kept_bytes);
      run.training = true;
      op->forward(run);
      EXPECT_EQ(floats(this->download(static_cast<T*>(run.y.data), x.size())), floats(y));
      EXPECT_EQ(this->download(run.dw[2], channels), host.mean);
      EXPECT_EQ(this->download(run.dw[3], channels), host.variance);
      run.dy.data = this->upload(dy, step);
      op->backward_data(run);
      EXPECT_EQ(floats(this->download(static_cast<T*>(run.dx[0].data), x.size())), floats(dx));
      EXPECT_EQ(this->download(run.dw[0], channels), host.dscale);
      EXPECT_EQ(this->download(run.dw[1], channels), host.dshift);
      run.training = false;
      op->forward(run);
      EXPECT_EQ(floats(this->download(static_cast<T*>(run.y.data), x.size())), floats(inferred));
    }
  }
}

TYPED_TEST(KernelsOnDevice, SumBiasGradientsLikeTheHost) {
  using T = TypeParam;
  for (const LinearShape& shape :
       {LinearShape{7, 1, 10, true}, LinearShape{129, 1, 33, true}, LinearShape{512, 1, 520, true},
        LinearShape{200, 1, 136, false}}) {
    const int64_t count = shape.samples * shape.outputs;
    const std::vector<T> y = converted<T>(ordinary(count, 1));
    const std::vector<T> dy = converted<T>(ordinary(count, 2));
    std::vector<T> masked = dy;
    const auto sum =
        shape.relu ? blocks::mask_and_sum<T, false, true> : blocks::mask_and_sum<T, false, false>;
    const auto db = sum(shape.samples, shape.outputs, y.data(), masked.data(), 0.25F);
    cuda::plan_mask_and_sum_rows(this->shared_, shape);
    for (const size_t step : {0, 1}) {
      T* dev_dy = this->upload(dy, step);
      float* dev_db = this->upload(std::vector<float>(db.size()), step);
      cuda::mask_and_sum_rows(this->shared_, shape, this->upload(y, step), dev_dy, dev_db);
      EXPECT_EQ(this->download(dev_db, db.size()), db);
      EXPECT_EQ(floats(this->download(dev_dy, dy.size())), floats(masked));
    }
  }
  for (const ImageShape& image : images()) {
    const std::vector<T> dy = converted<T>(ordinary(image.size(), 3));
    const auto db = blocks::sum_channels<T, 1>(image, dy.data(), 0.25F);
    cuda::plan_sum_channels(this->shared_, image);
    for (const size_t step : {0, 1}) {
      float* dev_db = this->upload(std::vector<float>(db.size()), step);
      cuda::sum_channels(this->shared_, image, this->upload(dy, step), dev_db);
      EXPECT_EQ(this->download(dev_db, db.size()), db);
    }
  }
}

TYPED_TEST(KernelsOnDevice, AddBiasesAndCastLikeTheHost) {
  using T = TypeParam;
  for (const ImageShape& image : images()) {
    const std::vector<float> wide = ordinary(image.size(), 5);
    const std::vector<T> y = converted<T>(wide);
    const std::vector<float> b = ordinary(image.channels, 6);
    std::vector<T> sum = y;
    blocks::for_each_flat(image.size(), [&](int64_t block, int t) {
      cuda::add_channels<T, false>(Divider(image.height * image.width), Divider(image.channels),
                                   image.size(), block, t, b.data(), sum.data());
    });
    for (const size_t step : {0, 1}) {
      T* dev = this->upload(y, step);
      cuda::add_bias(this->shared_, image, this->upload(b, step), dev);
      EXPECT_EQ(floats(this->download(dev, y.size())), floats(sum));
      const float* dev_wide = this->upload(wide, step);
      cuda::cast_weights(this->shared_, dev_wide, image.size(), dev);
      EXPECT_EQ(floats(this->download(dev, y.size())), floats(y));
      const Shape all{image.samples, image.channels, image.height, image.width};
      Run run;
      run.x[0].data = dev_wide;
      run.kept = this->room(y.size() * sizeof(T));
      const auto elements = cuda::make_elements(this->shared_, ElementsSpec(all));
      const auto* in = static_cast<const T*>(elements->view(run));
      EXPECT_EQ(floats(this->download(in, y.size())), floats(y));
      float* back = this->upload(std::vector<float>(y.size()), step);
      cuda::widen(this->shared_, dev, image.size(), 1.0F, back);
      EXPECT_EQ(this->download(back, y.size()), floats(y));
      T* copy = this->upload(std::vector<T>(y.size()), step);
      run.x[0].data = dev;
      run.y.data = copy;
      cuda::make_flatten(this->shared_, FlattenSpec(image))->forward(run);
      EXPECT_EQ(floats(this->download(copy, y.size())), floats(y));
    }
  }
}

TYPED_TEST(KernelsOnDevice, PoolLikeTheHost) {
  using T = TypeParam;
  for (const ImageShape& image :
       {ImageShape{2, 3, 6, 6}, ImageShape{2, 2, 7, 5}, ImageShape{3, 3, 5, 8},
        ImageShape{50, 4, 28, 28}, ImageShape{1, 2, 9, 16}}) {
    const MaxPoolShape shape{image};
    const std::vector<T> x = converted<T>(ordinary(image.size(), 7));
    const auto windows = static_cast<size_t>(shape.output().size());
    const std::vector<T> dy = converted<T>(ordinary(shape.output().size(), 8));
    std::vector<uint8_t> winners(windows);
    std::vector<T> y(windows);
    std::vector<T> dx(x.size());
    const cuda::PoolPass pass(shape, 1);
    for (uint32_t u = 0; u < pass.units; ++u) {
      cuda::pool_forward<1>(pass, u, x.data(), y.data(), winners.data());
      cuda::pool_backward<1>(pass, u, dy.data(), winners.data(), dx.data());
    }
    const auto op = cuda::make_max_pool(this->shared_, MaxPoolSpec(shape));
    for (const size_t step : {0, 1}) {
      T* out = this->upload(std::vector<T>(windows), step);
      T* back = this->upload(converted<T>(ordinary(image.size(), 9)), step);  // must be overwritten
      Run run;
      run.x[0].data = this->upload(x, step);
      run.y.data = out;
      run.dy.data = this->upload(dy, step);
      run.dx[0].data = back;
      run.kept = this->room(op->needs().kept_bytes);
      op->forward(run);
      EXPECT_EQ(floats(this->download(out, windows)), floats(y));
      op->backward_data(run);
      EXPECT_EQ(floats(this->download(back, x.size())), floats(dx));
    }
  }
}

TYPED_TEST(KernelsOnDevice, FindLossesAndPredictionsLikeTheHost) {
  using T = TypeParam;
  for (const int64_t classes : {1, 10, 33, 1000, 3000}) {
    constexpr int64_t kSamples = 9;
    std::vector<float> wide = ordinary(kSamples * classes, 1);
    for (float& value : wide) value *= 10.0F;
    const std::vector<T> logits = converted<T>(wide);
    const int width = classes <= kWarpRow ? kWarp : kBlock;
    std::vector<int32_t> labels, best;
    std::vector<float> losses;
    std::vector<cuda::KeptRow> kept;
    for (int64_t n = 0; n < kSamples; ++n) {
      const T* row = logits.data() + n * classes;
      labels.push_back(static_cast<int32_t>(n * 7 % classes));
      const cuda::RowPart whole = blocks::whole_row(row, classes, width, n);
      best.push_back(whole.label);
      losses.push_back(cuda::loss_of(whole, to_float(row[labels.back()]), classes, 0.0F));
      kept.push_back(blocks::kept_of(whole));
    }
    const CrossEntropySpec spec({kSamples, classes}, {});
    const auto op = cuda::make_cross_entropy(this->shared_, spec);
    for (const size_t step : {0, 1}) {
      float* dev_losses = this->upload(std::vector<float>(kSamples), step);
      T* d = this->upload(std::vector<T>(logits.size()), step);
      Run run;
      run.x[0].data = this->upload(logits, step);
      run.x[1].data = this->upload(labels, step);
      run.y.data = dev_losses;
      run.dx[0].data = d;
      run.kept = this->room(op->needs().kept_bytes);
      run.scale = this->upload(std::vector<float>{1.0F / kSamples}, 0);
      run.valid = kSamples;
      run.training = true;
      op->forward(run);
      op->backward_data(run);
      const auto got = this->download(dev_losses, kSamples);
      for (size_t n = 0; n < got.size(); ++n) EXPECT_NEAR(got[n], losses[n], 1e-6F * 20.0F);
      const auto gradients = floats(this->download(d, logits.size()));
      for (size_t i = 0; i < gradients.size(); ++i) {
        const size_t n = i / static_cast<size_t>(classes);
        const bool is_label = i % static_cast<size_t>(classes) == static_cast<size_t>(labels[n]);
        const float weight = 4.0F / kSamples;
        const float p = cuda::exponential_below(to_float(logits[i]), kept[n].top) * kept[n].inverse;
        const float want = cuda::score_gradient(p, is_label, classes, 0.0F, weight);
        // one unit of the stored type, and a few of an f32 exponential
        ASSERT_NEAR(gradients[i], want, 0x1p-7F * std::fabs(want) + 1e-6F);
      }
      int32_t* predictions = this->upload(std::vector<int32_t>(kSamples), step);
      run.y.data = nullptr;
      run.predictions.data = predictions;
      op->forward(run);
      EXPECT_EQ(this->download(predictions, kSamples), best);
    }
  }
}

}  // namespace
}  // namespace pushpull
