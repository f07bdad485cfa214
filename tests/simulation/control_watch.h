// Watches the control connections: messages of members before the network touches them, answers of
// the coordinator, and its list of members. It checks the promises of docs/protocol.md about
// joining, heartbeats, repeats and leaving, in each scenario.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/process.h"
#include "common/net/member.h"
#include "ps/run/coordinator.h"

namespace pushpull::sim {

class Cluster;

class ControlWatch {
 public:
  // A process, from its start to its end.
  struct Process {
    wire::Role role = wire::ROLE_UNSET;
    int number = 0;
    std::string digest;  // of a worker's data
  };

  explicit ControlWatch(Cluster& cluster) : cluster_(cluster) {}

  void began(uint64_t incarnation, const Process& process);
  void sent(uint64_t incarnation, const Message& message);
  // The trainer of the process reports a result.
  void reports(uint64_t incarnation) { ++lives_.at(incarnation).reports; }
  // The process opens another connection, and sends an extra heartbeat on it.
  void connects(uint64_t incarnation) { ++lives_.at(incarnation).connections; }
  // The process has had its turn.
  void lives(uint64_t incarnation, bool joined);
  void ended(uint64_t incarnation, const JobEnd& end, wire::Phase phase);
  // ---- events of the coordinator ----
  // The coordinator receives a message, answers, and has had its turn.
  void asks(const Coordinator& coordinator, const Message& message);
  void answered(const PeerId& to, const Message& answer);
  void asked(const Coordinator& coordinator, const PeerId& from, const Message& message);
  // Checks the members that the coordinator knows.
  void members(const Coordinator& coordinator);

 private:
  struct Life {
    Process process;
    AwakeClock clock;  // stops while the process is frozen: no message is missing then
    int64_t began_ms = 0;
    bool joined = false;
    bool left = false;
    std::string endpoint;  // in its Hello
    int64_t asked_since_ms = -1;
    int64_t hello_ms = -1;
    int64_t no_place_ms = -1;  // time of the newest Hello answered by NoPlaceYet
    int64_t hellos = 0;
    int64_t heartbeat_ms = -1;
    int64_t heartbeats = 0;
    int64_t connections = 0;                 // beside the first, over time
    int64_t versions = 0;                    // states that its heartbeats acknowledged
    int64_t version = -1;                    // the newest of them
    uint64_t term_id = 0;                    // of the process's term
    int64_t reports = 0;                     // results that its trainer reported
    std::map<int64_t, std::string> results;  // first text of each result, by number
  };

  void hello(Life& life, const wire::Hello& hello, int64_t now_ms);
  void heartbeat(Life& life, const wire::Heartbeat& heartbeat, int64_t now_ms);
  void result(Life& life, const wire::EvalResult& result);
  void gave_up(const Life& life);
  void wrong(const Life& life, const std::string& what);

  Cluster& cluster_;
  std::map<uint64_t, Life> lives_;
  uint64_t term_id_ = 0;         // of the term
  std::string digest_;           // declared by the first worker and held by the coordinator
  std::set<uint64_t> declared_;  // incarnations that have declared it
  std::vector<int64_t> pids_;    // pids of the members, for the comparison
  // while the coordinator handles a message
  bool stranger_ = false;       // the sender was given up
  uint64_t asked_term_id_ = 0;  // in which the message arrived
  std::set<PeerId> refused_;
  std::set<PeerId> welcomed_;  // their Hello was answered by the job's text
  std::set<PeerId> waiting_;   // their Hello was answered by NoPlaceYet
};

}  // namespace pushpull::sim
