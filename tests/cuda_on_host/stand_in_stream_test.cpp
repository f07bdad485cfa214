// Tests that the stand-ins enqueue their work with the program's cuda_on_host_enqueue. This
// program's stores it.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/cuda_on_host/convolution.h"
#include "tests/cuda_on_host/product.h"

namespace {

struct Kept {
  cudaStream_t stream;
  void (*work)(void*);
  void* argument;
  void (*destroy)(void*);
};

std::vector<Kept> kept;
bool refuses = false;

}  // namespace

extern "C" __attribute__((visibility("default"))) int cuda_on_host_enqueue(cudaStream_t stream,
                                                                           void (*work)(void*),
                                                                           void* argument,
                                                                           void (*destroy)(void*)) {
  if (refuses) {
    destroy(argument);
    return 1;
  }
  kept.push_back({stream, work, argument, destroy});
  return 0;
}

namespace pushpull::cuda_on_host {
namespace {

void run_kept(int times) {
  for (int i = 0; i < times; ++i) {
    for (const Kept& each : kept) each.work(each.argument);
  }
  for (const Kept& each : kept) each.destroy(each.argument);
  kept.clear();
}

TEST(StandInStream, AProductRunsLaterWithTheArgumentsOfTheCall) {
  const device::CublasLt lt = cublas_lt_stand_in();
  Product product(lt, {});
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  const float before = product.result(3, 5);
  ASSERT_NE(before, product.expected(3, 5));
  ASSERT_EQ(product.run(product.results[0].algo), CUBLAS_STATUS_SUCCESS);
  const float expected = product.expected(3, 5);
  EXPECT_EQ(product.result(3, 5), before);
  product.of.alpha = 100.0F;
  product.forget_descriptions();
  product.results.clear();
  run_kept(2);  // twice, like launches of a graph
  EXPECT_EQ(product.result(3, 5), expected);
}

TEST(StandInStream, AConvolutionRunsLaterOnItsHandlesStream) {
  const ops::cuda::Cudnn cudnn = cudnn_stand_in();
  ConvolutionCase asked(cudnn, {{1, 1, 1, 1}, 1, 1, 0}, Number::kF32);
  auto* const stream = reinterpret_cast<cudaStream_t>(&asked);
  ASSERT_EQ(cudnn.cudnnSetStream(asked.handle, stream), CUDNN_STATUS_SUCCESS);
  store(3.0F, asked.x.at(), Number::kF32, 0);
  store(5.0F, asked.w.at(), Number::kF32, 0);
  store(1.0F, asked.y.at(), Number::kF32, 0);
  ASSERT_EQ(asked.run(Direction::kForward, 0, 0, 2.0F), CUDNN_STATUS_SUCCESS);
  asked.describe_image(asked.x_desc, {1, 1, 64, 64}, Number::kF32);
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].stream, stream);
  EXPECT_EQ(load(asked.y.at(), Number::kF32, 0), 1.0F);
  run_kept(1);
  EXPECT_EQ(load(asked.y.at(), Number::kF32, 0), 30.0F);
}

TEST(StandInStream, AStreamThatRefusesFailsTheCall) {
  const device::CublasLt lt = cublas_lt_stand_in();
  Product product(lt, {});
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  refuses = true;
  EXPECT_EQ(product.run(product.results[0].algo), CUBLAS_STATUS_EXECUTION_FAILED);
  refuses = false;
}

}  // namespace
}  // namespace pushpull::cuda_on_host
