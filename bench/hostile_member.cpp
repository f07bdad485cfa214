// A worker that joins a job like any other, and then harms it. bench/hostile.py measures the cost.
//   hostile_member --join tcp://HOST:PORT --how unread|pushes|hellos [--for-s 60]
// unread: requests the newest weights over and over, and reads no answer. pushes: sends gradients
// that no lease covers. hellos: joins again with each message. Each sends as fast as the connection
// allows.
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <iostream>
#include <random>
#include <thread>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/strict_number.h"
#include "common/help/program_help.h"
#include "common/job/command_line.h"
#include "common/job/key_help.h"
#include "common/keys/key_flags.h"
#include "common/net/head_wire.h"
#include "common/net/join.h"
#include "common/net/tensor_wire.h"
#include "datasets/dataset.h"
#include "models/model.h"
#include "worker/exchange/server_links.h"
#include "worker/member/control.h"

namespace pushpull {
namespace {

using Clock = std::chrono::steady_clock;

std::string flag(const CommandLine& line, const std::string& key) {
  const auto found = line.local.find(key);
  if (found == line.local.end()) throw Error(ErrorCode::kUsage, "[usage] --" + key + " is missing");
  return found->second;
}

wire::Declare declaration(const Job& job) {
  const std::unique_ptr<Dataset> dataset = open_dataset(job, "");
  const std::unique_ptr<Model> model = make_model(job, dataset->fields(), {});
  wire::Declare declare;
  to_wire(model->table(), declare.mutable_tensors());
  to_wire(model->heads(), declare.mutable_heads());
  declare.set_train_samples(dataset->size(Split::kTrain));
  declare.set_test_samples(dataset->size(Split::kTest));
  declare.set_data_digest(dataset->digest());
  declare.set_numerics(model->numerics());
  declare.set_choices(model->choices());
  return declare;
}

// Waits until this worker has a rank: without one it cannot read weights.
wire::State wait_for_rank(Control& control) {
  while (!control.over()) {
    const std::optional<wire::State> state = control.state();
    if (state && state->phase() == wire::PHASE_TRAINING && state->rank() >= 0) return *state;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw Error(ErrorCode::kFailed, "[hostile] the job has ended: " + control.end()->text);
}

void put(wire::Sender* sender, uint64_t run, uint64_t incarnation) {
  sender->set_run(run);
  sender->set_incarnation(incarnation);
}

Message pull(uint64_t run, uint64_t incarnation, int64_t number) {
  Message message;
  wire::Exchange* exchange = message.header.mutable_exchange();
  put(exchange->mutable_sender(), run, incarnation);
  exchange->mutable_pull()->set_number(number);
  exchange->mutable_pull()->set_latest(true);
  return message;
}

Message push(uint64_t run, uint64_t incarnation, int64_t number, int64_t bytes) {
  Message message;
  wire::Exchange* exchange = message.header.mutable_exchange();
  put(exchange->mutable_sender(), run, incarnation);
  exchange->mutable_push()->set_number(number);
  exchange->mutable_push()->set_step(number);
  exchange->mutable_push()->set_hi(1);
  const std::shared_ptr<char[]> gradient(new char[static_cast<size_t>(bytes)]());
  message.payloads.push_back(
      {gradient, std::as_bytes(std::span(gradient.get(), static_cast<size_t>(bytes)))});
  return message;
}

Message hello(std::mt19937_64& random) {
  Message message;
  wire::Hello* hello = message.header.mutable_hello();
  hello->set_role(wire::ROLE_WORKER);
  hello->set_host("nowhere");
  hello->set_pid(1);
  hello->set_incarnation(random());
  return message;
}

// Does harm for `for_s` seconds. Returns the number of messages sent.
int64_t harm(const CommandLine& line, Control& control, zmq::context_t& context, int64_t for_s) {
  const std::string how = flag(line, "how");
  const Job& job = control.job();
  const uint64_t run = control.enter_term();
  control.declare(declaration(job));
  const wire::State state = wait_for_rank(control);
  const uint64_t incarnation = control.incarnation();
  const std::string address = data_address({job, run, incarnation, state}, 0, control.address());
  Dealer data(context, address, data_limits(job.slice_bytes),
              data_credentials(state, 0, control.data_credentials()));
  Dealer second(context, control.address(), control_limits(), control.keys().control_credentials());
  std::mt19937_64 random(run);
  std::cout << "takes part as worker " << state.rank() << std::endl;
  const auto end = Clock::now() + std::chrono::seconds(for_s);
  int64_t sent = 0;
  while (Clock::now() < end && !control.over()) {
    ++sent;
    if (how == "unread") {
      data.send(pull(run, incarnation, sent));
    } else if (how == "pushes") {
      data.send(push(run, incarnation, sent, job.slice_bytes));
      while (data.receive()) continue;
    } else {
      second.send(hello(random));
      while (second.receive()) continue;
    }
    // A full queue drops messages: without the pause, the flood would end in this process.
    if (sent % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return sent;
}

// The process of this program.
class Process final : public WorkerOwner {
 public:
  int take_signal() override { return signals_.take(); }
  int signal_fd() const override { return signals_.fd(); }
  void end_now(int code) override { _exit(code); }

 private:
  SignalFd signals_;
};

int main_of(int argc, char** argv) {
  const std::vector<KeyHelp> flags =
      with_key_flags({{"join", "", "address of the first server: tcp://HOST:PORT"},
                      {"how", "", "unread, pushes or hellos"},
                      {"for-s", "60", "seconds"}});
  const CommandLine line = parse_command_line(argc, argv, flags, JobFlags::kRefuse);
  const ProgramHelp help = {.name = "hostile_member",
                            .summary = "joins a job and harms it",
                            .usage = {"hostile_member --join ADDRESS --how HOW"},
                            .options = flags};
  if (print_help(line, help, program_version())) return 0;
  const std::string address = flag(line, "join");
  const std::string how = flag(line, "how");
  if (how != "unread" && how != "pushes" && how != "hellos") {
    throw Error(ErrorCode::kUsage, "[usage] --how " + how + ": must be unread, pushes or hellos");
  }
  const auto given = line.local.find("for-s");
  const std::optional<int64_t> seconds =
      given == line.local.end() ? 60 : parse_int64(given->second);
  if (!seconds || *seconds <= 0)
    throw Error(ErrorCode::kUsage, "[usage] --for-s must be a whole number > 0");
  Process process;
  zmq::context_t control_context(1);
  zmq::context_t context(1);
  const Keys keys = keys_of(line);
  JoinOptions options;
  options.incarnation = random_id();
  options.host = host_name();
  options.pid = getpid();
  options.coordinator = address;
  options.timeout_s = 30;
  Control control(std::make_unique<Dealer>(control_context, address, control_limits(),
                                           keys.control_credentials()),
                  options, process, keys);
  if (!control.wait_joined()) throw Error(ErrorCode::kFailed, control.end()->text);
  const int64_t sent = harm(line, control, context, *seconds);
  std::cout << sent << " messages\n";
  control.leave(0, "");
  return 0;
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  try {
    return pushpull::main_of(argc, argv);
  } catch (const pushpull::Error& e) {
    std::cerr << "error: " << e.what() << "\n";
    return static_cast<int>(e.code());
  } catch (const std::exception& e) {
    std::cerr << "error: [hostile] " << e.what() << "\n";
    return 1;
  }
}
