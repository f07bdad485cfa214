#include "ps/server/replay.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/update/block_codec.h"
#include "common/update/norm.h"
#include "common/update/optimizer_options.h"
#include "common/update/trust_ratio.h"
#include "ps/server/buffered.h"
#include "ps/server/single_pushes.h"

namespace pushpull {

Replay::Replay(const RunRecord& record, const Job& job, const TensorTable& table,
               const FlatState* start, Compute compute)
    : record_(record),
      job_(job),
      table_(table),
      compute_(std::move(compute)),
      map_(table, job.slice_bytes, record.servers),
      rules_(version_rules(job, record.start, table, record.servers)),
      now_(static_cast<size_t>(rules_.with_slices), rules_.start),
      kept_(now_.size()),
      made_by_(now_.size()),
      ends_update_(ends_of_updates(record, rules_)),
      gathered_(now_.size()),
      left_(record.pushes.size()) {
  if (!job.strategy.traits().recordable) {
    throw Error(ErrorCode::kUsage,
                "[replay] a run under " + job.strategy.to_string() + " has nothing to replay");
  }
  std::string wrong = check_order(record, rules_);
  if (record.stages != job.stages) {
    wrong = "it has " + std::to_string(record.stages) + " stages, its job has " +
            std::to_string(job.stages);
  }
  if (!wrong.empty())
    throw Error(ErrorCode::kData, "[replay] the record is inconsistent: " + wrong);
  for (const RecordedPush& push : record.pushes) count_readers(push);
  for (const RecordedUpdate& update : record.updates) ++left_[update.push];
  if (record.failed) count_readers(*record.failed);
  for (int server = 0; server < rules_.with_slices; ++server) {
    Shard& shard = shards_.emplace_back(map_, server, table, job.optimizer);
    if (start == nullptr) shard.initialise(job.seed);
    for (const int slice : shard.slices()) {
      if (start == nullptr) break;
      const Range elements = map_.elements(slice);
      std::vector<Payload> payloads;
      const auto add = [&](const std::vector<float>& whole) {
        const auto part = std::span(whole).subspan(static_cast<size_t>(elements.lo),
                                                   static_cast<size_t>(elements.size()));
        payloads.push_back({nullptr, std::as_bytes(part)});
      };
      add(start->weights);
      for (const std::vector<float>& slot : start->slots) add(slot);
      shard.load(slice, payloads);
    }
    shard.set_start(record.start.step, record.start.updates);
    keep_version(server);
  }
}

void Replay::count_readers(const RecordedPush& push) {
  for (const VersionRules::Read& read : rules_.reads_of(push)) {
    ++kept_[read.server][read.version].readers;
  }
}

// Keeps the server's present weights if a later push has read them.
void Replay::keep_version(int server) {
  const auto k = static_cast<size_t>(server);
  const auto found = kept_[k].find(now_[k]);
  if (found == kept_[k].end()) return;
  for (const int slice : shards_[k].slices()) {
    found->second.weights[slice] = shards_[k].weights(slice);
  }
}

std::vector<std::vector<float>> Replay::weights_of(const RecordedPush& push) const {
  std::vector<std::vector<float>> out(static_cast<size_t>(record_.stages));
  for (std::vector<float>& weights : out) weights.resize(static_cast<size_t>(table_.total));
  for (const VersionRules::Read& read : rules_.reads_of(push)) {
    float* const weights = out[read.stage].data();
    for (const auto& [slice, payload] : kept_[read.server].at(read.version).weights) {
      std::memcpy(weights + map_.elements(slice).lo, payload.bytes.data(), payload.bytes.size());
    }
  }
  if (job_.pull_codec.kind != CodecKind::kBf16) return out;
  for (std::vector<float>& weights : out) {
    round_to_bf16(weights.data(), table_.total, weights.data());
  }
  return out;
}

void Replay::release(const RecordedPush& push) {
  for (const VersionRules::Read& read : rules_.reads_of(push)) {
    const auto found = kept_[read.server].find(read.version);
    if (--found->second.readers == 0) kept_[read.server].erase(found);
  }
}

// Computes the gradient of a push when the first server applies it: all weights that it read are
// there.
Replay::OpenPush& Replay::open(size_t number) {
  const auto found = open_.find(number);
  if (found != open_.end()) return found->second;
  const RecordedPush& push = record_.pushes[number];
  OpenPush out;
  out.gradient = compute_(push, weights_of(push));
  if (job_.delay_compensation > 0) {  // never with stages
    for (size_t server = 0; server < kept_.size(); ++server) {
      out.read.push_back(kept_[server].at(push.reads[server]).weights);
    }
  }
  release(push);
  return open_.emplace(number, std::move(out)).first->second;
}

void Replay::next() {
  PP_ASSERT(done_ < updates());
  const RecordedUpdate& update = record_.updates[done_];
  const auto server = static_cast<size_t>(update.server);
  open(update.push);
  gathered_[server].push_back(&update);
  if (!ends_update_[done_++]) return;
  const Gathered pushes = std::exchange(gathered_[server], {});
  if (rules_.in_steps) {
    apply_step(server, pushes);
  } else if (job_.strategy.traits().single_pushes) {
    PP_ASSERT(pushes.size() == 1);
    apply_push(*pushes.front());
  } else {
    apply_buffer(server, pushes);
  }
  for (const RecordedUpdate* done : pushes) close(done->push);
  made_by_[server][now_[server]] = done_;
  keep_version(update.server);
}

void Replay::close(size_t number) {
  if (--left_[number] == 0) open_.erase(number);
}

void Replay::apply_push(const RecordedUpdate& update) {
  const OpenPush& what = open_.at(update.push);
  const RecordedPush& push = record_.pushes[update.push];
  const auto server = static_cast<size_t>(update.server);
  int64_t oldest = now_[server];  // that a stage has read
  for (const VersionRules::Read& read : rules_.reads_of(push)) {
    if (read.server == server) oldest = std::min(oldest, read.version);
  }
  const int64_t staleness = now_[server] - oldest;
  const UpdateInfo info = async_update(job_, record_.total_steps,
                                       {push.step, push.range, what.gradient.squares, staleness});
  for (const int slice : shards_[server].slices()) {
    const bool compensate = !what.read.empty() && !update.uncompensated;
    const float* read = compensate ? what.read[server].at(slice).floats() : nullptr;
    shards_[server].apply(slice, {{push.range, what.gradient.slices.at(slice)}},
                          job_.micro_batches(), info, 1, read);
  }
  ++now_[server];
}

std::vector<PartialSum> Replay::leaves(std::span<const size_t> pushes, int slice) const {
  std::vector<PartialSum> out;
  for (const size_t push : pushes) {
    const auto leaf = std::ssize(out);
    out.push_back({{leaf, leaf + 1}, open_.at(push).gradient.slices.at(slice)});
  }
  return out;
}

// buffered: takes the pushes in their order of arrival.
void Replay::apply_buffer(size_t server, const Gathered& pushes) {
  std::vector<size_t> numbers;
  int64_t newest_step = 0;
  int64_t micro_batches = 0;
  for (const RecordedUpdate* update : pushes) {
    const RecordedPush& push = record_.pushes[update->push];
    numbers.push_back(update->push);
    newest_step = std::max(newest_step, push.step);
    micro_batches += push.range.size();
  }
  Shard& shard = shards_[server];
  std::vector<std::vector<PartialSum>> parts;
  for (const int slice : shard.slices()) parts.push_back(leaves(numbers, slice));
  std::vector<SliceUpdate> updates;
  for (const int slice : shard.slices()) updates.push_back({slice, parts[shard.place(slice)]});
  Serial serial;
  apply_buffered(job_, shard, updates, std::ssize(numbers),
                 buffered_update(job_, record_.total_steps, newest_step, micro_batches), serial);
  ++now_[server];
}

// backup: the pushes of a step's set, ascending by share, are the leaves of a tree of their own.
void Replay::apply_step(size_t server, const Gathered& pushes) {
  std::vector<size_t> set;
  for (const RecordedUpdate* update : pushes) set.push_back(update->push);
  std::sort(set.begin(), set.end(),
            [&](size_t a, size_t b) { return record_.pushes[a].range < record_.pushes[b].range; });
  const int64_t step = record_.pushes[set.front()].step;
  UpdateInfo info;
  info.learning_rate = learning_rate(job_.schedule, step, record_.total_steps);
  info.divisor = 0.0;
  for (const size_t push : set)
    info.divisor += static_cast<double>(record_.pushes[push].range.size());
  if (job_.clip_norm > 0) {
    std::vector<NormPart> norms;
    Serial serial;
    for (Shard& shard : shards_) {
      for (const int slice : shard.slices()) {
        const std::vector<PartialSum> summed = leaves(set, slice);
        const SliceUpdate one{slice, summed};
        const auto some = shard.norms(std::span(&one, 1), std::ssize(set), info.divisor, serial);
        norms.insert(norms.end(), some.begin(), some.end());
      }
    }
    const double norm = std::sqrt(total_squares(std::move(norms), map_.blocks()));
    info.clip = clip_factor(norm, job_.clip_norm);
  }
  if (scales_by_tensor(job_.optimizer.kind)) info.trust = trust_of(step, set, info);
  for (const int slice : shards_[server].slices()) {
    shards_[server].apply(slice, leaves(set, slice), std::ssize(set), info);
  }
  now_[server] = step + 1;
}

std::span<const double> Replay::trust_of(int64_t step, std::span<const size_t> set,
                                         const UpdateInfo& info) {
  if (trust_ && trust_->first == step) return trust_->second;
  std::vector<TrustPart> parts;
  Serial serial;
  for (Shard& shard : shards_) {
    if (now_[static_cast<size_t>(shard.server())] != step) {
      throw Error(ErrorCode::kData, "[replay] the record is inconsistent: server " +
                                        std::to_string(shard.server()) + " is not at step " +
                                        std::to_string(step) + ", which others apply");
    }
    for (const int slice : shard.slices()) {
      const std::vector<PartialSum> summed = leaves(set, slice);
      const SliceUpdate one{slice, summed};
      const auto some = shard.trust_parts(std::span(&one, 1), std::ssize(set), info, serial);
      parts.insert(parts.end(), some.begin(), some.end());
    }
  }
  trust_.emplace(step, trust_ratios(table_, job_.optimizer, parts));
  return trust_->second;
}

bool Replay::compute_failed() {
  PP_ASSERT(record_.failed);
  const RecordedPush& push = *record_.failed;
  for (const VersionRules::Read& read : rules_.reads_of(push)) {
    if (kept_[read.server].at(read.version).weights.empty()) return false;
  }
  compute_(push, weights_of(push));
  return true;
}

size_t Replay::newest_read(const RecordedPush& push) const {
  size_t newest = 0;
  for (const VersionRules::Read& read : rules_.reads_of(push)) {
    const auto found = made_by_[read.server].find(read.version);
    if (found != made_by_[read.server].end()) newest = std::max(newest, found->second);
  }
  return newest;
}

std::optional<std::string> Replay::not_finite() const {
  if (done_ == 0) return std::nullopt;
  const Shard& shard = shards_[static_cast<size_t>(record_.updates[done_ - 1].server)];
  for (const int slice : shard.slices()) {
    const Payload weights = shard.weights(slice);
    const float* end = weights.floats() + weights.float_count();
    const float* bad =
        std::find_if(weights.floats(), end, [](float w) { return !std::isfinite(w); });
    if (bad == end) continue;
    const int64_t element = map_.elements(slice).lo + (bad - weights.floats());
    for (const TensorInfo& tensor : table_.tensors) {
      if (element < tensor.offset + tensor.size) return tensor.name;
    }
  }
  return std::nullopt;
}

std::vector<float> Replay::weights() const {
  std::vector<float> out(static_cast<size_t>(table_.total));
  for (const Shard& shard : shards_) {
    for (const int slice : shard.slices()) {
      const Payload payload = shard.weights(slice);
      std::memcpy(out.data() + map_.elements(slice).lo, payload.bytes.data(), payload.bytes.size());
    }
  }
  return out;
}

}  // namespace pushpull
