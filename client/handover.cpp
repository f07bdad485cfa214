#include "client/handover.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

std::deque<HandedTask>::iterator UpcomingTasks::waiting(const Key& key) {
  return std::ranges::find(waiting_, key, key_of);
}

void UpcomingTasks::add(HandedTask task) {
  const Key key = key_of(task);
  if (waiting_.size() == kMaxTasks || told_.contains(key)) return;
  if (waiting(key) == waiting_.end()) waiting_.push_back(std::move(task));
}

void UpcomingTasks::begin(const HandedTask& task) {
  told_.erase(key_of(task));
  const auto found = waiting(key_of(task));
  if (found != waiting_.end()) waiting_.erase(waiting_.begin(), found + 1);
}

// A task that was told and never begins would be known for ever: the oldest steps are forgotten.
std::optional<HandedTask> UpcomingTasks::take() {
  if (waiting_.empty()) return std::nullopt;
  HandedTask task = std::move(waiting_.front());
  waiting_.pop_front();
  told_.insert(key_of(task));
  if (told_.size() > kMaxTasks) told_.erase(told_.begin());
  return task;
}

namespace {

constexpr std::chrono::milliseconds kTimePoll{100};
constexpr std::chrono::milliseconds kIdlePoll{20};

// A sum over the bits of floats, which changes with any one of them and with their order. It is cheap
// enough to be made of all weights of each task, while they are copied and still in the cache.
class BitSum {
 public:
  void add(std::span<const float> floats) {
    Row first = first_;
    Row second = second_;
    Row row;
    for (; floats.size() >= kRow; floats = floats.subspan(kRow)) {
      std::memcpy(&row, floats.data(), sizeof row);
      first += row;
      second += first;
    }
    if (!floats.empty()) {  // only at the end of all
      row = Row{};
      std::memcpy(&row, floats.data(), floats.size_bytes());
      first += row;
      second += first;
    }
    first_ = first;
    second_ = second;
  }
  uint64_t value() const {
    uint64_t all = 0;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      all = all * kFactor + first_[lane] * kFactor + second_[lane];
    }
    return all;
  }

 private:
  static constexpr size_t kLanes = 8;
  static constexpr size_t kRow = 2 * kLanes;  // floats
  static constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  // g++ makes the instructions of the processor's vectors from it.
  using Row = uint64_t __attribute__((vector_size(kLanes * sizeof(uint64_t))));

  Row first_{};
  Row second_{};
};

constexpr size_t kBlockFloats = 4096;  // 16 KiB

// Copies `from`, and returns its sum.
uint64_t copy_with_sum(std::span<const float> from, float* to) {
  BitSum sum;
  for (; !from.empty(); from = from.subspan(std::min(from.size(), kBlockFloats))) {
    const std::span<const float> block = from.first(std::min(from.size(), kBlockFloats));
    std::ranges::copy(block, to);
    sum.add(block);
    to += block.size();
  }
  return sum.value();
}

uint64_t sum_of(std::span<const float> floats) {
  BitSum sum;
  sum.add(floats);
  return sum.value();
}

}  // namespace

void Handover::set_time_limit(double limit, double grace) {
  const Lock lock(mutex_);
  limit_s_ = limit;
  grace_ = std::chrono::duration<double>(grace);
}

void Handover::announce(HandedTask task) {
  const Lock lock(mutex_);
  upcoming_.add(std::move(task));
}

float Handover::train(const TensorTable& table, std::span<const float> weights,
                      const Samples& samples, std::span<float> gradients,
                      const GradientReady& ready, const WeightsNeeded& needed) {
  Lock lock(mutex_);
  gradients_ = gradients;
  arrived_from_ = needed ? table.tensors.size() : 0;
  try {
    post(lock, table, weights, samples, true);
    await_weights(lock, needed);
    pass_gradients(lock, ready);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    close(lock);
    throw;
  }
  close(lock);
  return loss_;
}

void Handover::evaluate(const TensorTable& table, std::span<const float> weights,
                        const Samples& samples, std::span<HeadSums> sums) {
  Lock lock(mutex_);
  sums_ = sums;
  arrived_from_ = 0;
  try {
    post(lock, table, weights, samples, false);
    await(lock, [this] { return stage_ == Stage::kDone; });
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    close(lock);
    throw;
  }
  close(lock);
}

// Waits until the caller has ended a void task, and posts the next one.
void Handover::post(Lock& lock, const TensorTable& table, std::span<const float> weights,
                    const Samples& samples, bool trains) {
  await(lock, [this] { return stage_ == Stage::kNone; });
  task_ = {trains,
           samples.step,
           samples.micro_batch,
           samples.epoch,
           {samples.indices.begin(), samples.indices.end()},
           samples.same_weights};
  final_.clear();  // the job goes on
  upcoming_.begin(task_);
  table_ = &table;
  weights_ = weights;
  given_.assign(table.tensors.size(), false);
  stage_ = Stage::kPosted;
  changed_.notify_all();
}

// The last tensors first: servers have their gradients first.
void Handover::await_weights(Lock& lock, const WeightsNeeded& needed) {
  while (arrived_from_ > 0) {
    lock.unlock();
    needed(arrived_from_ - 1);
    lock.lock();
    if (gave_up_) throw Error(ErrorCode::kFailed, *gave_up_);
    --arrived_from_;
    changed_.notify_all();
  }
  held_since_ = Clock::now();  // a wait for weights is not the caller's
}

// Waits until `done` returns true, and, while the caller works on a task, no longer than it may.
void Handover::await(Lock& lock, const std::function<bool()>& done) {
  while (!gave_up_ && !done()) {
    if (limit_s_ > 0.0) check_time();
    wait_a_little(lock);
  }
  if (gave_up_) throw Error(ErrorCode::kFailed, *gave_up_);
}

void Handover::wait_a_little(Lock& lock) {
  if (!idle_) {
    if (limit_s_ > 0.0) {
      changed_.wait_for(lock, kTimePoll);
    } else {
      changed_.wait(lock);
    }
    return;
  }
  changed_.wait_for(lock, kIdlePoll);
  const Clock::time_point now = Clock::now();
  if (now - idled_ < kIdlePoll) return;
  idled_ = now;
  lock.unlock();
  idle_();
  lock.lock();
}

void Handover::check_time() const {
  if (stage_ != Stage::kHeld && stage_ != Stage::kVoid) return;
  const std::chrono::duration<double> held = Clock::now() - held_since_;
  if (held < std::chrono::duration<double>(limit_s_) + grace_) return;
  const std::string limit = print_real(limit_s_);
  const std::string batch = std::to_string(task_.micro_batch);
  throw Error(ErrorCode::kFailed,
              "[task-timeout] the program has not ended the task of " +
                  (task_.trains ? "step " + std::to_string(task_.step) + ", micro-batch " + batch
                                : "chunk " + batch + " of an evaluation") +
                  " for " + limit + " s (task-timeout = " + limit +
                  "): it hangs, or needs a longer task-timeout");
}

// Passes gradients on while the caller computes the next ones.
void Handover::pass_gradients(Lock& lock, const GradientReady& ready) {
  const auto pass = [&](const Gradient& gradient) {
    lock.unlock();
    if (gradient.lent != nullptr) {
      const TensorInfo& info = table_->tensors[gradient.tensor];
      std::copy_n(gradient.lent, info.size, gradients_.begin() + info.offset);
      lock.lock();
      if (--lent_ == 0) copied_.notify_all();
      lock.unlock();
    }
    ready(gradient.tensor);
    lock.lock();
  };
  while (stage_ != Stage::kDone || !passed_.empty()) {
    await(lock, [this] { return stage_ == Stage::kDone || !passed_.empty(); });
    for (; !passed_.empty(); passed_.pop_front()) pass(passed_.front());
  }
  for (size_t tensor = given_.size(); tensor-- > 0;) {
    if (given_[tensor]) continue;
    fill_missing(tensor);
    pass({tensor});
  }
}

void Handover::fill_missing(size_t tensor) {
  const TensorInfo& info = table_->tensors[tensor];
  const auto to = gradients_.begin() + info.offset;
  if (info.rule == UpdateRule::kAverage) {
    std::copy_n(weights_.begin() + info.offset, info.size, to);
  } else {
    std::fill_n(to, info.size, 0.0F);
  }
}

// The task's memory goes: the caller may not touch it any more.
void Handover::close(Lock& lock) {
  copied_.wait(lock, [this] { return copies_ == 0; });
  const bool held = stage_ == Stage::kHeld || stage_ == Stage::kVoid;
  stage_ = held ? Stage::kVoid : Stage::kNone;
  weights_ = {};
  gradients_ = {};
  sums_ = {};
  passed_.clear();
  lent_ = 0;
  changed_.notify_all();
  copied_.notify_all();
}

void Handover::set_group(const MeetingPlace& place) {
  const Lock lock(mutex_);
  place_ = place;
  changed_.notify_all();
}

void Handover::set_idle(std::function<void()> idle) { idle_ = std::move(idle); }

void Handover::keep_final(const TensorTable& table, std::span<const float> weights) {
  const Lock lock(mutex_);
  final_table_ = table;
  final_.assign(weights.begin(), weights.end());
}

void Handover::end() {
  const Lock lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

Handover::Next Handover::next(int64_t timeout_ms, HandedTask* task) {
  Lock lock(mutex_);
  if (stage_ == Stage::kHeld || stage_ == Stage::kVoid) {
    throw Error(ErrorCode::kUsage, "[client] a task is still open: end it before the next one");
  }
  wait_for(changed_, lock, timeout_ms,
           [this] { return stage_ == Stage::kPosted || ended_ || gave_up_ || regroups(); });
  if (gave_up_) throw Error(ErrorCode::kFailed, *gave_up_);
  if (!ended_ && regroups()) return Next::kRegroup;
  if (stage_ != Stage::kPosted) {
    task->same_weights = final_.empty();
    return ended_ ? Next::kEnd : Next::kNothingYet;
  }
  stage_ = Stage::kHeld;
  held_since_ = Clock::now();
  *task = task_;
  return Next::kTask;
}

Handover::Next Handover::next_group(int64_t timeout_ms, MeetingPlace* place) {
  Lock lock(mutex_);
  const auto drop_void_task = [this] {
    if (stage_ != Stage::kVoid) return;
    stage_ = Stage::kNone;
    changed_.notify_all();  // the trainer's thread may wait for it before it begins a group
  };
  wait_for(changed_, lock, timeout_ms, [&] {
    drop_void_task();
    return (regroups() && place_.attempt != 0) || ended_ || gave_up_;
  });
  if (gave_up_) throw Error(ErrorCode::kFailed, *gave_up_);
  *place = place_;
  if (ended_) return Next::kEnd;
  if (!regroups() || place_.attempt == 0) return Next::kNothingYet;
  entered_ = place_.attempt;
  return Next::kTask;
}

void Handover::check_open(bool trains) const {
  const bool open = stage_ == Stage::kHeld || stage_ == Stage::kVoid;
  if (open && task_.trains == trains) return;
  throw Error(ErrorCode::kUsage,
              std::string("[client] no task to ") + (trains ? "train" : "evaluate") + " is open");
}

const TensorInfo& Handover::checked(size_t tensor, size_t floats) const {
  const std::vector<TensorInfo>& tensors = table_->tensors;
  if (tensor >= tensors.size()) {
    throw Error(ErrorCode::kUsage, "[client] tensor " + std::to_string(tensor) +
                                       ": the model has " + std::to_string(tensors.size()));
  }
  const TensorInfo& info = tensors[tensor];
  if (floats != static_cast<size_t>(info.size)) {
    throw Error(ErrorCode::kUsage, "[client] " + info.name + " has " + std::to_string(info.size) +
                                       " elements, got " + std::to_string(floats));
  }
  return info;
}

// Copies without the lock, so that the trainer's thread goes on meanwhile.
void Handover::unlocked(Lock& lock, const std::function<void()>& copy) {
  ++copies_;
  lock.unlock();
  copy();
  lock.lock();
  if (--copies_ == 0) copied_.notify_all();
}

void Handover::copy_weights(size_t tensor, std::span<float> to) {
  Lock lock(mutex_);
  check_open(task_.trains);
  if (stage_ == Stage::kVoid) return;
  const TensorInfo& info = checked(tensor, to.size());
  changed_.wait(lock,
                [&] { return stage_ != Stage::kHeld || arrived_from_ <= tensor || gave_up_; });
  if (gave_up_) throw Error(ErrorCode::kFailed, *gave_up_);
  if (stage_ != Stage::kHeld) return;
  const std::span<const float> from = weights_.subspan(info.offset, to.size());
  unlocked(lock, [&] { std::ranges::copy(from, to.begin()); });
}

size_t Handover::copy_arriving(int64_t timeout_ms, std::span<float*> to) {
  Lock lock(mutex_);
  if (stage_ == Stage::kNone && !final_.empty()) return copy_final(to);
  check_open(task_.trains);
  if (stage_ == Stage::kHeld && to.size() != table_->tensors.size()) {
    throw Error(ErrorCode::kUsage, "[client] the model has " +
                                       std::to_string(table_->tensors.size()) +
                                       " tensors, got addresses of " + std::to_string(to.size()));
  }
  copied_weights_.resize(to.size());
  size_t end = to.size();  // the tensors from this one on are done
  while (stage_ == Stage::kHeld && end > 0) {
    const bool some = wait_for(changed_, lock, timeout_ms, [&] {
      return stage_ != Stage::kHeld || arrived_from_ < end || gave_up_;
    });
    if (gave_up_) throw Error(ErrorCode::kFailed, *gave_up_);
    if (!some) return end - static_cast<size_t>(std::ranges::count(to.first(end), nullptr));
    if (stage_ != Stage::kHeld) break;
    unlocked(lock, [&, begin = arrived_from_] {
      for (; end > begin; --end) {
        float* const address = std::exchange(to[end - 1], nullptr);
        const TensorInfo& info = table_->tensors[end - 1];
        if (address == nullptr) continue;
        const auto floats = static_cast<size_t>(info.size);
        copied_weights_[end - 1] = {floats,
                                    copy_with_sum(weights_.subspan(info.offset, floats), address)};
      }
    });
  }
  return 0;
}

size_t Handover::copy_final(std::span<float*> to) const {
  for (size_t tensor = 0; tensor < to.size(); ++tensor) {
    const TensorInfo& info = final_table_.tensors.at(tensor);
    if (float* const address = std::exchange(to[tensor], nullptr)) {
      std::copy_n(final_.begin() + info.offset, info.size, address);
    }
  }
  return 0;
}

size_t Handover::find_changed(std::span<const float* const> at) {
  const Lock lock(mutex_);
  for (size_t tensor = 0; tensor < at.size(); ++tensor) {
    if (at[tensor] == nullptr) continue;
    if (tensor >= copied_weights_.size() || copied_weights_[tensor].floats == 0) {
      throw Error(ErrorCode::kUsage, "[client] the weights of tensor " + std::to_string(tensor) +
                                         " have not been copied yet");
    }
    const auto& [floats, sum] = copied_weights_[tensor];
    if (sum_of({at[tensor], floats}) != sum) return tensor;
  }
  return at.size();
}

// Returns false if the task is void.
bool Handover::begin_gradient(size_t tensor, std::span<const float> from) {
  check_open(true);
  if (stage_ == Stage::kVoid) return false;
  const TensorInfo& info = checked(tensor, from.size());
  if (given_[tensor]) {
    throw Error(ErrorCode::kUsage, "[client] a second gradient of " + info.name + " in one task");
  }
  given_[tensor] = true;
  return true;
}

void Handover::set_gradient(size_t tensor, std::span<const float> from) {
  Lock lock(mutex_);
  if (!begin_gradient(tensor, from)) return;
  const auto to = gradients_.begin() + table_->tensors[tensor].offset;
  unlocked(lock, [&] { std::ranges::copy(from, to); });
  if (stage_ == Stage::kHeld) passed_.push_back({tensor});
  changed_.notify_all();
}

void Handover::lend_gradient(size_t tensor, std::span<const float> from) {
  const Lock lock(mutex_);
  if (!begin_gradient(tensor, from)) return;
  passed_.push_back({tensor, from.data()});
  ++lent_;
  changed_.notify_all();
}

void Handover::await_lent() {
  Lock lock(mutex_);
  copied_.wait(lock, [this] { return lent_ == 0; });
}

void Handover::end_training(float loss) {
  Lock lock(mutex_);
  check_open(true);
  loss_ = loss;
  if (task_.step != rated_step_ || task_.micro_batch <= rated_micro_batch_) {
    rated_step_ = task_.step;
    rated_micro_batch_ = task_.micro_batch;
    step_rate_ = rate_now();
  }
  stage_ = stage_ == Stage::kVoid ? Stage::kNone : Stage::kDone;
  changed_.notify_all();
  copied_.wait(lock, [this] { return lent_ == 0; });
}

void Handover::check_evaluates() const {
  const Lock lock(mutex_);
  check_open(false);
}

bool Handover::holds_task() const {
  const Lock lock(mutex_);
  return stage_ == Stage::kHeld || stage_ == Stage::kVoid;
}

double Handover::rate_now() const {
  if (said_) return *said_;
  return progress_.learning_rate.value_or(job_rate_.value_or(0.0));
}

void Handover::set_job_rate(double lr) {
  const Lock lock(mutex_);
  job_rate_ = lr;
}

void Handover::note_progress(const StepProgress& progress) {
  const Lock lock(mutex_);
  progress_ = progress;
}

std::optional<double> Handover::step_rate() const {
  const Lock lock(mutex_);
  return job_rate_ ? std::optional(step_rate_) : std::nullopt;
}

NamedSums Handover::named_sums() const {
  const Lock lock(mutex_);
  return named_;
}

void Handover::set_learning_rate(double rate) {
  const Lock lock(mutex_);
  if (!job_rate_) {
    throw Error(ErrorCode::kUsage,
                "[client] the program says the learning rate " + print_real(rate) +
                    ", and the job has rates of its own: take lr-schedule = external");
  }
  if (!(std::isfinite(rate) && rate >= 0.0)) {
    throw Error(ErrorCode::kUsage, "[client] the program says the learning rate " +
                                       std::to_string(rate) + ": expected a finite number from 0");
  }
  said_ = rate;
}

double Handover::learning_rate() const {
  const Lock lock(mutex_);
  return rate_now();
}

StepProgress Handover::progress() const {
  const Lock lock(mutex_);
  return progress_;
}

void Handover::end_evaluation(std::span<const HeadSums> sums, NamedSums named) {
  const Lock lock(mutex_);
  check_open(false);
  if (stage_ == Stage::kHeld) {
    if (sums_.empty() && !sums.empty()) {
      throw Error(ErrorCode::kUsage,
                  "[client] only the last stage reports an evaluation: got the "
                  "sums of " +
                      std::to_string(sums.size()) + " heads");
    }
    if (sums.size() != sums_.size()) {
      throw Error(ErrorCode::kUsage, "[client] the model has " + std::to_string(sums_.size()) +
                                         " heads, got the sums of " + std::to_string(sums.size()));
    }
    std::ranges::copy(sums, sums_.begin());
    named_ = std::move(named);
  }
  stage_ = stage_ == Stage::kVoid ? Stage::kNone : Stage::kDone;
  changed_.notify_all();
}

void Handover::give_up(const std::string& why) {
  const Lock lock(mutex_);
  if (!gave_up_) gave_up_ = why;
  changed_.notify_all();
}

std::optional<HandedTask> Handover::announced() {
  const Lock lock(mutex_);
  return upcoming_.take();
}

}  // namespace pushpull
