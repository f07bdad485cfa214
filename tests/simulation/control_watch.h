// Watches what members say on their control connections, as they say it and before the network
// touches it, what the coordinator answers, and whom it takes for a member. It checks the promises
// of docs/protocol.md about joining, heartbeats, repeats and leaving, in every scenario.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/process.h"
#include "common/net/member.h"
#include "ps/coordinator/coordinator.h"

namespace pushpull::sim {

class Cluster;

class ControlWatch {
 public:
  // One life of a process.
  struct Process {
    wire::Role role = wire::ROLE_UNSET;
    int number = 0;
    std::string digest;  // of a worker's data
  };

  explicit ControlWatch(Cluster& cluster) : cluster_(cluster) {}

  void began(uint64_t incarnation, const Process& process);
  void sent(uint64_t incarnation, const Message& message);
  // Its trainer hands in a result.
  void reports(uint64_t incarnation) { ++lives_.at(incarnation).reports; }
  // It has had its turn.
  void lives(uint64_t incarnation, bool joined);
  void ended(uint64_t incarnation, const JobEnd& end, wire::Phase phase);
  // ---- of the coordinator ----
  // It takes a message in; what it answers; and it has had its turn.
  void asks(const Coordinator& coordinator, const Message& message);
  void answered(const PeerId& to, const Message& answer);
  void asked(const Coordinator& coordinator, const PeerId& from, const Message& message);
  // Checks the members that it knows now.
  void members(const Coordinator& coordinator);

 private:
  struct Life {
    Process process;
    AwakeClock clock;  // what it does not say while it is frozen is not missing
    int64_t began_ms = 0;
    bool joined = false;
    bool left = false;
    std::string endpoint;  // of its Hello
    int64_t asked_since_ms = -1;
    int64_t hello_ms = -1;
    int64_t no_place_ms = -1;  // its newest Hello that was answered by NoPlaceYet
    int64_t hellos = 0;
    int64_t heartbeat_ms = -1;
    int64_t heartbeats = 0;
    int64_t versions = 0;                    // that its heartbeats have said
    int64_t version = -1;                    // the newest of them
    uint64_t run = 0;                        // of the term that it speaks of
    int64_t reports = 0;                     // results that its trainer has handed in
    std::map<int64_t, std::string> results;  // as they were said first, by number
  };

  void hello(Life& life, const wire::Hello& hello, int64_t now_ms);
  void heartbeat(Life& life, const wire::Heartbeat& heartbeat, int64_t now_ms);
  void result(Life& life, const wire::EvalResult& result);
  void gave_up(const Life& life);
  void wrong(const Life& life, const std::string& what);

  Cluster& cluster_;
  std::map<uint64_t, Life> lives_;
  uint64_t run_ = 0;             // of the term
  std::string digest_;           // that the coordinator has frozen in it
  std::set<uint64_t> declared_;  // who has declared it
  std::vector<int64_t> pids_;    // of members, for as long as they are compared
  // while it takes a message in
  bool stranger_ = false;   // it comes from a process that was given up
  uint64_t asked_run_ = 0;  // of the term in which it came
  std::set<PeerId> refused_;
  std::set<PeerId> welcomed_;  // their Hello, by the job's text
  std::set<PeerId> waiting_;   // their Hello, by NoPlaceYet
};

}  // namespace pushpull::sim
