// Remarks beside the figures of a comparison.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "cli/compare/compare_output.h"
#include "cli/compare/compare_plan.h"
#include "cli/report/metric_style.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

constexpr double kShortSeconds = 1.0;

using Hash = std::string CompareRun::*;

// The successful runs by seed, in seed order.
std::map<uint64_t, std::vector<const CompareRun*>> by_seed(const CompareResult& result) {
  std::map<uint64_t, std::vector<const CompareRun*>> seeds;
  for (const CompareRun& run : result.runs) {
    if (run.failure.empty()) seeds[run.seed].push_back(&run);
  }
  return seeds;
}

// Groups the runs by strategy, codec, stages, workers and link, in the order of their first run.
std::vector<std::vector<const CompareRun*>> by_variant(const CompareResult& result) {
  std::vector<std::vector<const CompareRun*>> variants;
  for (const CompareRun& run : result.runs) {
    const auto same = [&](const std::vector<const CompareRun*>& variant) {
      return variant_name(*variant.front()) == variant_name(run);
    };
    const auto found = std::ranges::find_if(variants, same);
    if (found == variants.end()) {
      variants.push_back({&run});
    } else {
      found->push_back(&run);
    }
  }
  return variants;
}

std::string of(size_t part, size_t whole) {
  return std::to_string(part) + " of " + std::to_string(whole);
}

bool counts(const CompareRun& run, Hash hash) {
  return hash != &CompareRun::data_order_sha256 || shares_data_order(run);
}

// Returns a map from hash to a run with this hash. Omits runs without the hash.
std::map<std::string, const CompareRun*> values(const std::vector<const CompareRun*>& runs,
                                                Hash hash) {
  std::map<std::string, const CompareRun*> found;
  for (const CompareRun* run : runs) {
    if (counts(*run, hash) && !(run->*hash).empty()) found.try_emplace(run->*hash, run);
  }
  return found;
}

std::string short_hash(const std::string& hash) {
  constexpr size_t kShown = 16;
  return hash.substr(0, kShown);
}

void note_differences(uint64_t seed, const std::vector<const CompareRun*>& runs, const char* name,
                      Hash hash, std::vector<std::string>& notes) {
  const auto found = values(runs, hash);
  if (found.size() > 1) {
    std::string text =
        "NOT COMPARABLE: seed " + std::to_string(seed) + " has runs with other " + name + ":";
    for (const auto& [value, run] : found) {
      text += " " + short_hash(value) + " (" + variant_name(*run) + ")";
    }
    notes.push_back(text);
  }
}

// Notes how many runs did not report the hash; their start cannot be compared.
void note_silence(const CompareResult& result, const char* name, Hash hash,
                  std::vector<std::string>& notes) {
  size_t silent = 0;
  for (const CompareRun& run : result.runs) {
    if (run.failure.empty() && counts(run, hash) && (run.*hash).empty()) ++silent;
  }
  if (silent == 0) return;
  notes.push_back(of(silent, result.runs.size()) + " runs did not report the hash of their " +
                  name + ": whether they are comparable is not known");
}

void note_variant(const CompareResult& result, const std::vector<const CompareRun*>& variant,
                  std::vector<std::string>& notes) {
  const std::string name = variant_name(*variant.front());
  std::vector<const CompareRun*> well;
  for (const CompareRun* run : variant) {
    if (run->failure.empty()) well.push_back(run);
  }
  if (well.size() < variant.size()) {
    const auto first =
        std::ranges::find_if(variant, [](auto* run) { return !run->failure.empty(); });
    notes.push_back("FAILED: " + name + ": " + of(variant.size() - well.size(), variant.size()) +
                    " runs; seed " + std::to_string((*first)->seed) + ": " + (*first)->failure);
  }
  const auto never = std::ranges::count_if(
      well, [](const CompareRun* run) { return !run->seconds_to_target.has_value(); });
  if (result.target && never > 0) {
    const std::string metric =
        result.target_measure.empty() ? style_of(result.metric).name + " " : "";
    notes.push_back(name + ": target " + metric + target_label(result) + " never reached in " +
                    of(static_cast<size_t>(never), well.size()) + " runs");
  }
}

// If the best value is the first or last one tried, a better value may lie beyond.
void note_edges(const CompareResult& result, std::vector<std::string>& notes) {
  // variant and key -> all values tried
  std::map<std::string, std::map<std::string, std::set<double>>> tried;
  const auto parts = [](const std::string& tuned) {
    std::vector<std::pair<std::string, double>> all;
    for (size_t begin = 0; begin < tuned.size();) {
      const size_t end = std::min(tuned.find(' ', begin), tuned.size());
      const std::string one = tuned.substr(begin, end - begin);
      const size_t equals = one.find('=');
      if (equals != std::string::npos) {
        all.emplace_back(one.substr(0, equals), parse_real(one.substr(equals + 1)).value_or(0.0));
      }
      begin = end + 1;
    }
    return all;
  };
  for (const CompareRun& run : result.tuning) {
    for (const auto& [key, value] : parts(run.tuned)) {
      tried[variant_name(run)][key].insert(value);
    }
  }
  std::set<std::string> seen;
  for (const CompareRun& run : result.runs) {
    for (const auto& [key, value] : parts(run.tuned)) {
      const std::set<double>& all = tried[variant_name(run)][key];
      if (all.size() < 2 || (value != *all.begin() && value != *all.rbegin())) continue;
      std::string text = variant_name(run);
      text.append(": the best ").append(key).append(", ").append(print_real(value));
      text.append(value == *all.begin() ? ", is the smallest" : ", is the largest");
      text.append(" that was tried: a better one may lie beyond");
      if (seen.insert(text).second) notes.push_back(text);
    }
  }
}

// Reports the runs beside which other programs worked.
void note_load(const CompareResult& result, std::vector<std::string>& notes) {
  const CompareRun* most = nullptr;
  int64_t count = 0;
  for (const CompareRun& run : result.runs) {
    if (load_text(result, run).empty()) continue;
    ++count;
    if (most == nullptr || *run.other_cores > *most->other_cores) most = &run;
  }
  if (most == nullptr) return;
  notes.push_back(load_text(result, *most) + " during " + variant_name(*most) + ", seed " +
                  std::to_string(most->seed) + ", and at least a tenth of them during " +
                  std::to_string(count) + " of " + plural(std::ssize(result.runs), "run") +
                  ": speeds are too low there");
}

}  // namespace

std::vector<std::string> notes_before(const CompareResult& result, int64_t servers, int64_t threads,
                                      int64_t micro_batches) {
  std::vector<std::string> notes;
  const int64_t most = std::ranges::max(result.workers);
  if (servers + most * threads > result.cores) {
    notes.push_back("not enough cores: " + std::to_string(servers + most) + " processes (" +
                    plural(servers, "server") + ", " + plural(most, "worker") +
                    (threads > 1 ? " of " + std::to_string(threads) + " threads" : "") +
                    ") share " + plural(result.cores, "core") +
                    ": the comparison is about sharing a core");
  }
  for (const std::string& strategy : result.strategies) {
    for (const int64_t workers : result.workers) {
      for (const int64_t stages : result.stages.empty() ? std::vector<int64_t>{0} : result.stages) {
        if (can_have(strategy, workers, stages)) continue;
        notes.push_back(row_name(strategy, "", stages) + " with " + plural(workers, "worker") +
                        " is left out: " +
                        (workers < stages ? "a group needs one for each stage"
                                          : "a step needs one that is not dropped"));
      }
    }
  }
  for (const int64_t workers : result.workers) {
    if (workers > micro_batches) {
      const int64_t spares = workers - micro_batches;
      std::string note = "a step has " + std::to_string(micro_batches) +
                         (micro_batches == 1 ? " micro-batch: of " : " micro-batches: of ");
      note += plural(workers, "worker") + ", " + std::to_string(spares);
      notes.push_back(note + (spares == 1 ? " is an idle spare" : " are idle spares"));
    }
  }
  return notes;
}

std::string load_text(const CompareResult& result, const CompareRun& run) {
  const double share =
      run.other_cores.value_or(0.0) / static_cast<double>(std::max<int64_t>(1, result.cores));
  if (share < 0.1) return "";
  return "other programs used " + std::to_string(std::lround(100.0 * share)) + " % of the cores";
}

std::vector<std::string> notes_after(const CompareResult& result) {
  std::vector<std::string> notes;
  for (const auto& [seed, runs] : by_seed(result)) {
    note_differences(seed, runs, "initial weights", &CompareRun::initial_weights_sha256, notes);
    note_differences(seed, runs, "data order", &CompareRun::data_order_sha256, notes);
  }
  note_silence(result, "initial weights", &CompareRun::initial_weights_sha256, notes);
  note_silence(result, "data order", &CompareRun::data_order_sha256, notes);
  for (const auto& variant : by_variant(result)) note_variant(result, variant, notes);
  note_edges(result, notes);
  note_load(result, notes);
  std::vector<double> seconds;
  for (const CompareRun& run : result.runs) {
    if (run.failure.empty()) seconds.push_back(run.seconds);
  }
  const auto length = spread(seconds);
  if (length && length->median < kShortSeconds) {
    notes.emplace_back(
        "the median run took less than a second: speeds are coarse, evaluations weigh in them; "
        "give "
        "more steps");
  }
  return notes;
}

std::vector<std::string> same_start_lines(const CompareResult& result) {
  std::vector<std::string> lines;
  for (const auto& [seed, runs] : by_seed(result)) {
    const auto say = [&all = runs](Hash hash) {
      const auto found = values(all, hash);
      if (found.empty()) return std::string("not reported");
      return found.size() == 1 ? found.begin()->first : std::string("DIFFERENT, see the notes");
    };
    lines.push_back("seed " + std::to_string(seed) + ", " + std::to_string(runs.size()) +
                    (runs.size() == 1 ? " run: " : " runs: ") + "initial weights " +
                    say(&CompareRun::initial_weights_sha256));
    lines.push_back("  data order " + say(&CompareRun::data_order_sha256));
  }
  return lines;
}

}  // namespace pushpull
