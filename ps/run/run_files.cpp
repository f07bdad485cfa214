#include "ps/run/run_files.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"

namespace pushpull {

std::vector<FolderLock> lock_paths(TaskThread& thread, const Job& job, const std::string& out_dir) {
  std::vector<FolderLock> locks;
  thread.waits("lock", out_dir);
  locks.emplace_back(out_dir, "out", "--out");
  const std::string& other = job.checkpoint_dir;
  std::error_code absent;
  if (!other.empty() && !std::filesystem::equivalent(out_dir, other, absent)) {
    thread.waits("lock", other);
    locks.emplace_back(other, "checkpoint", "checkpoint-dir");
  }
  if (!job.record.empty()) {
    thread.waits("lock", job.record);
    locks.push_back(FolderLock::beside(job.record, "record", "--record"));
  }
  return locks;
}

std::optional<TermRecord> earlier_run(TaskThread& thread, const Job& job,
                                      const std::string& out_dir) {
  thread.waits("read", out_dir + "/term.json");
  std::optional<TermRecord> found = read_term(out_dir);
  const bool restarts = job.on_server_loss == OnServerLoss::kRestart;
  const bool resumable = found && (restarts || found->end);
  return resumable && found->job_ini == to_ini(job) ? found : std::nullopt;
}

void remove_run(TaskThread& thread, const std::string& out_dir) {
  thread.waits("remove", out_dir + "/term.json");
  remove_term(out_dir);
}

StartState begin_run(TaskThread& thread, const Job& job, const std::string& out_dir) {
  const std::string folder = out_dir + "/checkpoints";
  // A run writes job.ini when it begins to train, and removes the summary of the one before.
  thread.waits("read", out_dir + "/summary.json");
  std::error_code unreadable;
  const bool missing = std::filesystem::exists(out_dir + "/job.ini", unreadable) &&
                       !std::filesystem::exists(out_dir + "/summary.json", unreadable) &&
                       !unreadable;
  thread.waits("read", job.checkpoint_dir.empty() ? folder : job.checkpoint_dir);
  return {job, folder, missing ? RunSummaryFile::kMissing : RunSummaryFile::kThere};
}

StartState resume_run(TaskThread& thread, const Job& job, const std::string& out_dir,
                      TermRecord& term) {
  ++term.term;
  if (!term.started) return begin_run(thread, job, out_dir);
  thread.waits("read", out_dir + "/metrics.jsonl");
  ++term.history.recoveries;
  term.history.reached_step = newest_step_of_metrics(out_dir);
  const std::string folder = out_dir + "/checkpoints";
  thread.waits("read", job.checkpoint_dir.empty() ? folder : job.checkpoint_dir);
  return {job, folder, hex_text(term.run_id)};
}

RunFiles::RunFiles(TaskThread& thread, const Job& job, std::string out_dir, ProgressStyle style,
                   const WatchOptions& watch, std::vector<FolderLock> locks, StartState start,
                   TermRecord term)
    : thread_(thread),
      job_(job),
      out_dir_(std::move(out_dir)),
      locks_(std::move(locks)),
      start_(std::move(start)),
      term_(std::move(term)),
      report_((thread.waits("open", out_dir_), out_dir_), style, watch) {
  for (const FolderLock& lock : locks_) {
    if (!lock.notice().empty()) notices_.push_back(lock.notice());
  }
  keep_notices();
  write_term();
  if (job_.record.empty()) return;
  thread_.waits("write", job_.record);
  recorder_.emplace(job_);
}

Report::Waits RunFiles::waits() const {
  return [this](const std::string& verb, const std::string& path) { thread_.waits(verb, path); };
}

void RunFiles::keep_notices() {
  for (std::string& notice : start_->take_notices()) notices_.push_back(std::move(notice));
}

void RunFiles::write_term() {
  thread_.waits("write", out_dir_ + "/term.json");
  pushpull::write_term(out_dir_, term_);
}

void RunFiles::save_term(int64_t term, const RunHistory& history) {
  term_.term = term;
  term_.history = history;
  write_term();
  start_.reset();  // a checkpoint may just be in progress
}

void RunFiles::save_end(const RunEnd& end) {
  term_.end = end;
  try {
    write_term();
  } catch (const Error& e) {
    notices_.emplace_back(e.what());
  }
}

StartPoint RunFiles::load(const Declaration& declaration) {
  const std::string folder = out_dir_ + "/checkpoints";
  thread_.waits("read", job_.checkpoint_dir.empty() ? folder : job_.checkpoint_dir);
  if (!start_) start_.emplace(job_, folder, hex_text(term_.run_id));
  StartPoint start;
  start.weights = start_->match(job_, declaration);
  start.choices = start_->choices(declaration);
  start.drawn = start_->initial().missing;
  start.unused = start_->initial().unused;
  start.resumed = start_->resumes();
  if (start.resumed) start.evaluation = start_->checkpoint().evaluation;
  if (start_->continues_run()) {
    start.counts = start_->checkpoint().counts;
    start.initial_weights_sha256 = start_->checkpoint().initial_weights_sha256;
  } else if (start.resumed) {
    start.counts.learning_rate = start_->checkpoint().counts.learning_rate;
  }
  keep_notices();
  return start;
}

void RunFiles::open(const Declaration& declaration, int servers, const StartPoint& start,
                    const RunHistory& history) {
  // First: if the folder of checkpoints cannot be used, the files of an earlier run stay.
  thread_.waits("write", start_->checkpoint_dir());
  if (!store_) store_ = start_->open_store(job_);
  metrics_ = report_.open_files(to_ini(job_), term_.started, waits());
  term_.history = history;
  if (!std::exchange(term_.started, true)) term_.began_ms = utc_ms();
  if (recorder_) {
    thread_.waits("write", job_.record);
    Declaration recorded = declaration;
    if (!start.choices.empty()) recorded.choices = start.choices;
    recorder_->start(recorded, servers, start.weights.get(), start.resumed);
  }
  keep_notices();
  // Last, once the files of an earlier run are out of the way.
  write_term();
}

CheckpointStore RunFiles::take_store() {
  start_.reset();
  return *std::exchange(store_, std::nullopt);
}

void RunFiles::write_record(const RunRecord& record) {
  thread_.waits("write", job_.record);
  pushpull::write_record(job_.record, record);
}

void RunFiles::write_summary(const RunFigures& summary) { report_.write_summary(summary, waits()); }

void RunFiles::close() {
  remove_run(thread_, out_dir_);
  thread_.waits("unlock", out_dir_);
  locks_.clear();
}

}  // namespace pushpull
