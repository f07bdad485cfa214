// A parameter server on ps-lite and its workers, written for speed with ps-lite's public API
// (ps/ps.h) alone. ps_lite_compare.py builds it and starts the processes; DMLC_ROLE selects
// scheduler, server or worker.
//  ps_lite_driver store|update|exchange|byteps BYTES:KEY_BYTES:STEPS ...
// A tensor of BYTES is cut into keys of KEY_BYTES. store, update: one worker pushes it and pulls it
// when the push is answered; the server keeps the received message (store) or updates weights with
// momentum (update). exchange: all workers push and pull at once; the server sums, updates the
// weights, and answers the pulls. byteps: the same with BytePS's own server, which only sums; each
// worker updates its weights. A worker prints "push|pull|exchange BYTES KEY_BYTES microseconds
// ...", a figure for each step.
#include <ps/ps.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr float kMomentum = 0.9F;
constexpr float kLearningRate = 0.01F;
constexpr int kWarmUpSteps = 3;
constexpr size_t kKeysOfACase = size_t{1} << 20;  // keys of different cases never coincide

enum class Kind { kStore, kUpdate, kExchange, kByteps };

struct Case {
  size_t bytes = 0;
  size_t key_bytes = 0;
  int steps = 0;
};

struct Arguments {
  Kind kind = Kind::kStore;
  std::vector<Case> cases;
};

// One pass over the memory: v = mu v + g, w -= lr v, with g = a, or a + b.
void update(std::vector<float>& weights, std::vector<float>& momentum, const float* a) {
  float* __restrict w = weights.data();
  float* __restrict v = momentum.data();
  for (size_t i = 0; i < weights.size(); ++i) {
    v[i] = kMomentum * v[i] + a[i];
    w[i] -= kLearningRate * v[i];
  }
}

void update(std::vector<float>& weights, std::vector<float>& momentum, const float* a,
            const float* b) {
  float* __restrict w = weights.data();
  float* __restrict v = momentum.data();
  for (size_t i = 0; i < weights.size(); ++i) {
    v[i] = kMomentum * v[i] + (a[i] + b[i]);
    w[i] -= kLearningRate * v[i];
  }
}

// Answers requests on ps-lite's one thread for them. Copies nothing: keeps a push as its received
// message, and sends a pull from the weights. This is safe, since the weights change only after all
// workers have pushed, and a worker pushes only after it has pulled everything.
class Server {
 public:
  Server(Kind kind, size_t workers) : kind_(kind), workers_(workers) {}

  void operator()(const ps::KVMeta& meta, const ps::KVPairs<float>& data,
                  ps::KVServer<float>* server) {
    const size_t number = data.keys[0] / kKeysOfACase;
    if (number != case_) {  // a barrier separates the cases: the old one is no longer needed
      slots_.clear();
      case_ = number;
    }
    const size_t part = data.keys[0] % kKeysOfACase;
    if (part >= slots_.size()) slots_.resize(part + 1);
    Slot& slot = slots_[part];
    slot.key = data.keys[0];
    if (meta.push) {
      push(slot, meta, data.vals);
      server->Response(meta);
      answer_waiting(slot, server);
    } else {
      slot.waiting.push_back(meta);
      answer_waiting(slot, server);
    }
  }

 private:
  struct Slot {
    ps::Key key = 0;
    ps::SArray<float> values;  // sent in answer to a pull
    std::vector<float> weights, momentum;
    std::vector<ps::SArray<float>> pushed;  // in this step
    std::vector<size_t> steps_of = {};      // of each worker
    size_t steps = 0;
    std::vector<ps::KVMeta> waiting;
  };

  static size_t rank_of(const ps::KVMeta& meta) {
    return static_cast<size_t>(ps::Postoffice::IDtoRank(meta.sender));
  }

  void push(Slot& slot, const ps::KVMeta& meta, const ps::SArray<float>& values) {
    if (slot.steps_of.empty()) {
      slot.steps_of.resize(workers_);
      if (kind_ != Kind::kStore) {
        slot.weights.resize(values.size());
        slot.momentum.resize(values.size());
        slot.values = ps::SArray<float>(slot.weights.data(), slot.weights.size());
      }
    }
    ++slot.steps_of.at(rank_of(meta));
    if (kind_ == Kind::kStore) {
      slot.values = values;
      ++slot.steps;
      return;
    }
    slot.pushed.push_back(values);
    if (slot.pushed.size() < workers_) return;
    if (workers_ == 1) {
      update(slot.weights, slot.momentum, slot.pushed[0].data());
    } else {
      update(slot.weights, slot.momentum, slot.pushed[0].data(), slot.pushed[1].data());
    }
    slot.pushed.clear();
    ++slot.steps;
  }

  // Answers each waiting worker if its push is in the weights.
  void answer_waiting(Slot& slot, ps::KVServer<float>* server) {
    auto waits = slot.waiting.begin();
    for (const ps::KVMeta& meta : slot.waiting) {
      if (slot.steps_of.at(rank_of(meta)) > slot.steps) {
        *waits++ = meta;
        continue;
      }
      ps::KVPairs<float> answer;
      answer.keys = {slot.key};
      answer.vals = slot.values;
      server->Response(meta, answer);
    }
    slot.waiting.erase(waits, slot.waiting.end());
  }

  Kind kind_;
  size_t workers_;
  size_t case_ = 0;
  std::vector<Slot> slots_;
};

double microseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

void print(const char* what, const Case& shape, const std::vector<double>& microseconds) {
  std::printf("%s %zu %zu", what, shape.bytes, shape.key_bytes);
  for (const double value : microseconds) std::printf(" %.6g", value);
  std::printf("\n");
}

// Val is float for the server of this file. For BytePS's server it is char, and each key has its
// length beside it.
template <typename Val>
class Worker {
 public:
  Worker(Kind kind, ps::KVWorker<Val>& kv) : kind_(kind), kv_(kv) {}

  // Returns false if the weights are wrong.
  bool run(size_t number, const Case& shape) {
    prepare(number, shape);
    ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
    if (kind_ == Kind::kByteps) {  // BytePS's first push of a key sets the length of the key
      push_all();
      wait_all();
    }
    std::vector<double> first;
    std::vector<double> second;
    for (int step = 0; step < kWarmUpSteps + shape.steps; ++step) {
      // BytePS's server sends a sum from the buffer that receives the first push of the next step.
      if (kind_ == Kind::kByteps) ps::Postoffice::Get()->Barrier(0, ps::kWorkerGroup);
      const auto begin = std::chrono::steady_clock::now();
      push_all(/*and_pull=*/!alone());
      wait_all();
      const double push_us = microseconds_since(begin);
      const auto middle = std::chrono::steady_clock::now();
      if (alone()) {
        pull_all();
        wait_all();
      }
      if (step < kWarmUpSteps) continue;
      first.push_back(push_us);
      second.push_back(microseconds_since(middle));
    }
    print(alone() ? "push" : "exchange", shape, first);
    if (alone()) print("pull", shape, second);
    return as_expected(kWarmUpSteps + shape.steps);
  }

 private:
  struct Part {
    ps::SArray<ps::Key> key;
    ps::SArray<Val> gradient, pulled;
    ps::SArray<int> length;
    std::vector<float> weights, momentum;  // used if the worker updates them
  };

  bool alone() const { return kind_ == Kind::kStore || kind_ == Kind::kUpdate; }

  static float gradient_of(int rank) { return 0.25F * static_cast<float>(rank + 1); }

  void prepare(size_t number, const Case& shape) {
    gradient_.assign(shape.bytes / sizeof(float), gradient_of(ps::MyRank()));
    pulled_.assign(gradient_.size(), 0.0F);
    parts_.clear();
    const size_t step = shape.key_bytes / sizeof(float);
    for (size_t begin = 0; begin < gradient_.size(); begin += step) {
      const size_t count = std::min(step, gradient_.size() - begin);
      const size_t values = count * sizeof(float) / sizeof(Val);
      Part part;
      part.key = {number * kKeysOfACase + parts_.size()};
      part.gradient = ps::SArray<Val>(reinterpret_cast<Val*>(&gradient_[begin]), values);
      part.pulled = ps::SArray<Val>(reinterpret_cast<Val*>(&pulled_[begin]), values);
      if (kind_ == Kind::kByteps) {
        part.length = {static_cast<int>(values)};
        part.weights.resize(count);
        part.momentum.resize(count);
      }
      parts_.push_back(std::move(part));
    }
  }

  void push_all(bool and_pull = false) {
    for (Part& part : parts_) {
      requests_.push_back(kv_.ZPush(part.key, part.gradient, part.length));
      if (and_pull) pull(part);
    }
  }

  void pull_all() {
    for (Part& part : parts_) pull(part);
  }

  void pull(Part& part) {
    std::function<void()> done;
    if (kind_ == Kind::kByteps) {  // updates this part while the next ones arrive
      done = [&part] {
        update(part.weights, part.momentum, reinterpret_cast<const float*>(part.pulled.data()));
      };
    }
    requests_.push_back(kv_.ZPull(part.key, &part.pulled, nullptr, 0, done));
  }

  void wait_all() {
    for (const int request : requests_) kv_.Wait(request);
    requests_.clear();
  }

  bool as_expected(int steps) const {
    float sum = 0.0F;
    for (int rank = 0; rank < ps::NumWorkers(); ++rank) sum += gradient_of(rank);
    float weight = 0.0F;
    float momentum = 0.0F;
    for (int step = 0; step < steps; ++step) {
      momentum = kMomentum * momentum + sum;
      weight -= kLearningRate * momentum;
    }
    const float expected = kind_ == Kind::kStore ? gradient_[0] : weight;
    for (const Part& part : parts_) {
      const bool here = kind_ == Kind::kByteps;
      const auto* values =
          here ? part.weights.data() : reinterpret_cast<const float*>(part.pulled.data());
      const size_t count = here ? part.weights.size() : part.pulled.size();
      for (const float found : {values[0], values[count - 1]}) {
        if (std::abs(found - expected) <= 1e-4F * std::abs(expected)) continue;
        std::fprintf(stderr, "[bench] key %zu: expected %g, got %g\n",
                     static_cast<size_t>(part.key[0]), expected, found);
        return false;
      }
    }
    return true;
  }

  Kind kind_;
  ps::KVWorker<Val>& kv_;
  std::vector<float> gradient_, pulled_;
  std::vector<Part> parts_;
  std::vector<int> requests_;
};

template <typename Val>
bool work(const Arguments& arguments) {
  ps::KVWorker<Val> kv(0, 0);
  ps::Start(0);
  Worker<Val> worker(arguments.kind, kv);
  bool good = true;
  for (size_t i = 0; i < arguments.cases.size() && good; ++i) {
    good = worker.run(i + 1, arguments.cases[i]);
  }
  if (good) ps::Finalize(0, true);
  return good;
}

void serve(const Arguments& arguments) {
  ps::KVServer<float> server(0);
  server.set_request_handle(
      Server(arguments.kind, std::strtoull(std::getenv("DMLC_NUM_WORKER"), nullptr, 10)));
  ps::Start(0);
  ps::Finalize(0, true);
}

bool parse(int argc, char** argv, Arguments& arguments) {
  const std::vector<std::string> kinds = {"store", "update", "exchange", "byteps"};
  const auto kind = argc < 2 ? kinds.end() : std::find(kinds.begin(), kinds.end(), argv[1]);
  if (kind == kinds.end()) return false;
  arguments.kind = static_cast<Kind>(kind - kinds.begin());
  for (int i = 2; i < argc; ++i) {
    Case shape;
    if (std::sscanf(argv[i], "%zu:%zu:%d", &shape.bytes, &shape.key_bytes, &shape.steps) != 3 ||
        shape.key_bytes == 0 ||
        shape.bytes % sizeof(float) + shape.key_bytes % sizeof(float) != 0) {
      return false;
    }
    arguments.cases.push_back(shape);
  }
  return !arguments.cases.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  const char* role = std::getenv("DMLC_ROLE");
  if (role == nullptr || std::getenv("DMLC_NUM_WORKER") == nullptr ||
      !parse(argc, argv, arguments)) {
    std::fprintf(stderr, "usage: DMLC_ROLE=... ps_lite_driver KIND BYTES:KEY_BYTES:STEPS ...\n");
    return 2;
  }
  if (std::string(role) == "worker") {
    const bool good =
        arguments.kind == Kind::kByteps ? work<char>(arguments) : work<float>(arguments);
    std::fflush(stdout);
    if (!good)
      std::_Exit(1);  // the other workers would wait for this one: ps_lite_compare.py ends
                      // them
    return 0;
  }
  if (std::string(role) == "server") {
    serve(arguments);
  } else {
    ps::Start(0);
    ps::Finalize(0, true);
  }
  return 0;
}
