// `pushpull compare`: its runs and its output.

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "cli/commands.h"
#include "cli/compare/compare_options.h"
#include "cli/compare/compare_output.h"
#include "cli/compare/compare_plan.h"
#include "cli/report/compare_read.h"
#include "cli/report/machine_info.h"
#include "cli/report/metric_style.h"
#include "cli/run/child.h"
#include "cli/run/deepspeed_config.h"
#include "cli/run/link_lab.h"
#include "cli/run/signals.h"
#include "cli/run/step_launcher.h"
#include "cli/run/step_nodes.h"
#include "cli/run/worker_command.h"
#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/job/program_help.h"
#include "common/launch/placement.h"
#include "common/net/key_file.h"
#include "datasets/dataset.h"
#include "models/model.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr char kClear[] = "\r\x1b[K";  // start of line, erase to its end (ECMA-48 EL)
constexpr int64_t kMaxLogBytes = int64_t{1} << 20;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

template <class T>
std::string joined(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}

class Comparison {
 public:
  Comparison(CompareOptions options, std::string program_dir)
      : options_(std::move(options)),
        program_dir_(std::move(program_dir)),
        terminal_(is_terminal(STDOUT_FILENO)) {}

  int run();

 private:
  void find_nodes();
  void set_machine();
  void prepare();
  void prepare_model();
  void learn_model(const CompareRun& run);
  void make_labs();
  void describe();
  void check_target();
  void make_folder();
  void choose();
  // Returns false if a signal ended the comparison.
  bool run_all(const std::vector<PlannedRun>& plan, std::vector<CompareRun>& done);
  CompareRun run_one(const PlannedRun& planned);
  int start(const PlannedRun& planned, const std::string& folder);
  void announce(const PlannedRun& planned);
  void report(const CompareRun& run);
  void finish();
  int exit_code() const;
  std::vector<std::string> names_of_links() const;

  CompareOptions options_;
  const std::string program_dir_;
  const bool terminal_;
  HeldSignals signals_;
  CompareResult result_;
  std::optional<LinkLabs> labs_;
  std::map<Variant, Tuned> chosen_;
  std::vector<StepNode> nodes_;  // on which the largest runs are; none: this machine
  std::vector<std::string> notes_before_;
  bool model_is_known_ = false;  // a user's
  std::vector<HeadInfo> heads_;  // of the model
  int64_t eval_every_ = 0;
  int64_t steps_ = 0;
  int64_t began_ms_ = 0;
  size_t runs_done_ = 0;
  size_t runs_planned_ = 0;
  int signal_ = 0;  // signal that ended the comparison
};

int Comparison::run() {
  began_ms_ = now_ms();
  if (!options_.over.empty()) find_nodes();
  if (signal_ != 0) return exit_code();
  prepare();
  make_folder();
  make_labs();
  describe();
  const std::vector<PlannedRun> tries = plan_tries(options_);
  runs_planned_ = tries.size() + plan_repeats(options_, {}).size();
  if (run_all(tries, result_.tuning)) {
    choose();
    run_all(plan_repeats(options_, chosen_), result_.runs);
  }
  finish();
  return exit_code();
}

// Asks the nodes of the tasks for each number of workers. Leaves out the numbers that the launcher refuses.
void Comparison::find_nodes() {
  const auto launcher = make_step_launcher(options_.over, environment_of_this_process());
  std::vector<std::string> more;
  if (!options_.over_args.empty()) more = split_words(options_.over_args);
  std::vector<int64_t> possible;
  std::string why;
  for (const int64_t workers : options_.workers) {
    const AskedNodes asked =
        ask_nodes(*launcher, options_.over, program_dir_ + "/pushpull", workers, more, signals_);
    signal_ = asked.signal;
    if (signal_ != 0) return;
    if (asked.nodes.empty()) {
      why = plural(workers, "worker") + ": " + asked.why;
      notes_before_.push_back(why + "; left out");
      continue;
    }
    if (possible.empty() || workers > std::ranges::max(possible)) nodes_ = asked.nodes;
    possible.push_back(workers);
  }
  if (possible.empty()) {
    throw Error(ErrorCode::kUsage, "[compare] --over " + options_.over + ": " + why);
  }
  options_.workers = possible;
}

// The coordinator of each run is on this machine, which may be no node of the others.
void Comparison::set_machine() {
  const MachineInfo here = machine_info();
  const MachineInfo& machine = nodes_.empty() ? here : nodes_.front().machine;
  result_.machine = nodes_.empty() ? machine_text(here) : text_of_nodes(nodes_);
  result_.cores = nodes_.empty() ? here.cores : cores_of(nodes_);
  result_.congestion_control = machine.congestion_control;
  result_.libraries = machine.libraries;
  if (nodes_.empty()) return;
  const bool among =
      std::ranges::any_of(nodes_, [](const StepNode& node) { return node.host == host_name(); });
  if (!among) result_.machine += "; server 0 on " + host_name() + ": " + machine_text(here);
  const bool mixed = std::ranges::any_of(nodes_, [&machine](const StepNode& node) {
    return node.machine.libraries != machine.libraries;
  });
  if (mixed) {
    notes_before_.push_back("the nodes have other versions of libraries than " +
                            nodes_.front().name + ", whose versions are those below");
  }
  notes_before_.emplace_back(
      "what other programs use of the nodes is not measured: be alone on them");
}

// Prepares what all runs share. Throws before any run starts if the data do not fit the job.
void Comparison::prepare() {
  const Job& job = options_.job;
  steps_ = job.steps;
  if (options_.worker.empty()) prepare_model();
  eval_every_ =
      job.eval_every > 0 ? job.eval_every : pushpull::eval_every(steps_, options_.strategies);

  set_machine();
  result_.over = options_.over;
  result_.command = options_.command;
  result_.commit = built_commit();
  result_.version = PUSHPULL_VERSION;
  result_.began = utc_now();
  if (options_.target) result_.target = options_.target->value;
  if (options_.worker.empty()) check_target();
  result_.straggler = options_.straggler;
  result_.worker = options_.worker;
  result_.device = options_.device;
  result_.server_device = options_.server_device;
  result_.strategies = options_.strategies;
  if (!options_.codecs.front().empty()) result_.codecs = options_.codecs;
  if (options_.stages.front() > 0) result_.stages = options_.stages;
  result_.workers = options_.workers;
  std::vector<Job> jobs;
  for (const PlannedRun& planned : plan_repeats(options_, {})) {
    jobs.push_back(parse_job(options_.job_file, keys_of(options_, planned, eval_every_)));
  }
  result_.job_ini = shared_ini(jobs);
  const std::vector<std::string> notes =
      notes_before(result_, options_.servers, job.threads, job.micro_batches());
  notes_before_.insert(notes_before_.end(), notes.begin(), notes.end());
}

// Opens the data and plans the model.
void Comparison::prepare_model() {
  const Job& job = options_.job;
  const std::unique_ptr<Dataset> dataset = open_dataset(job);
  check_job_against_data(job, dataset->size(Split::kTrain));
  steps_ = total_steps(job, dataset->size(Split::kTrain));
  const ModelFigures model = figures_of_model(job, dataset->fields());
  result_.model_parameters = model.table.trainable();
  // refuses numbers that the model cannot be divided into
  for (const int64_t stages : options_.stages) {
    if (stages > 1) plan_stages(job, dataset->fields(), stages);
  }
  heads_ = model.heads;
  if (!heads_.empty()) result_.metric = to_string(heads_.front().metric);
}

// Takes the figures of a user's model from the first run that has finished.
void Comparison::learn_model(const CompareRun& run) {
  if (options_.worker.empty() || model_is_known_ || !run.failure.empty()) return;
  model_is_known_ = true;
  result_.model_parameters = run.model_parameters;
  result_.metric = run.metric;
  heads_ = run.heads;
  std::cout << "  model       " << run.model_parameters << " parameters, measures "
            << (run.metric.empty() ? "nothing" : run.metric) << std::endl;
  check_target();
}

// Finds the target's measure. Refuses one that the model has not, and an accuracy of a model that
// measures something else.
void Comparison::check_target() {
  if (!options_.target) return;
  const auto& [name, value] = *options_.target;
  const std::string flag = "[compare] --target " +
                           (name == MeasureName{} ? "" : name.to_string() + ":") +
                           print_real(value);
  if (!options_.worker.empty() && result_.metric.empty()) {
    throw Error(ErrorCode::kUsage, flag +
                                       ": the program of the workers measures nothing; give its "
                                       "model a head, or remove the target");
  }
  const std::optional<Measure> measure = find_measure(name, heads_);
  if (!measure) {
    throw Error(ErrorCode::kUsage, flag + ": model = " + options_.job.model +
                                       " has no such measure; it has " + measures_of(heads_));
  }
  if (measure->head > 0 || measure->is_loss) result_.target_measure = name.to_string();
  const MetricStyle style =
      style_of(measure->is_loss ? "" : to_string(heads_[measure->head].metric));
  if (options_.target_is_accuracy && !style.counts) {
    throw Error(ErrorCode::kUsage, "[compare] --target-accuracy: model = " + options_.job.model +
                                       " measures " + style.name +
                                       "; give a value of it as --target");
  }
  if (!measure->is_loss && style.counts && (value <= 0.0 || value > 1.0)) {
    throw Error(ErrorCode::kUsage, flag + ": must be > 0 and <= 1, a value of " + style.name);
  }
}

// Deletes the results of an earlier comparison, so that they cannot be mistaken for new ones.
void Comparison::make_folder() {
  std::error_code error;
  fs::create_directories(options_.out + "/runs", error);
  if (error) {
    throw Error(ErrorCode::kIo,
                "[compare] cannot make the folder " + options_.out + "/runs: " + error.message());
  }
  for (const char* name : {"compare.json", "compare.csv", "report.html"}) {
    fs::remove(fs::path(options_.out) / name, error);
  }
}

// Drops links that this machine cannot emulate and reports them.
void Comparison::make_labs() {
  const int64_t hosts =
      hosts_of_job(options_.servers, std::ranges::max(options_.workers), options_.per_host);
  labs_.emplace(options_.links, hosts, program_dir_, notes_before_);
  options_.links = labs_->links();
  result_.links = labs_->measured();
}

void Comparison::describe() {
  const Job& job = options_.job;
  std::ostringstream text;
  text << "comparing " << joined(options_.strategies)
       << (result_.codecs.empty() ? "" : "; codecs " + joined(result_.codecs))
       << (result_.stages.empty() ? "" : "; stages " + joined(result_.stages)) << "\n"
       << "  job         "
       << (options_.worker.empty() ? job.model + " on " + job.dataset + ", " +
                                         std::to_string(result_.model_parameters) + " parameters"
                                   : options_.worker)
       << ", " << steps_ << " steps of " << job.global_batch << " samples\n"
       << "  workers     " << joined(options_.workers) << "; servers " << options_.servers
       << "; seeds " << joined(options_.seeds) << "\n"
       << "  machine     " << result_.machine << "\n"
       << (result_.over.empty() ? "" : "  over        " + result_.over + "\n") << "  network     "
       << joined(names_of_links()) << "; TCP congestion control "
       << (result_.congestion_control.empty() ? "unknown" : result_.congestion_control) << "\n"
       << "  evaluation  every " << eval_every_ << " steps"
       << (job.eval_every > 0 ? "" : ", set by compare (eval-every was not given)") << "\n";
  for (const LinkMeasured& link : result_.links)
    text << "  link        " << link_text(link) << "\n";
  if (!result_.device.empty()) text << "  device      " << result_.device << " (of workers)\n";
  if (!result_.server_device.empty()) {
    text << "  device      " << result_.server_device << " (of servers)\n";
  }
  if (!result_.straggler.empty()) {
    text << "  straggler   " << result_.straggler << " (worker:factor)\n";
  }
  for (const std::string& note : notes_before_) text << "  note        " << note << "\n";
  std::cout << text.str() << std::flush;
}

std::vector<std::string> Comparison::names_of_links() const {
  std::vector<std::string> names;
  const std::string own = options_.over.empty() ? "loopback" : "that of the nodes";
  for (const std::string& link : options_.links) names.push_back(link.empty() ? own : link);
  return names;
}

bool Comparison::run_all(const std::vector<PlannedRun>& plan, std::vector<CompareRun>& done) {
  for (const PlannedRun& planned : plan) {
    if (signal_ == 0) signal_ = signals_.take();
    if (signal_ != 0) return false;
    announce(planned);
    CompareRun run = run_one(planned);
    // A run interrupted by a signal is neither a result nor a failure of its strategy.
    if (signal_ != 0 && !run.failure.empty()) {
      if (terminal_) std::cout << kClear << std::flush;
      return false;
    }
    ++runs_done_;
    report(run);
    learn_model(run);
    done.push_back(std::move(run));
    result_.seconds = static_cast<double>(now_ms() - began_ms_) / 1e3;
    try {
      write_results(result_, options_.out);  // kept even if a later run fails
    } catch (const Error& error) {           // `finish` writes again
      std::cout << "note: " << error.what() << std::endl;
    }
  }
  return signal_ == 0;
}

CompareRun Comparison::run_one(const PlannedRun& planned) {
  CompareRun run;
  run.strategy = planned.variant.strategy;
  run.codec = planned.variant.codec;
  run.stages = planned.variant.stages;
  run.workers = planned.variant.workers;
  run.servers = options_.servers;
  run.seed = planned.seed;
  run.link = planned.variant.link;
  run.tuned = to_string(planned.tuned);
  run.out = "runs/" + planned.name;
  const std::string folder = options_.out + "/" + run.out;
  std::error_code ignored;
  fs::remove_all(folder, ignored);  // left by an earlier comparison
  fs::create_directories(folder, ignored);
  const OtherLoad others;
  try {
    run.exit_code = start(planned, folder);
  } catch (const Error& error) {
    run.exit_code = static_cast<int>(error.code());
    run.failure = error.what();
  }
  if (options_.over.empty()) run.other_cores = others.cores();
  if (run.failure.empty() && run.exit_code != 0) {
    run.failure = failure_line(read_tail(folder + "/log.txt", kMaxLogBytes), run.exit_code);
  }
  if (run.failure.empty()) {
    read_run(folder, options_.job.global_batch, run,
             options_.target ? options_.target->name : MeasureName{});
    find_target(options_.target, run);
    if (!run.failure.empty()) run.exit_code = static_cast<int>(ErrorCode::kFailed);
  }
  if (!options_.keep_checkpoints) fs::remove_all(folder + "/checkpoints", ignored);
  return run;
}

int Comparison::start(const PlannedRun& planned, const std::string& folder) {
  CommandLine line;
  line.keys = keys_of(options_, planned, eval_every_);
  if (!options_.job_file.empty()) line.local["job"] = options_.job_file;
  line.local["servers"] = std::to_string(options_.servers);
  line.local["workers"] = std::to_string(planned.variant.workers);
  line.local["oversubscribe"] = "";  // a note has said it
  line.local["out"] = folder;
  if (!options_.over.empty()) line.local["over"] = options_.over;
  if (!options_.over_args.empty()) line.local["over-args"] = options_.over_args;
  if (options_.insecure) line.local["insecure"] = "";
  if (!options_.worker.empty()) line.local["worker"] = options_.worker;
  if (!options_.device.empty()) line.local["device"] = options_.device;
  if (!options_.server_device.empty()) line.local["server-device"] = options_.server_device;
  LauncherOptions launcher = plan_run(line, program_dir_, false);
  if (launcher.step && !launcher.insecure) launcher.step->key = find_key_text("");
  const std::string log = folder + "/log.txt";
  const UniqueFd fd(open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (fd.get() < 0) {
    throw Error(ErrorCode::kIo, "[compare] cannot write " + log + ": " +
                                    std::error_code(errno, std::generic_category()).message());
  }
  launcher.out_fd = fd.get();
  launcher.err_fd = fd.get();
  launcher.stopped_by = &signal_;
  labs_->put_on(planned.variant.link, launcher, options_.per_host);
  return launch(launcher);
}

void Comparison::announce(const PlannedRun& planned) {
  if (!terminal_) return;
  std::cout << kClear << "[" << runs_done_ + 1 << "/" << runs_planned_ << "] "
            << variant_name(row_name(planned.variant.strategy, planned.variant.codec,
                                     planned.variant.stages),
                            planned.variant.workers, planned.variant.link)
            << ", seed " << planned.seed << " ..." << std::flush;
}

void Comparison::report(const CompareRun& run) {
  const double seconds = static_cast<double>(now_ms() - began_ms_) / 1e3;
  const double left =
      seconds / static_cast<double>(runs_done_) * static_cast<double>(runs_planned_ - runs_done_);
  std::ostringstream text;
  text << (terminal_ ? kClear : "") << "[" << runs_done_ << "/" << runs_planned_ << "] "
       << variant_name(run) << ", seed " << run.seed << (run.tuned.empty() ? "" : ", " + run.tuned)
       << ": ";
  if (run.failure.empty()) {
    text << spread_text({run.samples_per_second}, 0) << " samples/s";
    if (run.test_value) {
      const MetricStyle style = style_of(run.metric);
      text << ", " << style.name << " "
           << spread_text({*run.test_value * style.scale}, style.digits)
           << (style.unit.empty() ? "" : " " + style.unit);
    }
  } else {
    text << "FAILED: " << run.failure;
  }
  if (const std::string load = load_text(result_, run); !load.empty()) text << ", " << load;
  if (runs_done_ < runs_planned_) text << ", ETA " << clock_text(left);
  std::cout << text.str() << std::endl;
}

void Comparison::choose() {
  if (options_.tune.empty()) return;
  std::map<Variant, std::vector<size_t>> tries;
  const std::vector<PlannedRun> plan = plan_tries(options_);
  for (size_t i = 0; i < plan.size(); ++i) tries[plan[i].variant].push_back(i);
  for (const auto& [variant, indices] : tries) {
    std::vector<CompareRun> runs;
    for (const size_t i : indices) runs.push_back(result_.tuning[i]);
    const std::string name = variant_name(runs.front());
    if (const std::optional<size_t> best = best_try(runs)) {
      chosen_[variant] = plan[indices[*best]].tuned;
      std::cout << "tuned " << name << ": " << runs[*best].tuned << ", the best of " << runs.size()
                << std::endl;
    } else {
      notes_before_.push_back(name + ": all " + std::to_string(runs.size()) +
                              " tries of --tune failed; it runs with the job's own values");
      std::cout << notes_before_.back() << std::endl;
    }
  }
}

// Returns the width of the terminal; a file has 80 columns.
size_t columns_of_output() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Comparison::finish() {
  result_.notes = notes_before_;
  if (signal_ != 0) {
    result_.notes.push_back("INTERRUPTED by " + signal_name(signal_) + " after " +
                            std::to_string(runs_done_) + " of " + std::to_string(runs_planned_) +
                            " runs; the figures are of those");
  }
  const std::vector<std::string> after = notes_after(result_);
  result_.notes.insert(result_.notes.end(), after.begin(), after.end());
  result_.seconds = static_cast<double>(now_ms() - began_ms_) / 1e3;

  std::cout << "\n" << compare_text(result_, columns_of_output()) << std::flush;
  write_results(result_, options_.out);  // on a full disk the tables above are the only output
  std::cout << "\nwritten to " << options_.out
            << ": report.html, compare.json, compare.csv, runs (one folder each)" << std::endl;
}

int Comparison::exit_code() const {
  if (signal_ != 0) return 128 + signal_;
  int first_failure = 0;
  for (const CompareRun& run : result_.runs) {
    if (run.failure.empty()) return 0;
    if (first_failure == 0) first_failure = run.exit_code;
  }
  return first_failure;
}

}  // namespace

int compare_command(int argc, const char* const* argv) {
  const std::vector<std::string> words = gather_repeated(argc, argv);
  std::vector<const char*> pointers;
  pointers.reserve(words.size());
  for (const std::string& word : words) pointers.push_back(word.c_str());
  CommandLine line =
      parse_command_line(static_cast<int>(pointers.size()), pointers.data(), compare_options());
  if (print_help(line, compare_help(), PUSHPULL_VERSION)) return 0;
  for (const std::string& note : add_deepspeed_keys(line, 0)) std::cout << note << std::endl;
  CompareOptions options =
      parse_compare(line, shell_command("pushpull", std::vector<std::string>(argv, argv + argc)));
  if (const std::string note = set_keys_of_children(line); !note.empty()) {
    std::cout << note << std::endl;
  }
  return Comparison(std::move(options), program_folder()).run();
}

}  // namespace pushpull
