// A division of work. The test plays its surroundings: members, progress, evaluations.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "common/job/job.h"
#include "common/layout/fixed_tree.h"
#include "ps/members/work_assignment.h"
#include "tests/ps/cluster_parts.h"
#include "tests/ps/refusals.h"

namespace pushpull {

class WorkTest : public testing::Test {
 protected:
  // Adds server 0 and workers of ranks 0 to workers - 1; 4 micro-batches a step, 10 steps.
  void make(const std::string& keys, int workers, int servers = 1) {
    job_ = job_of(keys);
    barriers_ = barriers_of(job_, 0, 10);
    members_.add({.role = wire::ROLE_SERVER, .rank = 0, .incarnation = 1, .host = "head"});
    for (int rank = 0; rank < workers; ++rank) join(rank);
    progress_ = std::make_unique<CommittedWork>(job_, workers, barriers_);
    evaluations_ = std::make_unique<Evaluations>(16, job_.micro_batch, std::vector<HeadInfo>());
    followed_ =
        std::make_unique<FollowedEvaluations>(job_, Declaration(), 0, 10, EvaluationRecord());
    const int shares = std::min(workers / static_cast<int>(job_.stages), 4);
    groups_ = std::make_unique<WorkGroups>(job_.stages, members_);
    work_ = make_work_assignment({job_, barriers_, workers, shares, servers, members_, *groups_,
                                  *progress_, *evaluations_, *followed_, grants_, out_});
  }
  // Returns the incarnation of the worker with this rank.
  static uint64_t worker(int rank) { return 101 + static_cast<uint64_t>(rank); }
  const MemberInfo& join(int rank) {
    return members_.add({.role = wire::ROLE_WORKER,
                         .rank = rank,
                         .incarnation = worker(rank),
                         .host = "node",
                         .peer_endpoint = "tcp://10.0.0.1:" + std::to_string(7000 + rank),
                         .group_endpoint = "tcp://10.0.0.1:" + std::to_string(8000 + rank),
                         .peer = "peer " + std::to_string(rank),
                         .declared = true});
  }
  // Removes the worker. Returns true if it had work.
  bool lose(int rank, int64_t now_ms = 0) {
    const MemberInfo gone = *members_.find(worker(rank));
    members_.remove(gone.incarnation);
    return work_->lose(now_ms, groups_->lose(gone.incarnation), false);
  }
  void commit(int rank, int64_t step, Range range) {
    Commit commit{worker(rank), step, range, {}, true};
    commit.attempt = groups_->attempt_of(groups_->unit_of(worker(rank)));
    progress_->add(commit, rank);
    work_->on_commit(commit);
  }
  wire::State state_of_servers() {
    wire::State state;
    work_->add_to_server_state(&state);
    return state;
  }
  wire::State state_of(int rank) {
    wire::State state;
    work_->add_to_worker_state(&state, *members_.find(worker(rank)));
    return state;
  }
  std::string notices() {
    std::string all;
    for (const std::string& line : out_.take_notices()) all += line + "\n";
    return all;
  }

  Job job_;
  Barriers barriers_;
  Membership members_{10};
  const Grants grants_{kGrantKey};
  Actions out_;
  std::unique_ptr<CommittedWork> progress_;
  std::unique_ptr<Evaluations> evaluations_;
  std::unique_ptr<FollowedEvaluations> followed_;
  std::unique_ptr<WorkGroups> groups_;
  std::unique_ptr<WorkAssignment> work_;
};

}  // namespace pushpull
