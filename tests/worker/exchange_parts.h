// Helpers that the tests of the exchange's parts share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/layout/slice_map.h"
#include "common/net/message.h"
#include "worker/exchange/share_list.h"

namespace pushpull {

inline Payload floats_of(int64_t n, float value) {
  auto owner = std::make_shared<std::vector<float>>(static_cast<size_t>(n), value);
  const auto bytes = std::as_bytes(std::span<const float>(*owner));
  return {std::move(owner), bytes};
}

// Returns a map of 3,000 floats in three slices: 0 and 2 on server 0, 1 on server 1.
inline SliceMap three_slices() { return {3000, 4096, 2}; }

// Returns a plan of 10 steps with 4 micro-batches in 2 shares, and 4 chunks to evaluate.
inline WorkPlan ten_steps(int64_t eval_every = 0) {
  WorkPlan plan;
  plan.barriers = {eval_every, 0, 0, 10};
  plan.shares = 2;
  plan.chunks = 4;
  plan.micro_batches = 4;
  return plan;
}

// Returns a state that assigns these shares, each of two micro-batches.
inline wire::State state_with(const std::vector<int>& shares, int64_t from_step = 0) {
  wire::State state;
  for (const int index : shares) {
    wire::Share* share = state.add_assigned();
    share->set_lo(int64_t{2} * index);
    share->set_hi(int64_t{2} * index + 2);
    share->set_index(index);
    share->set_from_step(from_step);
  }
  return state;
}

}  // namespace pushpull
