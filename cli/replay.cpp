#include "cli/replay.h"

#include <span>
#include <utility>

#include "common/base/error.h"
#include "common/io/checkpoint.h"
#include "common/layout/slice_map.h"
#include "ps/server/replay.h"
#include "worker/compute/compute.h"

namespace pushpull {

namespace {

std::string describe_push(const RecordedPush& push) {
  return "worker " + std::to_string(push.rank) + ", step " + std::to_string(push.step) +
         ", micro-batches " + std::to_string(push.range.lo) + " to " +
         std::to_string(push.range.hi - 1);
}

FirstNotFinite at_update(const RunRecord& record, size_t number) {
  FirstNotFinite out;
  out.update = number;
  if (number == 0) return out;
  out.at = record.updates[number - 1];
  out.push = record.pushes[out.at.push];
  return out;
}

std::string place_of(const FirstNotFinite& found) {
  return found.update == 0 ? std::string("the start")
                           : describe_update(found.update, found.at, found.push);
}

// Recomputes the push that ended the run. It may have been computed on weights that were still
// finite, before an update made them non-finite.
void find_failed(const RunRecord& record, Replay& replay, std::optional<FirstNotFinite>& first) {
  const size_t newest = replay.newest_read(*record.failed);
  if (first && first->update <= newest) return;
  try {
    replay.compute_failed();
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kNotFinite) throw;
    FirstNotFinite found = at_update(record, newest);
    found.in_weight = false;
    found.computed = *record.failed;
    found.text = "after " + place_of(found) + ", " + describe_push(*record.failed) +
                 " is not finite: " + e.what();
    first = std::move(found);
  }
}

}  // namespace

std::string describe_update(size_t number, const RecordedUpdate& update, const RecordedPush& push) {
  return "update " + std::to_string(number) + " (server " + std::to_string(update.server) + ": " +
         describe_push(push) + ")";
}

ReplayResult replay(const ReplayRun& run) {
  const RunRecord& record = run.record;
  const SliceMap map(run.model.table(), run.job.slice_bytes,
                     record.servers);  // as the run's, with its stages
  Compute compute(run.job, run.dataset, run.model, map, [] { return false; });
  std::vector<float> losses;
  const auto gradient = [&](const RecordedPush& push, Replay::Weights weights) {
    PushGradient out;
    losses.clear();
    compute.set_rank(push.rank);
    compute.begin(push.step, {push.range}, weights);
    compute.node([&](int slice, Payload part) { out.slices[slice] = std::move(part); }, losses);
    if (run.job.clip_norm > 0) out.squares = compute.squares(compute.sum(), push.step, push.range);
    return out;
  };
  Replay replay(record, run.job, run.model.table(), run.start, gradient);
  const size_t end = run.stop_at.value_or(replay.updates());
  ReplayResult out;
  while (replay.done() < end) {
    const size_t number = replay.done() + 1;
    try {
      replay.next();
    } catch (const Error& e) {
      if (e.code() != ErrorCode::kNotFinite) throw;
      const RecordedUpdate& update = record.updates[number - 1];
      throw Error(ErrorCode::kNotFinite,
                  "[replay] " + describe_update(number, update, record.pushes[update.push]) +
                      " was finite in the run and is not here: " + e.what());
    }
    run.progress(replay.done());
    if (out.first_not_finite) continue;
    if (const std::optional<std::string> tensor = replay.not_finite()) {
      out.first_not_finite = at_update(record, number);
      out.first_not_finite->tensor = *tensor;
      out.first_not_finite->text =
          "after " + place_of(*out.first_not_finite) + " a weight of " + *tensor + " is not finite";
    }
  }
  if (record.failed && end == replay.updates()) {
    find_failed(record, replay, out.first_not_finite);
  }
  out.done = replay.done();
  out.weights = replay.weights();
  out.weights_sha256 = sha256_hex(std::as_bytes(std::span<const float>(out.weights)));
  if (end == replay.updates() && !record.weights_sha256.empty() && record.incomplete.empty()) {
    out.verified = out.weights_sha256 == record.weights_sha256;
  }
  return out;
}

}  // namespace pushpull
