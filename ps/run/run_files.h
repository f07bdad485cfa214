// The files of a run at the coordinator: term.json, job.ini, the record, summary.json, and the
// checkpoint that a term starts from. The functions wait for the file system, so the program calls
// them as tasks of the `TaskThread`, one at a time, and tells it which file each waits for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/task_thread.h"
#include "common/base/unique_fd.h"
#include "common/io/checkpoint.h"
#include "common/io/folder_lock.h"
#include "common/io/record.h"
#include "ps/report/report.h"
#include "ps/report/run_recorder.h"
#include "ps/report/start_state.h"
#include "ps/report/term_file.h"
#include "ps/run/job_effects.h"

namespace pushpull {

struct Job;

// Takes the locks of a job's output folder, checkpoint folder and record. Throws Error(kUsage) if
// another process holds one, Error(kIo).
std::vector<FolderLock> lock_paths(TaskThread& thread, const Job& job, const std::string& out_dir);

// Returns the run of an earlier process that was killed, under the same job in this folder, if any.
std::optional<TermRecord> earlier_run(TaskThread& thread, const Job& job,
                                      const std::string& out_dir);
// Removes term.json.
void remove_run(TaskThread& thread, const std::string& out_dir);
// Reads what a new run starts from.
StartState begin_run(TaskThread& thread, const Job& job, const std::string& out_dir);
// Counts the next term of an unfinished run in `term`, and reads what it starts from.
StartState resume_run(TaskThread& thread, const Job& job, const std::string& out_dir,
                      TermRecord& term);

class RunFiles {
 public:
  // Creates the folder, writes term.json, and checks that the record can be written. Borrows thread
  // and job.
  //   locks: released by `close`. term: of this process's first term.
  RunFiles(TaskThread& thread, const Job& job, std::string out_dir, ProgressStyle style,
           const WatchOptions& watch, std::vector<FolderLock> locks, StartState start,
           TermRecord term);

  // ---- tasks ----
  // Reads the weights that the term starts from.
  StartPoint load(const Declaration& declaration);
  // Replaces the files of an earlier run: call when nothing else can prevent the start.
  void open(const Declaration& declaration, int servers, const StartPoint& start,
            const RunHistory& history);
  // Writes term.json for a later term, which starts from the run's newest checkpoint.
  void save_term(int64_t term, const RunHistory& history);
  // Writes term.json with the end of the run. If it cannot be written, a notice says so.
  void save_end(const RunEnd& end);
  void write_record(const RunRecord& record);
  void write_summary(const RunFigures& summary);
  // Removes term.json and the locks.
  void close();

  // ---- between tasks ----
  // Return what `open` has opened, when the term starts. take_store also drops the weights that
  // `load` has read.
  UniqueFd take_metrics() { return std::move(metrics_); }
  CheckpointStore take_store();
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }
  // Null if the job is not recorded.
  RunRecorder* recorder() { return recorder_ ? &*recorder_ : nullptr; }

  // ---- any time, on the loop's thread ----
  Report& report() { return report_; }

 private:
  void write_term();
  void keep_notices();
  Report::Waits waits() const;

  TaskThread& thread_;
  const Job& job_;
  const std::string out_dir_;
  std::vector<FolderLock> locks_;
  std::optional<StartState> start_;  // empty until the term's start is read
  TermRecord term_;
  Report report_;
  std::optional<RunRecorder> recorder_;
  UniqueFd metrics_;
  std::optional<CheckpointStore> store_;
  std::vector<std::string> notices_;
};

}  // namespace pushpull
