// The files and output of a simulated job: the effects of `JobDriver` go to the cluster's results,
// and each may occur only once. The node implements the connections.
#pragma once

#include <string>

#include "ps/coordinator/job_driver.h"
#include "tests/simulation/cluster.h"

namespace pushpull::sim {

class JobResults : public JobEffects {
 public:
  explicit JobResults(Cluster& cluster) : cluster_(cluster) {}

 protected:
  // The disk has finished a write, or failed with `error`.
  virtual void written(int64_t step, const std::exception_ptr& error = nullptr) = 0;
  virtual bool alive() const = 0;
  // Returns the history of earlier lives, from the simulated disk.
  RunHistory history_of_run();

 private:
  StartPoint load_start(const Declaration& declaration) override;
  TermIds begin_term(int64_t term, const RunHistory& history) override;
  void started(const Coordinator& coordinator, const StartPoint& start,
               const RunHistory& history) override;
  void hash_weights(GatheredState snapshot) override;
  void write_checkpoint(GatheredState snapshot, CheckpointState state, bool hash) override;
  void members_lost(const std::vector<MemberInfo>& /*members*/) override {}
  void show_line(const std::string& line) override;
  void show_moment(const Moment& moment) override;
  void show_members(const std::string& json) override;
  void ended(const RunEnd& /*end*/) override {}
  void write_summary(const Coordinator& coordinator, Summary summary) override;
  void after_writing(std::function<void()> then);

  Cluster& cluster_;
};

}  // namespace pushpull::sim
