// Training on ps-lite, with its public API (ps/ps.h) alone, written so that a lost process can be
// replaced. ps_lite_faults.py builds it and starts the processes; DMLC_ROLE selects scheduler,
// server or worker.
//  ps_lite_app STEPS FLOATS
// In each step every worker pushes a gradient of FLOATS numbers to each server and pulls the
// weights. A server adds the gradients in the order of arrival, as BytePS's and MXNet's servers do,
// updates the weights when it has all gradients, and then answers the pulls. A push carries its
// step: a repeated push counts once, a restarted worker asks for its step, and a restarted server
// continues from that step with zeros, since its weights are lost. A worker prints "step N" after
// each step and "weights HEX" at the end.
#include <ps/ps.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr float kLearningRate = 0.05F;
constexpr int kWhichStep = -1;  // command of a pull that asks for the worker's next step

class Server {
 public:
  Server(size_t workers, size_t floats)
      : next_(workers), weights_(floats, 0.0F), sum_(floats, 0.0F) {}

  void operator()(const ps::KVMeta& meta, const ps::KVPairs<float>& data,
                  ps::KVServer<float>* server) {
    int& next = next_.at(static_cast<size_t>(ps::Postoffice::IDtoRank(meta.sender)));
    if (meta.push) {
      if (meta.cmd > next) begin_at(meta.cmd);
      if (meta.cmd == next) add(data.vals, next);
      server->Response(meta);
    } else if (meta.cmd == kWhichStep) {
      std::vector<float> answer(weights_.size(), static_cast<float>(next));
      respond(meta, data.keys, answer, server);
    } else {
      waiting_.push_back({meta, data.keys});
    }
    answer_waiting(server);
  }

 private:
  struct Pull {
    ps::KVMeta meta;
    ps::SArray<ps::Key> keys;
  };

  // Called when a server starts in the middle of the job: it has no weights, and continues from
  // zeros.
  void begin_at(int step) {
    if (steps_ > 0 || *std::max_element(next_.begin(), next_.end()) > 0) return;
    std::printf("begins at step %d, with zeros\n", step);
    std::fill(next_.begin(), next_.end(), step);
    steps_ = step;
  }

  void add(const ps::SArray<float>& gradient, int& next) {
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += gradient[i];
    ++next;
    if (*std::min_element(next_.begin(), next_.end()) <= steps_) return;
    for (size_t i = 0; i < sum_.size(); ++i) weights_[i] -= kLearningRate * sum_[i];
    std::fill(sum_.begin(), sum_.end(), 0.0F);
    ++steps_;
  }

  // Answers the pulls of steps that are in the weights.
  void answer_waiting(ps::KVServer<float>* server) {
    std::vector<Pull> later;
    for (const Pull& pull : waiting_) {
      if (pull.meta.cmd < steps_) {
        respond(pull.meta, pull.keys, weights_, server);
      } else {
        later.push_back(pull);
      }
    }
    waiting_.swap(later);
  }

  static void respond(const ps::KVMeta& meta, const ps::SArray<ps::Key>& keys,
                      const std::vector<float>& values, ps::KVServer<float>* server) {
    ps::KVPairs<float> answer;
    answer.keys = keys;
    answer.vals.CopyFrom(values.begin(), values.end());
    answer.lens = {static_cast<int>(values.size())};
    server->Response(meta, answer);
  }

  std::vector<int> next_;  // step of each worker's next push
  int steps_ = 0;          // steps that are in the weights
  std::vector<float> weights_, sum_;
  std::vector<Pull> waiting_;
};

class Worker {
 public:
  Worker(ps::KVWorker<float>& kv, size_t floats) : kv_(kv) {
    for (const ps::Range& range : ps::Postoffice::Get()->GetServerKeyRanges()) {
      keys_.push_back(range.begin());
      lengths_.push_back(static_cast<int>(floats));
    }
    weights_.resize(keys_.size() * floats);
  }

  void train(int steps) {
    const int first = first_step();
    for (int step = first; step < steps; ++step) {
      kv_.Wait(kv_.Push(keys_, gradient(step), lengths_, step));
      pull(step);
      std::printf("step %d\n", step);
    }
    std::printf("weights ");
    for (const float weight : weights_) {
      unsigned bits = 0;
      std::memcpy(&bits, &weight, sizeof(bits));
      std::printf("%08x", bits);
    }
    std::printf("\n");
  }

 private:
  // If the servers' answers differ, the worker continues from the earlier step.
  int first_step() {
    pull(kWhichStep);
    const float first = *std::min_element(weights_.begin(), weights_.end());
    std::fill(weights_.begin(), weights_.end(), 0.0F);
    if (first > 0) pull(static_cast<int>(first) - 1);
    return static_cast<int>(first);
  }

  void pull(int command) {
    ps::SArray<float> into(weights_.data(), weights_.size());
    kv_.Wait(kv_.ZPull(ps::SArray<ps::Key>(keys_), &into, nullptr, command));
  }

  // Returns the gradient of |w - t|^2 / 2, where t is random, differs between workers and steps,
  // and is the same in each run.
  std::vector<float> gradient(int step) const {
    std::mt19937 bits(static_cast<unsigned>(step * 1000 + ps::MyRank()));
    std::normal_distribution<float> normal;
    std::vector<float> found(weights_);
    for (float& value : found) value -= normal(bits);
    return found;
  }

  ps::KVWorker<float>& kv_;
  std::vector<ps::Key> keys_;
  std::vector<int> lengths_;
  std::vector<float> weights_;
};

// A replacement of a lost process skips the barrier: the other processes have already passed it.
void start() {
  ps::StartAsync(0);
  const bool again = ps::Postoffice::Get()->is_recovery();
  std::printf("%s as rank %d\n", again ? "rejoined" : "joined", ps::MyRank());
  if (!again) {
    ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup + ps::kServerGroup + ps::kScheduler);
  }
}

void run(const std::string& role, int steps, size_t floats) {
  if (role == "server") {
    ps::KVServer<float> server(0);
    const size_t workers = std::strtoull(std::getenv("DMLC_NUM_WORKER"), nullptr, 10);
    server.set_request_handle(Server(workers, floats));
    start();
    ps::Finalize(0, true);
  } else if (role == "worker") {
    ps::KVWorker<float> kv(0, 0);
    start();
    Worker(kv, floats).train(steps);
    ps::Finalize(0, true);
  } else {
    start();
    ps::Finalize(0, true);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* role = std::getenv("DMLC_ROLE");
  if (role == nullptr || std::getenv("DMLC_NUM_WORKER") == nullptr || argc != 3) {
    std::fprintf(stderr, "usage: DMLC_ROLE=... ps_lite_app STEPS FLOATS\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  run(role, std::atoi(argv[1]), std::strtoull(argv[2], nullptr, 10));
  return 0;
}
