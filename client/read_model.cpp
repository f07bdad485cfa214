#include "client/read_model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/sha256.h"
#include "common/net/join.h"

namespace pushpull {

namespace {

constexpr size_t kMaxShownName = 80;  // bytes

std::string text(const char* given) { return given == nullptr ? "" : given; }

Error mistake(const std::string& what) { return {ErrorCode::kUsage, "[client] " + what}; }

// Returns a text that becomes part of JSON files and of log lines.
std::string line(const char* given, const char* name) {
  if (is_plain_text(text(given))) return text(given);
  throw mistake(std::string(name) +
                " is not UTF-8 without control characters: " + printable(text(given)));
}

// Returns the number if it can be a learning rate or a weight decay.
double rate(double given, const std::string& tensor, const char* name) {
  if (std::isfinite(given) && given >= 0.0) return std::abs(given);
  throw mistake("tensor " + tensor + " has " + name + " " + print_real(given) +
                ": expected a finite number from 0");
}

double lr_scale(double lr, const std::string& tensor, const Job& job) {
  lr = rate(lr, tensor, "lr");
  if (lr == job.schedule.lr) return 1.0;
  if (job.schedule.lr > 0.0) return lr / job.schedule.lr;
  throw mistake("tensor " + tensor + " has lr " + print_real(lr) +
                " of its own, which needs a job with lr > 0: the job's is 0");
}

InitKind init_kind(pp_init given, const std::string& tensor) {
  switch (given) {
    case PP_CONSTANT:
      return InitKind::kConstant;
    case PP_UNIFORM:
      return InitKind::kUniform;
    case PP_NORMAL:
      return InitKind::kNormal;
  }
  throw mistake("tensor " + tensor + ": there is no pp_init " + std::to_string(given));
}

Error too_large(const TensorInfo& tensor) {
  return mistake("with tensor " + tensor.name + " of shape " + shape_text(tensor.shape) +
                 " the model has more than " + std::to_string(kMaxModelElements) +
                 " elements, the most that servers take");
}

TensorInfo read_tensor(const pp_tensor& given, const Job& job) {
  TensorInfo info;
  info.name = text(given.name);
  info.shape.assign(given.shape, given.shape + given.dimensions);
  const bool is_whole = std::ranges::all_of(info.shape, [](int64_t side) { return side > 0; });
  if (const std::string why = tensor_name_mistake(info.name); !why.empty()) {
    throw mistake("tensor '" + printable(info.name) + "': " + why);
  }
  if (!is_whole) {
    throw mistake("tensor '" + info.name + "' of shape " + shape_text(info.shape) +
                  ": expected sizes from 1");
  }
  int64_t elements = 1;
  for (const int64_t side : info.shape) {
    if (elements > kMaxModelElements / side) throw too_large(info);
    elements *= side;
  }
  info.init = init_kind(given.init, info.name);
  info.value = given.value;
  if (!std::isfinite(info.value)) {
    throw mistake("tensor " + info.name + ": its init value is not finite");
  }
  info.decay = given.no_decay == 0;
  if (given.is_average != 0) {
    info.rule = UpdateRule::kAverage;
    info.average_momentum = given.average_momentum;
    if (!(info.average_momentum >= 0.0F && info.average_momentum <= 1.0F)) {
      throw mistake("tensor " + info.name + " has average_momentum " +
                    print_real(info.average_momentum) + ": expected 0 to 1");
    }
    return info;
  }
  if (given.lr != nullptr) info.lr_scale = lr_scale(*given.lr, info.name, job);
  if (given.weight_decay != nullptr) {
    info.weight_decay = rate(*given.weight_decay, info.name, "weight_decay");
  }
  return info;
}

TensorTable read_tensors(const pp_model& given, const Job& job) {
  TensorTable table;
  std::set<std::string> names;
  for (size_t i = 0; i < given.tensor_count; ++i) {
    TensorInfo info = read_tensor(given.tensors[i], job);
    if (!names.insert(info.name).second) throw mistake("two tensors are called " + info.name);
    table.add(std::move(info));
    if (table.total > kMaxModelElements) throw too_large(table.tensors.back());
  }
  if (table.total == 0) throw mistake("a model needs a tensor, got none");
  return table;
}

Metric metric_of_head(pp_metric given, const std::string& head) {
  switch (given) {
    case PP_ACCURACY:
      return Metric::kAccuracy;
    case PP_MEAN_SQUARED_ERROR:
      return Metric::kMeanSquaredError;
    case PP_EXACT_MATCH:
      return Metric::kExactMatch;
    case PP_PERPLEXITY:
      return Metric::kPerplexity;
    case PP_VALUE:
      return Metric::kValue;
    case PP_COST:
      return Metric::kCost;
  }
  throw mistake("head " + head + ": there is no pp_metric " + std::to_string(given));
}

// How many targets a sample has is the caller's business.
std::vector<HeadInfo> read_heads(const pp_model& given) {
  std::vector<HeadInfo> heads;
  std::set<std::string> names;
  for (size_t i = 0; i < given.head_count; ++i) {
    const std::string name = text(given.heads[i].name);
    if (!is_head_name(name)) {
      throw mistake("head '" + name +
                    "': expected a name of 1 to 64 of a-z, A-Z, 0-9, '-' and '_'");
    }
    if (!names.insert(name).second) throw mistake("two heads are called " + name);
    heads.push_back({name, metric_of_head(given.heads[i].metric, name), kMaxTargets});
  }
  return heads;
}

std::vector<float> read_weights(const float* given, const TensorTable& table) {
  if (given == nullptr) return {};
  for (const TensorInfo& tensor : table.tensors) {
    const float* const first = given + tensor.offset;
    const auto is_finite = [](float x) { return std::isfinite(x); };
    const float* const bad = std::find_if_not(first, first + tensor.size, is_finite);
    if (bad == first + tensor.size) continue;
    throw mistake("the initial weights of " + tensor.name + " are not finite: element " +
                  std::to_string(bad - first) + " is " + std::to_string(*bad));
  }
  return {given, given + table.total};
}

std::vector<double> read_sample_weights(const pp_model& given, const Job& job) {
  const bool weighted = job.sampler == SamplerKind::kWeighted;
  if (weighted && given.in_order != 0) {
    throw mistake(
        "the job has sampler = weighted, and this program reads its samples in their order: take "
        "sampler = uniform");
  }
  if (weighted && given.sample_weights == nullptr) {
    throw mistake(
        "the job has sampler = weighted: give a weight for each training sample (weights= of "
        "attach "
        "and loader in Python, sample_weights of pp_model), or take sampler = uniform");
  }
  if (given.sample_weights == nullptr) return {};
  if (!weighted) {
    throw mistake(
        "this program has weights of its samples, and the job has sampler = uniform: take sampler "
        "= "
        "weighted");
  }
  const std::span weights(given.sample_weights, static_cast<size_t>(given.train_samples));
  double sum = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0.0) {
      throw mistake("the weight of sample " + std::to_string(i) + " is " + print_real(weights[i]) +
                    ": expected a finite number from 0");
    }
    sum += weights[i];
  }
  if (!(sum > 0.0 && std::isfinite(sum))) {
    throw mistake("the weights of " + std::to_string(weights.size()) + " samples add up to " +
                  print_real(sum) + ": expected a finite number above 0");
  }
  return {weights.begin(), weights.end()};
}

std::optional<OwnStage> read_stage(const pp_model& given, const Job& job) {
  const int stages = std::max(1, given.stages);
  if (stages != job.stages) {
    throw mistake(stages == 1 ? "the job has stages = " + std::to_string(job.stages) +
                                    ": attach one stage of the model, got the whole model"
                              : "the model has " + std::to_string(stages) +
                                    " stages, and the job has stages = " +
                                    std::to_string(job.stages) + ": they must be equal");
  }
  if (stages == 1) return std::nullopt;
  if (given.stage < 0 || given.stage >= stages) {
    throw mistake("stage " + std::to_string(given.stage) + " of " + std::to_string(stages) +
                  ": expected 0 to " + std::to_string(stages - 1));
  }
  if (given.port < 0 || given.port > UINT16_MAX) {
    throw mistake("port " + std::to_string(given.port) + ": expected 0 to 65535");
  }
  return OwnStage{given.stage, stages, given.port, line(given.stage_digest, "stage_digest")};
}

}  // namespace

ExternalSpec read_model(const pp_model& given, const Job& job) {
  ExternalSpec spec;
  spec.table = read_tensors(given, job);
  spec.heads = read_heads(given);
  spec.weights = read_weights(given.weights, spec.table);
  if (given.train_samples < 1 || given.test_samples < 0) {
    throw mistake("a model needs training samples, got " + std::to_string(given.train_samples) +
                  " + " + std::to_string(given.test_samples));
  }
  spec.train_samples = given.train_samples;
  spec.test_samples = spec.heads.empty() ? 0 : given.test_samples;
  spec.data_digest = line(given.data_digest, "data_digest");
  spec.sample_weights = read_sample_weights(given, job);
  if (!spec.sample_weights.empty()) {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(spec.sample_weights)));
    spec.data_digest += ", weights " + hash.hex().substr(0, 16);
  }
  spec.in_order = given.in_order != 0;
  if (spec.in_order) spec.data_digest += ", in order";
  spec.numerics = line(given.numerics, "numerics");
  spec.own_stage = read_stage(given, job);
  return spec;
}

void check_sums(std::span<const HeadInfo> heads, int64_t samples, std::span<const HeadSums> sums) {
  for (size_t i = 0; i < std::min(heads.size(), sums.size()); ++i) {
    const auto& [loss, counted, metric] = sums[i];
    const std::string head = "[client] head " + heads[i].name + " reports ";
    const int64_t most = samples * heads[i].targets;
    if (counted < 0 || counted > most) {
      throw Error(ErrorCode::kUsage, head + std::to_string(counted) + " counted targets of " +
                                         std::to_string(samples) + " samples: expected 0 to " +
                                         std::to_string(most));
    }
    if (!counts_targets(heads[i].metric)) continue;
    if (metric >= 0.0 && metric <= static_cast<double>(counted) && std::floor(metric) == metric) {
      continue;
    }
    throw Error(ErrorCode::kUsage,
                head + print_real(metric) + " correct targets of " + std::to_string(counted) +
                    " counted ones: expected a whole number from 0 to " + std::to_string(counted) +
                    "; if a sample has several targets, report their count");
  }
}

void check_sum_name(const NamedSums& known, const std::string& name) {
  if (!is_logged_name(name)) {
    throw mistake("a sum of the name '" + printable(name, kMaxShownName) +
                  "': expected 1 to 64 letters, digits and _ - . /");
  }
  if (known.contains(name) || known.size() < kMaxNamedSums) return;
  throw mistake("a sum of the name " + name + ": there are " + std::to_string(kMaxNamedSums) +
                " names already");
}

}  // namespace pushpull
