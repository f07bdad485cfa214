#include "tests/ps/cluster_parts.h"

#include <cmath>
#include <memory>
#include <utility>

#include "common/base/random.h"
#include "common/layout/slice_map.h"
#include "ps/server/grants.h"
#include "ps/server/server.h"

namespace pushpull {

namespace {

Payload payload_of_vector(std::vector<float> floats) {
  auto owner = std::make_shared<std::vector<float>>(std::move(floats));
  const auto bytes = std::as_bytes(std::span<const float>(*owner));
  return {std::move(owner), bytes};
}

}  // namespace

Job job_of(const std::string& keys) {
  std::string ini;
  for (const auto& [key, value] : {std::pair{"dataset", "dummy"},
                                   {"train-samples", "64"},
                                   {"test-samples", "16"},
                                   {"global-batch", "8"},
                                   {"micro-batch", "2"},
                                   {"slice-bytes", "4096"},
                                   {"optimizer", "sgd"},
                                   {"lr", "1"},
                                   {"steps", "10"}}) {
    const std::string line = std::string(key) + " = ";
    if (("\n" + keys).find("\n" + line) == std::string::npos) ini += line + value + "\n";
  }
  return parse_job_text(ini + keys, "test");
}

TensorTable table_of(int64_t total) {
  TensorTable table;
  TensorInfo info;
  info.name = "layer.weight";
  info.init = InitKind::kUniform;
  info.value = 0.5F;
  info.shape = {total - 101};
  table.add(info);
  info.name = "norm.running_mean";
  info.rule = UpdateRule::kAverage;
  info.init = InitKind::kConstant;
  info.value = 0.25F;
  info.shape = {100};
  table.add(info);
  info.name = "layer.bias";
  info.rule = UpdateRule::kOptimizer;
  info.shape = {1};
  table.add(info);
  return table;
}

Payload constant_payload(int64_t n, float value) {
  return payload_of_vector(std::vector<float>(static_cast<size_t>(n), value));
}

Payload random_payload(int64_t n, uint64_t seed, int64_t first) {
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = normal(seed, RandomStream::kDummyData, 0, static_cast<uint64_t>(first) + i);
  }
  return payload_of_vector(std::move(out));
}

std::vector<float> floats_of(const Payload& payload) {
  return {payload.floats(), payload.floats() + payload.float_count()};
}

ServerSetup server_setup(const Job& job, int64_t elements, int rank, int servers, int shares) {
  ServerSetup setup;
  setup.term_id = kTermId;
  setup.incarnation = 1;
  setup.coordinator = kCoordinator;
  setup.grant_key = kGrantKey;
  setup.rank = rank;
  setup.servers = servers;
  setup.job = job;
  setup.table = table_of(elements);
  setup.end_step = job.steps;
  setup.total_steps = job.steps;
  setup.shares = shares;
  return setup;
}

wire::State state_with_workers(std::initializer_list<uint64_t> incarnations,
                               int64_t released_barrier) {
  wire::State state;
  for (const uint64_t incarnation : incarnations) {
    wire::Member* worker = state.add_workers();
    worker->set_rank(state.workers_size() - 1);
    worker->set_incarnation(incarnation);
    worker->set_share(state.workers_size());
  }
  state.set_released_barrier(released_barrier);
  state.set_grant_key(kGrantKey);
  state.set_coordinator(kCoordinator);
  return state;
}

namespace {

wire::Exchange* exchange_of(Message& message, uint64_t incarnation) {
  wire::Exchange* exchange = message.header.mutable_exchange();
  exchange->mutable_sender()->set_term_id(kTermId);
  exchange->mutable_sender()->set_incarnation(incarnation);
  return exchange;
}

}  // namespace

Message push_message(const ServerSetup& setup, uint64_t incarnation, int64_t number, int64_t step,
                     Range share, float value) {
  Message message;
  wire::Push* push = exchange_of(message, incarnation)->mutable_push();
  push->set_number(number);
  push->set_step(step);
  push->set_lo(static_cast<int32_t>(share.lo));
  push->set_hi(static_cast<int32_t>(share.hi));
  // the loaded state; a test sets other read versions itself
  for (int i = 0; i < setup.servers; ++i) push->add_read_versions(setup.updates);
  const bool sync = setup.job.strategy.kind == StrategyKind::kSync;
  const auto nodes =
      sync ? maximal_subtrees(share, setup.job.micro_batches()) : std::vector<Range>{share};
  const SliceMap map(setup.table.total, setup.job.slice_bytes, setup.servers);
  for (const int slice : map.slices_of(setup.rank)) {
    for (const Range& node : nodes) {
      wire::Part* part = push->add_parts();
      part->set_slice(slice);
      part->set_lo(static_cast<int32_t>(node.lo));
      part->set_hi(static_cast<int32_t>(node.hi));
      message.payloads.push_back(constant_payload(map.elements(slice).size(), value));
    }
  }
  push->set_parts_total(push->parts_size());
  *push->mutable_grant() = Grants(setup.grant_key).make(incarnation, share, {0, setup.end_step});
  for (int64_t i = 0; i < share.size(); ++i) push->add_losses(0.5F);
  return message;
}

Message pull_message(uint64_t incarnation, int64_t number, int64_t clock) {
  Message message;
  wire::Pull* pull = exchange_of(message, incarnation)->mutable_pull();
  pull->set_number(number);
  pull->set_clock(clock);
  return message;
}

int64_t write_snapshots(TrainingRun& run) {
  int64_t last = -1;
  while (const auto request = run.take_snapshot_request()) {
    last = request->step;
    run.snapshot_gathered({.step = last});
    while (run.take_task()) run.snapshot_written(true);
  }
  return last;
}

}  // namespace pushpull
