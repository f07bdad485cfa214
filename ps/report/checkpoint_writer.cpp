#include "ps/report/checkpoint_writer.h"

#include <utility>

#include "common/base/error.h"

namespace pushpull {

namespace {

std::string hash_of(const FlatState& snapshot) {
  return sha256_hex(std::as_bytes(std::span<const float>(snapshot.weights)));
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointStore store, TensorTable table,
                                   std::vector<std::string> slot_names)
    : store_(std::move(store)), table_(std::move(table)), slot_names_(std::move(slot_names)) {}

CheckpointWriter::~CheckpointWriter() {
  while (!thread_.wait(1000)) continue;
}

void CheckpointWriter::run(GatheredState gathered, const std::optional<CheckpointState>& state) {
  try {
    const FlatState snapshot = flatten(std::move(gathered));
    if (result_.kind == CheckpointKind::kLast) result_.weights_sha256 = hash_of(snapshot);
    if (!state) return;
    const std::vector<std::span<const float>> slots(snapshot.slots.begin(), snapshot.slots.end());
    if (result_.kind == CheckpointKind::kBest) {
      store_.write_best(*state, table_, snapshot.weights, slots, slot_names_);
    } else {
      store_.write(*state, table_, snapshot.weights, slots, slot_names_);
    }
  } catch (const Error& e) {
    // A folder that can no longer be listed is a disk failure, not bad data.
    const ErrorCode code = e.code() == ErrorCode::kData ? ErrorCode::kIo : e.code();
    throw Error(code, e.what());
  }
}

void CheckpointWriter::write(GatheredState snapshot, CheckpointState state, CheckpointKind kind) {
  start(std::move(snapshot), std::move(state), kind);
}

void CheckpointWriter::hash(GatheredState snapshot) {
  start(std::move(snapshot), std::nullopt, CheckpointKind::kLast);
}

void CheckpointWriter::start(GatheredState snapshot, std::optional<CheckpointState> state,
                             CheckpointKind kind) {
  result_ = {snapshot.step, "", nullptr, kind};
  thread_.start([this, snapshot = std::move(snapshot), state = std::move(state)]() mutable {
    run(std::move(snapshot), state);
  });
}

std::optional<CheckpointWriter::Result> CheckpointWriter::take() {
  const std::optional<std::exception_ptr> error = thread_.take();
  if (!error) return std::nullopt;
  result_.error = *error;
  return std::move(result_);
}

}  // namespace pushpull
