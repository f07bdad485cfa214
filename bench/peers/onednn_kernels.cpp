// Times oneDNN's matrix products and convolutions with the shapes of our models, on one thread. onednn_compare.py
// builds it with two versions of oneDNN. Their interfaces describe a primitive differently.
//   onednn_kernels    prints "NAME gigaflops_per_second" for each kernel
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using dnnl::memory;
using dnnl::primitive;
using Tag = memory::format_tag;
using Arguments = std::unordered_map<int, memory>;
using Clock = std::chrono::steady_clock;

dnnl::engine engine(dnnl::engine::kind::cpu, 0);
dnnl::stream stream(engine);

// Makes the description of a primitive with either interface.
template <class Kernel, class... Arguments>
typename Kernel::primitive_desc plan(const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Kernel::primitive_desc(engine, arguments...);
#else
  return typename Kernel::primitive_desc(typename Kernel::desc(arguments...), engine);
#endif
}
template <class Kernel, class Hint, class... Arguments>
typename Kernel::primitive_desc plan_backward(const Hint& hint, const Arguments&... arguments) {
#if DNNL_VERSION_MAJOR >= 3
  return typename Kernel::primitive_desc(engine, arguments..., hint);
#else
  return typename Kernel::primitive_desc(typename Kernel::desc(arguments...), engine, hint);
#endif
}

memory::desc f32(const memory::dims& dims, Tag tag) { return {dims, memory::data_type::f32, tag}; }

memory filled(const memory::desc& desc) {
  memory out(desc, engine);
  auto* data = static_cast<float*>(out.get_data_handle());
  for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) {
    data[i] = static_cast<float>(i * 7919 % 1000) / 1000.0F - 0.5F;
  }
  return out;
}

// Prints the median speed of at least 15 runs that take 0.1 s.
void print_speed(const std::string& name, double flops, const std::function<void()>& once) {
  std::vector<double> seconds;
  double sum = 0.0;
  for (int run = -2; run < 15 || sum < 0.1; ++run) {
    const auto began = Clock::now();
    once();
    const double took = std::chrono::duration<double>(Clock::now() - began).count();
    if (run < 0) continue;  // warm-up
    seconds.push_back(took);
    sum += took;
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  std::printf("%s %.1f\n", name.c_str(), flops / *middle / 1e9);
}

void print_speed(const std::string& name, double flops, const primitive& kernel,
                 const Arguments& arguments) {
  print_speed(name, flops, [&] {
    kernel.execute(stream, arguments);
    stream.wait();
  });
}

void product(const std::string& name, const memory::desc& a, const memory::desc& b,
             const memory::desc& c, double flops) {
  const auto desc = plan<dnnl::matmul>(a, b, c);
  print_speed(
      name, flops, dnnl::matmul(desc),
      {{DNNL_ARG_SRC, filled(a)}, {DNNL_ARG_WEIGHTS, filled(b)}, {DNNL_ARG_DST, filled(c)}});
}

// c = a b for row-major b [k, n], by matmul and by sgemm.
//   transposed: a [m, k] is stored as its transpose.
void gradient(const std::string& name, int64_t m, int64_t k, int64_t n, bool transposed,
              double flops) {
  const auto a = f32({m, k}, transposed ? Tag::ba : Tag::ab);
  const auto b = f32({k, n}, Tag::ab), c = f32({m, n}, Tag::ab);
  product(name, a, b, c, flops);
  const memory from = filled(a), by = filled(b), to = filled(c);
  const auto floats = [](const memory& of) { return static_cast<float*>(of.get_data_handle()); };
  print_speed(name + ".sgemm", flops, [&] {
    dnnl_sgemm(transposed ? 'T' : 'N', 'N', m, n, k, 1.0F, floats(from), transposed ? m : k,
               floats(by), n, 0.0F, floats(to), n);
  });
}

// A linear layer: [samples, inputs] to [samples, outputs], and both its gradients.
void linear(const std::string& name, int64_t samples, int64_t inputs, int64_t outputs) {
  const auto flops = 2.0 * static_cast<double>(samples * inputs * outputs);
  product(name + ".forward", f32({samples, inputs}, Tag::ab), f32({inputs, outputs}, Tag::ba),
          f32({samples, outputs}, Tag::ab), flops);
  gradient(name + ".weights", outputs, samples, inputs, true, flops);
  gradient(name + ".data", samples, outputs, inputs, false, flops);
}

struct Image {
  int64_t samples, channels, size;
};

void convolution(const std::string& name, Image in, int64_t outputs, int64_t kernel, int64_t stride,
                 int64_t padding) {
  using Forward = dnnl::convolution_forward;
  using Weights = dnnl::convolution_backward_weights;
  using Data = dnnl::convolution_backward_data;
  const int64_t size = (in.size + 2 * padding - kernel) / stride + 1;
  const bool blocked = in.channels % 16 == 0;
  const auto x =
      f32({in.samples, in.channels, in.size, in.size}, blocked ? Tag::nChw16c : Tag::nchw);
  const auto w = f32({outputs, in.channels, kernel, kernel}, Tag::any);
  const auto y = f32({in.samples, outputs, size, size}, Tag::nChw16c);
  const memory::dims strides{stride, stride}, before{padding, padding};
  const int64_t last = (size - 1) * stride + kernel - in.size - padding;
  const memory::dims after{last, last};
  constexpr auto direct = dnnl::algorithm::convolution_direct;
  const double flops = 2.0 * static_cast<double>(in.samples * outputs * size * size) *
                       static_cast<double>(in.channels * kernel * kernel);
  const auto f =
      plan<Forward>(dnnl::prop_kind::forward_training, direct, x, w, y, strides, before, after);
  print_speed(name + ".forward", flops, Forward(f),
              {{DNNL_ARG_SRC, filled(f.src_desc())},
               {DNNL_ARG_WEIGHTS, filled(f.weights_desc())},
               {DNNL_ARG_DST, filled(f.dst_desc())}});
  const auto bw = plan_backward<Weights>(f, direct, x, w, y, strides, before, after);
  print_speed(name + ".weights", flops, Weights(bw),
              {{DNNL_ARG_SRC, filled(bw.src_desc())},
               {DNNL_ARG_DIFF_DST, filled(bw.diff_dst_desc())},
               {DNNL_ARG_DIFF_WEIGHTS, filled(bw.diff_weights_desc())}});
  if (!blocked) return;  // the gradient of the input is not used
  const auto bd = plan_backward<Data>(f, direct, x, w, y, strides, before, after);
  print_speed(name + ".data", flops, Data(bd),
              {{DNNL_ARG_DIFF_SRC, filled(bd.diff_src_desc())},
               {DNNL_ARG_WEIGHTS, filled(bd.weights_desc())},
               {DNNL_ARG_DIFF_DST, filled(bd.diff_dst_desc())}});
}

}  // namespace

int main() {
  linear("mlp", 128, 1024, 1024);
  linear("mlp-wide", 64, 4096, 4096);
  linear("gpt.queries", 384, 128, 384);
  linear("gpt.up", 384, 128, 512);
  linear("bert.queries", 1024, 256, 768);
  linear("bert.down", 1024, 1024, 256);
  linear("bert-base.queries", 768, 768, 2304);
  linear("bert-base.up", 768, 768, 3072);
  linear("bert-base.down", 768, 3072, 768);
  convolution("resnet18.1", {16, 64, 28}, 64, 3, 1, 1);
  convolution("resnet18.2", {16, 128, 14}, 128, 3, 1, 1);
  convolution("resnet18.4", {16, 512, 4}, 512, 3, 1, 1);
  convolution("resnet50.stem", {4, 3, 224}, 64, 7, 2, 3);
  convolution("resnet50.narrow", {4, 256, 56}, 64, 1, 1, 0);
  convolution("resnet50.middle", {4, 128, 28}, 128, 3, 1, 1);
  convolution("resnet50.stride", {4, 512, 28}, 1024, 1, 2, 0);
  return 0;
}
