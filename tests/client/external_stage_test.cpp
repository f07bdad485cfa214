// Programs that have divided a model, against one that has the whole one: sums of gradients with the same
// bits, and evaluations.
#include "client/external_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/external_model.h"
#include "tests/common/thrown.h"
#include "tests/worker/stage_group.h"
#include "worker/compute/evaluate.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Tensors of a model by stage. Stages begin within blocks, and stage 1 has no block of its own.
const std::vector<std::vector<int64_t>> kSizes{{700, 1500}, {300, 20}, {90, 2500}};

ExternalSpec spec_of(int first, int end) {
  ExternalSpec spec;
  for (int stage = first; stage < end; ++stage) {
    for (const int64_t size : kSizes[static_cast<size_t>(stage)]) {
      spec.table.add({.name = std::to_string(stage) + "." + std::to_string(size), .shape = {size}});
    }
  }
  spec.heads = {{"output", Metric::kAccuracy}};
  spec.train_samples = 256;
  spec.test_samples = 22;
  return spec;
}

ExternalSpec spec_of_stage(int stage) {
  ExternalSpec spec = spec_of(stage, stage + 1);
  spec.own_stage = OwnStage{stage, static_cast<int>(kSizes.size()), 0, ""};
  return spec;
}

TensorTable whole_table() {
  TensorTable table = spec_of(0, 3).table;
  for (const size_t first : {2, 4}) table.tensors[first].begins_stage = true;
  return table;
}

// A program: computes gradients of its tensors on a thread of its own.
class Program {
 public:
  Program(ExternalSpec spec, bool reports) : spec_(std::move(spec)), reports_(reports) {}
  ~Program() {
    handover_.end();
    thread_.join();
  }
  const ExternalSpec& spec() const { return spec_; }
  Handover& handover() { return handover_; }

 private:
  void compute() {
    HandedTask task;
    while (handover_.next(-1, &task) == Handover::Next::kTask) {
      task.trains ? train(task) : evaluate(task);
    }
  }
  void train(const HandedTask& task) {
    for (size_t t = spec_.table.tensors.size(); t-- > 0;) {
      std::vector<float> values(static_cast<size_t>(spec_.table.tensors[t].size));
      handover_.copy_weights(t, values);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] += std::sin(static_cast<float>(task.indices.front() + 3 * task.step) +
                              static_cast<float>(i));
      }
      handover_.set_gradient(t, values);
    }
    handover_.end_training(static_cast<float>(task.micro_batch));
  }
  void evaluate(const HandedTask& task) {
    std::vector<HeadSums> sums;
    if (reports_) sums.push_back({0.5, std::ssize(task.indices), 1.0});
    handover_.end_evaluation(sums);
  }

  const ExternalSpec spec_;
  const bool reports_;
  Handover handover_;
  std::thread thread_{[this] { compute(); }};
};

class ExternalStageTest : public testing::Test {
 protected:
  ExternalStageTest() {
    Job job = parse_job_text("model = external\nglobal-batch = 16\nmicro-batch = 2\nsteps = 10\n",
                             "test");
    job.slice_bytes = 4096;
    job.stages = 3;
    group_ = std::make_unique<StageGroup>(
        job, FieldTable{},
        [this](const Job&, const FieldTable&) {
          return std::make_unique<ExternalModel>(whole_.spec(), whole_.handover());
        },
        [this](const Job&, const FieldTable&) {
          Program& program = *programs_.emplace_back(std::make_unique<Program>(
              spec_of_stage(static_cast<int>(programs_.size())), programs_.size() == 2));
          auto stage = std::make_unique<ExternalStage>(program.spec(), program.handover());
          stage->take_whole(whole_table());
          return stage;
        });
  }

  Program whole_{spec_of(0, 3), true};
  std::vector<std::unique_ptr<Program>> programs_;
  std::unique_ptr<StageGroup> group_;
};

TEST_F(ExternalStageTest, TheSumsHaveTheBitsOfTheWholeModel) {
  ASSERT_EQ(group_->map().elements_of_stage(1).size(), 0) << "stage 0 owns its elements";
  for (const std::vector<Range>& nodes : {std::vector<Range>{{0, 8}}, {{0, 1}}, {{3, 4}, {4, 6}}}) {
    EXPECT_EQ(group_->push(nodes), group_->whole().push(nodes));
  }
}

TEST_F(ExternalStageTest, TheLastStageReportsEvaluations) {
  std::vector<std::optional<wire::EvalResult>> results(3);
  const auto evaluate = [&](Computing& one, StageExchange* exchange, bool skips) {
    Activity activity([] { return 0; });
    EvaluationShare share(
        {group_->job(), group_->dataset(), *one.model}, 7, [] { return false; }, activity, nullptr,
        exchange);
    return skips ? share.skip(3, {0, 5}) : share.run(3, {0, 5}, one.weights);
  };
  const auto all = [&](int skips) {
    group_->run([&](int worker) {
      results[static_cast<size_t>(worker)] =
          evaluate(group_->of(worker), &group_->end(worker), worker == skips);
    });
    EXPECT_EQ(group_->parts().left(), 0U);
  };
  all(-1);
  for (const size_t stage : {0, 1}) EXPECT_EQ(results[stage]->chunks_size(), 0);
  const auto want = evaluate(group_->whole(), nullptr, false);
  EXPECT_EQ(results[2]->SerializeAsString(), want->SerializeAsString());
  // no program begins if another one will not
  all(1);
  for (const auto& result : results) EXPECT_EQ(result->chunks_size(), 0);
}

TEST(ExternalStage, AWholeModelThatDiffersIsRefused) {
  Handover handover;
  const ExternalSpec spec = spec_of_stage(1);
  ExternalStage stage(spec, handover);
  EXPECT_EQ(stage.stage(), -1);
  const auto why = [&](const TensorTable& table) {
    return thrown(ErrorCode::kProtocol, [&] { stage.take_whole(table); });
  };
  EXPECT_THAT(why(spec_of(0, 3).table), HasSubstr("the job has 1 stages, this worker 3"));
  TensorTable other = whole_table();
  other.tensors[2].name = "renamed";
  EXPECT_THAT(why(other), HasSubstr("this worker has declared as stage 1: tensor 0: the job has "
                                    "renamed [300]"));
  EXPECT_THAT(thrown(ErrorCode::kProtocol,
                     [&] {
                       stage.take_stage(0, {1, 1, 1}, 1);
                     }),
              HasSubstr("this worker has stage 1, and the coordinator has given it stage 0"));
  stage.take_whole(whole_table());
  stage.take_stage(1, {1, 1, 1}, 1);
  EXPECT_EQ(stage.stage(), 1);
  EXPECT_EQ(stage.table(), whole_table());
  EXPECT_THAT(stage.planned().front()->tensors(), ElementsAre(2, 3));
}

}  // namespace
}  // namespace pushpull
