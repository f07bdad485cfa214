// Tests that cuDNN's stand-in computes correctly and refuses the calls that the real one refuses.
#include <gtest/gtest.h>

#include <array>

#include "tests/cuda_on_host/convolution.h"
#include "tests/models/reference.h"

namespace pushpull::cuda_on_host {
namespace {

const ops::cuda::Cudnn& cudnn() {
  static const ops::cuda::Cudnn library = cudnn_stand_in();
  return library;
}

// Compares with `expected`, rounded to the stored type.
void expect_values(const std::vector<double>& expected, const Bytes& found, Number type) {
  for (size_t i = 0; i < expected.size(); ++i) {
    std::array<std::byte, 4> rounded{};
    store(static_cast<float>(expected[i]), rounded.data(), type, 0);
    ASSERT_EQ(load(found.at(), type, i), load(rounded.data(), type, 0)) << "element " << i;
  }
}

std::vector<ops::ConvolutionShape> shapes() {
  return {{{2, 3, 8, 6}, 4, 3, 1},
          {{3, 2, 7, 7}, 5, 5, 2},
          {{2, 4, 5, 5}, 3, 1, 0},
          {{1, 1, 9, 8}, 2, 3, 0}};
}

TEST(CudnnStandIn, EveryAlgorithmComputesEveryDirectionAndType) {
  for (const Number type : {Number::kF32, Number::kBf16, Number::kF16}) {
    for (const ops::ConvolutionShape& shape : shapes()) {
      ConvolutionCase asked(cudnn(), shape, type);
      const std::vector<double> nothing(static_cast<size_t>(shape.outputs));
      const auto y = reference::convolution(shape, asked.x_values, asked.w_values, nothing);
      const auto gradients =
          reference::convolution_backward(shape, asked.x_values, asked.w_values, asked.y_values);
      for (const Direction direction :
           {Direction::kForward, Direction::kFilter, Direction::kData}) {
        const std::vector<Found> all = asked.list(direction);
        size_t run = 0;
        for (const Found& found : all) {
          SCOPED_TRACE(testing::Message() << "direction " << static_cast<int>(direction)
                                          << ", algorithm " << found.id);
          asked.set_math(found.math);
          size_t bytes = 0;
          const cudnnStatus_t status = asked.workspace(direction, found.id, &bytes);
          ASSERT_EQ(status, found.status);
          if (status != CUDNN_STATUS_SUCCESS || bytes > ConvolutionCase::kWorkspace) continue;
          asked.write_all();
          ASSERT_EQ(asked.run(direction, found.id, bytes), CUDNN_STATUS_SUCCESS);
          if (direction == Direction::kForward) expect_values(y, asked.y, type);
          if (direction == Direction::kFilter) expect_values(gradients.dw, asked.w, type);
          if (direction == Direction::kData) expect_values(gradients.dx, asked.x, type);
          ++run;
        }
        EXPECT_GT(run, 0U);
      }
    }
  }
}

TEST(CudnnStandIn, ListsUnsupportedAndNondeterministicAlgorithms) {
  ConvolutionCase asked(cudnn(), shapes()[1], Number::kBf16);
  for (const Direction direction : {Direction::kForward, Direction::kFilter, Direction::kData}) {
    bool refused = false;
    bool any_order = false;
    for (const Found& found : asked.list(direction)) {
      refused = refused || found.status == CUDNN_STATUS_NOT_SUPPORTED;
      any_order = any_order || !found.deterministic;
    }
    EXPECT_TRUE(refused);
    EXPECT_EQ(any_order, direction != Direction::kForward);
  }
}

// Another arithmetic uses another kernel or is not supported.
TEST(CudnnStandIn, SixteenBitsNeedTensorCores) {
  ConvolutionCase asked(cudnn(), shapes()[0], Number::kBf16);
  size_t bytes = 0;
  asked.set_math(CUDNN_TENSOR_OP_MATH);
  EXPECT_EQ(asked.workspace(Direction::kForward, 1, &bytes), CUDNN_STATUS_SUCCESS);
  asked.set_math(CUDNN_FMA_MATH);
  EXPECT_EQ(asked.workspace(Direction::kForward, 1, &bytes), CUDNN_STATUS_NOT_SUPPORTED);
}

TEST(CudnnStandIn, RoundsToTf32UnlessFmaIsRequested) {
  const float value = 1.0F + 0x1p-12F;
  for (const auto& [math, expected] :
       {std::pair{CUDNN_FMA_MATH, value}, std::pair{CUDNN_DEFAULT_MATH, 1.0F}}) {
    ConvolutionCase asked(cudnn(), {{1, 1, 1, 1}, 1, 1, 0}, Number::kF32);
    store(value, asked.x.at(), Number::kF32, 0);
    store(1.0F, asked.w.at(), Number::kF32, 0);
    asked.set_math(math);
    size_t bytes = 0;
    ASSERT_EQ(asked.workspace(Direction::kForward, 1, &bytes), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(asked.run(Direction::kForward, 1, bytes), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(load(asked.y.at(), Number::kF32, 0), expected);
  }
}

TEST(CudnnStandIn, ScalesAndAddsToTheOldResult) {
  const ops::ConvolutionShape shape = shapes()[0];
  ConvolutionCase asked(cudnn(), shape, Number::kF32);
  const std::vector<double> nothing(static_cast<size_t>(shape.outputs));
  auto y = reference::convolution(shape, asked.x_values, asked.w_values, nothing);
  for (size_t i = 0; i < y.size(); ++i) y[i] = 0.5 * y[i] + 2.0 * asked.y_values[i];
  ASSERT_EQ(asked.run(Direction::kForward, 0, 0, 0.5F, 2.0F), CUDNN_STATUS_SUCCESS);
  expect_values(y, asked.y, Number::kF32);
}

TEST(CudnnStandIn, RefusesASmallWorkspace) {
  ConvolutionCase asked(cudnn(), shapes()[0], Number::kF32);
  for (const Direction direction : {Direction::kForward, Direction::kFilter, Direction::kData}) {
    size_t bytes = 0;
    ASSERT_EQ(asked.workspace(direction, 1, &bytes), CUDNN_STATUS_SUCCESS);
    ASSERT_GT(bytes, 0U);
    EXPECT_EQ(asked.run(direction, 1, bytes - 1), CUDNN_STATUS_BAD_PARAM);
    EXPECT_EQ(asked.run(direction, 1, bytes), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(asked.run(direction, 99, bytes), CUDNN_STATUS_BAD_PARAM);
  }
}

TEST(CudnnStandIn, RefusesMismatchedDescriptions) {
  const auto status_of = [](const ops::ImageShape& output, Number y_type) {
    ConvolutionCase asked(cudnn(), shapes()[0], Number::kF32);
    asked.describe_image(asked.y_desc, output, y_type);
    size_t bytes = 0;
    return asked.workspace(Direction::kForward, 0, &bytes);
  };
  EXPECT_EQ(status_of({2, 4, 8, 6}, Number::kF32), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status_of({2, 4, 8, 6}, Number::kBf16), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status_of({2, 5, 8, 6}, Number::kF32), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status_of({1, 4, 8, 6}, Number::kF32), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(status_of({2, 4, 7, 6}, Number::kF32), CUDNN_STATUS_NOT_SUPPORTED);
}

TEST(CudnnStandIn, RefusesAFilterLargerThanThePaddedImage) {
  ConvolutionCase asked(cudnn(), {{1, 1, 9, 8}, 2, 3, 0}, Number::kF32);
  ASSERT_EQ(cudnn().cudnnSetFilter4dDescriptor(asked.w_desc, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 2,
                                               1, 3, 9),
            CUDNN_STATUS_SUCCESS);
  size_t bytes = 0;
  EXPECT_EQ(asked.workspace(Direction::kForward, 0, &bytes), CUDNN_STATUS_BAD_PARAM);
}

// Statuses of calls that need no device, in a fixed order.
std::vector<int> statuses_of_descriptions(const ops::cuda::Cudnn& library) {
  std::vector<int> all;
  cudnnTensorDescriptor_t tensor = nullptr;
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  all.push_back(library.cudnnCreate(nullptr));
  all.push_back(library.cudnnDestroy(nullptr));
  all.push_back(library.cudnnSetStream(nullptr, nullptr));
  all.push_back(library.cudnnCreateTensorDescriptor(nullptr));
  all.push_back(library.cudnnCreateTensorDescriptor(&tensor));
  all.push_back(library.cudnnCreateFilterDescriptor(nullptr));
  all.push_back(library.cudnnCreateFilterDescriptor(&filter));
  all.push_back(library.cudnnCreateConvolutionDescriptor(nullptr));
  all.push_back(library.cudnnCreateConvolutionDescriptor(&convolution));
  const int sizes[][4] = {{2, 3, 8, 8},         {0, 1, 1, 1},         {1, -1, 1, 1},
                          {65536, 65536, 1, 1}, {32768, 65536, 1, 1}, {32767, 65536, 1, 1}};
  for (const auto& [n, c, h, w] : sizes) {
    for (const auto type : {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF}) {
      for (const auto format : {CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC}) {
        all.push_back(library.cudnnSetTensor4dDescriptor(tensor, format, type, n, c, h, w));
      }
    }
  }
  all.push_back(
      library.cudnnSetTensor4dDescriptor(nullptr, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 1, 1));
  all.push_back(
      library.cudnnSetFilter4dDescriptor(nullptr, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 1, 1, 1, 1));
  for (const int size : {-1, 0, 1, 5}) {
    all.push_back(library.cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_BFLOAT16, CUDNN_TENSOR_NCHW,
                                                     4, 3, size, 3));
  }
  for (const int each : {-1, 0, 1}) {
    const auto set = [&](int padding, int stride, int dilation, cudnnDataType_t compute) {
      all.push_back(library.cudnnSetConvolution2dDescriptor(convolution, padding, padding, stride,
                                                            stride, dilation, dilation,
                                                            CUDNN_CROSS_CORRELATION, compute));
    };
    set(each, 1, 1, CUDNN_DATA_FLOAT);
    set(0, each, 1, CUDNN_DATA_FLOAT);
    set(0, 1, each, CUDNN_DATA_FLOAT);
    set(0, 1, 1, CUDNN_DATA_BFLOAT16);
  }
  for (const int math : {-1, 0, 1, 2, 3, 4}) {
    all.push_back(
        library.cudnnSetConvolutionMathType(convolution, static_cast<cudnnMathType_t>(math)));
  }
  all.push_back(library.cudnnSetConvolutionMathType(nullptr, CUDNN_FMA_MATH));
  all.push_back(library.cudnnDestroyTensorDescriptor(tensor));
  all.push_back(library.cudnnDestroyFilterDescriptor(filter));
  all.push_back(library.cudnnDestroyConvolutionDescriptor(convolution));
  all.push_back(library.cudnnDestroyTensorDescriptor(nullptr));
  all.push_back(library.cudnnDestroyFilterDescriptor(nullptr));
  all.push_back(library.cudnnDestroyConvolutionDescriptor(nullptr));
  return all;
}

TEST(CudnnStandIn, DescriptionsAcceptWhatTheRealLibraryAccepts) {
  const std::string real = real_library("libcudnn.so." + std::to_string(CUDNN_MAJOR));
  if (real.empty()) GTEST_SKIP() << "the toolkit's folder does not contain the real library";
  ops::cuda::Cudnn functions;
  open(real, functions);
  ASSERT_NE(functions.cudnnConvolutionForward, cudnn().cudnnConvolutionForward);
  EXPECT_EQ(statuses_of_descriptions(cudnn()), statuses_of_descriptions(functions));
  for (const auto status : {CUDNN_STATUS_SUCCESS, CUDNN_STATUS_BAD_PARAM,
                            CUDNN_STATUS_NOT_SUPPORTED, CUDNN_STATUS_EXECUTION_FAILED}) {
    EXPECT_STREQ(cudnn().cudnnGetErrorString(status), functions.cudnnGetErrorString(status));
  }
}

}  // namespace
}  // namespace pushpull::cuda_on_host
