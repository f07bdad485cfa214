// Checks of the weights that a simulated worker computes on, and of the versions that its pushes
// name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/layout/fixed_tree.h"
#include "tests/simulation/cluster.h"
#include "worker/exchange/push_pull.h"
#include "worker/member/worker_member.h"

namespace pushpull::sim {

class WeightChecks {
 public:
  // Both are borrowed. number: of the process.
  WeightChecks(Cluster& cluster, const WorkerMember& member, int number)
      : cluster_(cluster),
        member_(member),
        number_(number),
        elements_{{0, cluster.toy().table().total}} {}

  // A term begins with this machine, which is borrowed.
  void follow(const PushPull* push_pull) {
    push_pull_ = push_pull;
    newest_push_ = sent_through_ = 0;
  }
  // Records the address of a slice in a server's memory: the first that was received.
  void received(const Message& message);

  // Takes the elements that the worker reads; all of them before the first call.
  void set_elements(std::vector<Range> elements) { elements_ = std::move(elements); }
  // Call when the weights for a computation are complete.
  void read(std::span<const float> weights);
  // Checks the counts in the weights read last.
  //   exact: they are those of barrier `step`; otherwise those for a gradient of `step`.
  void count(int64_t step, bool exact) const;
  // Call after computing on them: nobody may have changed them.
  void unchanged(std::span<const float> weights) const;
  // Checks the versions in the pushes among these messages, unless they are sent again.
  void sent(const std::vector<ToServer>& messages);
  // The trainer waits: all messages of its last push have been sent.
  void waits() { sent_through_ = newest_push_; }
  void wrong(const std::string& what) const;
  // Returns true if this worker is no longer a member, so that no server keeps weights that it reads
  // in place.
  bool given_up() const;

 private:
  std::optional<Range> slice_read(int server) const;

  Cluster& cluster_;
  const WorkerMember& member_;
  const int number_;
  const PushPull* push_pull_ = nullptr;
  const std::byte* first_slice_ = nullptr;
  std::vector<Range> elements_;
  std::vector<float> read_;  // a copy
  int64_t newest_push_ = 0;
  int64_t sent_through_ = 0;  // later messages of these pushes are repeated ones
};

}  // namespace pushpull::sim
