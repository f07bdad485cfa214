#include "common/job/job.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job_keys.h"
#include "common/job/job_settings.h"
#include "common/layout/metric.h"

namespace pushpull {

// Turns settings into a job: later sources override earlier ones; checks every value, then
// combinations.

namespace {

// Returns the words that the value may be, if it is one of some.
std::vector<std::string> choices_of(const JobKey& key) {
  std::vector<std::string> out;
  std::istringstream words(key.help.value);
  for (std::string word; std::getline(words, word, '|');) out.push_back(word);
  return out.size() > 1 ? out : std::vector<std::string>();
}

void set_value(Job& job, const JobKey& key, const Setting& given) {
  if (key.set(job, given.value)) return;
  throw Error(ErrorCode::kUsage, "[job] " + key.help.key + " = " + printable(given.value) + " (" +
                                     given.source + "): must be " + key.expects +
                                     did_you_mean(given.value, choices_of(key)));
}

// Sets the defaults that depend on other keys.
void fill_in(Job& job, const Settings& given) {
  if (!given.contains("epochs") && job.steps == 0) job.epochs = 1;
  // PyTorch's defaults of rmsprop and adagrad; those of the authors of lion and lamb
  const OptimizerKind kind = job.optimizer.kind;
  if (!given.contains("beta2") &&
      (kind == OptimizerKind::kRmsprop || kind == OptimizerKind::kLion)) {
    job.optimizer.beta2 = 0.99;
  }
  if (!given.contains("epsilon") && kind == OptimizerKind::kAdagrad) job.optimizer.epsilon = 1e-10;
  if (!given.contains("epsilon") && kind == OptimizerKind::kLamb) job.optimizer.epsilon = 1e-6;
  const StrategyTraits& traits = job.strategy.traits();
  const bool others_continue =
      traits.recordable ||
      (job.on_bad_gradient == OnBadGradient::kQuarantine && !traits.workers_update);
  if (!given.contains("on-worker-loss") && others_continue) {
    job.on_worker_loss = OnWorkerLoss::kContinue;
  }
}

Job resolve(const Settings& given) {
  Job job;
  for (const JobKey& key : job_key_table()) {
    const auto found = given.find(key.help.key);
    if (found != given.end()) set_value(job, key, found->second);
  }
  fill_in(job, given);
  check_combinations(job, given);
  return job;
}

// A length of the run that is given later replaces the other one, too.
void override_with(Settings& settings, Settings later) {
  for (const auto& [key, other] : {std::pair("steps", "epochs"), std::pair("epochs", "steps")}) {
    const auto given = later.find(key);
    if (given != later.end() && given->second.value != "0" && !later.contains(other))
      settings.erase(other);
  }
  later.merge(settings);  // keeps the entries already in `later`
  settings = std::move(later);
}

}  // namespace

Job parse_job(const std::string& path, const std::map<std::string, std::string>& flags) {
  Settings settings;
  if (!path.empty()) settings = settings_of_file(path);
  override_with(settings, settings_of_environment());
  override_with(settings, settings_of_flags(flags));
  return resolve(settings);
}

Job parse_job_text(const std::string& ini, const std::string& source) {
  return resolve(settings_of_text(ini, source));
}

namespace {

constexpr const char* kProgram = "the worker's program";

Settings settings_of_program(const std::string& ini) {
  Settings settings = settings_of_text(ini, kProgram);
  for (auto& [key, setting] : settings) setting.source = kProgram;  // it has no lines
  return settings;
}

}  // namespace

Job parse_programs_job(const std::string& ini, const std::map<std::string, std::string>& flags) {
  Settings settings = settings_of_program(ini);
  settings.try_emplace("model", Setting{"external", kProgram});
  override_with(settings, settings_of_environment());
  override_with(settings, settings_of_flags(flags));
  return resolve(settings);
}

void check_programs_keys(const std::string& ini, const Job& job) {
  for (const auto& [name, given] : settings_of_program(ini)) {
    const JobKey& key = *find_job_key(name);
    Job asked = job;
    set_value(asked, key, given);
    if (key.get(asked) == key.get(job)) continue;
    throw Error(ErrorCode::kUsage, "[job] " + name + " = " + printable(given.value) +
                                       " in this program, and " + printable(key.get(job)) +
                                       " in the job that it has joined: leave " + name +
                                       " out of the program, or out of the job's file and flags");
  }
}

namespace {

// open_dataset (datasets/dataset.cpp) opens them.
constexpr std::array kDatasetNames = {
    DatasetName{"dummy", "generated images", false, true},
    DatasetName{"dummy-qa", "generated questions", false, true},
    DatasetName{"digits", "8x8, shipped", false, true},
    DatasetName{"idx", "MNIST's format", true, true},
    DatasetName{"cifar10", "its binary files", true, true},
    DatasetName{"folder", "PNG and JPEG in class folders", true, true},
    DatasetName{"qa", "questions in safetensors", true, true},
    DatasetName{"text", "a text", true, false},
};

// Returns the texts of all rows: "a, b or c".
template <class Text>
std::string list_datasets(Text text) {
  std::string out;
  for (size_t i = 0; i < kDatasetNames.size(); ++i) {
    if (i > 0) out += i + 1 < kDatasetNames.size() ? ", " : " or ";
    out += text(kDatasetNames[i]);
  }
  return out;
}

}  // namespace

const DatasetName* find_dataset_name(const std::string& name) {
  const auto* const found = std::ranges::find_if(
      kDatasetNames, [&](const DatasetName& dataset) { return name == dataset.name; });
  return found == kDatasetNames.end() ? nullptr : found;
}

std::string dataset_names() {
  return list_datasets([](const DatasetName& dataset) { return std::string(dataset.name); });
}

std::string dataset_help() {
  return list_datasets([](const DatasetName& dataset) {
    return std::string(dataset.name) + " (" + dataset.about + ")";
  });
}

namespace {

constexpr int64_t kMaxPatience = 1'000'000;

}  // namespace

const char* const kStopWhenWords =
    "none, or [HEAD/]METRIC:PATIENCE with METRIC loss, metric, accuracy, exact-match, perplexity, "
    "mean-squared-error, value or cost and PATIENCE from 1 to 1000000, such as loss:3";

std::string StopWhen::measure() const { return name.to_string(); }

StopWhen StopWhen::parse(const std::string& text) {
  if (text.empty() || text == "none") return {};
  const Error wrong(ErrorCode::kUsage,
                    "[job] stop-when '" + printable(text) + "' must be " + kStopWhenWords);
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw wrong;
  const std::optional<MeasureName> name = MeasureName::parse(text.substr(0, colon));
  if (!name) throw wrong;
  const std::optional<int64_t> patience = parse_int64(text.substr(colon + 1));
  if (!patience || *patience < 1 || *patience > kMaxPatience) throw wrong;
  return {*name, *patience};
}

std::string StopWhen::to_string() const {
  return on() ? measure() + ":" + std::to_string(patience) : "none";
}

namespace {

constexpr int64_t kMaxRank = 1'000'000;

}  // namespace

int64_t Job::copy_distance() const {
  const StrategyTraits& traits = strategy.traits();
  const bool again = traits.step_versions && traits.whole_steps && !traits.workers_update;
  const bool kept = recovery == Recovery::kPeers && on_server_loss == OnServerLoss::kRestart;
  return again && kept ? copy_every : 0;
}

Straggler Straggler::parse(const std::string& text) {
  if (text == "none") return {};
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const auto rank = parse_int64(text.substr(0, colon));
    const auto factor = parse_real(text.substr(colon + 1));
    const bool fits =
        rank && factor && *rank >= 0 && *rank < kMaxRank && *factor >= 1.0 && *factor <= 1000.0;
    if (fits) return {*rank, *factor};
  }
  throw Error(ErrorCode::kUsage,
              "[job] straggler '" + printable(text) + "' must be " + std::string(kStragglerWords));
}

std::string Straggler::to_string() const {
  return rank < 0 ? "none" : std::to_string(rank) + ":" + print_real(factor);
}

std::string to_ini(const Job& job) {
  std::string out;
  for (const JobKey& key : job_key_table()) out += key.help.key + " = " + key.get(job) + "\n";
  return out;
}

int64_t steps_per_epoch(const Job& job, int64_t train_samples) {
  const int64_t used =
      job.train_samples > 0 ? std::min(job.train_samples, train_samples) : train_samples;
  return used / job.global_batch;
}

int64_t total_steps(const Job& job, int64_t train_samples) {
  return job.steps > 0 ? job.steps : job.epochs * steps_per_epoch(job, train_samples);
}

std::vector<std::string> keys_that_forbid_resume(const Job& before, const Job& now) {
  const bool stretched = before.schedule.depends_on_length() || now.schedule.depends_on_length();
  std::vector<std::string> keys;
  for (const JobKey& key : job_key_table()) {
    const bool may_change = key.at_resume == AtResume::kMayChange ||
                            (key.at_resume == AtResume::kHorizon && !stretched);
    if (!may_change && key.get(before) != key.get(now)) keys.push_back(key.help.key);
  }
  return keys;
}

void refuse_external(const Job& job, const std::string& where, const std::string& instead) {
  if (job.model != "external") return;
  throw Error(ErrorCode::kUsage,
              where + ": model = external: only the program of the job's workers has the model; " +
                  instead);
}

}  // namespace pushpull
