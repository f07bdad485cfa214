// A worker's trainer around the state machine of push and pull, in simulated time: while it
// computes, no message of a server is read and no state is taken in.
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
  // Both borrowed. number: of the process.
  WorkerTrainer(Cluster& cluster, WorkerNode& process, int number)
      : cluster_(cluster), process_(process), number_(number) {}

  // That of the next term, which counts on.
  std::unique_ptr<WorkerTrainer> next() const;
  // Time has passed.
  void turn();
  // There is a newer State: it is taken in when the trainer waits, it may be computing now.
  void on_news();
  // The process has ended.
  void close_links();
  // Nothing of it happens any more, though the process lives.
  void stop() { stopped_ = true; }
  // What a heartbeat says of it.
  wire::Stats stats() const;
  std::string describe() const;

 private:
  struct Part {
    int slice = 0;
    Range node;
    Payload payload;
  };

  // Computes for at most so long, then does this.
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
  bool forward_may_go_on() const;
  void compute(const Task& task);
  void sum_gradients(std::span<const float> weights, int64_t step, Range node,
                     const GradientSum::SliceReady& ready, std::vector<float>& losses);
  void push_some(size_t count, const Task& task, std::vector<float> losses);
  void evaluate(const Task& task);

  Cluster& cluster_;
  WorkerNode& process_;
  const int number_;
  bool news_ = false;                          // the newest State has not been taken in
  std::vector<std::vector<int>> servers_;      // dealers, by server and lane
  std::map<int, int64_t> lives_;               // of connections, by server
  SharedMemory memory_;                        // outlives the gradients in it
  std::vector<bool> shares_;                   // by server
  std::vector<std::pair<int, bool>> changes_;  // of these, to be made
  std::unique_ptr<PushPull> push_pull_;
  std::unique_ptr<GradientSum> gradient_;
  std::unique_ptr<LocalSteps> local_;  // local:H
  std::unique_ptr<Encoder> encoder_;
  std::deque<std::pair<int, Message>> inbox_;
  const std::byte* first_slice_ = nullptr;  // where it lay when it came
  // A task that has begun while its weights were coming: what its layers have read of them.
  struct Forward {
    Task task;
    size_t tensor = 0;  // that is read next
    std::vector<float> read;
  };
  std::optional<Forward> forward_;
  std::deque<Part> parts_;
  std::vector<float> read_;  // shared memory: the weights of the task, as they were
  bool busy_ = false;
  bool stopped_ = false;
  int64_t computed_ = 0;  // micro-batches and chunks
};

}  // namespace pushpull::sim
