// The worker library without a model of ours: this program links pushpull::worker and nothing that
// computes, and brings a data set and a model of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <link.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/worker/fake_coordinator.h"
#include "worker/training_work.h"
#include "worker/worker_life.h"

namespace pushpull {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

class Lines final : public Dataset {
 public:
  int64_t size(Split split) const override { return split == Split::kTrain ? 640 : 64; }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& request, float* block) const override {
    for (const int64_t index : request.indices) *block++ = static_cast<float>(index);
  }

 private:
  const FieldTable fields_{{{"x", FieldType::kFloat, {}}}};
  const std::string digest_ = "5eed";
};

class Slope final : public Model {
 public:
  Slope() {
    table_.add({.name = "slope", .shape = {1}});
    heads_.push_back({.name = "y", .metric = Metric::kMeanSquaredError});
  }
  float train(std::span<const float>, const Samples&, std::span<float>, const GradientReady&,
              const WeightsNeeded&) override {
    return 0.0F;
  }
  void evaluate(std::span<const float>, const Samples&, std::span<HeadSums>) override {}
  std::string numerics() const override { return "by hand"; }
  void choose(const std::string&) override {}
};

class UnaskedProcess final : public WorkerOwner {
 public:
  void end_now(int code) override { ADD_FAILURE() << code; }
};

TEST(WorkerAlone, DeclaresTheModelAndTheDataOfTheCaller) {
  std::mutex mutex;
  wire::Declare declared;
  FakeCoordinator coordinator([&](Router& router, const PeerId& peer, const Message& message) {
    if (message.header.has_hello()) give_job(router, peer);
    if (!message.header.has_declare()) return;
    const std::lock_guard lock(mutex);
    declared = message.header.declare();
    Message state;
    state.header.set_term_id(5);
    state.header.mutable_state()->set_version(1);
    state.header.mutable_state()->set_phase(wire::PHASE_FAILED);
    state.header.mutable_state()->set_code(static_cast<int>(ErrorCode::kUsage));
    state.header.mutable_state()->set_text("[test] enough");
    router.send(peer, state);
  });
  UnaskedProcess process;
  WorkerOptions options;
  options.join = coordinator.address();
  const JobEnd end = WorkerLife(options, process).run([](const WorkerParts& parts) {
    const MakeComputation make = [](const Job&) {
      return Computation{std::make_unique<Lines>(), std::make_unique<Slope>()};
    };
    return std::make_unique<TrainingWork>(parts, make, PeerPort{});
  });
  EXPECT_EQ(end.text, "[test] enough");
  const std::lock_guard lock(mutex);
  ASSERT_THAT(declared.tensors(), SizeIs(1));
  EXPECT_EQ(declared.tensors(0).name(), "slope");
  EXPECT_EQ(declared.train_samples(), 640);
  EXPECT_EQ(declared.data_digest(), "5eed");
  EXPECT_EQ(declared.numerics(), "by hand");
}

TEST(WorkerAlone, LoadsNoLibraryThatComputes) {
  std::vector<std::string> loaded;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* names) {
        static_cast<std::vector<std::string>*>(names)->emplace_back(info->dlpi_name);
        return 0;
      },
      &loaded);
  EXPECT_THAT(loaded, Contains(HasSubstr("libzmq")));
  EXPECT_THAT(loaded, Each(Not(HasSubstr("dnnl"))));
  EXPECT_THAT(loaded, Each(Not(HasSubstr("omp"))));
  EXPECT_THAT(loaded, Each(Not(HasSubstr("cuda"))));
}

}  // namespace
}  // namespace pushpull
