// A steady step makes no allocation of our own. Counts calls of operator new, and intercepts the
// two oneDNN functions that a step calls to tell oneDNN's allocations apart.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl.h>

#include <cstdlib>
#include <new>

#include "tests/models/fixture.h"

namespace {

thread_local int64_t g_ours = 0;
thread_local int64_t g_onednn = 0;
thread_local bool g_in_onednn = false;

void count() { ++(g_in_onednn ? g_onednn : g_ours); }

template <class Function, class... Args>
dnnl_status_t call_next(const char* name, Args... args) {
  const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  g_in_onednn = true;
  const dnnl_status_t status = next(args...);
  g_in_onednn = false;
  return status;
}

}  // namespace

void* operator new(std::size_t size) {
  count();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// std::stable_sort's buffer
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  count();
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  count();
  const auto a = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(a, (size + a - 1) / a * a)) return memory;
  throw std::bad_alloc();
}
// once GCC has inlined one of malloc and free, it reports their pair as a mismatch
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive,
                                                dnnl_stream_t stream, int count,
                                                const dnnl_exec_arg_t* args) {
  return call_next<decltype(&dnnl_primitive_execute)>("dnnl_primitive_execute", primitive, stream,
                                                      count, args);
}
extern "C" dnnl_status_t dnnl_memory_set_data_handle_v2(dnnl_memory_t memory, void* handle,
                                                        dnnl_stream_t stream) {
  return call_next<decltype(&dnnl_memory_set_data_handle_v2)>("dnnl_memory_set_data_handle_v2",
                                                              memory, handle, stream);
}

namespace pushpull {
namespace {

// Expects no allocation in the third step of a small transformer.
void expect_no_allocation(const std::string& model_name, const FieldTable& fields) {
  SCOPED_TRACE(model_name);
  Job job;
  job.model = model_name;
  job.layers = 2;
  job.embed = 16;
  job.dropout = 0.1;
  job.attention_dropout = 0.1;
  job.micro_batch = 2;
  const auto model = make_model(job, fields);
  const std::vector<float> weights = initial_weights(model->table(), 1);
  const std::vector<float> block(BatchLayout(fields, 2).words());
  const std::vector<int64_t> indices{0, 1};
  const Samples samples{0, 0, indices, block};
  std::vector<float> gradients(weights.size());
  std::vector<HeadSums> sums(model->heads().size());
  const GradientReady ready = [](size_t) {};
  const auto step = [&] {
    model->train(weights, samples, gradients, ready);
    model->evaluate(weights, samples, sums);
  };
  step();
  step();
  const int64_t before = g_ours;
  step();
  EXPECT_EQ(g_ours - before, 0);
}

TEST(Allocation, SteadyStepOfATransformerAllocatesNothingOfOurs) {
  expect_no_allocation("gpt", token_fields(8, 5));
  expect_no_allocation("bert", question_fields(8, 5, 5));
}

TEST(Allocation, SteadyStepAllocatesNothingOfOurs) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(describe(c));
    const auto model = c.make();
    const std::vector<float> weights = initial_weights(model->table(), 1);
    const Inputs inputs(c);
    const Samples samples = inputs.view();
    std::vector<float> gradients(weights.size());
    int64_t ready_count = 0;
    const GradientReady ready = [&ready_count](size_t) { ++ready_count; };
    const auto step = [&] { model->train(weights, samples, gradients, ready); };
    std::vector<HeadSums> sums(model->heads().size());
    const auto evaluate = [&] { model->evaluate(weights, samples, sums); };
    EXPECT_GT(g_ours, 0);  // the counter works
    step();
    step();
    evaluate();
    const int64_t before = g_ours;
    const int64_t onednn_before = g_onednn;
    step();
    const int64_t onednn = g_onednn - onednn_before;
    evaluate();
    EXPECT_EQ(g_ours - before, 0);
    std::printf("%s: oneDNN itself allocates %ld times in a step\n", describe(c).c_str(),
                static_cast<long>(onednn));
  }
}

}  // namespace
}  // namespace pushpull
