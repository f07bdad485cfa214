// The steps of workers that update by themselves, in groups that divide the model: each worker is a thread with real
// connections to those of its stage, a group's parts pass through memory, and the test is the server.
#include "worker/all_reduce/all_reduce_step.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/update/norm.h"
#include "common/update/optimizer.h"
#include "tests/worker/stage_group.h"

namespace pushpull {
namespace {

constexpr int64_t kTrainedSteps = 4;
constexpr int kTrainedGroups = 2;
constexpr uint64_t kStepTermId = 77;

// Keeps the weights that workers fetch and store. Thread-safe.
class Weights {
 public:
  Weights(const SliceMap& map, size_t states, std::vector<float> first)
      : map_(map), first_(std::move(first)), states_(states) {}

  // Answers a message of a worker.
  Message answer(const Message& message) {
    const std::lock_guard lock(mutex_);
    Message out;
    if (message.header.has_store()) {
      const int slice = message.header.store().slice();
      EXPECT_EQ(message.payloads.size(), 1 + states_);
      const bool is_new =
          stored_.emplace(std::pair(message.header.store().step(), slice), message.payloads).second;
      EXPECT_TRUE(is_new) << "two workers store slice " << slice;
      out.header.mutable_stored()->set_slice(slice);
      out.header.mutable_stored()->set_step(message.header.store().step());
      return out;
    }
    const int slice = message.header.fetch().slice();
    out.header.mutable_fetched()->set_slice(slice);
    const Range e = map_.elements(slice);
    const auto copy =
        std::make_shared<std::vector<float>>(first_.begin() + e.lo, first_.begin() + e.hi);
    out.payloads.push_back({copy, std::as_bytes(std::span<const float>(*copy))});
    const auto zeros = std::make_shared<std::vector<float>>(copy->size());
    out.payloads.resize(1 + states_, {zeros, std::as_bytes(std::span<const float>(*zeros))});
    return out;
  }
  // Returns the whole vector as it was stored at a step.
  std::vector<float> stored(int64_t step) const {
    std::vector<float> out;
    for (int slice = 0; slice < map_.slices(); ++slice) {
      const auto found = stored_.find({step, slice});
      EXPECT_NE(found, stored_.end()) << "slice " << slice << " of step " << step;
      if (found == stored_.end()) return {};
      const Payload& payload = found->second.front();
      out.insert(out.end(), payload.floats(), payload.floats() + payload.float_count());
    }
    return out;
  }

 private:
  const SliceMap map_;
  const std::vector<float> first_;
  const size_t states_;
  std::mutex mutex_;
  std::map<std::pair<int64_t, int>, std::vector<Payload>> stored_;  // by step and slice
};

class Link final : public CoordinatorLink {
 public:
  bool over() const override { return false; }
  std::optional<JobEnd> end() const override { return std::nullopt; }
  void report(wire::EvalResult /*result*/) override {}
  void note_failed(wire::Applied /*push*/) override {}
  Activity& activity() override { return activity_; }
  void set_times(const TimeTotals& /*times*/) override {}

 private:
  Activity activity_{[] { return int64_t{0}; }};
};

class Host final : public StepHost {
 public:
  Host(Weights& server, std::vector<Range> nodes) : server_(server), nodes_(std::move(nodes)) {}
  void serve(Step& step) { step_ = &step; }

  std::span<const float> weights() const override { return {}; }
  WeightsNeeded weights_needed() override { return {}; }
  std::vector<Range> nodes() const override { return nodes_; }
  void hint_next() override {}
  void await_all_weights() override {}
  void begin_push() override { ++pushes_; }
  Payload encoded(Range /*node*/, int /*slice*/, Payload part) override { return part; }
  void push(Range /*node*/, int /*slice*/, Payload /*part*/, bool /*may_go*/) override {
    ADD_FAILURE() << "a push of losses has no parts";
  }
  void note_not_finite() override {}
  void await(const std::function<bool()>& done, const char* what) override {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > until) throw std::runtime_error(what);
      for (const Message& message : std::exchange(asked_, {})) {
        step_->on_message(0, server_.answer(message));
      }
    }
  }
  void send(ToServer message) override { asked_.push_back(std::move(message.message)); }
  int64_t unacknowledged() const override { return 0; }
  TimeSplit& split() override { return split_; }
  int pushes() const { return pushes_; }

 private:
  Weights& server_;
  const std::vector<Range> nodes_;
  Step* step_ = nullptr;
  std::vector<Message> asked_;
  TimeSplit split_ = watched_time_split();
  int pushes_ = 0;
};

// Returns the weights of one undivided worker after each step.
std::vector<std::vector<float>> updated(StageGroup& group) {
  const Job& job = group.job();
  Computing& one = group.whole();
  RangeUpdate update(group.table(), {0, group.table().total}, job.optimizer);
  std::vector<std::vector<float>> slots(update.state_vectors(),
                                        std::vector<float>(one.weights.size()));
  std::vector<float*> state;
  for (std::vector<float>& slot : slots) state.push_back(slot.data());
  std::vector<std::vector<float>> out{one.weights};
  for (int64_t step = 0; step < kTrainedSteps; ++step) {
    std::vector<float> losses;
    one.compute->begin(step, {{0, job.micro_batches()}}, one.weights);
    EXPECT_TRUE(one.compute->node([](int, const Payload&) {}, losses));
    UpdateInfo info;
    info.learning_rate = job.schedule.lr;
    info.divisor = static_cast<double>(job.micro_batches());
    const float* const sum = one.compute->sum().data();
    if (job.clip_norm > 0) {
      info.clip = clip_factor(std::sqrt(update.all_squares(sum, info.divisor)), job.clip_norm);
      EXPECT_LT(info.clip, 1.0) << "the norm is not clipped";
    }
    for (int64_t lo = 0; lo < update.size(); lo += TreeSum::kStride) {
      const Range stride{lo, std::min(lo + TreeSum::kStride, update.size())};
      update.apply(stride, info, step + 1, one.weights.data(), sum + lo, state, one.weights.data());
    }
    out.push_back(one.weights);
  }
  return out;
}

SlicePart slices_of(StageGroup& group, int stage) {
  SlicePart part{stage, {}};
  std::set<int64_t> needed;
  for (const Range& range : group.parts_of(stage).reads) {
    const Range slices = group.map().slices_with(range);
    for (int64_t slice = slices.lo; slice < slices.hi; ++slice) needed.insert(slice);
  }
  for (const int64_t slice : needed) part.pulled.push_back({slice, slice + 1});
  return part;
}

// Trains groups, and compares the weights of each stage with those of one undivided worker.
void expect_bits_of_one_worker(const std::string& keys, const FieldTable& fields, int64_t stages) {
  Job job = parse_job_text(
      "dataset = dummy\nglobal-batch = 12\nmicro-batch = 2\nsteps = 4\nstrategy = allreduce:tree\n"
      "checkpoint-every = 2\nslice-bytes = 4096\n" +
          keys,
      "test");
  job.stages = stages;
  std::vector<std::unique_ptr<StageGroup>> groups;
  for (int g = 0; g < kTrainedGroups; ++g)
    groups.push_back(std::make_unique<StageGroup>(job, fields));
  const SliceMap& map = groups.front()->map();
  Weights server(map, state_names(job.optimizer.kind).size(), groups.front()->whole().weights);
  const std::vector<std::vector<float>> want = updated(*groups.front());

  zmq::context_t context(1);
  struct Worker {
    std::unique_ptr<Router> router;
    wire::State state;
    Link link;
    std::unique_ptr<Encoder> encoder;
    std::unique_ptr<Host> host;
    std::unique_ptr<AllReduceStep> step;
  };
  std::vector<std::vector<Worker>> workers(kTrainedGroups);  // by group and stage
  for (auto& group : workers) {
    group = std::vector<Worker>(static_cast<size_t>(stages));
    for (Worker& worker : group) {
      worker.router = std::make_unique<Router>(context, "tcp://127.0.0.1:*", EndpointLimits{});
    }
  }
  const auto incarnation = [&](int g, int stage) {
    return static_cast<uint64_t>(100 * g + stage + 1);
  };
  for (int g = 0; g < kTrainedGroups; ++g) {
    const Range range = share_range(g, kTrainedGroups, job.micro_batches());
    for (int stage = 0; stage < stages; ++stage) {
      Worker& worker = workers[static_cast<size_t>(g)][static_cast<size_t>(stage)];
      wire::State& state = worker.state;
      state.set_end_step(kTrainedSteps);
      state.set_total_steps(kTrainedSteps);
      state.set_shares(kTrainedGroups);
      wire::Share* share = state.add_assigned();
      share->set_lo(static_cast<int32_t>(range.lo));
      share->set_hi(static_cast<int32_t>(range.hi));
      share->set_index(g);
      for (int other = 0; other < kTrainedGroups; ++other) {
        const auto& peer = workers[static_cast<size_t>(other)][static_cast<size_t>(stage)];
        state.add_peer_endpoints(peer.router->address());
        state.add_peer_incarnations(incarnation(other, stage));
        state.add_peer_ranks(static_cast<int32_t>(other * stages + stage));
      }
    }
  }
  for (int g = 0; g < kTrainedGroups; ++g) {
    StageGroup& group = *groups[static_cast<size_t>(g)];
    for (int stage = 0; stage < stages; ++stage) {
      Worker& worker = workers[static_cast<size_t>(g)][static_cast<size_t>(stage)];
      Computing& one = group.of(stage);
      worker.encoder = std::make_unique<Encoder>(job, group.table(), map);
      worker.host = std::make_unique<Host>(
          server, maximal_subtrees(share_range(g, kTrainedGroups, job.micro_batches()),
                                   job.micro_batches()));
      worker.step = std::make_unique<AllReduceStep>(
          JobView{job, kStepTermId, incarnation(g, stage), worker.state}, *one.model,
          StepParts{*one.compute, *worker.encoder, map, heap_floats, slices_of(group, stage)},
          worker.link, context, Credentials{}, std::move(worker.router));
      worker.host->serve(*worker.step);
    }
  }
  std::vector<std::jthread> threads;
  for (int g = 0; g < kTrainedGroups; ++g) {
    threads.emplace_back([&, g] {
      StageGroup& group = *groups[static_cast<size_t>(g)];
      const Range range = share_range(g, kTrainedGroups, job.micro_batches());
      group.run([&](int stage) {
        Worker& worker = workers[static_cast<size_t>(g)][static_cast<size_t>(stage)];
        worker.step->start(*worker.host);
        for (int64_t step = 0; step < kTrainedSteps; ++step) {
          const Task task{Task::kCompute, step, range};
          const auto result = worker.step->run(task, *worker.host);
          ASSERT_TRUE(result);
          EXPECT_EQ(result->losses.empty(), stage + 1 < stages);
          worker.step->pushed(task, *worker.host);
          const std::span<const float> own = worker.step->own_weights();
          const StageParts parts = group.parts_of(stage);
          for (const Range& read : parts.reads) {
            for (int64_t i = read.lo; i < read.hi; ++i) {
              const auto at = static_cast<size_t>(i);
              ASSERT_EQ(own[at], want[static_cast<size_t>(step + 1)][at])
                  << "group " << g << ", stage " << stage << ", step " << step << ", element " << i;
            }
          }
        }
        EXPECT_EQ(worker.host->pushes(), kTrainedSteps);
      });
      EXPECT_EQ(group.parts().left(), 0U);
    });
  }
  threads.clear();
  for (const int64_t step : {2, 4}) {
    EXPECT_EQ(server.stored(step), want[static_cast<size_t>(step)]) << "stored at step " << step;
  }
}

TEST(AllReduceStep, OfAnUndividedModelHasTheBitsOfOneWorker) {
  expect_bits_of_one_worker("model = mlp\nhidden = 70,60,50\noptimizer = adam\nclip-norm = 0.01\n",
                            image_fields({1, 8, 8}, 5), 1);
}

TEST(AllReduceStep, OfStagesHasTheBitsOfOneWorker) {
  for (const int64_t stages : {2, 4}) {
    expect_bits_of_one_worker(
        "model = mlp\nhidden = 70,60,50\noptimizer = adam\nclip-norm = 0.01\n",
        image_fields({1, 8, 8}, 5), stages);
  }
}

TEST(AllReduceStep, OfStagesInOneBlockHasTheBitsOfOneWorker) {
  expect_bits_of_one_worker("model = mlp\nhidden = 5,4\noptimizer = momentum\nclip-norm = 0.01\n",
                            image_fields({1, 4, 4}, 3), 3);
}

TEST(AllReduceStep, OfStagesPassesOnTiedWeights) {
  expect_bits_of_one_worker(
      "model = gpt\nlayers = 3\nheads = 2\nembed = 8\ntie-embeddings = true\ndropout = 0.1\n",
      token_fields(6, 101), 2);
}

}  // namespace
}  // namespace pushpull
