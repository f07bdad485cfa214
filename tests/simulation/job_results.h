// The files and output of a simulated job: the effects of `JobDriver` go to the cluster's results,
// and each may occur only once. The node implements the connections.
#pragma once

#include <string>

#include "ps/run/job_driver.h"
#include "tests/simulation/cluster.h"

namespace pushpull::sim {

class JobResults : public JobEffects {
 public:
  explicit JobResults(Cluster& cluster) : cluster_(cluster) {}

 protected:
  // The disk has finished a write, or failed with `error`.
  virtual void written(int64_t step, const std::exception_ptr& error = nullptr,
                       CheckpointKind kind = CheckpointKind::kRolling) = 0;
  // Work on files has ended.
  virtual void filed(FilesDone done) = 0;
  virtual bool alive() const = 0;
  // Returns the history of earlier lives, from the simulated disk.
  RunHistory history_of_run();

 private:
  TermIds begin_term(int64_t term) override;
  void started(const Declaration& declaration, int64_t start_step) override;
  void load_start(const Declaration& declaration) override;
  void open_files(const Declaration& declaration, const StartPoint& start,
                  const RunHistory& history) override;
  void save_term(int64_t term, const RunHistory& history) override;
  void save_end(const RunEnd& end) override;
  void write_summary(RunFigures summary) override;
  std::string file_wait() const override { return "the disk"; }
  int64_t file_bytes() const override { return 0; }
  void hash_weights(GatheredState snapshot) override;
  void write_checkpoint(GatheredState snapshot, CheckpointState state,
                        CheckpointKind kind) override;
  void members_lost(const std::vector<MemberInfo>& /*members*/) override {}
  void show_line(const std::string& line) override;
  void show_moment(const RunFigures& moment) override;
  void show_members(const std::string& json) override;
  void show_status(const MembersView& /*view*/, const RunFigures& /*facts*/) override {}
  StartPoint start_point() const;
  void after_writing(std::function<void()> then);
  void after_files(std::function<FilesDone()> work);

  Cluster& cluster_;
  bool summarised_ = false;  // in this life of the process
};

}  // namespace pushpull::sim
