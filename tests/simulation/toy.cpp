#include "tests/simulation/toy.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/base/random.h"
#include "common/layout/slice_map.h"
#include "common/update/norm.h"
#include "common/update/optimizer.h"
#include "common/update/optimizer_options.h"
#include "worker/compute/gradient_source.h"

namespace pushpull::sim {

namespace {

constexpr int64_t kIds = 1024;

// Returns a number in [-1, 1), a pure function of its arguments.
float noise(uint32_t i, uint32_t step, uint32_t micro_batch) {
  uint32_t h = i * 0x9e3779b1U ^ step * 0x85ebca77U ^ micro_batch * 0xc2b2ae3dU;
  h = (h ^ (h >> 15)) * 0x2c1b3c6dU;
  h = (h ^ (h >> 12)) * 0x297a2d39U;
  h ^= h >> 15;
  return static_cast<float>(static_cast<int32_t>(h)) * 0x1p-31F;
}

TensorInfo tensor(const std::string& name, int64_t size, InitKind init, float value) {
  TensorInfo info;
  info.name = name;
  info.shape = {size};
  info.init = init;
  info.value = value;
  return info;
}

}  // namespace

OptimizerOptions options_for(const OptimizerOptions& optimizer, const TensorInfo& tensor) {
  OptimizerOptions options = optimizer;
  if (tensor.name == (optimizer.no_decay.patterns ? "weight" : "bias")) options.weight_decay = 0.0;
  if (tensor.weight_decay) options.weight_decay = *tensor.weight_decay;
  return options;
}

// Adds a tensor that belongs to this stage.
void Toy::add(TensorInfo info, int stage) {
  std::vector<size_t>& read = tensors_read_[static_cast<size_t>(stage)];
  info.begins_stage = stage > 0 && read.empty();
  read.push_back(table_.tensors.size());
  table_.add(std::move(info));
}

Toy::Toy(const Job& job, int64_t elements, bool counting)
    : tensors_read_(static_cast<size_t>(job.stages)),
      leaves_(job.micro_batches()),
      counting_(counting),
      sampler_(job, kTrainSamples) {
  const auto last = static_cast<int>(job.stages) - 1;
  const bool own = job.model == "external";
  if (own) own_weights_.resize(static_cast<size_t>(elements));
  if (counting_) {
    for (int stage = 0; stage <= last; ++stage) {
      const Range part = share_range(stage, last + 1, elements);
      add(tensor("counts" + std::to_string(stage), part.size(), InitKind::kConstant,
                 own ? 1.0F : 0.0F),
          stage);
    }
    return;
  }
  for (size_t i = 0; i < own_weights_.size(); ++i) {
    own_weights_[i] = noise(static_cast<uint32_t>(i), 1, static_cast<uint32_t>(job.seed));
  }
  const int64_t average = elements / 5;
  const int64_t bias = elements / 7;
  add(tensor("weight", elements - average - bias, InitKind::kUniform, 0.5F), 0);
  TensorInfo running = tensor("running", average, InitKind::kConstant, 1.0F);
  running.rule = UpdateRule::kAverage;
  running.average_momentum = 0.25F;
  add(running, std::min(1, last));
  add(tensor("bias", bias, InitKind::kNormal, 0.1F), last);
  const bool tied = last > 0 && job.seed % 2 == 0;
  if (tied) tensors_read_.back().insert(tensors_read_.back().begin(), 0);
  table_.tensors.back().decay = false;
  if (!own) return;
  table_.tensors.front().lr_scale = 0.5;
  table_.tensors.back().weight_decay = 0.03;
}

TensorTable Toy::part_of(int stage) const {
  const Range elements = elements_of(stage);
  TensorTable out;
  for (TensorInfo tensor : table_.tensors) {
    if (tensor.offset < elements.lo || tensor.offset >= elements.hi) continue;
    tensor.begins_stage = false;
    out.add(std::move(tensor));
  }
  return out;
}

void Toy::gradient(std::span<const float> weights, int64_t step, int64_t micro_batch,
                   std::span<float> out) const {
  if (counting_) {
    std::fill(out.begin(), out.end(), 0.0F);
    for (auto i = static_cast<size_t>(step * leaves_ + micro_batch); i < out.size(); i += kIds) {
      out[i] = 1.0F;
    }
    return;
  }
  const auto s = static_cast<uint32_t>(step);
  const auto m = static_cast<uint32_t>(micro_batch);
  if (stages() == 1) {
    const float a = 0.3F + 0.2F * noise(0, s, m);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = weights[i] * a + noise(static_cast<uint32_t>(i), s, m);
    }
    return;
  }
  std::vector<Signals> inputs(1);
  for (int stage = 0; stage < stages(); ++stage) {
    inputs.push_back(forward({stage, step, micro_batch}, weights, inputs.back()));
  }
  Signals back = inputs.back();
  for (int stage = stages() - 1; stage >= 0; --stage) {
    const Signals& input = inputs[static_cast<size_t>(stage)];
    back = backward({stage, step, micro_batch}, weights, input, back, out);
  }
}

// ---- stages ----

namespace {

// Keeps signals small in any number of steps.
float squashed(float x) { return x / (1.0F + std::abs(x)); }

// Returns a number that depends on some of the weights.
float mixed(std::span<const float> weights, const TensorInfo& tensor, uint32_t salt) {
  constexpr uint32_t kTerms = 32;
  float sum = 0.0F;
  for (uint32_t j = 0; j < kTerms && tensor.size > 0; ++j) {
    const auto i = static_cast<int64_t>(j * 97 + salt) % tensor.size;
    sum += weights[static_cast<size_t>(tensor.offset + i)] * noise(j, salt, 3);
  }
  return sum;
}

}  // namespace

std::vector<Range> Toy::elements_read(int stage) const {
  std::vector<Range> out;
  for (const size_t t : tensors_read_[static_cast<size_t>(stage)]) {
    out.push_back({table_.tensors[t].offset, table_.tensors[t].offset + table_.tensors[t].size});
  }
  return out;
}

Range Toy::elements_of(int stage) const {
  const std::vector<int64_t> begins = table_.stage_begins();
  const auto s = static_cast<size_t>(stage);
  return {s == 0 ? 0 : begins[s - 1], s < begins.size() ? begins[s] : table_.total};
}

bool Toy::read_behind(size_t tensor, int stage) const {
  return std::any_of(tensors_read_.begin() + stage + 1, tensors_read_.end(),
                     [&](const auto& read) { return std::ranges::count(read, tensor) > 0; });
}

Toy::Signals Toy::forward(const Place& place, std::span<const float> weights,
                          const Signals& input) const {
  const auto s = static_cast<uint32_t>(place.step);
  const auto m = static_cast<uint32_t>(place.micro_batch);
  Signals out{};
  for (uint32_t k = 0; k < kSignals; ++k) {
    float sum = noise(100 * static_cast<uint32_t>(place.stage) + k, s, m);
    if (!counting_) {
      if (place.stage > 0) sum += 0.5F * input[k];
      for (const size_t t : tensors_read_[static_cast<size_t>(place.stage)]) {
        sum += mixed(weights, table_.tensors[t], k);
      }
    }
    out[k] = squashed(sum);
  }
  return out;
}

Toy::Signals Toy::backward(const Place& place, std::span<const float> weights, const Signals& input,
                           const Signals& gradient, std::span<float> out) const {
  const auto s = static_cast<uint32_t>(place.step);
  const auto m = static_cast<uint32_t>(place.micro_batch);
  const float a = 0.3F + 0.2F * noise(static_cast<uint32_t>(place.stage), s, m);
  Signals back{};
  for (size_t k = 0; k < kSignals; ++k) back[k] = squashed(gradient[k] + 0.3F * input[k]);
  for (const size_t t : tensors_read_[static_cast<size_t>(place.stage)]) {
    const TensorInfo& info = table_.tensors[t];
    const auto first = static_cast<size_t>(info.offset);
    for (auto i = first; i < first + static_cast<size_t>(info.size); ++i) {
      if (counting_) {
        const bool its = static_cast<int64_t>(i) % kIds == place.step * leaves_ + place.micro_batch;
        out[i] = its ? 1.0F : 0.0F;
        continue;
      }
      const float own = weights[i] * a + noise(static_cast<uint32_t>(i), s, m) +
                        0.1F * input[i % kSignals] * gradient[(i + 1) % kSignals];
      out[i] = read_behind(t, place.stage) ? out[i] + own : own;
    }
    if (counting_) continue;
    for (uint32_t k = 0; k < kSignals; ++k) back[k] = squashed(back[k] + mixed(weights, info, k));
  }
  return back;
}

float Toy::loss(int64_t step, int64_t micro_batch) {
  return noise(7, static_cast<uint32_t>(step), static_cast<uint32_t>(micro_batch));
}

HashSum Toy::data_hash(int64_t step, int64_t micro_batch) const {
  return pushpull::data_hash(step, micro_batch, sampler_.indices(step, micro_batch));
}

void Toy::evaluate(Evaluated& so_far, std::span<const float> weights, int64_t chunk,
                   Range elements) {
  int64_t i = elements.lo;
  while (i % 3 != chunk % 3) ++i;
  for (; i < elements.hi; i += 3) {
    const float weight = weights[static_cast<size_t>(i)];
    so_far.hash = (so_far.hash ^ std::bit_cast<uint32_t>(weight)) * 0x100000001b3ULL;
    so_far.loss += weight;
  }
}

std::array<HeadSums, 2> Toy::sums_of(const Evaluated& all, int64_t chunk) {
  return {HeadSums{all.loss, 1 + chunk % 2, static_cast<double>(all.hash >> 63U)},
          HeadSums{2.0 * all.loss, static_cast<int64_t>(all.hash >> 62U), all.loss / 3.0}};
}

std::array<HeadSums, 2> Toy::evaluate(std::span<const float> weights, int64_t chunk) {
  Evaluated all = begin_evaluation(chunk);
  evaluate(all, weights, chunk, {0, std::ssize(weights)});
  return sums_of(all, chunk);
}

std::vector<HeadInfo> Toy::heads() {
  return {{"label", Metric::kAccuracy, 2}, {"span", Metric::kMeanSquaredError, 3}};
}

std::string Toy::check_counts(std::span<const float> weights, Range elements, int64_t from,
                              int64_t to) const {
  constexpr float kRounding = 1e-3F;
  for (int64_t i = elements.lo; i < elements.hi; ++i) {
    const int64_t id = i % kIds;
    const float exact = -weights[static_cast<size_t>(i)] * static_cast<float>(leaves_);
    const bool never = std::abs(exact) < kRounding;
    const bool once = std::abs(exact - 1.0F) < kRounding;
    if ((never && id >= from * leaves_) || (once && id < to * leaves_)) continue;
    const int64_t step = id / leaves_;
    return "element " + std::to_string(i) + ": micro-batch " + std::to_string(id % leaves_) +
           " of step " + std::to_string(step) + " is in " + std::to_string(exact) +
           " times; want all steps below " + std::to_string(from) + ", none from " +
           std::to_string(to) + " on";
  }
  return "";
}

int64_t Toy::count_shares(std::span<const float> slice, int64_t first_step, int shares) const {
  int64_t count = 0;
  for (int64_t step = first_step; (step + 1) * leaves_ <= kIds; ++step) {
    for (int i = 0; i < shares; ++i) {
      const int64_t id = step * leaves_ + share_range(i, shares, leaves_).lo;
      count += slice[static_cast<size_t>(id)] < 0.0F ? 1 : 0;
    }
  }
  return count;
}

FlatState Toy::counted_state(int64_t step) const {
  FlatState out;
  out.step = step;
  out.updates = step;
  out.weights.resize(static_cast<size_t>(table_.total));
  for (size_t i = 0; i < out.weights.size(); ++i) {
    const bool in = static_cast<int64_t>(i) % kIds < step * leaves_;
    out.weights[i] = in ? -1.0F / static_cast<float>(leaves_) : 0.0F;
  }
  return out;
}

// ---- reference ----

void average(const Toy& toy, const OptimizerOptions& optimizer, FlatState& state) {
  if (optimizer.ema == 0.0) return;
  const auto keep = static_cast<float>(optimizer.ema);
  const auto take = static_cast<float>(1.0 - optimizer.ema);
  for (const TensorInfo& t : toy.table().tensors) {
    const bool copied = state.updates == 1 || t.rule == UpdateRule::kAverage;
    for (auto i = static_cast<size_t>(t.offset); i < static_cast<size_t>(t.offset + t.size); ++i) {
      float& mean = state.slots.back()[i];
      mean = copied ? state.weights[i] : keep * mean + take * state.weights[i];
    }
  }
}

double trust_ratio(const Toy& toy, const OptimizerOptions& optimizer, const TensorInfo& tensor,
                   const UpdateContext& context, const std::vector<float>& sum,
                   const std::vector<float>& weights,
                   const std::vector<std::vector<float>>& slots) {
  const bool left_out = tensor.name == (optimizer.no_decay.patterns ? "weight" : "bias");
  const bool scaled = tensor.weight_decay ? *tensor.weight_decay > 0.0 : !left_out;
  if (optimizer.kind != OptimizerKind::kLamb || !scaled || tensor.size == 0) return 1.0;
  const Range all{tensor.offset, tensor.offset + tensor.size};
  const auto n = static_cast<size_t>(tensor.size);
  std::vector<float> update(n);
  const std::array<const float*, 2> state{slots[0].data() + all.lo, slots[1].data() + all.lo};
  lamb_directions(options_for(optimizer, tensor), context, n, weights.data() + all.lo,
                  sum.data() + all.lo, state, update.data());
  // Returns the squares of x, which begins at element all.lo, over a node of the tree over blocks.
  const auto squares = [&](const auto& self, const float* x, Range node) -> double {
    if (node.size() > 1) {
      int64_t left = 1;
      while (left * 2 < node.size()) left *= 2;
      return self(self, x, Range{node.lo, node.lo + left}) +
             self(self, x, Range{node.lo + left, node.hi});
    }
    const Range here{std::max(all.lo, node.lo * kBlockElements),
                     std::min(all.hi, node.hi * kBlockElements)};
    return here.lo < here.hi ? block_squares(x + (here.lo - all.lo), here.size()) : 0.0;
  };
  const Range blocks{0, (toy.table().total + kBlockElements - 1) / kBlockElements};
  const double w = std::sqrt(squares(squares, weights.data() + all.lo, blocks));
  const double u = std::sqrt(squares(squares, update.data(), blocks));
  return w == 0.0 || u == 0.0 ? 1.0 : w / u;
}

Reference::Reference(const Job& job, const Toy& toy, int64_t test_samples)
    : job_(job), toy_(toy), test_samples_(test_samples) {
  states_.push_back(initial(state_names(job_.optimizer).size()));
}

FlatState Reference::initial(size_t state_vectors) const {
  FlatState out;
  const auto total = static_cast<size_t>(toy_.table().total);
  out.weights.resize(total);
  out.slots.assign(state_vectors, std::vector<float>(total));
  if (!toy_.own_weights().empty()) {
    out.weights = toy_.own_weights();
    return out;
  }
  uint32_t index = 0;
  for (const TensorInfo& t : toy_.table().tensors) {
    float* first = out.weights.data() + t.offset;
    if (t.init == InitKind::kConstant) {
      std::fill_n(first, t.size, t.value);
    } else if (t.init == InitKind::kNormal) {
      for (int64_t i = 0; i < t.size; ++i) {
        first[i] =
            t.value * normal(job_.seed, RandomStream::kInit, index, static_cast<uint64_t>(i));
      }
    } else {
      fill_uniform(job_.seed, RandomStream::kInit, index, 0, t.value, static_cast<uint64_t>(t.size),
                   first);
    }
    ++index;
  }
  return out;
}

std::vector<float> Reference::gradient_sum(const std::vector<float>& weights, int64_t step,
                                           Range node) const {
  std::vector<float> out(weights.size());
  if (node.size() == 1) {
    toy_.gradient(weights, step, node.lo, out);
    return out;
  }
  int64_t left = 1;
  while (left * 2 < node.size()) left *= 2;
  const std::vector<float> a = gradient_sum(weights, step, {node.lo, node.lo + left});
  const std::vector<float> b = gradient_sum(weights, step, {node.lo + left, node.hi});
  for (size_t i = 0; i < out.size(); ++i) out[i] = a[i] + b[i];
  return out;
}

std::vector<float> Reference::pulled(std::vector<float> weights) const {
  if (job_.pull_codec.kind == CodecKind::kFp32) return weights;
  for (float& w : weights) {
    // to the nearest float with eight binary digits, in doubles
    const double unit = std::ldexp(1.0, std::max(w == 0.0F ? 0 : std::ilogb(w), -126) - 7);
    w = static_cast<float>(std::nearbyint(static_cast<double>(w) / unit) * unit);
  }
  return weights;
}

double Reference::clip_of(const std::vector<float>& sum, double divisor) const {
  if (job_.clip_norm <= 0) return 1.0;
  std::vector<float> mean(sum.size());
  for (const TensorInfo& t : toy_.table().tensors) {
    if (t.rule != UpdateRule::kOptimizer) continue;
    for (auto i = static_cast<size_t>(t.offset); i < static_cast<size_t>(t.offset + t.size); ++i) {
      mean[i] = sum[i] / static_cast<float>(divisor);
    }
  }
  const auto blocks = (std::ssize(mean) + kBlockElements - 1) / kBlockElements;
  const auto squares = [&](const auto& self, Range node) -> double {
    if (node.size() == 1) {
      const int64_t lo = node.lo * kBlockElements;
      return block_squares(mean.data() + lo, std::min(kBlockElements, std::ssize(mean) - lo));
    }
    int64_t left = 1;
    while (left * 2 < node.size()) left *= 2;
    return self(self, Range{node.lo, node.lo + left}) + self(self, Range{node.lo + left, node.hi});
  };
  return clip_factor(std::sqrt(squares(squares, {0, blocks})), job_.clip_norm);
}

void Reference::update(FlatState& state) const {
  const auto leaves = static_cast<double>(job_.micro_batches());
  const std::vector<float> sum =
      gradient_sum(pulled(state.weights), state.step, {0, job_.micro_batches()});
  UpdateContext context;
  context.learning_rate = learning_rate(job_.schedule, state.step, job_.steps);
  context.divisor = leaves;
  context.clip = clip_of(sum, leaves);
  context.updates = state.updates + 1;
  for (const TensorInfo& t : toy_.table().tensors) {
    float* w = state.weights.data() + t.offset;
    const float* g = sum.data() + t.offset;
    const auto n = static_cast<size_t>(t.size);
    if (t.rule == UpdateRule::kAverage) {
      average_range(t.average_momentum, 1.0, leaves, n, w, g, w);
      continue;
    }
    std::array<float*, 2> slots{};
    const size_t used = state_names(job_.optimizer.kind).size();
    for (size_t s = 0; s < used; ++s) slots[s] = state.slots[s].data() + t.offset;
    UpdateContext own = context;
    own.learning_rate *= t.lr_scale;
    own.learning_rate *=
        trust_ratio(toy_, job_.optimizer, t, context, sum, state.weights, state.slots);
    update_range(options_for(job_.optimizer, t), own, n, w, g, std::span(slots.data(), used), w);
  }
  ++state.step;
  ++state.updates;
  average(toy_, job_.optimizer, state);
}

const FlatState& Reference::at(int64_t step) {
  while (std::ssize(states_) <= step) {
    FlatState next = states_.back();
    update(next);
    states_.push_back(std::move(next));
  }
  return states_[static_cast<size_t>(step)];
}

Evaluation Reference::evaluation(int64_t step) { return evaluation_of(at(step)); }

Evaluation Reference::evaluation_of(const FlatState& state) const {
  Evaluation out;
  out.step = state.step;
  for (const HeadInfo& head : Toy::heads()) out.heads.push_back({head, {}});
  for (int64_t chunk = 0; chunk * job_.micro_batch < test_samples_; ++chunk) {
    const auto sums = Toy::evaluate(job_.eval_ema ? state.slots.back() : state.weights, chunk);
    for (size_t i = 0; i < out.heads.size(); ++i) out.heads[i].sums.add(sums.at(i));
  }
  return out;
}

}  // namespace pushpull::sim
