#include "ps/files/checkpoint_writer.h"

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

CheckpointWriter::~CheckpointWriter() = default;

CheckpointWriter::Result CheckpointWriter::run(GatheredState gathered,
                                               const std::optional<CheckpointState>& state,
                                               CheckpointKind kind) {
  Result result;
  result.step = gathered.step;
  result.kind = kind;
  try {
    const FlatState snapshot = flatten(std::move(gathered));
    if (kind == CheckpointKind::kLast) result.weights_sha256 = hash_of(snapshot);
    if (!state) return result;
    const std::vector<std::span<const float>> slots(snapshot.slots.begin(), snapshot.slots.end());
    if (kind == CheckpointKind::kBest) {
      store_.write_best(*state, table_, snapshot.weights, slots, slot_names_);
    } else {
      store_.write(*state, table_, snapshot.weights, slots, slot_names_);
    }
  } catch (const Error& e) {
    // A folder that can no longer be listed is a disk failure, not bad data.
    const ErrorCode code = e.code() == ErrorCode::kData ? ErrorCode::kIo : e.code();
    result.error = std::make_exception_ptr(Error(code, e.what()));
  } catch (...) {
    result.error = std::current_exception();
  }
  return result;
}

void CheckpointWriter::write(GatheredState snapshot, CheckpointState state, CheckpointKind kind) {
  start(std::move(snapshot), std::move(state), kind);
}

void CheckpointWriter::hash(GatheredState snapshot) {
  start(std::move(snapshot), std::nullopt, CheckpointKind::kLast);
}

void CheckpointWriter::start(GatheredState snapshot, std::optional<CheckpointState> state,
                             CheckpointKind kind) {
  busy_ = true;
  thread_ = std::jthread([this, snapshot = std::move(snapshot), state = std::move(state),
                          kind]() mutable { finish(run(std::move(snapshot), state, kind)); });
}

void CheckpointWriter::finish(Result result) {
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
  done_.wake();
}

std::optional<CheckpointWriter::Result> CheckpointWriter::take() {
  const std::lock_guard lock(mutex_);
  if (result_) {
    done_.clear();
    busy_ = false;
  }
  return std::exchange(result_, std::nullopt);
}

}  // namespace pushpull
