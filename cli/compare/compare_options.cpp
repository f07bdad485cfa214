#include "cli/compare/compare_options.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>

#include "cli/compare/compare_plan.h"
#include "cli/run/deepspeed_config.h"
#include "cli/run/link_lab.h"
#include "cli/run/step_launcher.h"
#include "cli/run/worker_command.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/device/device_name.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/launch/placement.h"
#include "common/net/key_file.h"

namespace pushpull {
namespace {

constexpr int64_t kMaxWorkers = 1024;  // a larger number is a typing mistake
constexpr int64_t kMaxSeeds = 1000;
constexpr size_t kMaxTries = 1000;

[[noreturn]] void refuse_compare(const std::string& text) {
  throw Error(ErrorCode::kUsage, "[compare] " + text);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = std::string(trim(part));
  return parts;
}

int64_t count(const std::string& flag, const std::string& text, int64_t max) {
  const std::optional<int64_t> value = parse_int64(text);
  if (!value || *value < 1 || *value > max) {
    refuse_compare("--" + flag + ": '" + printable(text) + "' must be a whole number from 1 to " +
                   std::to_string(max));
  }
  return *value;
}

std::vector<std::string> parse_strategies(const std::string& text) {
  std::vector<std::string> strategies;
  for (const std::string& word : split(text, ',')) {
    std::string name;
    try {
      name = Strategy::parse(word).to_string();
    } catch (const Error& error) {
      constexpr std::string_view kTag = "[job] ";
      const std::string_view why = error.what();
      refuse_compare("--strategies: " +
                     std::string(why.starts_with(kTag) ? why.substr(kTag.size()) : why));
    }
    if (std::ranges::count(strategies, name) > 0) {
      refuse_compare("--strategies: '" + printable(word) + "' is given twice" +
                     (word == name ? "" : " (it is another name of " + name + ")") +
                     ": remove one");
    }
    strategies.push_back(name);
  }
  return strategies;
}

std::vector<int64_t> parse_counts(const std::string& flag, const std::string& text) {
  std::vector<int64_t> counts;
  for (const std::string& word : split(text, ',')) {
    const int64_t value = count(flag, word, kMaxWorkers);
    if (std::ranges::count(counts, value) > 0) {
      refuse_compare("--" + flag + ": " + word + " is given twice: remove one");
    }
    counts.push_back(value);
  }
  return counts;
}

std::optional<Target> parse_target(const CommandLine& line) {
  if (line.local.contains("target")) {
    const std::string text = line.own("target", "");
    const size_t colon = text.rfind(':');
    const bool named = colon != std::string::npos;
    const std::optional<MeasureName> name =
        named ? MeasureName::parse(text.substr(0, colon)) : MeasureName{};
    const std::optional<double> value = parse_real(named ? text.substr(colon + 1) : text);
    if (!name || !value) {
      refuse_compare("--target: '" + printable(text) +
                     "' must be a number, a value of the metric of the model's first head, or "
                     "[HEAD/]METRIC:VALUE with METRIC as in stop-when, such as f1/value:0.9");
    }
    if (line.local.contains("target-accuracy")) {
      refuse_compare("--target and --target-accuracy: a comparison has one target; remove one");
    }
    return Target{*name, *value};
  }
  const std::string text = line.own("target-accuracy", "");
  if (!line.local.contains("target-accuracy")) return std::nullopt;
  const std::optional<double> value = parse_real(text);
  if (!value || *value <= 0.0 || *value > 1.0) {
    refuse_compare("--target-accuracy: '" + printable(text) +
                   "' must be a number > 0 and <= 1, such as 0.97 for 97 %");
  }
  return Target{{}, *value};
}

// Keys that compare sets itself, or that would give the tries different lengths.
constexpr std::array kNotTuned = {"seed",
                                  "steps",
                                  "epochs",
                                  "stop-after",
                                  "eval-every",
                                  "checkpoint-every",
                                  "checkpoint-keep",
                                  "straggler"};

std::vector<std::string> tunable_keys() {
  std::vector<std::string> names;
  for (const KeyHelp& key : job_keys()) {
    if (parse_real(job_value(Job{}, key.key)) && std::ranges::count(kNotTuned, key.key) == 0) {
      names.push_back(key.key);
    }
  }
  return names;
}

TuneKey parse_tune_key(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    refuse_compare("--tune: '" + printable(text) +
                   "' must be KEY=VALUE,VALUE,..., such as lr=0.05,0.1,0.2");
  }
  TuneKey tune{std::string(trim(text.substr(0, equals))), split(text.substr(equals + 1), ',')};
  const std::vector<std::string> names = tunable_keys();
  if (std::ranges::count(names, tune.key) == 0) {
    refuse_compare("--tune: '" + printable(tune.key) +
                   "' is not a numeric job key that can be tuned" + did_you_mean(tune.key, names) +
                   "; lr is one");
  }
  std::set<double> seen;
  for (const std::string& value : tune.values) {
    const std::optional<double> number = parse_real(value);
    if (!number) {
      refuse_compare("--tune " + tune.key + ": '" + printable(value) +
                     "' is not a number; separate values with commas");
    }
    if (!seen.insert(*number).second) {
      refuse_compare("--tune " + tune.key + ": " + value + " is given twice: remove one");
    }
  }
  return tune;
}

std::vector<TuneKey> parse_tune(const CommandLine& line) {
  std::vector<TuneKey> all;
  if (!line.local.contains("tune")) return all;
  size_t tries = 1;
  for (const std::string& text : split(line.own("tune", ""), ';')) {
    all.push_back(parse_tune_key(text));
    tries *= all.back().values.size();
    if (tries > kMaxTries) {
      refuse_compare("--tune: more than " + std::to_string(kMaxTries) +
                     " combinations for every strategy: give fewer values");
    }
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      if (all[i].key == all.back().key) {
        refuse_compare("--tune: " + all[i].key +
                       " is given twice: list all its values in one flag");
      }
    }
  }
  return all;
}

// "none" is this machine's loopback. It may be listed beside other links.
std::vector<std::string> parse_links(const std::string& text) {
  std::vector<std::string> links;
  for (const std::string& word : split(text, ';')) {
    const std::string link = word == "none" ? "" : word;
    if (word.empty())
      refuse_compare("--link: '' must be RATE,DELAY[,LOSS], such as 100mbit,5ms, or none");
    parse_link(word);
    if (std::ranges::count(links, link) > 0) {
      refuse_compare("--link: " + printable(word) + " is given twice: remove one");
    }
    links.push_back(link);
  }
  return links;
}

// Where the processes of a run are: on hosts of links, or on the nodes of an allocation.
void parse_hosts(const CommandLine& line, CompareOptions& options) {
  options.per_host = count("per-host", line.own("per-host", "1"), kMaxWorkers);
  const bool linked = std::ranges::any_of(options.links, [](const auto& l) { return !l.empty(); });
  if (line.local.contains("per-host") && !linked) {
    refuse_compare("--per-host " + line.local.at("per-host") +
                   ": needs --link RATE,DELAY, whose hosts get so many workers each");
  }
  options.over = line.own("over", "");
  options.over_args = line.own("over-args", "");
  if (options.over.empty()) {
    if (!options.over_args.empty()) {
      refuse_compare("--over-args needs --over slurm or --over mpi");
    }
    return;
  }
  if (line.local.contains("link")) {
    refuse_compare("--over and --link: links are emulated on one machine; leave one of them out");
  }
  check_step_launcher(options.over, environment_of_this_process());
}

std::vector<std::string> parse_codecs(const CommandLine& line) {
  if (!line.local.contains("codecs")) return {""};
  if (line.keys.contains("codec"))
    refuse_compare("--codec and --codecs exclude each other: remove one of them");
  std::vector<std::string> codecs;
  for (const std::string& word : split(line.own("codecs", ""), ',')) {
    try {
      codecs.push_back(Codec::parse(word).to_string());
    } catch (const Error& error) {
      refuse_compare(std::string("--codecs: ") + error.what());
    }
    if (std::ranges::count(codecs, codecs.back()) > 1) {
      refuse_compare("--codecs: " + codecs.back() + " is given twice: remove one");
    }
  }
  return codecs;
}

void check_server_device(const std::string& text) {
  if (text.empty()) return;
  if (device::parse_devices(text, 0, "server-device").size() > 1) {
    refuse_compare("--server-device " + text + ": a server uses one device");
  }
}

// Cells that cannot be are left out, but each strategy and number of stages needs one.
void check_numbers_of_workers(const CompareOptions& options) {
  const int64_t most = std::ranges::max(options.workers);
  const std::string have = "--workers has " + std::to_string(most) + " at most";
  for (const int64_t stages : options.stages) {
    if (stages > most) {
      refuse_compare("--stages " + std::to_string(stages) +
                     ": a group needs as many workers, and " + have);
    }
    for (const std::string& strategy : options.strategies) {
      if (can_have(strategy, most, stages)) continue;
      const int64_t backups = Strategy::parse(strategy).backups;
      const int64_t each = std::max<int64_t>(1, stages);
      refuse_compare(strategy + " drops the " + std::to_string(backups) + " slowest " +
                     (each > 1 ? "groups of " + plural(each, "worker") : "workers") + ", and " +
                     have + ": it needs at least " + std::to_string((backups + 1) * each));
    }
  }
}

// The rank must exist in every run; otherwise only some runs would have a straggler.
void check_straggler(const CompareOptions& options) {
  const Straggler& straggler = options.job.straggler;
  for (const int64_t workers : options.workers) {
    if (straggler.rank >= workers) {
      refuse_compare("--straggler " + straggler.to_string() + ": there is no worker " +
                     std::to_string(straggler.rank) + " where --workers is " +
                     std::to_string(workers) + "; name a rank below " +
                     std::to_string(std::ranges::min(options.workers)));
    }
  }
}

// Keys that compare sets for each run; a value given for all runs would contradict it.
void refuse_keys_of_ours(const CommandLine& line) {
  for (const auto& [key, instead] : {std::pair{"strategy", "--strategies"},
                                     {"resume", "a folder of its own, --out"},
                                     {"checkpoint-dir", "--keep-checkpoints"},
                                     {"record", "`pushpull run --record`"}}) {
    if (line.keys.contains(key)) {
      refuse_compare(std::string("--") + key + " is set by compare for each run: use " + instead);
    }
  }
}

// Parses the job under a strategy. An error names the source `where`.
Job parse_with(const CompareOptions& options, const std::string& strategy,
               std::map<std::string, std::string> changes, const std::string& where) {
  changes.merge(keys_of_strategy(strategy));
  changes.insert(options.keys.begin(), options.keys.end());
  try {
    return parse_job(options.job_file, changes);
  } catch (const Error& error) {
    if (where.empty()) throw;
    refuse_compare(where + ": " + error.what());
  }
}

// The evaluations of all runs are at the same steps, which follow from the number of steps.
void check_length(const CompareOptions& options) {
  if (options.worker.empty() || options.job.steps > 0) return;
  refuse_compare("model = external: give the length as steps, not epochs = " +
                 std::to_string(options.job.epochs) +
                 ": only the program of the workers knows how many samples an epoch has");
}

// Reports a key that is wrong under every strategy as an error of the job, not of one strategy.
void check_jobs(CompareOptions& options) {
  parse_with(options, "sync", {}, "");
  for (const std::string& strategy : options.strategies) {
    const std::string under = "strategy " + strategy;
    parse_with(options, strategy, {}, under);
    for (const int64_t stages : options.stages) {
      const std::string number = std::to_string(stages);
      if (stages > 0) parse_with(options, strategy, {{"stages", number}}, "--stages " + number);
    }
    for (const TuneKey& tune : options.tune) {
      for (const std::string& value : tune.values) {
        std::string where = under;
        where.append(", --tune ").append(tune.key).append("=").append(value);
        parse_with(options, strategy, {{tune.key, value}}, where);
      }
    }
  }
  options.job = parse_with(options, options.strategies.front(), {}, "");
}

}  // namespace

const std::vector<KeyHelp>& compare_options() {
  static const std::vector<KeyHelp> options = with_key_flags({
      takes("FILE",
            {"job", "",
             "job file (INI); without it, all keys come from flags and PUSHPULL_ variables"}),
      deepspeed_help(),
      takes(strategy_words() + std::string(kMoreValues),
            {"strategies", "sync,async,ssp:4", "strategies to compare, between commas"}),
      {"workers", "1,2", "numbers of workers; scaling needs 1 among them"},
      {"servers", "1", "servers of every run"},
      {"seeds", "3", "repeats: the job's seed, that + 1, and so on"},
      {"target-accuracy", "", "also report time and samples until the test accuracy is this: 0.97"},
      {"target", "",
       "the same for any metric of the model's first head (perplexity 6.5, exact match 0.9), or "
       "for "
       "[HEAD/]METRIC:VALUE as in stop-when: f1/value:0.9"},
      {"link", "none",
       "RATE,DELAY[,LOSS], such as 100mbit,5ms: put the processes on hosts joined by such links; "
       "none: this machine's loopback; may be given several times"},
      {"per-host", "1", "with --link: workers of each host"},
      takes(
          "slurm|mpi",
          {"over", "",
           "slurm or mpi: srun or mpirun starts the tasks of each run, one run after the other, on "
           "the nodes of the allocation"}),
      {"over-args", "", "further words for srun or mpirun: --over-args='--hostfile FILE'"},
      takes(kCodecWords + std::string(kMoreValues),
            {"codecs", "the job's", "codecs for pushes, between commas: fp32,bf16,int8,topk:0.05"}),
      {"tune", "",
       "KEY=VALUE,VALUE,...: try these for every strategy and number of workers alike, then use "
       "the "
       "best; may be given several times"},
      takes(kDeviceWords,
            {"device", "cpu",
             "of the workers of every run: cpu, auto, cuda (in turns), cuda:N, or several: "
             "cuda:0,cuda:1"}),
      {"worker", "",
       "command of the workers of every run, for model = external, as of pushpull run; needs "
       "steps"},
      takes(kDeviceWords,
            {"server-device", "cpu",
             "where the servers of every run keep weights: cpu, auto, cuda (in turns), cuda:N"}),
      takes("DIR", {"out", "pushpull-compare",
                    "folder for the report, compare.json, compare.csv and all runs"}),
      {"keep-checkpoints", "", "keep the final weights of every run", "", false},
  });
  return options;
}

const ProgramHelp& compare_help() {
  static const ProgramHelp help = {
      .name = "pushpull compare",
      .summary = "the same job under several strategies, side by side",
      .usage =
          {"pushpull compare --job FILE --strategies sync,async,ssp:4 --workers 1,2,4 "
           "--seeds 5",
           "                 [--target-accuracy 0.97] [--straggler RANK:FACTOR] "
           "[--link RATE,DELAY[,LOSS]]",
           "                 [--codecs fp32,int8,topk:0.05] [--stages 1,2] [--tune lr=0.5,1,2] "
           "[--device cuda] [--server-device cuda]",
           "                 [--over slurm|mpi] [--worker 'COMMAND'] --out DIR [--KEY VALUE ...]"},
      .options = compare_options(),
      .job_flags = JobFlags::kAccept};
  return help;
}

std::vector<std::string> gather_repeated(int argc, const char* const* argv) {
  std::vector<std::string> words;
  std::map<std::string, std::string> values;  // by flag
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string flag = word.substr(0, word.find('='));
    const bool apart = flag == word;
    const bool repeated = flag == "--tune" || flag == "--link";
    // The parser reports a missing value.
    if (!repeated ||
        (apart && (i + 1 == argc || std::string_view(argv[i + 1]).starts_with("--")))) {
      words.push_back(word);
      continue;
    }
    const std::string value = apart ? argv[++i] : word.substr(flag.size() + 1);
    const auto [found, is_new] = values.try_emplace(flag, value);
    if (!is_new) found->second.append(";").append(value);
  }
  for (const auto& [flag, value] : values)
    words.push_back(std::string(flag).append("=").append(value));
  return words;
}

CompareOptions parse_compare(const CommandLine& line, const std::string& command) {
  if (!line.positional.empty()) {
    refuse_compare("'" + printable(line.positional.front()) +
                   "' is not a flag; give the job file as --job FILE, write lists without blanks");
  }
  refuse_keys_of_ours(line);
  CompareOptions options;
  options.command = command;
  options.keys = line.keys;
  options.job_file = line.own("job", "");
  options.strategies = parse_strategies(line.own("strategies", "sync,async,ssp:4"));
  options.workers = parse_counts("workers", line.own("workers", "1,2"));
  // the job's key, here with several values
  if (const auto stages = options.keys.extract("stages")) {
    options.stages = parse_counts("stages", stages.mapped());
  }
  options.servers = count("servers", line.own("servers", "1"), kMaxWorkers);
  options.target = parse_target(line);
  options.target_is_accuracy = line.local.contains("target-accuracy");
  options.links = parse_links(line.own("link", "none"));
  parse_hosts(line, options);
  options.codecs = parse_codecs(line);
  options.tune = parse_tune(line);
  options.device = line.own("device", "");
  if (!options.device.empty()) device::parse_devices(options.device, 0);
  options.server_device = line.own("server-device", "");
  check_server_device(options.server_device);
  options.out = line.own("out", "pushpull-compare");
  options.insecure = line.local.contains("insecure");
  options.keep_checkpoints = line.local.contains("keep-checkpoints");
  const int64_t seeds = count("seeds", line.own("seeds", "3"), kMaxSeeds);
  check_numbers_of_workers(options);
  check_jobs(options);
  worker_command(line, options.job, "compare");  // throws for a wrong one before any run
  options.worker = line.own("worker", "");
  check_length(options);
  if (options.job.seed > std::numeric_limits<uint64_t>::max() - static_cast<uint64_t>(seeds)) {
    refuse_compare("--seeds " + std::to_string(seeds) + " from seed " +
                   std::to_string(options.job.seed) +
                   " exceeds the largest seed: use a smaller one");
  }
  for (int64_t i = 0; i < seeds; ++i) {
    options.seeds.push_back(options.job.seed + static_cast<uint64_t>(i));
  }
  check_straggler(options);
  if (options.job.straggler.rank >= 0) options.straggler = options.job.straggler.to_string();
  return options;
}

std::map<std::string, std::string> keys_of_strategy(const std::string& strategy) {
  std::map<std::string, std::string> keys = {{"strategy", strategy},
                                             {"resume", "false"},
                                             {"checkpoint-every", "0"},
                                             {"checkpoint-dir", ""},
                                             {"record", ""}};
  const Strategy parsed = Strategy::parse(strategy);
  if (!parsed.traits().single_pushes) {
    keys.insert({{"staleness-aware", "false"}, {"delay-compensation", "0"}});
  }
  if (parsed.traits().workers_update) {
    keys["on-worker-loss"] = "abort";
    keys.insert({{"codec", "fp32"}, {"codec-tensors", ""}, {"pull-codec", "fp32"}});
  }
  return keys;
}

std::string job_value(const Job& job, const std::string& key) {
  std::istringstream lines(to_ini(job));
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find(" = ");
    if (equals != std::string::npos && line.substr(0, equals) == key)
      return line.substr(equals + 3);
  }
  return "";
}

std::string shared_ini(const std::vector<Job>& jobs) {
  PP_ASSERT(!jobs.empty());
  std::vector<std::set<std::string>> others;
  for (const Job& job : jobs) {
    std::istringstream lines(to_ini(job));
    others.emplace_back();
    for (std::string line; std::getline(lines, line);) others.back().insert(line);
  }
  std::string shared;
  std::istringstream lines(to_ini(jobs.front()));
  for (std::string line; std::getline(lines, line);) {
    const bool in_all = std::ranges::all_of(
        others, [&](const std::set<std::string>& other) { return other.contains(line); });
    if (in_all) shared += line + "\n";
  }
  return shared;
}

}  // namespace pushpull
