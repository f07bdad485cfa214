// Gradients of stages across workers: together the bits of the undivided model, each element once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "models/graph_model.h"
#include "models/group_model.h"
#include "models/layers.h"
#include "models/stages.h"
#include "tests/worker/stage_group.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

Job staged_job(const std::string& keys, int64_t stages, const std::string& schedule = "1f1b") {
  Job job = parse_job_text(
      "dataset = dummy\nglobal-batch = 24\nmicro-batch = 3\nsteps = 10\n" + keys, "test");
  job.slice_bytes = 4096;
  job.stages = stages;
  job.stage_schedule = schedule;
  return job;
}

const std::vector<std::vector<Range>> kDivisions{
    {{0, 8}}, {{0, 4}, {4, 8}}, {{0, 1}}, {{3, 4}, {4, 6}}};

void expect_same_bits(const std::string& keys, const FieldTable& fields, int64_t stages,
                      const std::vector<std::vector<Range>>& divisions = kDivisions) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    StageGroup group(staged_job(keys, stages, schedule), fields);
    for (const std::vector<Range>& nodes : divisions) {
      const PushedSums want = group.whole().push(nodes);
      EXPECT_EQ(want.slices.size(), 2 * nodes.size() * static_cast<size_t>(group.map().slices()));
      EXPECT_EQ(group.push(nodes), want) << keys << schedule << ", " << stages << " stages";
    }
  }
}

TEST(GroupPipeline, MlpHasTheBitsOfTheUndividedModel) {
  for (const int64_t stages : {2, 4}) {
    expect_same_bits("model = mlp\nhidden = 40,30,20\n", image_fields({1, 8, 8}, 5), stages);
  }
}

TEST(GroupPipeline, ConvnetHasTheBitsOfTheUndividedModel) {
  for (const int64_t stages : {2, 3}) {
    expect_same_bits("model = convnet\n", image_fields({1, 8, 8}, 5), stages);
  }
}

TEST(GroupPipeline, GptHasTheBitsOfTheUndividedModel) {
  const std::string keys =
      "model = gpt\nlayers = 3\nheads = 2\nembed = 16\ndropout = 0.25\nattention-dropout = 0.25\n";
  for (const int64_t stages : {2, 4}) {
    expect_same_bits(keys + "tie-embeddings = true\n", token_fields(6, 101), stages);
  }
  expect_same_bits(keys + "tie-embeddings = false\n", token_fields(6, 101), 4, {{{0, 8}}});
}

TEST(GroupPipeline, BertHasTheBitsOfTheUndividedModel) {
  for (const int64_t stages : {2, 4}) {
    expect_same_bits("model = bert\nlayers = 3\nheads = 2\nembed = 16\ndropout = 0.25\n",
                     question_fields(6, 101, 3), stages);
  }
}

TEST(GroupPipeline, ResnetHasTheBitsOfTheUndividedModel) {
  for (const auto& [stages, schedule] : {std::pair{2, "gpipe"}, std::pair{4, "1f1b"}}) {
    Job job = staged_job("model = resnet18\nstem = cifar\n", stages, schedule);
    job.slice_bytes = 1 << 20;
    StageGroup group(job, image_fields({3, 8, 8}, 5));
    EXPECT_EQ(group.push({{0, 3}}, 1), group.whole().push({{0, 3}}, 1)) << stages << schedule;
  }
}

// Stages 1, 2 and 3 begin in one block, and stage 4 owns the end of their elements.
TEST(GroupPipeline, SeveralStagesInOneBlock) {
  const std::string keys = "model = mlp\nhidden = 40,4,4,40\nbalance = 1,1,1,1,1\n";
  expect_same_bits(keys, image_fields({1, 8, 8}, 5), 5);
  StageGroup group(staged_job(keys, 5), image_fields({1, 8, 8}, 5));
  std::vector<int64_t> owned;
  for (int stage = 0; stage < 5; ++stage) owned.push_back(group.parts_of(stage).owned.size());
  EXPECT_THAT(owned, testing::ElementsAre(3072, 0, 0, 0, 117));
  // the first stage owns all
  expect_same_bits("model = mlp\nhidden = 4,4,4\nbalance = 1,1,1,1\n", image_fields({1, 2, 2}, 2),
                   4);
}

// Tensor `shared` belongs to stage 1, and stages 2 and 3 read it, too. Its first elements are in a block
// of stage 0.
Graph graph_with_three_readers(const Job& job, const FieldTable& fields) {
  GraphBuilder graph("test", "drawn", job.micro_batch, fields);
  Value x = flatten(graph, "flatten", graph.input("pixels"));
  x = linear(graph, "first", x, 64, true);
  graph.cut();
  const Param shared = graph.param("shared", {64, 64}, uniform_of(64));
  for (const char* name : {"a", "b", "c"}) {
    if (name[0] != 'a') graph.cut();
    x = linear_on(graph, name, x, shared);
    x = linear(graph, std::string(name) + ".own", x, 64, true);
  }
  x = linear(graph, "last", x, 5);
  graph.head({.name = "label"}, x, "label");
  return graph.take();
}

TEST(GroupPipeline, GradientsOfTiedWeightsGoFromTheLastReaderToTheFirst) {
  const Job job = staged_job("model = mlp\n", 4);
  const FieldTable fields = image_fields({1, 8, 8}, 5);
  const auto whole = [](const Job& of, const FieldTable& f) -> std::unique_ptr<Model> {
    return std::make_unique<GraphModel>(
        std::make_unique<PlannedGraph>(ops::make_cpu_backend(1), graph_with_three_readers(of, f)),
        of.seed);
  };
  int64_t local = 1;
  const auto divided = [&local](const Job& of, const FieldTable& f) -> std::unique_ptr<Model> {
    Graph graph = graph_with_three_readers(of, f);
    std::vector<Range> nodes = stage_nodes(graph, of.stages, {});
    return std::make_unique<GroupModel>(
        std::move(graph), std::move(nodes), [](int64_t) { return ops::make_cpu_backend(1); },
        of.stage_schedule, of.seed, LocalStages{local});
  };
  StageGroup group(job, fields, whole, divided);
  const Range first_of_shared{4160, 5120};
  EXPECT_EQ(group.parts_of(0).owned.hi, first_of_shared.hi);
  for (const std::vector<Range>& nodes : kDivisions) {
    const PushedSums want = group.whole().push(nodes);
    EXPECT_EQ(group.push(nodes), want);
  }
  // two of the readers in one worker
  local = 2;
  StageGroup again(staged_job("model = mlp\n", 2), fields, whole, divided);
  for (const std::vector<Range>& nodes : kDivisions) {
    EXPECT_EQ(again.push(nodes), again.whole().push(nodes));
  }
}

// ---- workers that divide their stage again ----

const std::string kGpt =
    "model = gpt\nlayers = 5\nheads = 2\nembed = 16\ndropout = 0.25\n"
    "attention-dropout = 0.25\ntie-embeddings = true\n";

TEST(GroupPipeline, LocalStagesHaveTheBitsOfTheUndividedModel) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    for (const std::vector<int>& local : {std::vector{1, 2}, {2, 2}, {3, 1}, {2, 1, 2}}) {
      const auto stages = std::ssize(local);
      StageGroup group(staged_job(kGpt, stages, schedule), token_fields(6, 101), local);
      for (int64_t m = 1; m <= 8; ++m) {
        EXPECT_EQ(group.push({{0, m}}), group.whole().push({{0, m}}))
            << schedule << ", " << m << " micro-batches, stages " << testing::PrintToString(local);
      }
      for (const std::vector<Range>& nodes : kDivisions) {
        EXPECT_EQ(group.push(nodes), group.whole().push(nodes)) << schedule;
      }
    }
  }
}

// Batch statistics are gradients that forward writes.
TEST(GroupPipeline, LocalStagesSumBatchStatistics) {
  Job job = staged_job("model = resnet18\nstem = cifar\n", 2);
  job.slice_bytes = 1 << 20;
  StageGroup group(job, image_fields({3, 8, 8}, 5), {2, 3});
  EXPECT_EQ(group.push({{0, 3}}, 1), group.whole().push({{0, 3}}, 1));
}

// The first of them owns the elements of all.
TEST(GroupPipeline, LocalStagesInOneBlock) {
  StageGroup group(staged_job("model = mlp\nhidden = 4,4,4\nbalance = 2,2\n", 2),
                   image_fields({1, 2, 2}, 2), {2, 2});
  EXPECT_EQ(group.push({{0, 8}}), group.whole().push({{0, 8}}));
}

TEST(GroupPipeline, LocalStagesWaitForTheirOwnWeights) {
  StageGroup group(staged_job(kGpt, 2), token_fields(6, 101), {2, 3});
  const PushedSums want = group.whole().push({{0, 8}});
  for (int stage = 0; stage < 2; ++stage) {
    Computing& worker = group.of(stage);
    worker.weights.assign(worker.weights.size(), poison());
    worker.needed = [&, stage](size_t tensor) {
      const auto& read = worker.model->group_stage()->tensors_read()[static_cast<size_t>(stage)];
      EXPECT_TRUE(std::ranges::binary_search(read, tensor)) << "does not arrive here";
      const TensorInfo& info = group.table().tensors[tensor];
      std::copy_n(group.whole().weights.begin() + info.offset, info.size,
                  worker.weights.begin() + info.offset);
    };
  }
  EXPECT_EQ(group.push({{0, 8}}), want);
}

TEST(GroupPipeline, AGroupThatEndsLeavesLocalStagesUsable) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    StageGroup group(staged_job(kGpt, 2, schedule), token_fields(6, 101), {2, 2});
    const PushedSums want = group.whole().push({{0, 8}});
    for (const int64_t receive : {1, 7, 20, 33}) {
      group.parts().begin(receive);
      EXPECT_THROW(group.run([&](int stage) { group.of(stage).push({{0, 8}}); }), GroupEnded);
      for (int stage = 0; stage < 2; ++stage) group.of(stage).compute->take_data_hash();
      group.parts().begin();
      EXPECT_EQ(group.push({{0, 8}}), want) << receive;
    }
  }
}

// Slots are enough, or are planned anew.
TEST(GroupPipeline, AMemberMayGetNeighboursWithOtherLocalStages) {
  StageGroup group(staged_job(kGpt, 2), token_fields(6, 101), {2, 1});
  const PushedSums want = group.whole().push({{0, 8}});
  EXPECT_EQ(group.push({{0, 8}}), want);
  for (const auto& [worker, local] : {std::pair{1, 3}, {1, 1}, {0, 1}, {0, 3}}) {
    group.replace(worker, local);
    EXPECT_EQ(group.push({{0, 8}}), want) << worker << ": " << local;
  }
}

TEST(GroupPipeline, ALossOfLocalStagesThatIsNotFiniteIsNamed) {
  StageGroup group(staged_job(kGpt, 2), token_fields(6, 101), {2, 2});
  Computing& last = group.of(1);
  const std::vector<float> weights = last.weights;
  last.weights.assign(last.weights.size(), std::numeric_limits<float>::infinity());
  last.compute->set_rank(1);
  std::string message;
  EXPECT_THROW(group.run([&](int stage) {
    try {
      group.of(stage).push({{3, 8}});
    } catch (const Error& e) {
      message = e.what();
      group.parts().end();
    }
  }),
               GroupEnded);
  EXPECT_THAT(message, HasSubstr("the loss of worker 1 at step 0, micro-batch 3 is"));
  last.weights = weights;
  for (int stage = 0; stage < 2; ++stage) group.of(stage).compute->take_data_hash();
  group.parts().begin();
  EXPECT_EQ(group.push({{0, 8}}), group.whole().push({{0, 8}}));
}

TEST(GroupPipeline, FiguresAndRowsOfLocalStages) {
  StageGroup group(staged_job("model = mlp\nhidden = 40,30,20\nbalance = 2,2\n", 2),
                   image_fields({1, 8, 8}, 5), {2, 2});
  const std::string file = testing::TempDir() + "local-stages-trace-" + std::to_string(getpid());
  std::string rows;
  {
    Trace trace(file);
    group.of(1).compute->set_trace(trace);
    group.push({{0, 8}});
    rows = trace.to_json();
  }
  std::filesystem::remove(file);
  for (const char* row : {"stage 2", "stage 3"}) EXPECT_THAT(rows, HasSubstr(row));
  int64_t out = 0;
  int64_t in = 0;
  std::vector<int64_t> slots;
  for (int worker = 0; worker < 2; ++worker) {
    ASSERT_EQ(group.of(worker).compute->stages().size(), 2U);
    for (const StageTotals& stage : group.of(worker).compute->stages()) {
      EXPECT_EQ(stage.layers, 1);
      EXPECT_GT(stage.busy, 0.0);
      EXPECT_LT(stage.busy, stage.span);
      slots.push_back(stage.slots_max);
      out += stage.bytes_out;
      in += stage.bytes_in;
    }
  }
  EXPECT_EQ(out, in);
  EXPECT_THAT(slots, testing::ElementsAre(4, 3, 2, 1));
}

// The weights of each tensor arrive when it is needed.
TEST(GroupPipeline, AsksForAllWeightsBeforeItReadsThem) {
  StageGroup group(staged_job("model = gpt\nlayers = 2\nheads = 2\nembed = 16\n", 3),
                   token_fields(6, 101));
  const PushedSums want = group.whole().push({{0, 8}});
  for (int stage = 0; stage < 3; ++stage) {
    Computing& worker = group.of(stage);
    worker.weights.assign(worker.weights.size(), poison());
    worker.needed = [&](size_t tensor) {
      const TensorInfo& info = group.table().tensors[tensor];
      std::copy_n(group.whole().weights.begin() + info.offset, info.size,
                  worker.weights.begin() + info.offset);
    };
  }
  EXPECT_EQ(group.push({{0, 8}}), want);
}

TEST(GroupPipeline, WhatReceiveThrowsLeavesItUsable) {
  StageGroup group(staged_job("model = gpt\nlayers = 2\nheads = 2\nembed = 16\n", 3),
                   token_fields(6, 101));
  const PushedSums want = group.whole().push({{0, 8}});
  for (const int64_t receive : {1, 7, 20, 33}) {
    group.parts().begin(receive);
    EXPECT_THROW(group.run([&](int stage) { group.of(stage).push({{0, 8}}); }), GroupEnded);
    for (int stage = 0; stage < 3; ++stage) group.of(stage).compute->take_data_hash();
    group.parts().begin();
    EXPECT_EQ(group.push({{0, 8}}), want) << receive;
  }
}

TEST(GroupPipeline, AWorkerMayGetAnotherStage) {
  StageGroup group(staged_job("model = gpt\nlayers = 2\nheads = 2\nembed = 16\n", 2),
                   token_fields(6, 101));
  const PushedSums want = group.whole().push({{0, 8}});
  EXPECT_EQ(group.push({{0, 8}}), want);
  group.take(0, 1);
  group.take(1, 0);
  EXPECT_EQ(group.push({{0, 8}}), want);
}

// Returns how many pages of these floats are in memory.
int64_t resident(std::span<const float> floats) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto lo = (reinterpret_cast<uintptr_t>(floats.data()) + page - 1) / page * page;
  const auto hi = reinterpret_cast<uintptr_t>(floats.data() + floats.size()) / page * page;
  if (floats.empty()) return 0;
  std::vector<unsigned char> pages((hi - lo) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(lo), hi - lo, pages.data()), 0);
  return std::ranges::count_if(pages, [](unsigned char p) { return (p & 1U) != 0; });
}

// A worker needs memory for its part alone. The vector is too large for the heap's free memory, which
// may be resident.
TEST(GroupPipeline, DoesNotTouchGradientsOfOtherStages) {
  Job job = staged_job("model = mlp\nhidden = 2048,2048,2048\nbalance = 1,1,2\n", 3);
  job.slice_bytes = 1 << 20;
  StageGroup group(job, image_fields({1, 16, 16}, 5));
  ASSERT_GT(group.table().total * 4, 1 << 25);
  group.push({{0, 2}}, 1);
  for (int stage = 0; stage < 3; ++stage) {
    const std::span<const float> sum = group.of(stage).compute->sum();
    const Range own = group.parts_of(stage).own;
    const int64_t huge = int64_t{1} << 19;  // floats of a huge page
    EXPECT_GT(resident(sum.subspan(static_cast<size_t>(own.lo), static_cast<size_t>(own.size()))),
              own.size() / 1024 - 2);
    const int64_t before = std::max<int64_t>(0, own.lo - huge);
    const int64_t behind = std::max<int64_t>(0, std::ssize(sum) - own.hi - huge);
    EXPECT_EQ(resident(sum.first(static_cast<size_t>(before))), 0);
    EXPECT_EQ(resident(sum.last(static_cast<size_t>(behind))), 0);
  }
}

// Once servers have read the last sum, the next one lies in the same memory.
TEST(GroupPipeline, SendsSumsFromOneBuffer) {
  int allocated = 0;
  PushedMemory memory;
  memory.host = [&](size_t floats) {
    ++allocated;
    return heap_floats(floats);
  };
  StageGroup group(staged_job("model = mlp\nhidden = 40,30\n", 2), image_fields({1, 8, 8}, 5));
  group.of(0).compute = std::make_unique<Compute>(
      group.job(), group.dataset(), *group.of(0).model, group.map(), [] { return false; }, memory,
      &group.end(0));
  group.push({{0, 4}}, 3);
  EXPECT_EQ(allocated, 1);
}

TEST(GroupPipeline, FiguresOfTheStage) {
  StageGroup group(staged_job("model = mlp\nhidden = 40,30,20\n", 4), image_fields({1, 8, 8}, 5));
  group.push({{0, 8}});
  std::vector<StageTotals> all;
  for (int stage = 0; stage < 4; ++stage) {
    const std::vector<StageTotals> stages = group.of(stage).compute->stages();
    ASSERT_EQ(stages.size(), 1U);
    all.push_back(stages.front());
    EXPECT_EQ(all.back().layers, 1);
    EXPECT_EQ(all.back().slots_max, 4 - stage);
    EXPECT_GT(all.back().busy, 0.0);
    EXPECT_LT(all.back().busy, all.back().span);
  }
  const int64_t passes = 2 * 8 * 3 * int64_t{sizeof(float)};
  int64_t out = 0;
  int64_t in = 0;
  for (const StageTotals& stage : all) {
    out += stage.bytes_out;
    in += stage.bytes_in;
  }
  EXPECT_EQ(out, in);
  EXPECT_EQ(all[0].bytes_out, passes * 40);
}

TEST(GroupPipeline, TheTraceHasARowOfTheStage) {
  StageGroup group(staged_job("model = mlp\nhidden = 40,30\n", 2), image_fields({1, 8, 8}, 5));
  const std::string file = testing::TempDir() + "stage-trace-" + std::to_string(getpid());
  std::map<std::string, int> seen;
  std::string rows;
  {
    Trace trace(file);
    group.of(1).compute->set_trace(trace);
    group.push({{3, 4}, {4, 6}}, 1);
    rows = trace.to_json();
    for (const auto& event : nlohmann::json::parse(rows)) {
      if (event["ph"] == "X") ++seen[std::string(event["cat"]) + ": " + std::string(event["name"])];
    }
  }
  std::filesystem::remove(file);
  std::map<std::string, int> want = {{"compute: part from 3", 1}, {"compute: part from 4", 1}};
  for (const char* pass : {"forward ", "backward "}) {
    for (const char* m : {"3", "4", "5"}) want[std::string("device: ") + pass + m] = 1;
  }
  EXPECT_EQ(seen, want);
  EXPECT_THAT(rows, HasSubstr("stage 1"));
}

TEST(GroupPipeline, ALossThatIsNotFiniteIsNamed) {
  StageGroup group(staged_job("model = mlp\nhidden = 40,30\n", 2), image_fields({1, 8, 8}, 5));
  Computing& last = group.of(1);
  last.weights.assign(last.weights.size(), std::numeric_limits<float>::infinity());
  group.of(1).compute->set_rank(1);
  std::string message;
  EXPECT_THROW(group.run([&](int stage) {
    try {
      group.of(stage).push({{3, 8}});
    } catch (const Error& e) {
      message = e.what();
      EXPECT_EQ(e.code(), ErrorCode::kNotFinite);
      group.parts().end();
    }
  }),
               GroupEnded);
  EXPECT_THAT(message, HasSubstr("the loss of worker 1 at step 0, micro-batch 3 is"));
}

TEST(GroupPipeline, SkippingBadGradientsIsRefused) {
  EXPECT_THROW(StageGroup(staged_job("model = mlp\nhidden = 40,30\non-bad-gradient = skip\n", 2),
                          image_fields({1, 8, 8}, 5)),
               Error);
}

}  // namespace
}  // namespace pushpull
