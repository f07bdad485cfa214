// A group of workers for tests: each computes its stage on a thread of its own, and parts pass through
// memory.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/job/job.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "models/pipeline.h"
#include "worker/compute/compute.h"
#include "worker/compute/stage_exchange.h"
#include "worker/compute/stage_parts.h"

namespace pushpull {

// Samples of any fields, drawn by their numbers.
class DrawnSamples final : public Dataset {
 public:
  explicit DrawnSamples(FieldTable fields) : fields_(std::move(fields)) {}

  int64_t size(Split split) const override { return split == Split::kTrain ? 256 : 22; }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& request, float* block) const override {
    for (size_t f = 0; f < fields_.fields.size(); ++f) {
      const FieldInfo& field = fields_.fields[f];
      float* words = block + request.layout.offset(f);
      const size_t each = request.layout.size(f) / static_cast<size_t>(request.layout.samples());
      for (const int64_t sample : request.indices) {
        std::mt19937 random(static_cast<uint32_t>(10 * sample) + static_cast<uint32_t>(f));
        for (size_t i = 0; i < each; ++i, ++words) {
          if (field.type == FieldType::kInt) {
            *as_ints(words) = static_cast<int32_t>(random() % static_cast<uint32_t>(field.limit));
          } else {
            *words = static_cast<float>(random() % 1000) / 1000.0F;
          }
        }
      }
    }
  }

 private:
  FieldTable fields_;
  std::string digest_ = "drawn";
};

// Thrown by `receive` when the group ends.
struct GroupEnded {};

// Keeps the parts that are on their way between the stages of a group.
class PartsInMemory {
 public:
  // The exchange of one stage.
  class End final : public StageExchange {
   public:
    explicit End(PartsInMemory& parts) : parts_(parts) {}
    void set_stage(int stage) { stage_ = stage; }
    void send(const Part& to, Payload floats) override {
      const std::lock_guard lock(parts_.mutex_);
      const bool is_new = parts_.parts_.emplace(Key{stage_, to}, std::move(floats)).second;
      EXPECT_TRUE(is_new) << "sent twice: " << to.kind << " " << to.index;
      parts_.changed_.notify_all();
    }
    Payload receive(const Part& from, size_t floats) override {
      const Key key = key_of(from);
      std::unique_lock lock(parts_.mutex_);
      if (--parts_.receives_left_ == 0) parts_.ended_ = true;
      const bool waited = parts_.changed_.wait_for(lock, std::chrono::seconds(20), [&] {
        return parts_.ended_ || parts_.parts_.contains(key);
      });
      EXPECT_TRUE(waited) << "stage " << stage_ << " waits for kind " << from.kind << ", index "
                          << from.index << " of stage " << from.stage;
      if (parts_.ended_ || !waited) {
        parts_.ended_ = true;
        parts_.changed_.notify_all();
        throw GroupEnded{};
      }
      return here(key, floats);
    }
    std::optional<Payload> take(const Part& from, size_t floats) override {
      const std::lock_guard lock(parts_.mutex_);
      const Key key = key_of(from);
      if (!parts_.parts_.contains(key)) return std::nullopt;
      if (--parts_.receives_left_ == 0) parts_.ended_ = true;
      return here(key, floats);
    }
    void wait(std::span<const Part> parts, bool computes) override {
      EXPECT_TRUE(computes || !parts.empty()) << "stage " << stage_ << " waits for nothing";
      std::unique_lock lock(parts_.mutex_);
      const bool ended = parts_.changed_.wait_for(lock, std::chrono::milliseconds(20), [&] {
        return parts_.ended_ || woken_ || std::ranges::any_of(parts, [&](const Part& part) {
                 return parts_.parts_.contains(key_of(part));
               });
      });
      woken_ = false;
      idle_waits_ = ended || computes ? 0 : idle_waits_ + 1;
      EXPECT_LT(idle_waits_, 1000) << "stage " << stage_ << " waits for kind " << parts.front().kind
                                   << ", index " << parts.front().index;
      if (idle_waits_ >= 1000) parts_.ended_ = true;
      parts_.changed_.notify_all();
      if (parts_.ended_) throw GroupEnded{};
    }
    void wake() override {
      const std::lock_guard lock(parts_.mutex_);
      woken_ = true;
      parts_.changed_.notify_all();
    }

   private:
    // The part as its sender has named it.
    std::pair<int, Part> key_of(Part from) const {
      const int sender = std::exchange(from.stage, stage_);
      return {sender, from};
    }
    Payload here(const std::pair<int, Part>& key, size_t floats) {
      Payload part = std::move(parts_.parts_.at(key));
      parts_.parts_.erase(key);
      EXPECT_EQ(part.float_count(), floats);
      return part;
    }

    PartsInMemory& parts_;
    int stage_ = -1;
    bool woken_ = false;  // guarded, as all
    int idle_waits_ = 0;
  };

  // Ends the group in its receive number `receive` from now on; 0: never.
  void begin(int64_t receive = 0) {
    const std::lock_guard lock(mutex_);
    parts_.clear();
    ended_ = false;
    receives_left_ = receive;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  size_t left() {
    const std::lock_guard lock(mutex_);
    return parts_.size();
  }

 private:
  friend class End;
  using Key = std::pair<int, StageExchange::Part>;  // the sender, and the part that it named

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Payload> parts_;
  bool ended_ = false;
  int64_t receives_left_ = 0;
};

// The sums that were passed on, by node and slice, and the losses.
struct PushedSums {
  std::map<std::tuple<int64_t, int64_t, int>, std::vector<uint32_t>> slices;  // bits
  std::vector<float> losses;
  HashSum hash;
  friend bool operator==(const PushedSums&, const PushedSums&) = default;
};

// One that computes: the undivided model, or a stage.
struct Computing {
  std::unique_ptr<Model> model;
  std::unique_ptr<Compute> compute;
  std::vector<float> weights;
  WeightsNeeded needed = {};

  // Computes these nodes of steps [0, steps).
  PushedSums push(const std::vector<Range>& nodes, int64_t steps = 2) {
    PushedSums out;
    for (int64_t step = 0; step < steps; ++step) {
      compute->begin(step, nodes, weights);
      for (const Range& node : nodes) {
        const auto ready = [&](int slice, const Payload& part) {
          std::vector<uint32_t> bits(part.float_count());
          std::memcpy(bits.data(), part.floats(), part.bytes.size());
          EXPECT_TRUE(out.slices.try_emplace({step, node.lo, slice}, std::move(bits)).second)
              << "slice " << slice << " twice";
        };
        EXPECT_TRUE(compute->node(ready, out.losses, needed));
      }
    }
    out.hash = compute->take_data_hash();
    return out;
  }
};

inline std::vector<float> drawn_weights(int64_t total) {
  std::vector<float> weights(static_cast<size_t>(total));
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] =
        0.05F + 0.2F * std::abs(std::sin(static_cast<float>(i)));  // a variance is positive
  }
  return weights;
}

// Fills what a stage may not read.
inline float poison() { return std::numeric_limits<float>::quiet_NaN(); }

class StageGroup {
 public:
  // Makes the undivided model.
  using MakeModel = std::function<std::unique_ptr<Model>(const Job& job, const FieldTable& fields)>;

  StageGroup(const Job& job, FieldTable fields, const MakeModel& whole = whole_model,
             const MakeModel& divided = group_model)
      : job_(job), dataset_(std::move(fields)) {
    for (int stage = 0; stage < static_cast<int>(job_.stages); ++stage) {
      Computing& worker = workers_.emplace_back();
      worker.model = divided(job_, dataset_.fields());
      ends_.push_back(std::make_unique<PartsInMemory::End>(parts_));
    }
    table_ = workers_.front().model->table();
    map_ = SliceMap(table_.total, job_.slice_bytes, 2, table_.stage_begins());
    whole_.model = whole(job_, dataset_.fields());
    whole_.weights = drawn_weights(table_.total);
    whole_.compute =
        std::make_unique<Compute>(job_, dataset_, *whole_.model, map_, [] { return false; });
    for (int stage = 0; stage < stages(); ++stage) take(stage, stage);
  }

  // local: into how many stages each worker divides its own.
  StageGroup(const Job& job, FieldTable fields, std::vector<int> local)
      : StageGroup(job, std::move(fields), whole_model,
                   [local = std::move(local), worker = size_t{0}](const Job& of,
                                                                  const FieldTable& f) mutable {
                     return make_group_model(of, f, local.at(worker++));
                   }) {}

  static std::unique_ptr<Model> group_model(const Job& job, const FieldTable& fields) {
    return make_group_model(job, fields);
  }
  static std::unique_ptr<Model> whole_model(const Job& job, const FieldTable& fields) {
    return make_model(job, fields);
  }

  int stages() const { return static_cast<int>(workers_.size()); }
  const SliceMap& map() const { return map_; }
  const TensorTable& table() const { return table_; }
  const Job& job() const { return job_; }
  const Dataset& dataset() const { return dataset_; }
  Computing& whole() { return whole_; }
  Computing& of(int worker) { return workers_.at(static_cast<size_t>(worker)); }
  PartsInMemory& parts() { return parts_; }
  PartsInMemory::End& end(int worker) { return *ends_.at(static_cast<size_t>(worker)); }
  StageParts parts_of(int stage) {
    return stage_parts(table_, map_, of(0).model->group_stage()->tensors_read(), stage);
  }

  // Gives a worker this stage, with weights that are poison but for those that the stage reads.
  void take(int worker, int stage) {
    Computing& one = of(worker);
    std::vector<int> local;
    for (const Computing& each : workers_) {
      local.push_back(each.model->group_stage()->local_stages());
    }
    one.model->group_stage()->take_stage(stage, local, job_.micro_batches());
    ends_[static_cast<size_t>(worker)]->set_stage(stage);
    one.weights.assign(static_cast<size_t>(table_.total), poison());
    for (const Range& range : parts_of(stage).reads) {
      for (int64_t i = range.lo; i < range.hi; ++i) {
        one.weights[static_cast<size_t>(i)] = whole_.weights[static_cast<size_t>(i)];
      }
    }
    if (one.compute) return;
    one.compute = std::make_unique<Compute>(
        job_, dataset_, *one.model, map_, [] { return false; }, PushedMemory{},
        ends_[static_cast<size_t>(worker)].get());
  }

  // Puts another worker in the place of this one, which divides its stage into `local`.
  void replace(int worker, int local) {
    Computing& one = of(worker);
    one.compute.reset();
    one.model = make_group_model(job_, dataset_.fields(), local);
    for (int stage = 0; stage < stages(); ++stage) take(stage, stage);
  }

  // Calls `work` on a thread for each worker. Rethrows what the first of those has thrown that threw.
  void run(const std::function<void(int worker)>& work) {
    std::vector<std::exception_ptr> errors(workers_.size());
    std::vector<std::thread> threads;
    for (int worker = 0; worker < stages(); ++worker) {
      threads.emplace_back([&, worker] {
        try {
          work(worker);
        } catch (...) {
          errors[static_cast<size_t>(worker)] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  // Computes these nodes in all stages, and puts together what they have passed on.
  PushedSums push(const std::vector<Range>& nodes, int64_t steps = 2) {
    std::vector<PushedSums> each(workers_.size());
    run([&](int worker) { each[static_cast<size_t>(worker)] = of(worker).push(nodes, steps); });
    EXPECT_EQ(parts_.left(), 0U) << "parts that no stage has received";
    PushedSums out;
    for (int worker = 0; worker < stages(); ++worker) {
      PushedSums& one = each[static_cast<size_t>(worker)];
      const int stage = of(worker).model->group_stage()->stage();
      const bool is_last = stage + 1 == stages();
      EXPECT_EQ(one.losses.empty(), !is_last) << stage;
      EXPECT_EQ(one.hash == HashSum(), !is_last) << stage;
      for (auto& [key, bits] : one.slices) {
        EXPECT_EQ(map_.stage_of(std::get<2>(key)), stage);
        EXPECT_TRUE(out.slices.try_emplace(key, std::move(bits)).second);
      }
      if (is_last) out.losses = std::move(one.losses);
      out.hash += one.hash;
    }
    return out;
  }

 private:
  const Job job_;
  const DrawnSamples dataset_;
  PartsInMemory parts_;
  std::vector<std::unique_ptr<PartsInMemory::End>> ends_;
  TensorTable table_;
  SliceMap map_;
  Computing whole_;
  std::vector<Computing> workers_;
};

}  // namespace pushpull
