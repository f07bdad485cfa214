// A worker's trainer around the state machine of push and pull, in simulated time. While it
// computes, it reads no message of a server and no state.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/cluster.h"
#include "tests/simulation/shared_memory.h"
#include "worker/compute/gradient_sum.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/local_steps.h"
#include "worker/exchange/push_pull.h"

namespace pushpull::sim {

class WorkerTrainer {
 public:
  // Both are borrowed. number: of the process.
  WorkerTrainer(Cluster& cluster, WorkerNode& process, int number)
      : cluster_(cluster), process_(process), number_(number) {}

  // Returns the trainer of the next term, which inherits the counts.
  std::unique_ptr<WorkerTrainer> next() const;
  // Runs a turn: time has passed.
  void turn();
  // Announces a newer State. The trainer reads it when it next waits.
  void on_news();
  // Call when the process has ended.
  void close_links();
  // Delivers nothing on the data connections to this server until then.
  void silence_links(int server, int64_t until_ms);
  // Stops the trainer, though the process lives.
  void stop() { stopped_ = true; }
  // Returns the trainer's statistics for a heartbeat.
  wire::Stats stats() const;
  std::string describe() const;

 private:
  struct Part {
    int slice = 0;
    Range node;
    Payload payload;
  };

  // Computes for at most so long, then calls `then`.
  void compute_for(int64_t longest_us, std::function<void()> then);
  void make(const wire::State& state);
  void connect(int server, const wire::State& state);
  void follow_replaced();
  void plan_sharing();
  void exchange();
  void send();
  void check_weights(const Task& task, bool exact);
  void check_unchanged();
  bool given_up() const;
  void check_read_versions(const std::vector<ToServer>& messages);
  bool begin_early();
  void forward();
  bool forward_may_continue() const;
  void compute(const Task& task);
  void sum_gradients(std::span<const float> weights, int64_t step, Range node,
                     const GradientSum::SliceReady& ready, std::vector<float>& losses);
  void push_some(size_t count, const Task& task, std::vector<float> losses);
  void evaluate(const Task& task);

  Cluster& cluster_;
  WorkerNode& process_;
  const int number_;
  bool news_ = false;                          // a newer State is unread
  std::vector<std::vector<int>> servers_;      // dealers, by server and lane
  std::map<int, int64_t> lives_;               // number of connections made, by server
  SharedMemory memory_;                        // outlives the gradients in it
  std::vector<bool> shares_;                   // by server
  std::vector<std::pair<int, bool>> changes_;  // pending changes of shares_
  std::unique_ptr<PushPull> push_pull_;
  std::unique_ptr<GradientSum> gradient_;
  std::unique_ptr<LocalSteps> local_;  // local:H
  std::unique_ptr<Encoder> encoder_;
  std::deque<std::pair<int, Message>> inbox_;
  const std::byte* first_slice_ = nullptr;  // address of the first slice received
  // A task that began before all its weights arrived, with the weights that its layers have read.
  struct Forward {
    Task task;
    size_t tensor = 0;  // to be read next
    std::vector<float> read;
  };
  std::optional<Forward> forward_;
  std::deque<Part> parts_;
  std::vector<float> read_;  // shared memory: a copy of the task's weights
  bool busy_ = false;
  bool stopped_ = false;
  int64_t computed_ = 0;  // micro-batches and chunks
};

}  // namespace pushpull::sim
