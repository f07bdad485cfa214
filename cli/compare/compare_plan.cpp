#include "cli/compare/compare_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "cli/report/metric_style.h"

namespace pushpull {
namespace {

// Makes a folder name: "ssp:4" -> "ssp-4".
std::string file_name(std::string text) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.';
  };
  std::ranges::replace_if(
      text, [&](char c) { return !is_plain(c); }, '-');
  return text;
}

std::string name_of(const Variant& variant) {
  return file_name(variant.strategy) + "-w" + std::to_string(variant.workers) +
         (variant.link.empty() ? "" : "-" + file_name(variant.link)) +
         (variant.codec.empty() ? "" : "-" + file_name(variant.codec)) +
         (variant.stages == 0 ? "" : "-p" + std::to_string(variant.stages));
}

// Returns all combinations; the last key changes fastest.
std::vector<Tuned> combinations(const std::vector<TuneKey>& keys) {
  std::vector<Tuned> all(1);
  for (const TuneKey& key : keys) {
    std::vector<Tuned> longer;
    for (const Tuned& tuned : all) {
      for (const std::string& value : key.values) {
        longer.push_back(tuned);
        longer.back()[key.key] = value;
      }
    }
    all = std::move(longer);
  }
  return all;
}

// Returns the strategies with their stages and codecs, in the order given. All-reduce strategies have no
// codec.
std::vector<Variant> kinds_of(const CompareOptions& options) {
  std::vector<Variant> kinds;
  for (const std::string& strategy : options.strategies) {
    const bool pushes = !Strategy::parse(strategy).traits().workers_update;
    const bool swept = !options.codecs.front().empty();
    for (const int64_t stages : options.stages) {
      for (const std::string& codec : options.codecs) {
        kinds.push_back({strategy, 1, "", pushes || !swept ? codec : "fp32", stages});
        if (!pushes) break;
      }
    }
  }
  return kinds;
}

// Returns the cells of one round. Each group starts with the next strategy.
std::vector<Variant> variants_of_round(const CompareOptions& options, size_t round) {
  std::vector<Variant> variants;
  const std::vector<Variant> kinds = kinds_of(options);
  size_t turn = round;
  for (const std::string& link : options.links) {
    for (const int64_t workers : options.workers) {
      for (size_t k = 0; k < kinds.size(); ++k) {
        const Variant& kind = kinds[(k + turn) % kinds.size()];
        if (!can_have(kind.strategy, workers, kind.stages)) continue;
        variants.push_back(kind);
        variants.back().workers = workers;
        variants.back().link = link;
      }
      ++turn;
    }
  }
  return variants;
}

}  // namespace

bool can_have(const std::string& strategy, int64_t workers, int64_t stages) {
  return Strategy::parse(strategy).backups < workers / std::max<int64_t>(1, stages);
}

std::vector<PlannedRun> plan_repeats(const CompareOptions& options,
                                     const std::map<Variant, Tuned>& chosen) {
  std::vector<PlannedRun> runs;
  for (size_t round = 0; round < options.seeds.size(); ++round) {
    const uint64_t seed = options.seeds[round];
    for (const Variant& variant : variants_of_round(options, round)) {
      const auto found = chosen.find(variant);
      runs.push_back({variant, seed, found == chosen.end() ? Tuned{} : found->second,
                      name_of(variant) + "-s" + std::to_string(seed)});
    }
  }
  return runs;
}

std::vector<PlannedRun> plan_tries(const CompareOptions& options) {
  std::vector<PlannedRun> runs;
  if (options.tune.empty()) return runs;
  const std::vector<Tuned> values = combinations(options.tune);
  for (size_t round = 0; round < values.size(); ++round) {
    for (const Variant& variant : variants_of_round(options, round)) {
      runs.push_back({variant, options.seeds.front(), values[round],
                      "tune-" + name_of(variant) + "-" + file_name(to_string(values[round]))});
    }
  }
  return runs;
}

std::string to_string(const Tuned& tuned) {
  std::string text;
  for (const auto& [key, value] : tuned) {
    text.append(text.empty() ? "" : " ").append(key).append("=").append(value);
  }
  return text;
}

std::optional<size_t> best_try(const std::vector<CompareRun>& tries) {
  // Smaller is better; the first of equals wins.
  const auto rank = [](const CompareRun& run) {
    const double never = std::numeric_limits<double>::infinity();
    const double loss = run.test_loss && std::isfinite(*run.test_loss) ? *run.test_loss : never;
    const double sign = style_of(run.metric).higher_is_better ? -1.0 : 1.0;
    const double error = run.test_value ? sign * *run.test_value : never;
    const double seconds = run.seconds_to_target ? *run.seconds_to_target : never;
    return std::tuple{seconds, error, loss};
  };
  std::optional<size_t> best;
  for (size_t i = 0; i < tries.size(); ++i) {
    if (!tries[i].failure.empty()) continue;
    if (!best || rank(tries[i]) < rank(tries[*best])) best = i;
  }
  return best;
}

int64_t eval_every(int64_t total_steps, const std::vector<std::string>& strategies) {
  int64_t round = 1;
  for (const std::string& strategy : strategies) {
    round = std::min(std::lcm(round, Strategy::parse(strategy).local_steps), total_steps);
  }
  const int64_t wanted = std::max<int64_t>(1, (total_steps + kEvaluations / 2) / kEvaluations);
  return (wanted + round - 1) / round * round;
}

std::map<std::string, std::string> keys_of(const CompareOptions& options, const PlannedRun& run,
                                           int64_t eval_every) {
  std::map<std::string, std::string> keys = run.tuned;
  keys["seed"] = std::to_string(run.seed);
  keys["eval-every"] = std::to_string(eval_every);
  if (!run.variant.codec.empty()) keys["codec"] = run.variant.codec;
  if (run.variant.stages > 0) keys["stages"] = std::to_string(run.variant.stages);
  keys.merge(keys_of_strategy(run.variant.strategy));
  keys.insert(options.keys.begin(), options.keys.end());
  return keys;
}

}  // namespace pushpull
