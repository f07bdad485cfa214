// Tests that cuBLASLt's stand-in computes correctly and refuses the calls that the real one
// refuses.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cuda_on_host/opened.h"
#include "tests/cuda_on_host/product.h"

namespace pushpull::cuda_on_host {
namespace {

const device::CublasLt& lt() {
  static const device::CublasLt library = cublas_lt_stand_in();
  return library;
}

void expect_result(const Product& product) {
  for (size_t j = 0; j < product.of.n; ++j) {
    for (size_t i = 0; i < product.of.m; ++i) {
      ASSERT_EQ(product.result(i, j), product.expected(i, j)) << "row " << i << " column " << j;
    }
  }
}

void expect_every_algorithm_right(const ProductCase& asked) {
  Product product(lt(), asked);
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  ASSERT_FALSE(product.results.empty());
  for (const auto& found : product.results) {
    ASSERT_EQ(found.state, CUBLAS_STATUS_SUCCESS);
    ASSERT_LE(found.workspaceSize, Product::kWorkspace);
    write(product.d_values, asked.out, product.d.at());
    ASSERT_EQ(product.run(found.algo), CUBLAS_STATUS_SUCCESS);
    expect_result(product);
  }
}

TEST(CublasLtStandIn, ComputesEveryTransposeTypeAndEpilogue) {
  const std::pair<Number, Number> types[] = {{Number::kF32, Number::kF32},
                                             {Number::kBf16, Number::kBf16},
                                             {Number::kBf16, Number::kF32},
                                             {Number::kF16, Number::kF16},
                                             {Number::kF16, Number::kF32}};
  for (const auto& [in, out] : types) {
    for (const auto epilogue : {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU,
                                CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS}) {
      for (const int transposes : {0, 1, 2, 3}) {
        for (const float beta : {0.0F, 2.0F}) {
          ProductCase asked;
          asked.transpose_a = (transposes & 1) != 0;
          asked.transpose_b = (transposes & 2) != 0;
          asked.in = in;
          asked.out = out;
          asked.epilogue = epilogue;
          asked.beta = beta;
          SCOPED_TRACE(testing::Message() << "epilogue " << epilogue << ", transposes "
                                          << transposes << ", beta " << beta);
          expect_every_algorithm_right(asked);
        }
      }
    }
  }
}

TEST(CublasLtStandIn, AcceptsAnySizeWithoutVectorLoads) {
  ProductCase asked;
  asked.m = 7;
  asked.n = 5;
  asked.k = 3;
  asked.in = asked.out = Number::kBf16;
  asked.epilogue = CUBLASLT_EPILOGUE_BIAS;
  expect_every_algorithm_right(asked);
  asked.m = asked.n = asked.k = 8;
  Product even(lt(), asked);
  asked.m = 7;
  Product odd(lt(), asked);
  ASSERT_EQ(even.ask(), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(odd.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_LT(odd.results.size(), even.results.size());
}

TEST(CublasLtStandIn, RoundsOperandsByTheComputeType) {
  const float value = 1.0F + 0x1p-12F;
  const std::pair<cublasComputeType_t, float> expected[] = {{CUBLAS_COMPUTE_32F, value},
                                                            {CUBLAS_COMPUTE_32F_FAST_TF32, 1.0F}};
  for (const auto& [compute, result] : expected) {
    ProductCase asked;
    asked.m = asked.n = asked.k = 1;
    asked.alpha = 1.0F;
    asked.compute = compute;
    Product product(lt(), asked);
    store(value, product.a.at(), Number::kF32, 0);
    store(1.0F, product.b.at(), Number::kF32, 0);
    ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(product.run(product.results[0].algo), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(product.result(0, 0), result);
  }
  EXPECT_EQ(round_operand(1.0F + 0x1p-11F, Rounding::kTf32), 1.0F + 0x1p-10F);
  EXPECT_EQ(round_operand(1.0F + 0x1p-10F, Rounding::kTf32), 1.0F + 0x1p-10F);
}

TEST(CublasLtStandIn, ReturnsOnlyAlgorithmsThatThePreferenceAllows) {
  Product product(lt(), {});
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  const size_t allowed = product.results.size();
  product.prefer<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{1} << 30);
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.results.size(), allowed + 1);  // the one that needs 64 MiB
  product.prefer<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                           CUBLASLT_REDUCTION_SCHEME_MASK);
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.results.size(), allowed + 2);  // the one that adds in any order
  product.align(256);
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.results.size(), allowed + 3);
  product.align(4);
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.results.size(), 1U);
}

TEST(CublasLtStandIn, ABiasThatIsNotAlignedExcludesVectorLoads) {
  ProductCase asked;
  asked.epilogue = CUBLASLT_EPILOGUE_BIAS;
  Product product(lt(), asked);
  product.set<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.at(4));
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.results.size(), 1U);
  product.set<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.at(1));
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(product.results.empty());
}

TEST(CublasLtStandIn, RefusesTypesOutsideItsTable) {
  const auto refused = [](Number in, Number out, cublasComputeType_t compute) {
    ProductCase asked;
    asked.in = in;
    asked.out = out;
    asked.compute = compute;
    Product product(lt(), asked);
    return product.ask() == CUBLAS_STATUS_NOT_SUPPORTED;
  };
  EXPECT_TRUE(refused(Number::kF32, Number::kBf16, CUBLAS_COMPUTE_32F));
  EXPECT_TRUE(refused(Number::kBf16, Number::kF16, CUBLAS_COMPUTE_32F));
  EXPECT_TRUE(refused(Number::kBf16, Number::kBf16, CUBLAS_COMPUTE_32F_FAST_TF32));
  EXPECT_TRUE(refused(Number::kF32, Number::kF32, CUBLAS_COMPUTE_64F));
  EXPECT_FALSE(refused(Number::kF32, Number::kF32, CUBLAS_COMPUTE_32F_FAST_TF32));

  ProductCase asked;
  asked.in = asked.out = Number::kBf16;
  asked.epilogue = CUBLASLT_EPILOGUE_BIAS;
  Product product(lt(), asked);
  product.set<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_NOT_SUPPORTED);
  product.set<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
}

TEST(CublasLtStandIn, RefusesMismatchedSizes) {
  Product product(lt(), {});
  product.layout(product.b_layout, Number::kF32, product.of.k + 4, product.of.n);
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_INVALID_VALUE);
  product.layout(product.b_layout, Number::kF32, product.of.k, product.of.n);
  product.layout(product.d_layout, Number::kF32, product.of.m + 4, product.of.n);
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_INVALID_VALUE);
  product.layout(product.d_layout, Number::kF32, product.of.m, product.of.n);
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  lt().cublasLtMatrixLayoutDestroy(product.d_layout);
  lt().cublasLtMatrixLayoutCreate(&product.d_layout, CUDA_R_32F, product.of.m, product.of.n,
                                  static_cast<int64_t>(product.of.m) - 1);
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(CublasLtStandIn, RefusesASmallOrUnalignedWorkspace) {
  Product product(lt(), {});
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  const auto found = std::find_if(product.results.begin(), product.results.end(),
                                  [](const auto& result) { return result.workspaceSize > 0; });
  ASSERT_NE(found, product.results.end());
  EXPECT_EQ(product.run(found->algo, found->workspaceSize), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.run(found->algo, found->workspaceSize - 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(product.run(found->algo, found->workspaceSize, 0, 16), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(CublasLtStandIn, RefusesPointersThatTheAlgorithmCannotLoadFrom) {
  Product product(lt(), {});
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  const cublasLtMatmulAlgo_t vectors = product.results.front().algo;
  const cublasLtMatmulAlgo_t elements = product.results.back().algo;
  EXPECT_EQ(product.run(vectors, Product::kWorkspace, 4), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(product.run(elements, Product::kWorkspace, 4), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.run(elements, Product::kWorkspace, 2), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST(CublasLtStandIn, AnAlgorithmFitsOneProductAndSurvivesACopyOfItsBytes) {
  Product product(lt(), {});
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulHeuristicResult_t result{};
  const auto check = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return lt().cublasLtMatmulAlgoCheck(product.handle, product.desc, product.a_layout,
                                        product.b_layout, product.d_layout, product.d_layout,
                                        &algorithm, &result);
  };
  for (const auto& found : product.results) {
    ASSERT_EQ(check(found.algo), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(result.workspaceSize, found.workspaceSize);
  }
  cublasLtMatmulAlgo_t other = product.results[0].algo;
  other.data[1] += 1000;
  EXPECT_EQ(check(other), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(product.run(other), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(check(cublasLtMatmulAlgo_t{}), CUBLAS_STATUS_INVALID_VALUE);
  product.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(check(product.results[0].algo), CUBLAS_STATUS_INVALID_VALUE);
}

TEST(CublasLtStandIn, RefusesNullLikeTheRealLibrary) {
  Product product(lt(), {});
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  cublasLtHandle_t handle = nullptr;
  std::swap(handle, product.handle);
  EXPECT_EQ(product.ask(), CUBLAS_STATUS_NOT_INITIALIZED);
  std::swap(handle, product.handle);
  product.set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  product.set<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
  ASSERT_EQ(product.ask(), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(product.run(product.results[0].algo), CUBLAS_STATUS_INVALID_VALUE);
}

// Statuses of calls that need no device, in a fixed order.
std::vector<int> statuses_of_descriptions(const device::CublasLt& library) {
  std::vector<int> all;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  all.push_back(library.cublasLtMatmulDescCreate(nullptr, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  all.push_back(library.cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  all.push_back(library.cublasLtMatmulPreferenceCreate(nullptr));
  all.push_back(library.cublasLtMatmulPreferenceCreate(&preference));
  all.push_back(library.cublasLtMatrixLayoutCreate(nullptr, CUDA_R_32F, 4, 4, 4));
  all.push_back(library.cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 4, 4, 3));
  const std::vector<std::byte> value(64);
  // up to the newest attribute of CUDA 12.0, which later versions have too
  for (int name = 0; name <= CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE; ++name) {
    if (name == 16) continue;  // an attribute that was removed from the headers
    for (size_t bytes = 0; bytes <= 16; ++bytes) {
      all.push_back(library.cublasLtMatmulDescSetAttribute(
          desc, static_cast<cublasLtMatmulDescAttributes_t>(name), value.data(), bytes));
    }
  }
  for (int name = 0; name <= CUBLASLT_MATMUL_PREF_IMPL_MASK; ++name) {
    for (size_t bytes = 0; bytes <= 16; ++bytes) {
      all.push_back(library.cublasLtMatmulPreferenceSetAttribute(
          preference, static_cast<cublasLtMatmulPreferenceAttributes_t>(name), value.data(),
          bytes));
    }
  }
  all.push_back(library.cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, nullptr,
                                                       sizeof(int32_t)));
  all.push_back(library.cublasLtMatmulDescSetAttribute(nullptr, CUBLASLT_MATMUL_DESC_TRANSA,
                                                       value.data(), sizeof(int32_t)));
  all.push_back(library.cublasLtMatmulAlgoGetHeuristic(nullptr, desc, layout, layout, layout,
                                                       layout, preference, 1, nullptr, nullptr));
  all.push_back(library.cublasLtMatrixLayoutDestroy(layout));
  all.push_back(library.cublasLtMatmulPreferenceDestroy(preference));
  all.push_back(library.cublasLtMatmulDescDestroy(desc));
  all.push_back(library.cublasLtMatrixLayoutDestroy(nullptr));
  all.push_back(library.cublasLtMatmulPreferenceDestroy(nullptr));
  all.push_back(library.cublasLtMatmulDescDestroy(nullptr));
  all.push_back(library.cublasLtCreate(nullptr));
  all.push_back(library.cublasLtDestroy(nullptr));
  return all;
}

TEST(CublasLtStandIn, DescriptionsAcceptWhatTheRealLibraryAccepts) {
  const std::string real = real_library("libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR));
  if (real.empty()) GTEST_SKIP() << "the toolkit's folder does not contain the real library";
  device::CublasLt functions;
  open(real, functions);
  ASSERT_NE(functions.cublasLtMatmul, lt().cublasLtMatmul);
  EXPECT_EQ(statuses_of_descriptions(lt()), statuses_of_descriptions(functions));
  for (const auto status :
       {CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_INVALID_VALUE,
        CUBLAS_STATUS_EXECUTION_FAILED, CUBLAS_STATUS_NOT_SUPPORTED}) {
    EXPECT_STREQ(lt().cublasLtGetStatusString(status), functions.cublasLtGetStatusString(status));
  }
}

}  // namespace
}  // namespace pushpull::cuda_on_host
