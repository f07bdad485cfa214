#include "ps/members/ended_run_loop.h"

#include <vector>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/net/intervals.h"

namespace pushpull {

int end_again(const RunEnd& end, const std::string& folder, Router& control, SignalFd& signals) {
  constexpr int kPollMs = 20;
  constexpr int64_t kMaxPerTurn = 256;
  constexpr int64_t kMaxBytesPerTurn = int64_t{4} << 20;
  const Log log("server 0");
  log.info("the run in " + folder + " has ended; telling its members, if any are left");
  EndedRun ended(end);
  while (!ended.over(now_ms()) && signals.take() == 0) {
    std::vector<zmq::pollitem_t> items{{nullptr, signals.fd(), ZMQ_POLLIN, 0},
                                       {control.socket().handle(), 0, ZMQ_POLLIN, 0}};
    poll_sockets(items, kPollMs);
    TurnBudget budget(kMaxPerTurn, kMaxBytesPerTurn);
    while (const auto received = control.receive(&budget)) {
      const auto& [peer, message] = *received;
      if (const auto answer = ended.on_message(message)) control.send(peer, *answer);
    }
  }
  const bool stopped = end.code == static_cast<int>(ErrorCode::kStopped);
  if (!end.text.empty()) stopped ? log.info(end.text) : log.error(end.text);
  return end.exit_code;
}

}  // namespace pushpull
