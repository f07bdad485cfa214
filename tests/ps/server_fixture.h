// A server of three slices with two workers, driven by messages.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/server/server.h"
#include "tests/ps/cluster_parts.h"

namespace pushpull {

constexpr int64_t kServerElements = 3000;  // three slices of 4 KiB
constexpr Range kFirst{0, 2};              // the two shares of four micro-batches
constexpr Range kSecond{2, 4};

class ServerTest : public testing::Test {
 protected:
  void make(const std::string& keys, int rank = 0, int servers = 1) {
    setup_ = server_setup(job_of(keys), kServerElements, rank, servers);
    make_from_setup();
  }
  void make_from_setup() {
    server_ = std::make_unique<Server>(setup_, &observer_);
    server_->on_state(state_with_workers({kAnna, kBert}));
  }
  Checked push(uint64_t who, int64_t number, int64_t step, Range share, float value = 1.0F) {
    return server_->on_data(peer_of(who), push_message(setup_, who, number, step, share, value));
  }
  Checked pull(uint64_t who, int64_t number, int64_t clock) {
    return server_->on_data(peer_of(who), pull_message(who, number, clock));
  }
  static PeerId peer_of(uint64_t who) { return who == kAnna ? "anna" : "bert"; }
  // Returns all slices sent to this worker since the last call, with their versions.
  std::vector<std::pair<int, int64_t>> slices_to(uint64_t who) {
    std::vector<std::pair<int, int64_t>> out;
    std::vector<Outgoing> others;
    for (Outgoing& o : server_->take_outgoing()) {
      for (const auto& s : o.message.header.weights().slices()) {
        if (o.to == peer_of(who)) out.emplace_back(s.slice(), s.version());
      }
    }
    return out;
  }
  bool answered(uint64_t who) { return slices_to(who).size() == 3; }

  ListeningObserver observer_;
  ServerSetup setup_;
  std::unique_ptr<Server> server_;
};

}  // namespace pushpull
