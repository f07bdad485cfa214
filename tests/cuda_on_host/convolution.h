// A convolution with its memory, for calls of cuDNN's stand-in.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "models/ops/convolution.h"
#include "tests/cuda_on_host/bytes.h"
#include "tests/cuda_on_host/libs/cudnn_convolution.h"
#include "tests/cuda_on_host/opened.h"

namespace pushpull::cuda_on_host {

// One row of the result of a _v7 query.
struct Found {
  int id = 0;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  bool deterministic = false;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

class ConvolutionCase {
 public:
  ConvolutionCase(const ops::cuda::Cudnn& library, const ops::ConvolutionShape& asked,
                  Number stored)
      : lib(library),
        shape(asked),
        type(stored),
        x_values(some_values(static_cast<size_t>(shape.input.size()), 1)),
        w_values(some_values(
            static_cast<size_t>(shape.outputs * shape.input.channels * shape.kernel * shape.kernel),
            2)),
        y_values(some_values(static_cast<size_t>(shape.output().size()), 3)),
        x(4 * x_values.size()),
        w(4 * w_values.size()),
        y(4 * y_values.size()) {
    expect(lib.cudnnCreate(&handle));
    expect(lib.cudnnCreateTensorDescriptor(&x_desc));
    expect(lib.cudnnCreateTensorDescriptor(&y_desc));
    expect(lib.cudnnCreateFilterDescriptor(&w_desc));
    expect(lib.cudnnCreateConvolutionDescriptor(&convolution));
    describe_image(x_desc, shape.input, type);
    describe_image(y_desc, shape.output(), type);
    const auto kernel = static_cast<int>(shape.kernel);
    expect(lib.cudnnSetFilter4dDescriptor(w_desc, library_type(type), CUDNN_TENSOR_NCHW,
                                          static_cast<int>(shape.outputs),
                                          static_cast<int>(shape.input.channels), kernel, kernel));
    const auto padding = static_cast<int>(shape.padding);
    expect(lib.cudnnSetConvolution2dDescriptor(convolution, padding, padding, 1, 1, 1, 1,
                                               CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    write_all();
  }
  ~ConvolutionCase() {
    expect(lib.cudnnDestroyConvolutionDescriptor(convolution));
    expect(lib.cudnnDestroyFilterDescriptor(w_desc));
    expect(lib.cudnnDestroyTensorDescriptor(y_desc));
    expect(lib.cudnnDestroyTensorDescriptor(x_desc));
    expect(lib.cudnnDestroy(handle));
  }
  ConvolutionCase(const ConvolutionCase&) = delete;
  ConvolutionCase& operator=(const ConvolutionCase&) = delete;

  static void expect(cudnnStatus_t status) { EXPECT_EQ(status, CUDNN_STATUS_SUCCESS); }
  static cudnnDataType_t library_type(Number number) {
    if (number == Number::kF32) return CUDNN_DATA_FLOAT;
    return number == Number::kBf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
  }
  void describe_image(cudnnTensorDescriptor_t desc, const ops::ImageShape& image, Number number) {
    expect(lib.cudnnSetTensor4dDescriptor(
        desc, CUDNN_TENSOR_NCHW, library_type(number), static_cast<int>(image.samples),
        static_cast<int>(image.channels), static_cast<int>(image.height),
        static_cast<int>(image.width)));
  }
  void set_math(cudnnMathType_t math) {
    expect(lib.cudnnSetConvolutionMathType(convolution, math));
  }
  void write_all() {
    write(x_values, type, x.at());
    write(w_values, type, w.at());
    write(y_values, type, y.at());
  }

  std::vector<Found> list(Direction direction) {
    int count = 0;
    const auto rows = [&count](const auto& results) {
      std::vector<Found> all;
      for (int i = 0; i < count; ++i) {
        const auto& row = results[static_cast<size_t>(i)];
        all.push_back({static_cast<int>(row.algo), row.status,
                       row.determinism == CUDNN_DETERMINISTIC, row.mathType});
      }
      return all;
    };
    if (direction == Direction::kForward) {
      std::array<cudnnConvolutionFwdAlgoPerf_t, 16> results{};
      expect(lib.cudnnGetConvolutionForwardAlgorithm_v7(handle, x_desc, w_desc, convolution, y_desc,
                                                        16, &count, results.data()));
      return rows(results);
    }
    if (direction == Direction::kFilter) {
      std::array<cudnnConvolutionBwdFilterAlgoPerf_t, 16> results{};
      expect(lib.cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x_desc, y_desc, convolution,
                                                               w_desc, 16, &count, results.data()));
      return rows(results);
    }
    std::array<cudnnConvolutionBwdDataAlgoPerf_t, 16> results{};
    expect(lib.cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w_desc, y_desc, convolution,
                                                           x_desc, 16, &count, results.data()));
    return rows(results);
  }

  cudnnStatus_t workspace(Direction direction, int id, size_t* bytes) {
    if (direction == Direction::kForward) {
      return lib.cudnnGetConvolutionForwardWorkspaceSize(
          handle, x_desc, w_desc, convolution, y_desc, static_cast<cudnnConvolutionFwdAlgo_t>(id),
          bytes);
    }
    if (direction == Direction::kFilter) {
      return lib.cudnnGetConvolutionBackwardFilterWorkspaceSize(
          handle, x_desc, y_desc, convolution, w_desc,
          static_cast<cudnnConvolutionBwdFilterAlgo_t>(id), bytes);
    }
    return lib.cudnnGetConvolutionBackwardDataWorkspaceSize(
        handle, w_desc, y_desc, convolution, x_desc, static_cast<cudnnConvolutionBwdDataAlgo_t>(id),
        bytes);
  }

  cudnnStatus_t run(Direction direction, int id, size_t bytes, float alpha = 1.0F,
                    float beta = 0.0F) {
    if (direction == Direction::kForward) {
      return lib.cudnnConvolutionForward(handle, &alpha, x_desc, x.at(), w_desc, w.at(),
                                         convolution, static_cast<cudnnConvolutionFwdAlgo_t>(id),
                                         space.at(), bytes, &beta, y_desc, y.at());
    }
    if (direction == Direction::kFilter) {
      return lib.cudnnConvolutionBackwardFilter(handle, &alpha, x_desc, x.at(), y_desc, y.at(),
                                                convolution,
                                                static_cast<cudnnConvolutionBwdFilterAlgo_t>(id),
                                                space.at(), bytes, &beta, w_desc, w.at());
    }
    return lib.cudnnConvolutionBackwardData(
        handle, &alpha, w_desc, w.at(), y_desc, y.at(), convolution,
        static_cast<cudnnConvolutionBwdDataAlgo_t>(id), space.at(), bytes, &beta, x_desc, x.at());
  }

  static constexpr size_t kWorkspace = size_t{1} << 20;

  const ops::cuda::Cudnn& lib;
  const ops::ConvolutionShape shape;
  const Number type;
  const std::vector<double> x_values, w_values, y_values;
  Bytes x, w, y;
  Bytes space{kWorkspace};
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t x_desc = nullptr;
  cudnnTensorDescriptor_t y_desc = nullptr;
  cudnnFilterDescriptor_t w_desc = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
};

}  // namespace pushpull::cuda_on_host
