// A worker's program without sockets and threads: what control.cpp and trainer.cpp do around the
// state machine of push and pull. Computing takes simulated time, in which no message of a server
// is read and no state is taken in, while heartbeats go on.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/cluster.h"
#include "tests/simulation/shared_memory.h"
#include "worker/compute/gradient_sum.h"
#include "worker/exchange/encoder.h"
#include "worker/exchange/local_steps.h"
#include "worker/exchange/push_pull.h"

namespace pushpull::sim {

class WorkerNode {
 public:
  WorkerNode(Cluster& cluster, int number);

  void kill();
  // Nothing of this process happens for so long; messages wait.
  void freeze(int64_t ms);
  // Killed, or over.
  bool gone() const { return gone_; }
  // Empty while it runs, and when it was killed.
  const std::optional<int>& exit_code() const { return exit_code_; }
  std::string describe() const;

 private:
  struct Part {
    int slice = 0;
    Range node;
    Payload payload;
  };

  // Runs the event unless this process is gone, later when it is frozen.
  void happen(std::function<void()> event);
  void later(int64_t delay_us, std::function<void()> event);

  // control
  void take_control(const Message& message);
  void take_state(const wire::State& state);
  void send_control(Message message);
  void control();
  void say_hello();
  void declare();
  void report(wire::EvalResult result);
  void heartbeat();
  void end(int code, const std::string& text = "");

  // trainer
  void make_trainer(const wire::State& state);
  void plan_sharing();
  void turn();
  void exchange();
  void close_links();
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
  const int number_;
  const uint64_t incarnation_;
  int control_;
  bool gone_ = false;
  std::optional<int> exit_code_;
  int64_t frozen_until_us_ = 0;
  std::deque<std::function<void()>> frozen_;

  std::optional<wire::JobText> text_;
  std::optional<wire::State> state_;
  bool news_ = false;  // state_ has not been given to the trainer
  bool declared_ = false;
  bool prepared_ = false;
  std::map<int64_t, wire::EvalResult> results_;  // not taken yet
  int64_t next_result_ = 1;
  bool heartbeat_now_ = false;
  const int64_t joining_ms_;
  int64_t hello_ms_ = -1000;
  int64_t heartbeat_ms_ = 0;
  int64_t repeat_ms_ = 0;
  int64_t heard_ms_ = 0;

  std::vector<std::vector<int>> servers_;      // dealers, by server and lane
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
};

}  // namespace pushpull::sim
