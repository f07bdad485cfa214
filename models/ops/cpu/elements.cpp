// Fields of floats as activations: nothing is copied unless activations are bf16.
#include "models/ops/elements.h"

#include "models/ops/cpu/operations.h"
#include "models/ops/cpu/split.h"

namespace pushpull::ops::cpu {

namespace {

class CpuElements final : public Operation {
 public:
  Needs needs() const override { return {.is_view = true}; }
  void forward(const Run& /*run*/) override {}
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& /*run*/) override {}
};

class CpuShortElements final : public Operation {
 public:
  explicit CpuShortElements(int64_t count) : count_(count) {}
  Needs needs() const override { return {}; }
  void forward(const Run& run) override {
    in_ranges(count_, kGrain, [&run](int64_t begin, int64_t end) {
      narrow(run.x[0].floats() + begin, end - begin, elements<Bf16>(run.y) + begin);
    });
  }
  void backward_weights(const Run& /*run*/) override {}
  void backward_data(const Run& /*run*/) override {}

 private:
  int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> make_elements(Shared& shared, const Spec& spec) {
  if (shared.activation == Type::f32) return std::make_unique<CpuElements>();
  return std::make_unique<CpuShortElements>(spec_as<ElementsSpec>(spec).shape().size());
}

}  // namespace pushpull::ops::cpu
