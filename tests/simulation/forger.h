// A process with the job's key that forges. On connections of its own it repeats messages of other
// processes, which it has heard before the network touched them, and sends messages that it may not
// send: pushes without a valid grant, under the names of other workers or its own, messages of the
// coordinator, wrong roles, runs and ranks. It does not do what docs/protocol.md allows: it takes no
// server's place, holds no dead server's place by its messages, and uses no other worker's name and
// grant with contents of its own.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/cluster.h"

namespace pushpull::sim {

class Forger {
 public:
  // Borrows the cluster, and hears all messages of its network.
  explicit Forger(Cluster& cluster);

  // Returns true if the dealer is a connection of this process.
  bool owns(int dealer) const { return mine_.contains(dealer); }

 private:
  struct Heard {
    int dealer = 0;
    int router = 0;
    Message message;
  };

  void hear(int dealer, int router, const Message& message);
  void act();
  bool holds_a_place(const Heard& heard) const;
  void repeat(const Heard& heard);
  void forge_control();
  void forge_declaration();
  void forge_data();
  void forge_push(Heard heard);
  void send(int router, Message message);
  const Heard& any();
  uint64_t any_worker();

  Cluster& cluster_;
  Dice dice_;
  const uint64_t incarnation_;
  std::vector<Heard> heard_;
  std::vector<uint64_t> workers_;            // incarnations in pushes
  std::set<uint64_t> servers_;               // incarnations of servers that listen
  std::map<int, std::vector<int>> dealers_;  // by router
  std::set<int> mine_;
  int64_t next_control_ms_ = 0;
};

}  // namespace pushpull::sim
