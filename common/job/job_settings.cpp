#include "common/job/job_settings.h"

#include <algorithm>
#include <array>
#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"

namespace pushpull {

namespace {

namespace po = boost::program_options;

constexpr size_t kMaxFileBytes = 1 << 20;  // a job has 50 lines; this stops at /dev/zero
constexpr std::string_view kPrefix = "PUSHPULL_";

[[noreturn]] void refuse_source(const std::string& text) {
  throw Error(ErrorCode::kUsage, "[job] " + text);
}

[[noreturn]] void refuse_twice(const std::string& key, const std::string& first,
                               const std::string& second) {
  refuse_source(key + " is given twice: " + first + " and " + second);
}

// Parses one line at a time, because Boost does not report the line of a key.
std::vector<po::option> options_of_line(const std::string& line, const std::string& where) {
  if (trim(line).starts_with('[')) {
    refuse_source(where + ": '" + printable(trim(line)) + "' opens a section; a job file has none");
  }
  std::istringstream stream(line);
  try {
    return po::parse_config_file(stream, po::options_description(), true).options;
  } catch (const po::error&) {
    refuse_source(where + ": '" + printable(trim(line)) + "' is not `key = value`");
  }
}

std::string unknown_variable(const std::string& variable) {
  const std::string nearest = nearest_name(variable.substr(kPrefix.size()), job_key_names());
  return "unknown variable " + printable(variable) + " in the environment" +
         (nearest.empty() ? "" : "; did you mean " + environment_name(nearest) + "?");
}

// Variables that programs (client, common/device, common/host, common/keys, common/launch, datasets) read
// themselves: not keys of the job.
constexpr std::array<std::string_view, 16> kLocalVariables = {
    "PUSHPULL_SHARE",      "PUSHPULL_CUDA_LIBS",        "PUSHPULL_KEY_FILE",
    "PUSHPULL_KEY_FD",     "PUSHPULL_LIBRARY",          "PUSHPULL_JOIN",
    "PUSHPULL_JOBS",       "PUSHPULL_INSECURE",         "PUSHPULL_RANK",
    "PUSHPULL_WORLD_SIZE", "PUSHPULL_LOCAL_RANK",       "PUSHPULL_PORT",
    "PUSHPULL_CORES",      "PUSHPULL_LOCAL_WORLD_SIZE", "PUSHPULL_KEY",
    "PUSHPULL_JOB_TOKEN"};

// Returns whether programs or tests read this variable themselves.
bool is_local_variable(const std::string& name) {
  return std::ranges::find(kLocalVariables, name) != kLocalVariables.end() ||
         name.starts_with("PUSHPULL_TEST_");
}

// Variables that modulefiles (Lmod, Spack, Environment Modules) set for the folders of a package.
constexpr std::array<std::string_view, 10> kModuleVariables = {
    "PUSHPULL_HOME", "PUSHPULL_ROOT", "PUSHPULL_DIR", "PUSHPULL_VERSION", "PUSHPULL_BASE",
    "PUSHPULL_BIN",  "PUSHPULL_LIB",  "PUSHPULL_INC", "PUSHPULL_PREFIX",  "PUSHPULL_PATH"};

// Returns whether Kubernetes sets this variable in the pods beside a Service whose name is pushpull or
// begins with pushpull-: PUSHPULL_SERVICE_HOST, PUSHPULL_WEB_SERVICE_PORT_HTTP, PUSHPULL_PORT_80_TCP_ADDR.
// Source: Kubernetes, "Accessing the Service", environment variables (those of Docker's links).
bool is_service_link(const std::string& name, const std::string& value) {
  if (name.ends_with("_SERVICE_HOST") || name.find("_SERVICE_PORT") != std::string::npos)
    return true;
  if (name.ends_with("_PORT") && value.find("://") != std::string::npos) return true;
  for (const char* protocol : {"_TCP", "_UDP", "_SCTP"}) {
    for (const char* part : {"", "_PROTO", "_PORT", "_ADDR"}) {
      const std::string end = std::string(protocol) + part;
      if (!name.ends_with(end)) continue;
      const std::string before = name.substr(0, name.size() - end.size());
      const size_t digits = before.find_last_not_of("0123456789") + 1;
      if (digits < before.size() && before.substr(0, digits).ends_with("_PORT_")) return true;
    }
  }
  return false;
}

// Returns whether a variable of the environment is for another program.
bool is_foreign(const std::string& name, const std::string& value) {
  return std::ranges::find(kModuleVariables, name) != kModuleVariables.end() ||
         is_service_link(name, value);
}

}  // namespace

std::string environment_name(const std::string& key) {
  std::string name(kPrefix);
  for (const char c : key) {
    name += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return name;
}

namespace {

// Returns "; ..." for a name that is no key of jobs, or "".
std::string hint_for(const std::string& key) {
  static const std::vector<std::string> kFlags = {"workers", "servers", "out",
                                                  "device",  "listen",  "link"};
  const std::string flag = nearest_name(key, kFlags);
  const std::string name = nearest_name(key, job_key_names());
  if (!flag.empty() && (flag == key || name.empty())) {
    return "; a job file does not say where it runs: give --" + flag + " to `pushpull run`";
  }
  return name.empty() ? "" : "; did you mean " + name + "?";
}

}  // namespace

Settings settings_of_text(const std::string& ini, const std::string& source) {
  Settings settings;
  std::istringstream lines(ini);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    const std::string where = source + ":" + std::to_string(number);
    for (const po::option& option : options_of_line(line, where)) {
      const std::string& key = option.string_key;
      if (find_job_key(key) == nullptr) {
        refuse_source("unknown key '" + printable(key) + "' (" + where + ")" + hint_for(key));
      }
      const std::string value = option.value.empty() ? "" : option.value.front();
      const auto [first, is_new] = settings.try_emplace(key, Setting{value, where});
      if (!is_new) refuse_twice(key, first->second.source, where);
    }
  }
  return settings;
}

Settings settings_of_file(const std::string& path) {
  const std::string shown = printable(path, kMaxPathBytes);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse_source("job file " + shown + " cannot be opened: " + std::strerror(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  // opening a folder succeeds; reading it fails here
  if (file.bad()) refuse_source("job file " + shown + " cannot be read; is it a file?");
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    refuse_source("job file " + shown + " has more than " + std::to_string(kMaxFileBytes) +
                  " bytes; is it the right file?");
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // some editors begin UTF-8 with a BOM
  if (text.find('\0') != std::string::npos) {
    const bool utf16 = text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF");
    refuse_source("job file " + shown +
                  (utf16 ? " is UTF-16: save it as UTF-8" : " has bytes of value 0: is it text?"));
  }
  return settings_of_text(text, shown);
}

Settings settings_of_environment() {
  const auto is_ours = [](const std::string& variable) {
    return variable.starts_with(kPrefix) && !is_local_variable(variable) ? variable : "";
  };
  const auto parsed = po::parse_environment(po::options_description(), is_ours);
  Settings settings;
  for (const po::option& option : parsed.options) {
    const std::string& variable = option.string_key;
    const auto& keys = job_key_names();
    const auto key = std::ranges::find(keys, variable, environment_name);
    if (key == keys.end() && is_foreign(variable, option.value.front())) continue;
    if (key == keys.end()) refuse_source(unknown_variable(variable));
    settings[*key] = {option.value.front(), variable};
  }
  return settings;
}

Settings settings_of_flags(const std::map<std::string, std::string>& flags) {
  Settings settings;
  for (const auto& [key, value] : flags) {
    if (find_job_key(key) == nullptr) {
      refuse_source("unknown flag --" + printable(key) + did_you_mean(key, job_key_names(), "--"));
    }
    settings[key] = {value, "--" + key};
  }
  return settings;
}

namespace {

constexpr int64_t kMaxMicroBatches = 65'536;  // per step

[[noreturn]] void refuse_job(const std::string& text) {
  throw Error(ErrorCode::kUsage, "[job] " + text);
}

// Returns "lr = 0.1 (job.ini:3)".
std::string setting_text(const Job& job, const Settings& given, const std::string& key) {
  const JobKey* const entry = find_job_key(key);
  PP_ASSERT(entry != nullptr);
  const auto found = given.find(key);
  return key + " = " + entry->get(job) + " (" +
         (found == given.end() ? "default" : found->second.source) + ")";
}

bool batches_fit(int64_t global_batch, int64_t micro_batch) {
  return global_batch % micro_batch == 0 && global_batch / micro_batch <= kMaxMicroBatches;
}

// Returns "64 or 72".
std::string either(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) {
    if (!text.empty()) text += " or ";
    text += std::to_string(value);
  }
  return text;
}

// Returns the values next to the job's micro-batch, at most one on each side, that divide its
// global batch. There is always one: the global batch itself.
std::vector<int64_t> fitting_micro_batches(const Job& job) {
  int64_t below = 0;
  int64_t above = job.global_batch + 1;
  const auto consider = [&](int64_t divisor) {
    if (!batches_fit(job.global_batch, divisor)) return;
    if (divisor <= job.micro_batch) below = std::max(below, divisor);
    if (divisor >= job.micro_batch) above = std::min(above, divisor);
  };
  for (int64_t i = 1; i * i <= job.global_batch; ++i) {
    if (job.global_batch % i != 0) continue;
    consider(i);
    consider(job.global_batch / i);
  }
  std::vector<int64_t> values;
  if (below >= 1) values.push_back(below);
  if (above <= job.global_batch) values.push_back(above);
  return values;
}

// Returns the multiples of the micro-batch on either side of the global batch.
std::vector<int64_t> fitting_global_batches(const Job& job) {
  const int64_t below = job.global_batch / job.micro_batch * job.micro_batch;
  std::vector<int64_t> values;
  for (const int64_t value : {below, below + job.micro_batch}) {
    if (value > 0 && batches_fit(value, job.micro_batch)) values.push_back(value);
  }
  return values;
}

void check_batches(const Job& job, const Settings& given) {
  if (batches_fit(job.global_batch, job.micro_batch)) return;
  const bool divides = job.global_batch % job.micro_batch == 0;
  const std::vector<int64_t> global_batches = fitting_global_batches(job);
  const std::string why = divides ? " is more than " + std::to_string(kMaxMicroBatches) + " times "
                                  : " is not a multiple of ";
  refuse_job(setting_text(job, given, "global-batch") + why +
             setting_text(job, given, "micro-batch") + ": take " +
             (divides || global_batches.empty()
                  ? ""
                  : "global-batch " + either(global_batches) + ", or ") +
             "micro-batch " + either(fitting_micro_batches(job)));
}

void check_length(const Job& job, const Settings& given) {
  if (job.epochs > 0 && job.steps > 0) {
    refuse_job(setting_text(job, given, "epochs") + " and " + setting_text(job, given, "steps") +
               " both set the length: give one, and set the other to 0 or remove it");
  }
  if (job.epochs == 0 && job.steps == 0) {
    refuse_job(setting_text(job, given, "epochs") + " and " + setting_text(job, given, "steps") +
               " leave nothing to do: one of them must be > 0");
  }
  if (job.steps > 0 && job.stop_after > job.steps) {
    refuse_job(setting_text(job, given, "stop-after") + " lies beyond the end of the job, " +
               setting_text(job, given, "steps"));
  }
}

// The workers' program says the rate of each step.
void check_external_schedule(const Job& job, const Settings& given, bool warms) {
  const auto refuse = [&](const std::string& key, const std::string& why) {
    refuse_job(setting_text(job, given, "lr-schedule") + " and " + setting_text(job, given, key) +
               ": " + why);
  };
  if (job.model != "external") {
    refuse("model", "only a program of your own (model = external) can say the rate");
  }
  if (warms) {
    refuse(job.schedule.warmup_steps > 0 ? "warmup-steps" : "warmup-fraction",
           "the program says all rates; remove it");
  }
  if (job.strategy.traits().workers_update) {
    refuse("strategy", "its workers all apply the update, and one of them knows the rate; take " +
                           std::string("sync"));
  }
  if (job.stages > 1) {
    refuse("stages", "servers would get a rate from each stage; remove one of them");
  }
}

void check_schedule(const Job& job, const Settings& given) {
  const ScheduleOptions& schedule = job.schedule;
  if (schedule.kind == ScheduleKind::kStep && schedule.step == 0) {
    refuse_job(setting_text(job, given, "lr-schedule") +
               " needs lr-step > 0, the steps between two drops");
  }
  if (schedule.kind == ScheduleKind::kMultistep && schedule.milestones.empty()) {
    refuse_job(setting_text(job, given, "lr-schedule") +
               " needs lr-milestones, the steps at which the rate drops");
  }
  const bool warms = schedule.warmup_steps > 0 || schedule.warmup_fraction > 0.0;
  if (schedule.kind == ScheduleKind::kPoints && (schedule.points.empty() || warms)) {
    refuse_job(setting_text(job, given, "lr-schedule") +
               " needs lr-points, which have the warm-up, too: leave out warmup-steps and "
               "warmup-fraction");
  }
  if (schedule.kind == ScheduleKind::kExternal) check_external_schedule(job, given, warms);
  if (schedule.warmup_from > schedule.lr) {
    refuse_job(setting_text(job, given, "warmup-from") + " is above " +
               setting_text(job, given, "lr") + ": the rate rises from warmup-from to lr");
  }
  const bool has_ending = schedule.kind == ScheduleKind::kConstant ||
                          schedule.kind == ScheduleKind::kLinear ||
                          schedule.kind == ScheduleKind::kCosine;
  if (schedule.warmup_shape != WarmupShape::kLinear && !(has_ending && warms)) {
    refuse_job(setting_text(job, given, "warmup-shape") +
               " needs warmup-steps or warmup-fraction, and lr-schedule = constant, linear or "
               "cosine");
  }
  if (schedule.falls_to_min() && schedule.min > schedule.lr) {
    refuse_job(setting_text(job, given, "lr-min") + " is above " + setting_text(job, given, "lr") +
               ": the rate falls from lr to lr-min");
  }
  if (schedule.warmup_steps > 0 && schedule.warmup_fraction > 0.0) {
    refuse_job(setting_text(job, given, "warmup-steps") + " and " +
               setting_text(job, given, "warmup-fraction") +
               " both set the warm-up: give one, and set the other to 0 or remove it");
  }
}

}  // namespace

namespace {

void check_strategy(const Job& job, const Settings& given) {
  const StrategyTraits& traits = job.strategy.traits();
  if (!job.record.empty() && !traits.recordable) {
    refuse_job(setting_text(job, given, "record") + " has nothing to record under " +
               setting_text(job, given, "strategy") +
               ", where equal jobs give equal weights: remove it, or take " +
               strategies_with(&StrategyTraits::recordable));
  }
  if (!job.record.empty() && job.model == "external") {
    refuse_job(setting_text(job, given, "record") + " cannot be replayed with " +
               setting_text(job, given, "model") +
               ": only the program of the workers has the model; remove record");
  }
  // error feedback: a replay would need every push of every incarnation, even of lost ones
  if (!job.record.empty() && job.encodes_pushes()) {
    refuse_job(setting_text(job, given, "record") + " cannot be kept with " +
               setting_text(job, given, job.codec != Codec{} ? "codec" : "codec-tensors") +
               ": the residuals of the workers are not in the record; remove one of them");
  }
  if (!traits.single_pushes && (job.staleness_aware || job.delay_compensation > 0)) {
    refuse_job(
        setting_text(job, given, job.staleness_aware ? "staleness-aware" : "delay-compensation") +
        " corrects single pushes; under " + setting_text(job, given, "strategy") +
        (traits.step_versions ? " nothing is stale" : " an update is made of several") +
        ": remove it, or take " + strategies_with(&StrategyTraits::single_pushes));
  }
  // the losses travel in one message, with a header of at most 16 MiB
  constexpr int64_t kMaxLosses = 2'000'000;
  if (job.strategy.local_steps > kMaxLosses / job.micro_batches()) {
    refuse_job(setting_text(job, given, "strategy") + " with " +
               std::to_string(job.micro_batches()) + " micro-batches in a step has more than " +
               std::to_string(kMaxLosses) +
               " losses in a round: take a smaller H, or a larger micro-batch");
  }
  const bool encodes = job.encodes_pushes() || job.pull_codec != Codec{};
  if (traits.workers_update && encodes) {
    const char* key = job.codec != Codec{}        ? "codec"
                      : job.pull_codec != Codec{} ? "pull-codec"
                                                  : "codec-tensors";
    refuse_job(setting_text(job, given, key) + " is for push and pull; under " +
               setting_text(job, given, "strategy") + " workers sum among themselves: remove it");
  }
  if (traits.workers_update && job.on_worker_loss != OnWorkerLoss::kAbort) {
    refuse_job(setting_text(job, given, "on-worker-loss") + " cannot be kept under " +
               setting_text(job, given, "strategy") +
               ", whose workers hold the weights: take abort, and resume from a checkpoint");
  }
}

// The norms of a tensor's weights and of its update: all of its elements have the same updates, and
// one process, or the coordinator, has the squares of all of them.
void check_optimizer(const Job& job, const Settings& given) {
  if (!scales_by_tensor(job.optimizer.kind)) return;
  const StrategyTraits& traits = job.strategy.traits();
  if (!traits.step_versions) {
    refuse_job(setting_text(job, given, "optimizer") +
               " needs the norms of whole tensors, and under " +
               setting_text(job, given, "strategy") +
               " each server applies pushes in an order of its own: take " +
               strategies_with(&StrategyTraits::step_versions) + ", or adamw");
  }
  if (job.stages > 1 && (traits.workers_update || traits.outer_optimizer)) {
    refuse_job(
        setting_text(job, given, "optimizer") + " needs the norms of whole tensors, and under " +
        setting_text(job, given, "strategy") + " with " + setting_text(job, given, "stages") +
        " a worker updates only its stage: take sync, or adamw");
  }
}

// A worker that ends with a bad gradient counts as lost.
void check_bad_gradients(const Job& job, const Settings& given) {
  if (job.on_bad_gradient == OnBadGradient::kQuarantine &&
      job.on_worker_loss == OnWorkerLoss::kAbort) {
    refuse_job(setting_text(job, given, "on-bad-gradient") +
               " needs another worker to take over, but under " +
               (job.strategy.traits().workers_update
                    ? setting_text(job, given, "strategy") + " no worker can: take abort or skip"
                    : setting_text(job, given, "on-worker-loss") +
                          " no worker does: take continue or wait"));
  }
}

void check_numbers_of_workers(const Job& job, const Settings& given) {
  if (job.min_workers > job.micro_batches()) {
    refuse_job(setting_text(job, given, "min-workers") + " is more than the " +
               std::to_string(job.micro_batches()) +
               (job.micro_batches() == 1 ? " micro-batch" : " micro-batches") +
               " of a step, and at most that many workers compute");
  }
  if (job.max_workers == 0 || job.max_workers >= job.min_workers) return;
  refuse_job(setting_text(job, given, "min-workers") + " is more than " +
             setting_text(job, given, "max-workers"));
}

// A worker of a group has one stage of the model and of the gradient.
void check_stages(const Job& job, const Settings& given) {
  if (job.stages == 1) return;
  const auto refuse = [&](const std::string& key, const std::string& why) {
    refuse_job(setting_text(job, given, "stages") + " and " + setting_text(job, given, key) + why);
  };
  if (job.model == "external" && (job.balance != "auto" || job.stage_schedule != "1f1b")) {
    refuse(
        job.balance != "auto" ? "balance" : "schedule",
        ": with model = external, the programs divide the model and pass activations; remove it");
  }
  if (job.model == "external" && job.strategy.traits().workers_update) {
    refuse("strategy", " with model = external: take a strategy with servers");
  }
  if (job.delay_compensation > 0) {
    refuse("delay-compensation", ", which needs the weights of a whole push: remove one of them");
  }
  if (job.on_bad_gradient == OnBadGradient::kSkip) {
    refuse("on-bad-gradient",
           ": a stage has only its part of a gradient; take abort or quarantine");
  }
}

}  // namespace

void check_combinations(const Job& job, const Settings& given) {
  check_stages(job, given);
  check_batches(job, given);
  check_strategy(job, given);
  check_optimizer(job, given);
  check_length(job, given);
  check_schedule(job, given);
  check_numbers_of_workers(job, given);
  check_bad_gradients(job, given);
  if (job.stop_when.on() && job.eval_every == 0) {
    refuse_job(setting_text(job, given, "stop-when") +
               " needs evaluations during training: set eval-every");
  }
  if (job.eval_ema && job.optimizer.ema == 0.0) {
    refuse_job(setting_text(job, given, "eval-weights") +
               " needs an average of the weights: set ema, for example ema = 0.999");
  }
  if (job.eval_ema && job.stages > 1) {
    refuse_job(setting_text(job, given, "eval-weights") + " does not go with " +
               setting_text(job, given, "stages") +
               ": a stage is evaluated with the weights that it trains");
  }
  if (job.train_samples > 0 && job.global_batch > job.train_samples) {
    refuse_job(setting_text(job, given, "global-batch") + " is more than " +
               setting_text(job, given, "train-samples") + ": no step would be complete");
  }
  const DatasetName* const dataset = find_dataset_name(job.dataset);
  const bool by_class = job.sampler == SamplerKind::kWeighted && job.model != "external";
  if (dataset != nullptr && !dataset->has_classes && by_class) {
    refuse_job(setting_text(job, given, "sampler") + " needs samples with a class, which " +
               setting_text(job, given, "dataset") + " has not: take sampler uniform");
  }
  if (dataset != nullptr && dataset->needs_files && job.data_dir.empty()) {
    refuse_job(setting_text(job, given, "dataset") + " needs data-dir, the path of its files");
  }
  if (job.dataset == "folder" && !given.contains("input")) {
    refuse_job(setting_text(job, given, "dataset") +
               " needs input, the shape that its images are made to fit: input = 3x224x224, for "
               "example");
  }
}

void check_job_against_data(const Job& job, int64_t train_samples) {
  const std::string data = job.model == "external" ? "the program" : "dataset " + job.dataset;
  const std::string dataset = data + " has " + plural(train_samples, "training sample");
  if (job.train_samples > train_samples) {
    refuse_job("train-samples = " + std::to_string(job.train_samples) + " is too many: " + dataset);
  }
  if (steps_per_epoch(job, train_samples) == 0) {
    const int64_t used = job.train_samples > 0 ? job.train_samples : train_samples;
    refuse_job("global-batch = " + std::to_string(job.global_batch) + " is more than the " +
               std::to_string(used) + " samples to train on (train-samples = " +
               std::to_string(job.train_samples) + "; " + dataset + "): no step would be complete");
  }
  const int64_t steps = total_steps(job, train_samples);
  if (job.stop_after > steps) {
    refuse_job("stop-after = " + std::to_string(job.stop_after) +
               " lies beyond the end of the job, " + plural(steps, "step"));
  }
}

void check_job_against_workers(const Job& job, int64_t workers) {
  if (job.straggler.rank >= workers) {
    refuse_job("straggler = " + job.straggler.to_string() + " names worker " +
               std::to_string(job.straggler.rank) + ", but there are only " +
               std::to_string(workers) + ": ranks go from 0 to " + std::to_string(workers - 1));
  }
  if (workers < job.min_workers) {
    refuse_job("min-workers = " + std::to_string(job.min_workers) + ", but the job starts with " +
               plural(workers, "worker"));
  }
  if (job.max_workers > 0 && workers > job.max_workers) {
    refuse_job("max-workers = " + std::to_string(job.max_workers) + ", but the job starts with " +
               plural(workers, "worker"));
  }
  if (workers < job.stages) {
    refuse_job("stages = " + std::to_string(job.stages) + " needs as many workers, but there " +
               (workers == 1 ? "is 1 worker" : "are " + plural(workers, "worker")));
  }
  const int64_t shares = std::min(workers / job.stages, job.micro_batches());
  if (job.strategy.backups < shares) return;
  const std::string whose = shares < workers ? "a step has only " + std::to_string(shares) +
                                                   " micro-batches for the " +
                                                   std::to_string(workers) + " workers"
                            : workers == 1 ? "there is 1 worker"
                                           : "there are " + std::to_string(workers) + " workers";
  refuse_job("strategy = " + job.strategy.to_string() + " would drop every push: " + whose +
             ", so B must be below " + std::to_string(shares));
}

}  // namespace pushpull
