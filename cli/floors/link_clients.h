// Clients of one server that do the same at the same time: client 0 in this process, the others in
// processes of their own, told what to do over a socket. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cli/floors/child.h"
#include "cli/floors/link.h"
#include "cli/floors/shared_pages.h"
#include "common/base/unique_fd.h"

namespace pushpull::floors {

enum class Verb : uint32_t { kPush = 1, kPull = 2, kExchange = 3 };  // a push, then a pull

// Microseconds; what was not done takes 0.
struct RoundTimes {
  double push_us = 0.0;
  double pull_us = 0.0;
};

class LinkClients {
 public:
  // Forks, so no other thread may be running. most_rounds: of one run.
  LinkClients(LinkServer& server, size_t count, size_t most_rounds);
  ~LinkClients();
  LinkClients(const LinkClients&) = delete;
  LinkClients& operator=(const LinkClients&) = delete;

  // All clients begin at once and do so many rounds, each as fast as it can: none waits for another
  // in between. Returns when all have. Throws Error(kFailed) where one has not, in time or at all.
  void run(Verb verb, size_t rounds);

  size_t count() const { return others_.size() + 1; }
  // The times of the last run.
  std::span<const RoundTimes> rounds(size_t client) const;

 private:
  std::span<RoundTimes> place(size_t client, size_t rounds) const;
  int obey(int fd, size_t client, Link& link) const;

  size_t most_rounds_;
  size_t rounds_ = 0;  // of the last run
  SharedPages times_;  // most_rounds_ of each client
  std::unique_ptr<Link> mine_;
  std::vector<UniqueFd> others_;
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace pushpull::floors
