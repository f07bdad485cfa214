#include "ps/server/buffered.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "common/job/job.h"
#include "common/update/norm.h"
#include "common/update/optimizer_options.h"

namespace pushpull {

namespace {

// Returns the largest number of floats that a part of a push needs.
size_t largest_part(const Shard& shard) {
  size_t most = 0;
  for (const int slice : shard.slices()) {
    const SliceCodec& codec = shard.codec(slice);
    const size_t floats = codec.plain() ? static_cast<size_t>(shard.elements(slice))
                                        : (codec.bytes() + sizeof(float) - 1) / sizeof(float);
    most = std::max(most, floats);
  }
  return most;
}

}  // namespace

UpdateInfo buffered_update(const Job& job, int64_t total_steps, int64_t newest_step,
                           int64_t micro_batches, std::optional<double> rate) {
  UpdateInfo info;
  info.learning_rate = learning_rate(job.schedule, newest_step, total_steps, rate);
  info.divisor = static_cast<double>(micro_batches);
  info.share = info.divisor / static_cast<double>(job.micro_batches());
  return info;
}

void apply_buffered(const Job& job, Shard& shard, std::span<const SliceUpdate> updates,
                    int64_t pushes, UpdateInfo info, Parallel& parallel) {
  if (job.clip_norm > 0) {
    double squares = 0.0;
    for (const NormPart& part : shard.norms(updates, pushes, info.divisor, parallel)) {
      squares += part.squares;
    }
    info.clip = clip_factor(std::sqrt(squares), job.clip_norm);
  }
  shard.apply(updates, pushes, info, 1, parallel);
}

BufferedPushes::BufferedPushes(AggregationSetup setup, int64_t size)
    : SinglePushes(std::move(setup), std::nullopt),
      size_(size),
      pool_(largest_part(shard())),
      parts_(shard().slices().size()) {}

// Returns payloads on a device unchanged: the server has the engine copy them (for_waiting).
Payload BufferedPushes::own(const Payload& payload) {
  if (payload.on_device) return payload;
  const std::shared_ptr<float[]> copy = pool_.get();
  std::memcpy(copy.get(), payload.bytes.data(), payload.bytes.size());
  return {copy, std::as_bytes(std::span(copy.get(), pool_.floats())).first(payload.bytes.size())};
}

void BufferedPushes::count(ReceivedPush push) {
  const auto leaf = std::ssize(gathered_);
  const bool full = leaf + 1 >= size_;  // then nothing waits, and nothing is copied
  for (auto& [slice, part] : push.parts) {
    Payload payload = full ? std::move(part.payload) : own(part.payload);
    parts_[shard().place(slice)].push_back({{leaf, leaf + 1}, std::move(payload), part.kept});
  }
  push.parts.clear();
  gathered_.push_back(std::move(push));
  if (full) flush();
}

void BufferedPushes::flush() {
  if (gathered_.empty()) return;
  int64_t newest_step = 0;
  int64_t micro_batches = 0;
  std::optional<double> said;
  for (const ReceivedPush& push : gathered_) {
    if (push.step >= newest_step) said = push.learning_rate;
    newest_step = std::max(newest_step, push.step);
    micro_batches += push.range.size();
    ++staleness_[updates_ - push.reads[static_cast<size_t>(setup_.rank)]];
  }
  now_.clear();
  for (const int slice : shard().slices()) {
    now_.push_back({slice, parts_[shard().place(slice)]});
  }
  apply_buffered(setup_.job, shard(), now_, std::ssize(gathered_),
                 buffered_update(setup_.job, setup_.total_steps, newest_step, micro_batches, said),
                 setup_.parallel);
  ++updates_;
  for (const ReceivedPush& push : gathered_) {
    record(push, push.reads, &push != &gathered_.back(), false);
  }
  gathered_.clear();
  for (std::vector<PartialSum>& parts : parts_) parts.clear();
}

void BufferedPushes::for_waiting(const std::function<void(PartialSum&)>& visit) {
  for (std::vector<PartialSum>& parts : parts_) {
    for (PartialSum& part : parts) visit(part);
  }
}

}  // namespace pushpull
