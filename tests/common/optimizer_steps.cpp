// Runs the optimizers and schedules, for optimizer_torch_test.py to compare with PyTorch. KIND is
// the number of the enumerator.
//   optimizer_steps update KIND WEIGHT_DECAY LR STEPS N < weights, then STEPS gradient sums of four
//     micro-batches; N raw floats each. Writes the weights after each step.
//   optimizer_steps groups KIND WEIGHT_DECAY LR LR_SCALE OWN_DECAY STEPS N: the same of a model with
//     two tensors of N floats each, the second with LR_SCALE and OWN_DECAY.
//   Both scale the update of each tensor by its trust ratio, if the optimizer does so.
//   optimizer_steps schedule TOTAL KEY=VALUE...: the rate of each step of a job with these keys, one per line.
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "common/layout/tensor_table.h"
#include "common/update/optimizer.h"
#include "common/update/optimizer_options.h"
#include "common/update/range_update.h"

namespace {

std::vector<float> read_floats(size_t n) {
  std::vector<float> values(n);
  std::cin.read(reinterpret_cast<char*>(values.data()),
                static_cast<std::streamsize>(n * sizeof(float)));
  return values;
}

pushpull::OptimizerOptions read_options(const std::vector<std::string>& args) {
  pushpull::OptimizerOptions options;
  options.kind = static_cast<pushpull::OptimizerKind>(std::stoi(args.at(0)));
  options.weight_decay = std::stod(args.at(1));
  // the defaults of a job
  const pushpull::Job job = pushpull::parse_job("", {{"optimizer", to_string(options.kind)}});
  options.beta2 = job.optimizer.beta2;
  options.epsilon = job.optimizer.epsilon;
  return options;
}

using State = std::vector<float*>;
using Update = std::function<void(int64_t step, const float* sum, float* weights, State& state)>;

// Reads weights and gradient sums, updates, and writes the weights after each step.
int run_steps(const pushpull::OptimizerOptions& options, int64_t steps, size_t n,
              const Update& update) {
  std::vector<float> w = read_floats(n);
  std::vector<std::vector<float>> slots(pushpull::state_names(options.kind).size(),
                                        std::vector<float>(n));
  State state;
  for (std::vector<float>& slot : slots) state.push_back(slot.data());
  for (int64_t step = 1; step <= steps; ++step) {
    update(step, read_floats(n).data(), w.data(), state);
    std::cout.write(reinterpret_cast<const char*>(w.data()),
                    static_cast<std::streamsize>(n * sizeof(float)));
  }
  return std::cin && std::cout.flush() ? 0 : 1;
}

// Returns `count` tensors of `size` floats each.
pushpull::TensorTable table_of(int count, const std::string& size) {
  pushpull::TensorTable table;
  for (int i = 0; i < count; ++i) {
    pushpull::TensorInfo tensor;
    tensor.name = std::to_string(i);
    tensor.shape = {std::stoll(size)};
    table.add(tensor);
  }
  return table;
}

int tensors(const pushpull::OptimizerOptions& options, const std::string& lr,
            const std::string& steps, const pushpull::TensorTable& table) {
  pushpull::UpdateInfo info;
  info.learning_rate = std::stod(lr);
  info.divisor = 4.0;
  const pushpull::Range all{0, table.total};
  const pushpull::RangeUpdate rules(table, all, options);
  return run_steps(options, std::stoll(steps), static_cast<size_t>(table.total),
                   [&](int64_t step, const float* sum, float* w, State& state) {
                     const std::vector<const float*> slots(state.begin(), state.end());
                     const auto trust = pushpull::trust_of_update(table, options, rules, info, step,
                                                                  w, sum, slots);
                     info.trust = trust;
                     rules.apply(all, info, step, w, sum, state, w);
                     info.trust = {};
                   });
}

int update(const std::vector<std::string>& args) {
  const pushpull::OptimizerOptions options = read_options(args);
  pushpull::UpdateContext context;
  context.learning_rate = std::stod(args.at(2));
  context.divisor = 4.0;
  const size_t n = std::stoul(args.at(4));
  if (scales_by_tensor(options.kind)) {
    return tensors(options, args.at(2), args.at(3), table_of(1, args.at(4)));
  }
  return run_steps(options, std::stoll(args.at(3)), n,
                   [&](int64_t step, const float* sum, float* w, State& state) {
                     context.updates = step;
                     pushpull::update_range(options, context, n, w, sum, state, w);
                   });
}

int groups(const std::vector<std::string>& args) {
  pushpull::TensorTable table = table_of(2, args.at(6));
  table.tensors[1].lr_scale = std::stod(args.at(3));
  table.tensors[1].weight_decay = std::stod(args.at(4));
  return tensors(read_options(args), args.at(2), args.at(5), table);
}

int schedule(const std::vector<std::string>& args) {
  std::map<std::string, std::string> keys = {{"steps", args.at(0)}};
  for (size_t i = 1; i < args.size(); ++i) {
    const size_t at = args[i].find('=');
    keys[args[i].substr(0, at)] = args[i].substr(at + 1);
  }
  const pushpull::Job job = pushpull::parse_job("", keys);
  for (int64_t step = 0; step < job.steps; ++step) {
    std::printf("%.17g\n", pushpull::learning_rate(job.schedule, step, job.steps));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (args.at(0) == "groups") return groups(rest);
  return args.at(0) == "update" ? update(rest) : schedule(rest);
}
