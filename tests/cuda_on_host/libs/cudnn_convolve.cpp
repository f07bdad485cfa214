// The loops of the stand-in for cuDNN: sums are f32, in an order that depends on the algorithm.
#include <vector>

#include "tests/cuda_on_host/libs/cudnn_convolution.h"

namespace pushpull::cuda_on_host {

namespace {

using Floats = std::vector<float>;

template <class F>
void for_each_element(const Tensor& tensor, F f) {
  size_t packed = 0;
  for (int64_t n = 0; n < tensor.size[0]; ++n)
    for (int64_t c = 0; c < tensor.size[1]; ++c)
      for (int64_t h = 0; h < tensor.size[2]; ++h)
        for (int64_t w = 0; w < tensor.size[3]; ++w) {
          f(packed++, static_cast<size_t>(n * tensor.stride[0] + c * tensor.stride[1] +
                                          h * tensor.stride[2] + w * tensor.stride[3]));
        }
}

Floats unpack(const Tensor& tensor, const void* from, Rounding rounding) {
  Floats values(static_cast<size_t>(tensor.count()));
  for_each_element(tensor, [&](size_t packed, size_t lies) {
    values[packed] = round_operand(load(from, tensor.type, lies), rounding);
  });
  return values;
}

void pack(const Tensor& tensor, const Floats& values, float alpha, float beta, void* to) {
  for_each_element(tensor, [&](size_t packed, size_t lies) {
    float value = alpha * values[packed];
    // if beta is 0, the old result may be anything
    if (beta != 0.0F) value += beta * load(to, tensor.type, lies);
    store(value, to, tensor.type, lies);
  });
}

// Columns of y for which y * stride + offset is a column of x.
struct Columns {
  int64_t begin = 0;
  int64_t end = 0;
};

Columns inside(int64_t offset, int64_t stride, int64_t x_width, int64_t y_width) {
  Columns columns{0, y_width};
  while (columns.begin < columns.end && columns.begin * stride + offset < 0) ++columns.begin;
  while (columns.end > columns.begin && (columns.end - 1) * stride + offset >= x_width) {
    --columns.end;
  }
  return columns;
}

struct Values {
  Floats x, w, y;
};

// One row of y, one row of x, one weight.
void run_row(const Convolution& conv, Values& v, size_t x_row, size_t y_row, size_t weight,
             int64_t offset) {
  const int64_t stride = conv.window.stride[1];
  const Columns columns = inside(offset, stride, conv.x.size[3], conv.y.size[3]);
  float* const x = v.x.data() + x_row;
  float* const y = v.y.data() + y_row;
  const float w = v.w[weight];
  switch (conv.direction) {
    case Direction::kForward:
      for (int64_t i = columns.begin; i < columns.end; ++i) y[i] += w * x[i * stride + offset];
      break;
    case Direction::kData:
      for (int64_t i = columns.begin; i < columns.end; ++i) x[i * stride + offset] += w * y[i];
      break;
    case Direction::kFilter: {
      float sum = 0.0F;
      for (int64_t i = columns.begin; i < columns.end; ++i) sum += x[i * stride + offset] * y[i];
      v.w[weight] += sum;
    }
  }
}

// All rows for one image, one channel on each side and one place in the filter.
void run_plane(const Convolution& conv, Values& v, int64_t n, int64_t o, int64_t c, int64_t place) {
  const auto& [samples, channels, height, width] = conv.x.size;
  const int64_t i = place / conv.w.size[3];
  const int64_t j = place % conv.w.size[3];
  const Window& window = conv.window;
  const int64_t offset = j * window.dilation[1] - window.padding[1];
  for (int64_t row = 0; row < conv.y.size[2]; ++row) {
    const int64_t x_row = row * window.stride[0] + i * window.dilation[0] - window.padding[0];
    if (x_row < 0 || x_row >= height) continue;
    run_row(conv, v, static_cast<size_t>(((n * channels + c) * height + x_row) * width),
            static_cast<size_t>(((n * conv.y.size[1] + o) * conv.y.size[2] + row) * conv.y.size[3]),
            static_cast<size_t>((o * channels + c) * conv.w.size[2] * conv.w.size[3] + place),
            offset);
  }
}

}  // namespace

void convolve(const Convolution& conv, const ConvolutionOperands& operands) {
  scribble(operands.workspace, operands.workspace_bytes);
  const auto operand = [&](const Tensor& tensor, const void* at, Direction writes) {
    return conv.direction == writes ? Floats(static_cast<size_t>(tensor.count()))
                                    : unpack(tensor, at, conv.rounding);
  };
  Values v{operand(conv.x, operands.x, Direction::kData),
           operand(conv.w, operands.w, Direction::kFilter),
           operand(conv.y, operands.y, Direction::kForward)};
  const int64_t places = conv.w.size[2] * conv.w.size[3];
  for (int64_t n = 0; n < conv.x.size[0]; ++n)
    for (int64_t o = 0; o < conv.w.size[0]; ++o)
      for (int64_t c = 0; c < conv.w.size[1]; ++c)
        for (int64_t place = 0; place < places; ++place) {
          const bool turned = conv.from_the_end;
          run_plane(conv, v, turned ? conv.x.size[0] - 1 - n : n,
                    turned ? conv.w.size[0] - 1 - o : o, turned ? conv.w.size[1] - 1 - c : c,
                    turned ? places - 1 - place : place);
        }
  const bool forward = conv.direction == Direction::kForward;
  const bool data = conv.direction == Direction::kData;
  pack(forward ? conv.y
       : data  ? conv.x
               : conv.w,
       forward ? v.y
       : data  ? v.x
               : v.w,
       operands.alpha, operands.beta, operands.result);
  scribble(operands.workspace, operands.workspace_bytes);
}

}  // namespace pushpull::cuda_on_host
