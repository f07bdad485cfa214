// Plain loops over shares in one process, with which backup:B and local:H must agree bit by bit:
// the update from the chosen sets of pushes, and rounds of local steps, written without the classes
// that train.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "common/job/barriers.h"
#include "common/layout/fixed_tree.h"
#include "tests/simulation/toy.h"

namespace pushpull::sim {

class ShareReference {
 public:
  // All references are borrowed.
  ShareReference(const Job& job, const Toy& toy, const Reference& plain, const Barriers& barriers,
                 int shares);

  // Returns the state that a run with a later start loads.
  static FlatState start_of(const Job& job, const Reference& plain, int64_t step);

  // Trains from `state` to the end. Returns the state after each update, by step.
  //   sets: under backup, the first micro-batches of the shares in each step.
  std::map<int64_t, FlatState> train(FlatState state,
                                     const std::map<int64_t, std::vector<int64_t>>& sets);

 private:
  struct Inner {
    std::vector<std::vector<float>> slots;
    int64_t updates = 0;
  };
  Range share_of(int64_t lo) const;
  std::vector<float> tree_sum(const std::vector<std::vector<float>>& parts, Range node) const;
  void backup_step(FlatState& state, const std::vector<int64_t>& set) const;
  std::vector<float> local_change(const std::vector<float>& start, int share, int64_t first,
                                  int64_t last);
  void local_round(FlatState& state);

  const Job& job_;
  const Toy& toy_;
  const Reference& plain_;
  const Barriers barriers_;
  const int shares_;
  std::map<int, Inner> inner_;  // by share
};

}  // namespace pushpull::sim
