// The JSON texts of `members.json` and `pushpull status` (docs/status.md). Plain functions; any
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/net/message.h"
#include "ps/members/committed_work.h"
#include "ps/members/membership.h"
#include "ps/members/work_groups.h"
#include "ps/report/run_figures.h"
#include "ps/report/straggler_detector.h"

namespace pushpull {

// The members to show, and the data about them.
struct MembersView {
  int64_t now_ms = 0;
  int64_t began_ms = 0;                                   // start of the coordinator
  const std::map<uint64_t, MemberInfo>* shown = nullptr;  // by incarnation
  const Membership* members = nullptr;                    // source of the former members
  const CommittedWork* committed = nullptr;               // null before the start
  const StragglerDetector* stragglers = nullptr;
  const UsageRates* usage = nullptr;
  const std::map<uint64_t, GroupPlace>* groups = nullptr;  // by worker; null or empty: no groups
};

// The figures of one member that monitoring gets.
struct MemberFigures {
  bool worker = false;
  int64_t rank = -1;  // -1: none
  std::string host;   // as the member reports it
  int64_t pid = 0;
  double group = 0.0;
  double stage = -1.0;
  double step = 0.0;
  double samples = 0.0;
  double samples_per_second = 0.0;
  double straggler = 0.0;  // 1 or 0
  double heard_seconds = 0.0;
  double cpu_seconds = 0.0;
  double peak_memory_bytes = 0.0;
  double memory_bytes = 0.0;
  double cores = 0.0;  // that it can use
  double sent_bytes = 0.0;
  double received_bytes = 0.0;
  double device_used_bytes = 0.0;
  double device_bytes = 0.0;  // 0: it has no device
};

// Returns the members in the order of the documents: servers, then workers, each by rank; members
// without a rank come last.
std::vector<MemberFigures> member_figures(const MembersView& view);
// Returns {"members": [...], "left": [...], ...}, with one line for each member.
std::string members_json(const MembersView& view, const RunFigures& figures);
// Returns the same on one line, with the job's figures.
std::string status_json(const MembersView& view, const RunFigures& figures);

}  // namespace pushpull
