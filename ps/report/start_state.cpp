#include "ps/report/start_state.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/checkpoint.h"
#include "common/io/file.h"
#include "common/io/safetensors.h"
#include "common/job/job.h"
#include "common/job/job_keys.h"
#include "ps/members/evaluations.h"
#include "ps/report/run_recorder.h"
#include "ps/report/transfer_watch.h"

namespace pushpull {

namespace {

constexpr int kPollMs = 100;
// A signal waits this long for the task, so that the coordinator's loop can stop a run that goes on
// from an earlier term with a checkpoint.
constexpr int64_t kSignalWaitMs = 2000;

[[noreturn]] void give_up(int code, const std::string& why) {
  Log("server 0").error(why);
  flush_output();
  _exit(code);
}

}  // namespace

void run_before_start(TaskThread& thread, SignalFd& signals, double timeout_s,
                      const std::function<void()>& task) {
  TransferWatch watch(timeout_s, "[out]");
  AwakeClock clock;
  const int64_t start = clock.now_ms();
  thread.start(task);
  while (true) {
    if (const auto result = thread.take()) {
      if (*result) std::rethrow_exception(*result);
      return;
    }
    const int64_t now = clock.now_ms();
    watch.running(now, thread.waiting(), file_bytes_moved(), 0);
    const bool takes_signals = now - start >= kSignalWaitMs;
    if (const int signal = takes_signals ? signals.take() : 0; signal != 0) {
      give_up(128 + signal, "[job] ended by " + signal_name(signal) + "; " + watch.text(now));
    }
    if (watch.overdue(now)) give_up(static_cast<int>(ErrorCode::kIo), watch.overdue_text(now));
    if (const auto notice = watch.take_notice(now)) Log("server 0").warn(*notice);
    pollfd ready[] = {{thread.done_fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    poll(ready, takes_signals ? 2 : 1, kPollMs);
  }
}

namespace {

std::optional<int64_t> newest_step(const std::string& dir) {
  std::error_code error;
  if (!std::filesystem::exists(dir, error) && !error) return std::nullopt;
  const auto found = whole_checkpoints(dir);
  return found.empty() ? std::nullopt : std::optional(found.rbegin()->first);
}

// Returns the first names, and how many there are more.
std::string first_names(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  if (names.size() <= kMost) return text;
  return text + ", and " + std::to_string(names.size() - kMost) + " more, see summary.json";
}

}  // namespace

StartState::StartState(const Job& job, const std::string& default_dir, RunSummaryFile summary)
    : dir_(job.checkpoint_dir.empty() ? default_dir : job.checkpoint_dir),
      in_default_dir_(job.checkpoint_dir.empty()),
      summary_missing_(summary == RunSummaryFile::kMissing) {
  const std::optional<int64_t> newest = newest_step(dir_);
  if (job.resume == Resume::kFalse && newest && !in_default_dir_) {
    throw Error(ErrorCode::kUsage,
                "[resume] checkpoint-dir " + dir_ + " holds checkpoints up to step " +
                    std::to_string(*newest) +
                    "; set resume=true or auto to continue there, or name another folder");
  }
  if (job.resume == Resume::kTrue && !newest) {
    throw Error(ErrorCode::kData, "[resume] there is no checkpoint in " + dir_ +
                                      "; resume=auto starts a new run in that case");
  }
  if (job.resume != Resume::kFalse && newest) {
    take_checkpoint(job, read_checkpoint(dir_));
  } else if (!job.init_from.empty()) {
    read_pretrained(job.init_from);  // the tensors are compared once the model is known
  }
}

// A checkpoint at the run's end counts: only the evaluation is left there.
StartState::StartState(const Job& job, const std::string& default_dir, const std::string& run)
    : dir_(job.checkpoint_dir.empty() ? default_dir : job.checkpoint_dir),
      in_default_dir_(job.checkpoint_dir.empty()),
      later_term_(true) {
  auto found = find_checkpoint(
      dir_, [&](const CheckpointState& state) { return state.run == run; }, notices_);
  continues_run_ = found.has_value();
  if (!found && job.resume != Resume::kFalse) {
    std::vector<std::string> skipped;
    found = find_checkpoint(
        dir_, [&](const CheckpointState& state) { return state.run != run; }, skipped);
    for (const std::string& line : skipped) {
      if (std::ranges::find(notices_, line) == notices_.end()) notices_.push_back(line);
    }
  }
  if (found) {
    take_checkpoint(job, std::move(*found));
  } else if (!job.init_from.empty()) {
    read_pretrained(job.init_from);
  }
}

void StartState::take_checkpoint(const Job& job, Checkpoint checkpoint) {
  checkpoint_ = std::move(checkpoint);
  for (const std::string& line : checkpoint_->skipped) notices_.push_back(line);
  check_job(job);
  if (job.strategy.traits().outer_optimizer && !state_names(job.optimizer.kind).empty()) {
    notices_.push_back("under " + job.strategy.to_string() +
                       " the workers' optimizer states are not in checkpoints: they "
                       "restart at zero");
  }
  if (job.encodes_pushes()) {
    notices_.emplace_back(
        "the codecs' residuals of the workers' gradients are not in checkpoints: they restart at "
        "zero");
  }
  // With a changed number of epochs the end depends on the data, which are not known yet.
  const Job before = parse_job_text(checkpoint_->state.job_ini, checkpoint_->path);
  if (job.steps > 0) check_end(job, job.steps);
  if (job.epochs > 0 && job.epochs == before.epochs) check_end(job, checkpoint_->state.total_steps);
}

CheckpointStore StartState::open_store(const Job& job) {
  CheckpointStore store(dir_, job.checkpoint_keep, job.keep_runs);
  if (later_term_) {
    if (!resumes()) store.expect_earlier_aside();
    return store;
  }
  if (resumes() || !in_default_dir_) return store;
  if (const std::string aside = store.set_earlier_aside(); !aside.empty()) {
    notices_.push_back("the checkpoints of an earlier run are in " + aside +
                       " now; the first complete checkpoint of this run deletes " +
                       (job.keep_runs == 0 ? "them"
                                           : "those of all but the last " +
                                                 plural(job.keep_runs, "run") + " (keep-runs)"));
  }
  return store;
}

void StartState::check_job(const Job& job) const {
  const Job before = parse_job_text(checkpoint_->state.job_ini, checkpoint_->path);
  const std::vector<std::string> keys = keys_that_forbid_resume(before, job);
  if (!keys.empty()) {
    std::string names;
    for (const std::string& key : keys) {
      const JobKey& known = *find_job_key(key);
      names += (names.empty() ? "" : ", ") + key + " (" + printable(known.get(before)) +
               " there, " + printable(known.get(job)) + " here)";
    }
    throw Error(ErrorCode::kUsage, "[resume] the checkpoint " + checkpoint_->path +
                                       " belongs to a job with other values of: " + names +
                                       "; a resume cannot change them, --init-from " +
                                       checkpoint_->path +
                                       "/model.safetensors starts a new run with its weights");
  }
}

void StartState::check_end(const Job& job, int64_t total_steps) {
  if (continues_run_) return;
  const int64_t step = checkpoint_->state.step;
  const bool early = stops_early_at(job, checkpoint_->state.evaluation, step);
  const int64_t end = end_of_run(job, checkpoint_->state.evaluation, step, total_steps);
  if (step < end) return;
  const std::string where =
      checkpoint_->path + " is at step " + std::to_string(step) +
      (early ? ", where the run stopped early (stop-when = " + job.stop_when.to_string() + ")"
             : " of " + std::to_string(end));
  if (summary_missing_ && step == end) {
    if (std::exchange(only_evaluates_, true)) return;
    notices_.push_back(
        "nothing is left to train: " + where +
        ", but its run has written no summary.json; this run evaluates and writes it");
    return;
  }
  const std::string text = "nothing is left to do: " + where;
  if (job.resume == Resume::kTrue) throw Error(ErrorCode::kUsage, "[resume] " + text);
  complete_ = true;
  notices_.push_back(text);
}

std::string StartState::choices(const Declaration& declaration) const {
  const bool fit = checkpoint_ && checkpoint_->state.numerics == declaration.numerics;
  return fit ? checkpoint_->state.choices : "";
}

std::shared_ptr<const FlatState> StartState::match(const Job& job, const Declaration& declaration) {
  if (!checkpoint_) {
    if (job.init_from.empty()) return nullptr;
    auto out = std::make_shared<FlatState>();
    initial_ = weights_of_file(job, declaration.table);
    out->weights = std::move(initial_.weights);
    const char* const lacks =
        declaration.own_weights ? " lacks, as the workers have them: " : " lacks, drawn anew: ";
    for (const auto& [names, what] : {std::pair(&initial_.missing, lacks),
                                      std::pair(&initial_.unused, " has and the model lacks: ")}) {
      if (names->empty()) continue;
      notices_.push_back(plural(std::ssize(*names), "tensor") + " that " + job.init_from + what +
                         first_names(*names));
    }
    return out;
  }
  const auto& have = checkpoint_->table.tensors;
  const auto& want = declaration.table.tensors;
  const auto same = [](const TensorInfo& a, const TensorInfo& b) {
    return a.name == b.name && a.shape == b.shape;
  };
  if (have.size() != want.size() || !std::equal(have.begin(), have.end(), want.begin(), same)) {
    throw Error(ErrorCode::kData,
                "[resume] the tensors of " + checkpoint_->path + " do not match this job's model");
  }
  if (checkpoint_->state.data_digest != declaration.data_digest) {
    notices_.push_back("the data differ from those of " + checkpoint_->path +
                       ": the run continues, but will not give the same bits");
  }
  if (checkpoint_->state.numerics != declaration.numerics) {
    notices_.push_back(checkpoint_->path + " was computed with \"" + checkpoint_->state.numerics +
                       "\", this run with \"" + declaration.numerics +
                       "\": the run continues, but will not give the same bits");
  }
  if (!weights_) {
    weights_ =
        std::make_shared<const FlatState>(FlatState{.step = checkpoint_->state.step,
                                                    .updates = checkpoint_->state.updates,
                                                    .weights = std::move(checkpoint_->weights),
                                                    .slots = std::move(checkpoint_->slots)});
  }
  check_end(job, total_steps(job, declaration.train_samples));
  if (complete_) throw Error(ErrorCode::kUsage, "[resume] " + notices_.back());
  return weights_;
}

}  // namespace pushpull
