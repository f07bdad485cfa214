// Transfers whole weights between a process and all servers. The coordinator loads initial weights
// and fetches snapshots; a worker that updates by itself (all-reduce) fetches the first weights and
// stores its part at checkpoints. State machine: does no I/O, starts no thread and reads no clock.
// Requests a few slices at a time and repeats unanswered requests. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/net/flat_state.h"
#include "common/net/message.h"

namespace pushpull {

struct ToShard {
  int server = 0;
  Message message;
};

class ShardClient {
 public:
  ShardClient(uint64_t term_id, uint64_t incarnation, const SliceMap& map, size_t state_vectors);

  // Starts a transfer; `busy` is true until every slice is answered. One transfer at a time.
  void load(std::shared_ptr<const FlatState> state, int64_t now_ms);
  // slices: the only ones to load.
  void load(std::shared_ptr<const GatheredState> state, std::vector<int> slices, int64_t now_ms);
  // state: true fetches the optimizer's state vectors too.
  void fetch(int64_t step, bool state, int64_t now_ms);
  // slices: the only ones to fetch, with their state; at least one.
  void fetch(int64_t step, std::vector<int> slices, int64_t now_ms);
  // Restarts the current fetch, because another process has taken a server's place.
  void fetch_again(int64_t now_ms);
  // state: must not change while `busy`. state.step is the barrier.
  // slices: those that this process keeps.
  void store(FlatStateView state, std::vector<int> slices, int64_t now_ms);

  bool busy() const { return mode_ != Mode::kIdle; }
  // Returns the step of the current fetch, if there is one.
  std::optional<int64_t> fetched_step() const {
    return mode_ == Mode::kFetch ? std::optional(step_) : std::nullopt;
  }
  // Return counts over all transfers, which never fall: slices transferred, and answers, including
  // those of servers that are not ready.
  int64_t transferred() const { return transferred_; }
  int64_t answers() const { return answers_; }
  // Returns the server with the longest unanswered request, or -1. For messages.
  int waiting_for() const;
  // Returns the result of a finished fetch once, else nullopt.
  std::optional<GatheredState> take_fetched() { return std::exchange(fetched_, std::nullopt); }

  // Returns false if the message is invalid or not an answer to a transfer.
  bool on_message(const Message& message, int64_t now_ms);
  void on_tick(int64_t now_ms);
  std::vector<ToShard> take_outgoing() { return std::exchange(outgoing_, {}); }

 private:
  enum class Mode { kIdle, kLoad, kFetch, kStore };
  struct Request {
    int slice = 0;
    int64_t repeat_ms = 0;
  };

  void begin(Mode mode, std::vector<int> slices, int64_t now_ms);
  void begin_fetch(int64_t step, bool state, std::vector<int> slices, int64_t now_ms);
  std::vector<Payload> payloads_of(int slice) const;
  void fill_window(int64_t now_ms);
  void send(int slice);
  bool finish(int slice, int64_t now_ms);
  std::vector<int> all_slices() const;
  Payload slice_of(std::span<const float> whole, int slice) const;

  uint64_t term_id_;
  uint64_t incarnation_;
  SliceMap map_;
  size_t state_vectors_;
  Mode mode_ = Mode::kIdle;
  int64_t step_ = 0;  // of a fetch or store
  bool state_ = true;
  std::vector<int> slices_;  // to transfer
  size_t next_slice_ = 0;    // index in slices_
  std::vector<Request> asked_;
  int64_t transferred_ = 0;
  int64_t answers_ = 0;
  std::shared_ptr<const FlatState> to_load_;
  std::shared_ptr<const GatheredState> to_load_again_;  // as received; used instead of to_load_
  FlatStateView to_send_;                               // of a load or store
  GatheredState fetching_;
  std::optional<GatheredState> fetched_;
  std::vector<ToShard> outgoing_;
};

}  // namespace pushpull
