#include "tests/simulation/scenario.h"

#include <algorithm>
#include <cstdlib>

namespace pushpull::sim {

namespace {

// The thread sanitizer's own macro is undefined here (pushpull_protobuf). libstdc++'s is defined.
#if defined(__SANITIZE_ADDRESS__) || defined(_GLIBCXX_TSAN)
constexpr double kBuildScale = 0.1;
#else
// Each build runs this many. scripts/test.sh --simulate and scripts/soak.sh run many more.
constexpr double kBuildScale = 0.3;
#endif

// Each part has its own stream, so that a change in one leaves the others unchanged.
enum class Part : uint64_t {
  kJob = 1,
  kFaults = 2,
  kAccidents = 3,
  kRecord = 4,
  kLanes = 6,
  kCodec = 7,
  kSharing = 8,
  kDevice = 9,
  kControl = 10,
  kServers = 11,
  kPeers = 12,
  kStop = 13,
  kChosen = 14,
  kPartitions = 15,
  kForgery = 16,
  kSignals = 17,
  kGroups = 18,
  kPeerPartitions = 19,
  kOptimizer = 20
};

Dice dice_for(uint64_t seed, Part part) {
  return Dice(seed * 0x9e3779b97f4a7c15ULL + static_cast<uint64_t>(part));
}

void draw_steps(Scenario& s, Dice& dice) {
  Job& job = s.job;
  job.micro_batch = dice.between(1, 3);
  const int64_t leaves = dice.between(1, 9);
  job.global_batch = job.micro_batch * leaves;
  job.steps = dice.between(1, 10);
  job.eval_every = dice.between(0, 4);
  job.checkpoint_every = dice.between(0, 4);
  if (dice.chance(0.2)) job.stop_after = dice.between(1, job.steps);
  if (dice.chance(0.25)) {
    const int64_t end = job.stop_after > 0 ? job.stop_after : job.steps;
    s.start_step = dice.between(0, end - 1);
  }
  s.test_samples = dice.chance(0.15) ? 0 : dice.between(1, 12);
  s.workers = static_cast<int>(dice.between(1, std::min<int64_t>(2 * leaves, 6)));
}

void draw_optimizer(Scenario& s, Dice& dice) {
  Job& job = s.job;
  job.optimizer.kind = static_cast<OptimizerKind>(dice.between(0, 4));
  job.optimizer.weight_decay = dice.chance(0.5) ? 0.01 : 0.0;
  job.optimizer.no_decay = NoDecay::parse(job.steps % 2 == 0 ? "wei*,other.*" : "model");
  job.schedule.kind = static_cast<ScheduleKind>(dice.between(0, 3));
  job.schedule.lr = 0.05;
  job.schedule.step = 3;
  job.schedule.warmup_fraction = 0.0;
  job.schedule.warmup_steps = dice.between(0, 3);
  // set in both cases: a scenario may be drawn anew
  job.schedule.warmup_fraction = job.schedule.warmup_steps == 3 ? 0.3 : 0.0;
  if (job.schedule.warmup_steps == 3) job.schedule.warmup_steps = 0;
  if (dice.chance(0.4)) job.clip_norm = dice.chance(0.5) ? 1.0 : 1000.0;
  const bool may_scale = job.strategy.traits().step_versions;
  if (may_scale && dice_for(s.seed, Part::kOptimizer).chance(0.2)) {
    job.optimizer.kind = OptimizerKind::kLamb;
  }
}

// Draws codecs that leave all checks valid: the counts of the counting form survive all of them,
// and the references round weights as `pull-codec` does.
void draw_codecs(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kCodec);
  constexpr const char* kExact[] = {"fp32", "fp16", "bf16", "int8", "topk:0.5"};
  const Codec codec = Codec::parse(kExact[dice.between(0, 4)]);
  const bool narrow = dice.chance(0.3);
  if (s.counting) {
    s.job.codec = codec;
  } else if (narrow) {
    s.job.pull_codec.kind = CodecKind::kBf16;
  }
}

// Draws more shares than are dropped.
void draw_backups(Scenario& s, Dice& dice) {
  Job& job = s.job;
  if (job.micro_batches() < 2) job.global_batch = job.micro_batch * dice.between(2, 9);
  if (s.workers < 2) s.workers = static_cast<int>(dice.between(2, 5));
  const int64_t shares = std::min<int64_t>(s.workers, job.micro_batches());
  job.strategy.backups = std::min(job.strategy.backups, shares - 1);
}

void draw_lanes(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kLanes);
  constexpr int64_t kWindows[] = {0, 1, 6000, 20'000};
  s.job.connections = dice.between(1, 3);
  s.window_bytes = kWindows[dice.between(0, 3)];
}

}  // namespace

std::vector<uint64_t> seeds_to_run(uint64_t count, std::vector<uint64_t> first) {
  if (const char* only = std::getenv("PUSHPULL_SIM_SEED")) {
    return {std::strtoull(only, nullptr, 10)};
  }
  const char* scale = std::getenv("PUSHPULL_SIM_SCALE");
  const double factor = kBuildScale * (scale == nullptr ? 1.0 : std::strtod(scale, nullptr));
  auto most = static_cast<uint64_t>(static_cast<double>(count) * factor);
  if (const char* exact = std::getenv("PUSHPULL_SIM_MOST")) {
    most = std::strtoull(exact, nullptr, 10);
  }
  const char* from = std::getenv("PUSHPULL_SIM_FIRST");
  const uint64_t lowest = from == nullptr ? 1 : std::strtoull(from, nullptr, 10);
  for (uint64_t n = 0; n < std::max<uint64_t>(most, 1); ++n) first.push_back(lowest + n);
  return first;
}

Scenario draw(uint64_t seed, const std::string& strategy) {
  Dice dice = dice_for(seed, Part::kJob);
  Scenario s;
  s.seed = seed;
  Job& job = s.job;
  job.strategy = Strategy::parse(strategy);
  job.seed = seed;
  job.heartbeat_timeout_s = static_cast<double>(dice.between(3, 10));
  job.replacement_timeout_s = 1000.0;
  job.on_server_loss = OnServerLoss::kAbort;
  draw_steps(s, dice);
  s.servers = static_cast<int>(dice.between(1, 4));
  job.slice_bytes = 4096 * dice.between(1, 3);
  if (job.strategy.traits().step_versions) {
    draw_optimizer(s, dice);
    s.elements = dice.between(8, 5000);
  } else {
    s.counting = true;
    job.schedule.lr = 1.0;
    s.elements = 1024 * dice.between(1, 5);
  }
  s.compute_us = dice.chance(0.2) ? 300'000 : 5'000;
  s.write_us = dice.chance(0.3) ? 500'000 : 2'000;
  if (dice.chance(0.1)) s.write_us = 15'000'000;  // longer than the replacement of a worker takes
  if (dice.chance(0.5)) s.flush_bytes = 1;
  if (job.strategy.kind == StrategyKind::kBackup) draw_backups(s, dice);
  if (job.strategy.kind == StrategyKind::kLocal) {
    job.outer_momentum = dice.chance(0.5) ? 0.9 : 0.0;
  }
  draw_codecs(s);
  draw_lanes(s);
  s.on_device = dice_for(seed, Part::kDevice).chance(0.15);
  return s;
}

namespace {

void divide(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kGroups);
  s.job.stages = dice.between(2, 3);
  s.servers = static_cast<int>(dice.between(1, 3));
  int64_t groups = dice.between(1, 3);
  if (s.job.strategy.backups > 0) {
    groups = std::max<int64_t>(groups, 2);
    const int64_t shares = std::min(groups, s.job.micro_batches());
    s.job.strategy.backups = std::min(s.job.strategy.backups, shares - 1);
  }
  s.workers = static_cast<int>(groups * s.job.stages);
  s.spares = dice.chance(0.2) ? 1 : 0;
  if (dice.chance(0.7)) s.elements += s.counting ? 2048 : 3000;
  const StrategyTraits& traits = s.job.strategy.traits();
  if (traits.single_pushes) s.job.clip_norm = 0;  // no worker knows the norm
  // nor those of whole tensors
  const bool in_workers = traits.outer_optimizer || traits.workers_update;
  if (in_workers && s.job.optimizer.kind == OptimizerKind::kLamb) {
    s.job.optimizer.kind = OptimizerKind::kAdamW;
  }
}

}  // namespace

Scenario draw_groups(uint64_t seed, const std::string& strategy) {
  Scenario s = draw(seed, strategy);
  divide(s);
  return s;
}

Scenario draw_recorded(uint64_t seed, const std::string& strategy) {
  Scenario s = draw(seed, strategy);
  Dice dice = dice_for(seed, Part::kRecord);
  s.counting = false;
  s.job.codec = {};  // a codec is not recorded
  s.job.pull_codec.kind = dice.chance(0.3) ? CodecKind::kBf16 : CodecKind::kFp32;
  s.elements = dice.between(8, 5000);
  draw_optimizer(s, dice);
  // under single pushes clipping happens in the worker, which has no model here
  if (s.job.strategy.buffer == 1) s.job.clip_norm = 0;
  s.job.record = "record";
  const bool aware = dice.chance(0.5);
  const bool compensates = dice.chance(0.5);
  if (!s.job.strategy.traits().single_pushes) return s;
  s.job.staleness_aware = aware;
  s.job.delay_compensation = compensates ? 0.1 : 0.0;
  return s;
}

Scenario draw_recorded_groups(uint64_t seed, const std::string& strategy) {
  Scenario s = draw_recorded(seed, strategy);
  s.job.delay_compensation = 0;
  divide(s);
  return s;
}

void add_sharing(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kSharing);
  // one server's weights are contiguous; those of several servers are read side by side
  if (dice.chance(0.5)) s.servers = 1;
  s.sharing.on = true;
  s.sharing.workers = dice.chance(0.6) ? 1.0 : 0.5;
  s.sharing.late_ms = dice.chance(0.6) ? 0 : dice.between(1, 2000);
  s.sharing.ends = dice.chance(0.6) ? 0.0 : 0.5;
  s.sharing.again = dice.chance(0.5);
}

void add_faults(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kFaults);
  constexpr double kRates[] = {0.0, 0.02, 0.15};
  s.faults.lose = kRates[dice.between(0, 2)];
  s.faults.duplicate = kRates[dice.between(0, 2)];
  s.faults.reorder = kRates[dice.between(0, 2)];
  s.faults.reset = kRates[dice.between(0, 2)] * 0.03;
  s.faults.delay_us = dice.chance(0.5) ? 300 : 20'000;
  s.faults.until_ms = dice.between(500, 20'000);
  // a worker that is lost by mistake is replaced
  s.job.on_worker_loss = OnWorkerLoss::kWait;
}

void add_disorder(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kControl);
  s.faults.duplicate = dice.chance(0.5) ? 0.15 : 0.0;
  s.faults.reorder = dice.chance(0.5) ? 0.15 : 0.0;
  s.faults.delay_us = dice.chance(0.5) ? 300 : 20'000;
  s.faults.until_ms = dice.between(500, 60'000);
  s.servers_lossy = true;
  if (dice.chance(0.5)) s.servers_late_ms = dice.between(0, 20'000);
  for (int64_t i = dice.between(0, 2); i > 0; --i) s.newcomers.push_back({dice.between(0, 5000)});
  if (dice.chance(0.3)) s.newcomers.push_back({dice.between(0, 5000), "other", false});
  if (dice.chance(0.3)) s.newcomers.push_back({dice.between(0, 5000), "", false, true});
  if (dice.chance(0.3)) s.declares_again_ms = dice.between(0, 3000);
}

void add_control_faults(Scenario& s) {
  add_faults(s);
  add_disorder(s);
  Dice dice = dice_for(s.seed + 1, Part::kControl);
  // a server that is lost by mistake would end the job: the timeout is long enough for all repeats
  s.job.heartbeat_timeout_s = 10.0;
  if (dice.chance(0.7)) {
    s.faults.lose = dice.chance(0.5) ? 0.15 : 0.02;
  } else {
    s.faults.reset = dice.chance(0.5) ? 0.0045 : 0.0006;
    s.faults.reorder = 0.0;
  }
  if (s.faults.lose > 0) s.faults.reset = 0.0;
  for (int64_t i = dice.between(0, 3); i > 0 && s.faults.reset == 0; --i) {
    const bool server = s.servers > 1 && dice.chance(0.5);
    const int64_t number = dice.between(0, server ? s.servers - 2 : s.workers - 1);
    const int64_t at_ms = dice.chance(0.5) ? 0 : dice.between(0, s.servers_late_ms + 5000);
    s.silences.push_back(
        {server, static_cast<int>(number), at_ms, dice.between(100, server ? 3000 : 15'000)});
  }
}

void add_accidents(Scenario& s, OnWorkerLoss on_worker_loss) {
  Dice dice = dice_for(s.seed, Part::kAccidents);
  s.job.on_worker_loss = on_worker_loss;
  s.spares = static_cast<int>(dice.between(0, 2));
  const int64_t count = dice.between(1, 3);
  if (dice.chance(0.2)) s.servers_late_ms = dice.between(0, 20'000);
  int started = s.workers + s.spares;
  const int64_t earliest_ms = dice.chance(0.5) ? 0 : s.servers_late_ms + 300;
  // some in the first milliseconds, before the start
  const int64_t latest_ms = dice.chance(0.3) ? 30 : dice.chance(0.5) ? 500 : 5000;
  for (int64_t i = 0; i < count; ++i) {
    Accident accident;
    accident.at_ms = earliest_ms + dice.between(0, latest_ms);
    accident.worker = static_cast<int>(dice.between(0, started - 1));
    if (dice.chance(0.25)) accident.freeze_ms = dice.between(100, 25'000);
    accident.replaced_ms = dice.chance(0.5) ? dice.between(0, 200) : dice.between(200, 15'000);
    // with enough spares, or if the others continue a job that has surely started, no replacement
    // is needed. Under continue spares form groups, and what is left of two groups may not be one: a worker keeps
    // its stage
    const bool started_for_sure = s.faults.until_ms == 0 && earliest_ms > 0;
    const bool continues = on_worker_loss == OnWorkerLoss::kContinue;
    const bool others = continues && started_for_sure && s.workers > count * s.job.stages;
    const bool spares = s.spares >= count && !(continues && s.job.stages > 1);
    const bool enough = spares || others;
    if (enough && dice.chance(0.7)) accident.replaced_ms = -1;
    started += accident.replaced_ms >= 0 ? 1 : 0;
    s.accidents.push_back(accident);
  }
}

void add_chosen_checkpoints(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kChosen);
  s.job.checkpoint_every = 0;
  s.job.checkpoint_auto = true;
  s.job.steps = s.start_step + dice.between(20, 60);
  s.job.stop_after = 0;
  s.job.eval_every = dice.chance(0.5) ? 0 : dice.between(3, 20);
  s.workers = std::min(s.workers, 3);
  // 15 to 25 s: the first checkpoint is due after 10 s
  const int64_t tasks = (s.job.steps - s.start_step) * s.job.micro_batches();
  const int64_t at_once = std::min<int64_t>(s.workers, s.job.micro_batches());
  s.compute_us = 2 * dice.between(15'000'000, 25'000'000) * at_once / tasks;
  s.write_us = dice.chance(0.5) ? 1000 : 400'000;
}

void add_server_losses(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kServers);
  s.job.on_server_loss = OnServerLoss::kRestart;
  s.job.replacement_timeout_s = 100.0;  // a process that wakes up after the end waits no longer
  s.job.codec = {};                     // the term loses its residuals
  if (s.job.on_worker_loss == OnWorkerLoss::kAbort) s.job.on_worker_loss = OnWorkerLoss::kWait;
  s.compute_us = dice.chance(0.3) ? 300'000 : 30'000;  // long enough for events
  // the start may come later than all accidents
  for (Accident& accident : s.accidents) {
    if (accident.replaced_ms < 0) accident.replaced_ms = 10'000;
  }
  int servers = s.servers;
  for (int64_t i = dice.between(1, 3); i > 0; --i) {
    ServerLoss loss;
    loss.at_ms = dice.between(0, dice.chance(0.5) ? 1000 : 15'000);
    loss.server = static_cast<int>(dice.between(0, servers - 1));
    loss.back_ms = dice.chance(0.6) ? dice.between(0, 300) : dice.between(300, 20'000);
    servers += loss.server == 0 ? 0 : 1;
    s.server_losses.push_back(loss);
  }
}

void add_replaced_servers(Scenario& s) {
  s.servers = std::max(s.servers, 2);
  add_server_losses(s);
  Dice dice = dice_for(s.seed, Part::kPeers);
  s.job.recovery = Recovery::kPeers;
  s.job.copy_every = dice.between(1, 3);
  s.elements = std::max<int64_t>(s.elements, 1 + s.job.slice_bytes / 4);  // two slices
  for (ServerLoss& loss : s.server_losses) loss.server = std::max(loss.server, 1);
}

void add_stop(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kStop);
  s.compute_us = dice.chance(0.3) ? 300'000 : 30'000;  // long enough for events
  s.stop_ms = dice.between(0, dice.chance(0.6) ? 600 : 6000);
  s.all_signalled = dice.chance(0.5);
  s.stops_by_limit = dice.chance(0.3);
}

void add_checkpoint_signals(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kSignals);
  s.compute_us = std::max<int64_t>(s.compute_us, 30'000);  // long enough for events
  if (dice.chance(0.5)) s.job.steps += 10;
  for (int64_t i = dice.between(1, 4); i > 0; --i) {
    s.checkpoint_signals_ms.push_back(dice.between(0, dice.chance(0.7) ? 600 : 6000));
    if (dice.chance(0.3)) {
      s.checkpoint_signals_ms.push_back(s.checkpoint_signals_ms.back() + dice.between(0, 20));
    }
  }
}

namespace {

Partition draw_partition(const Scenario& s, Dice& dice) {
  Partition out;
  out.server = static_cast<int>(dice.between(0, s.servers - 1));
  if (dice.chance(0.6)) out.worker = static_cast<int>(dice.between(0, s.workers - 1));
  out.at_ms = s.servers_late_ms + dice.between(0, dice.chance(0.5) ? 500 : 5000);
  return out;
}

}  // namespace

void add_short_partitions(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kPartitions);
  s.compute_us = dice.chance(0.3) ? 300'000 : 30'000;  // long enough for events
  // A worker repeats its question each second, and gives up heartbeat-timeout after the last answer.
  // That answer comes up to a second before the partition, the next one up to a second after it.
  const auto max_ms = static_cast<int64_t>(s.job.heartbeat_timeout_s * 1000) - 2300;
  int64_t at_ms = 0;
  for (int64_t i = dice.between(1, 3); i > 0; --i) {
    Partition partition = draw_partition(s, dice);
    partition.ms = dice.between(50, max_ms);
    partition.at_ms += at_ms;
    at_ms = partition.at_ms + partition.ms + 2500;  // an answer comes between two of them
    s.partitions.push_back(partition);
  }
}

void add_long_partitions(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kPartitions);
  s.compute_us = dice.chance(0.3) ? 300'000 : 30'000;  // long enough for events
  if (s.job.on_worker_loss == OnWorkerLoss::kAbort) s.job.on_worker_loss = OnWorkerLoss::kWait;
  for (int64_t i = dice.between(1, 3); i > 0; --i) {
    Partition partition = draw_partition(s, dice);
    const auto timeout_ms = static_cast<int64_t>(s.job.heartbeat_timeout_s * 1000);
    partition.ms = dice.between(timeout_ms, 3 * timeout_ms);
    s.partitions.push_back(partition);
  }
}

namespace {

void add_peer_partitions(Scenario& s, int64_t least_ms, int64_t most_ms) {
  Dice dice = dice_for(s.seed, Part::kPeerPartitions);
  s.compute_us = dice.chance(0.3) ? 300'000 : 30'000;  // long enough for events
  int64_t at_ms = 0;
  for (int64_t i = dice.between(1, 3); i > 0; --i) {
    PeerPartition partition;
    partition.worker = static_cast<int>(dice.between(0, s.workers - 1));
    partition.to_it = dice.chance(0.7);
    partition.from_it = !partition.to_it || dice.chance(0.5);
    partition.at_ms = at_ms + s.servers_late_ms + dice.between(0, dice.chance(0.5) ? 500 : 5000);
    partition.ms = dice.between(least_ms, most_ms);
    at_ms = partition.at_ms + partition.ms + 2500;  // an answer comes between two of them
    s.peer_partitions.push_back(partition);
  }
}

}  // namespace

// As with servers: a worker asks once a second.
void add_short_peer_partitions(Scenario& s) {
  add_peer_partitions(s, 50, static_cast<int64_t>(s.job.heartbeat_timeout_s * 1000) - 2300);
}

void add_long_peer_partitions(Scenario& s) {
  if (s.job.on_worker_loss == OnWorkerLoss::kAbort) s.job.on_worker_loss = OnWorkerLoss::kWait;
  const auto timeout_ms = static_cast<int64_t>(s.job.heartbeat_timeout_s * 1000);
  add_peer_partitions(s, timeout_ms, 3 * timeout_ms);
}

void add_forgery(Scenario& s) {
  Dice dice = dice_for(s.seed, Part::kForgery);
  s.forgery.on = true;
  s.forgery.until_ms = dice.between(500, 20'000);
  constexpr int64_t kEveryUs[] = {1000, 10'000, 100'000};
  s.forgery.every_us = kEveryUs[dice.between(0, 2)];
  if (dice.chance(0.7)) s.compute_us = dice.chance(0.3) ? 300'000 : 30'000;
  // the repeated Hello of a process that has ended makes it a member, which is then lost
  if (s.job.on_worker_loss == OnWorkerLoss::kAbort) s.job.on_worker_loss = OnWorkerLoss::kWait;
}

std::string Scenario::to_string() const {
  std::string out =
      "seed " + std::to_string(seed) + ", " + job.strategy.to_string() + ", " +
      std::to_string(workers) + " workers, " + std::to_string(spares) + " spares, " +
      std::to_string(servers) + " servers, " +
      (job.stages > 1 ? std::to_string(job.stages) + " stages, " : "") + std::to_string(elements) +
      " elements, slices of " + std::to_string(job.slice_bytes) + " bytes, " +
      std::to_string(job.connections) + " lanes, windows of " + std::to_string(window_bytes) +
      " bytes, steps " + std::to_string(start_step) + " to " + std::to_string(job.steps) + " (" +
      std::to_string(job.stop_after) + ") of " + std::to_string(job.micro_batches()) +
      " micro-batches, evaluation every " + std::to_string(job.eval_every) + ", checkpoint every " +
      std::to_string(job.checkpoint_every) + ", copy every " + std::to_string(job.copy_distance()) +
      ", test samples " + std::to_string(test_samples) + ", " +
      pushpull::to_string(job.optimizer.kind) + ", clip " + std::to_string(job.clip_norm) +
      ", codec " + job.codec.to_string() + ", pulls " + job.pull_codec.to_string() +
      ", faults until " + std::to_string(faults.until_ms) + " ms: lose " +
      std::to_string(faults.lose) + " duplicate " + std::to_string(faults.duplicate) + " reorder " +
      std::to_string(faults.reorder) + " reset " + std::to_string(faults.reset);
  if (sharing.on) {
    out += ", " + std::to_string(sharing.workers) + " of the workers share memory after at most " +
           std::to_string(sharing.late_ms) + " ms, ending " + std::to_string(sharing.ends) +
           (sharing.again ? " and again" : "");
  }
  if (on_device) out += ", servers on devices";
  if (stop_ms >= 0) {
    out += std::string(all_signalled ? ", all are" : ", the coordinator is") + " told to end at " +
           std::to_string(stop_ms) + " ms" + (stops_by_limit ? " (by its limit)" : "");
  }
  for (const int64_t at_ms : checkpoint_signals_ms) {
    out += ", a checkpoint signal at " + std::to_string(at_ms) + " ms";
  }
  if (servers_late_ms > 0) out += ", servers late by " + std::to_string(servers_late_ms) + " ms";
  if (servers_lossy) out += ", servers' control is lossy";
  if (join_timeout_s != 60.0) out += ", join timeout " + std::to_string(join_timeout_s) + " s";
  if (declares_again_ms >= 0) {
    out += ", declares again at " + std::to_string(declares_again_ms) + " ms";
  }
  for (const Silence& silence : silences) {
    out += std::string("; ") + (silence.server ? "joined server " : "worker ") +
           std::to_string(silence.number) + " is silent at " + std::to_string(silence.at_ms) +
           " ms for " + std::to_string(silence.ms) + " ms";
  }
  for (const Partition& partition : partitions) {
    out += "; server " + std::to_string(partition.server) + " is cut off from " +
           (partition.worker < 0 ? "all" : "worker " + std::to_string(partition.worker)) + " at " +
           std::to_string(partition.at_ms) + " ms for " + std::to_string(partition.ms) + " ms";
  }
  for (const PeerPartition& partition : peer_partitions) {
    out += "; worker " + std::to_string(partition.worker) + " is cut off from its group" +
           (partition.to_it ? "" : ", as a sender,") +
           (partition.from_it ? "" : ", as a receiver,") + " at " +
           std::to_string(partition.at_ms) + " ms for " + std::to_string(partition.ms) + " ms";
  }
  if (forgery.on) {
    out += "; a process forges every " + std::to_string(forgery.every_us) + " us until " +
           std::to_string(forgery.until_ms) + " ms";
  }
  for (const ServerLoss& loss : server_losses) {
    out += "; server " + std::to_string(loss.server) + " dies at " + std::to_string(loss.at_ms) +
           " ms and is back after " + std::to_string(loss.back_ms) + " ms";
  }
  for (const Newcomer& newcomer : newcomers) {
    out += std::string("; a ") +
           (newcomer.surplus_server ? "server" : "worker with " + newcomer.digest) + " comes at " +
           std::to_string(newcomer.at_ms) + " ms, deaf for " + std::to_string(newcomer.deaf_ms) +
           " ms";
  }
  for (const Accident& a : accidents) {
    out += "; worker " + std::to_string(a.worker) + " at " + std::to_string(a.at_ms) + " ms " +
           (a.trainer_only    ? "stalls"
            : a.freeze_ms > 0 ? "frozen for " + std::to_string(a.freeze_ms) + " ms"
                              : "killed") +
           (a.replaced_ms < 0 ? "" : ", replaced after " + std::to_string(a.replaced_ms) + " ms");
  }
  return out;
}

}  // namespace pushpull::sim
