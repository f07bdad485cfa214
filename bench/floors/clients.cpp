#include "bench/floors/clients.h"

#include <sys/socket.h>

#include "common/base/error.h"

namespace pushpull::floors {
namespace {

void tell(int fd, char word) {
  if (send(fd, &word, 1, MSG_NOSIGNAL) != 1) {
    throw Error(ErrorCode::kFailed, "[floors] a client process is gone");
  }
}

// False: the other side is gone.
bool hear(int fd, char* word) { return recv(fd, word, 1, 0) == 1; }

void act(Link& link, Verb verb) { verb == Verb::kPush ? link.push() : link.pull(); }

int obey(int fd, Link& link) {
  for (char word = 0; hear(fd, &word);) {
    act(link, static_cast<Verb>(word));
    tell(fd, word);
  }
  return 0;
}

}  // namespace

Clients::Clients(LinkServer& server, size_t count) {
  for (size_t i = 1; i < count; ++i) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) {
      throw Error(ErrorCode::kFailed, "[floors] no socketpair");
    }
    const timeval deadline{kDeadlineSeconds, 0};
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    others_.emplace_back(fds[0]);
    UniqueFd theirs(fds[1]);
    children_.push_back(std::make_unique<Child>([&] {
      others_.clear();
      return obey(theirs.get(), *server.connect(i));
    }));
  }
  mine_ = server.connect(0);
}

Clients::~Clients() {
  others_.clear();  // which ends the processes
  mine_.reset();
}

void Clients::run(Verb verb) {
  if (verb != Verb::kExchange) return together(verb);
  together(Verb::kPush);
  together(Verb::kPull);
}

void Clients::together(Verb verb) {
  for (const UniqueFd& other : others_) tell(other.get(), static_cast<char>(verb));
  act(*mine_, verb);
  for (const UniqueFd& other : others_) {
    char word = 0;
    if (!hear(other.get(), &word)) {
      throw Error(ErrorCode::kFailed, "[floors] a client process has not answered");
    }
  }
}

}  // namespace pushpull::floors
