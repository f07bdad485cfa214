// Several clients of one server that run in parallel: client 0 in this process, the others in
// forked processes that receive orders over a socket. One thread.
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

// Microseconds; 0 for a part that was not run.
struct RoundTimes {
  double push_us = 0.0;
  double pull_us = 0.0;
};

class LinkClients {
 public:
  // Forks, so the caller must have no other thread. max_rounds: limit of one run.
  LinkClients(LinkServer& server, size_t count, size_t max_rounds);
  ~LinkClients();
  LinkClients(const LinkClients&) = delete;
  LinkClients& operator=(const LinkClients&) = delete;

  // All clients start at once and run `rounds` rounds without waiting for each other. Returns when
  // all have finished. Throws Error(kFailed) if a client fails or misses its deadline.
  void run(Verb verb, size_t rounds);

  size_t count() const { return others_.size() + 1; }
  // Returns the client's times in the last run.
  std::span<const RoundTimes> rounds(size_t client) const;

 private:
  std::span<RoundTimes> place(size_t client, size_t rounds) const;
  int obey(int fd, size_t client, Link& link) const;

  size_t max_rounds_;
  size_t rounds_ = 0;  // of the last run
  SharedPages times_;  // max_rounds_ per client
  std::unique_ptr<Link> mine_;
  std::vector<UniqueFd> others_;
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace pushpull::floors
