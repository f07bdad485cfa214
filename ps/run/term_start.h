// Takes a term from its first member to its start: waits for the members (`Gathering`), has the
// weights read that the term starts from, or takes them from a worker (`OwnWeights`), and has its
// files opened. Part of the job driver's state
// machine. Does no I/O and reads no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ps/members/gathering.h"
#include "ps/members/own_weights.h"
#include "ps/report/term_file.h"
#include "ps/report/transfer_watch.h"
#include "ps/run/coordinator.h"
#include "ps/run/job_effects.h"

namespace pushpull {

class TermStart {
 public:
  // Borrows options, files and effects.
  //   again: an earlier term has trained.
  TermStart(const CoordinatorOptions& options, bool again, double join_timeout_s, FileWatch& files,
            JobEffects& effects);

  // These two are those of Gathering.
  void expect(std::vector<MemberInfo> members) { gathering_.expect(std::move(members)); }
  std::vector<MemberInfo> take_missing(int64_t now_ms, const Membership& members) {
    return gathering_.take_missing(now_ms, members);
  }

  // Begins the next step if its conditions hold. Returns true once the term may start: its members
  // are there and its files are open.
  //   disk_busy: a checkpoint of an earlier term is being written.
  bool advance(Now now, const Coordinator& coordinator, const RunHistory& history, bool disk_busy);
  // The steps have ended well.
  void loaded(StartPoint point);
  void opened() { stage_ = Stage::kOpened; }
  // Handles OwnWeights. Returns a refusal if it is invalid.
  Checked on_weights(Now now, const Coordinator& coordinator, const Message& message);

  // Call in each tick. Shows which members are missing, or which worker has not sent its weights.
  // Returns the error that ends the job if that takes too long, or if the weights are not finite.
  std::optional<Error> wait_for_members(Now now, const Coordinator& coordinator);

  // Returns the start of the term. Call once the term may start, and before take_point.
  Start start() const;
  StartPoint take_point() { return std::exchange(point_, {}); }
  // Returns the history of the run with the start of this term.
  RunHistory history(RunHistory before) const;
  // Returns the history of the run after the loss that ended a term.
  static RunHistory after_loss(RunHistory before, const Coordinator& ended);
  // Returns the line for users once the term has started.
  std::string line(const Coordinator& coordinator, int64_t slices) const;

 private:
  enum class Stage { kGathering, kLoaded, kOpened };

  bool members_are_there(Now now, const Coordinator& coordinator);
  bool has_weights(Now now, const Coordinator& coordinator, const RunHistory& before);
  void take_own_weights(const RunHistory& before);
  void keep_loaded(const FlatState& loaded, FlatState& state) const;
  std::optional<Error> wait_for_weights(Now now);

  const CoordinatorOptions& options_;
  const bool again_;  // an earlier term has trained
  FileWatch& files_;
  JobEffects& effects_;
  Gathering gathering_;
  Stage stage_ = Stage::kGathering;
  Declaration declaration_;  // that the weights were read for
  StartPoint point_;
  OwnWeights own_;
  bool asks_ = false;       // for own weights; all members are there
  std::string own_sha256_;  // of own weights that are in point_; "" until then
  TransferWatch own_watch_;
};

}  // namespace pushpull
