// Clients of one server that do the same at the same time: client 0 in this process, the others in
// processes of their own, told what to do over a socket. One thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "bench/floors/child.h"
#include "bench/floors/link.h"
#include "common/base/unique_fd.h"

namespace pushpull::floors {

enum class Verb : char { kPush, kPull, kExchange };

class Clients {
 public:
  Clients(LinkServer& server, size_t count);
  ~Clients();
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  // All clients do it; returns when all have. An exchange is a push of all, then a pull of all: as
  // in a sync step, no weights come before the last gradient.
  void run(Verb verb);

 private:
  void together(Verb verb);

  std::unique_ptr<Link> mine_;
  std::vector<UniqueFd> others_;
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace pushpull::floors
