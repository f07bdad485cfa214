#include "ps/run/job_of_worker.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job_settings.h"
#include "common/net/address.h"
#include "common/net/endpoint.h"
#include "common/net/join.h"
#include "common/net/refusals.h"
#include "common/net/zap_handler.h"
#include "ps/members/admission.h"
#include "ps/run/coordinator_sockets.h"

namespace pushpull {

namespace {

constexpr int kPollMs = 20;
constexpr int64_t kMaxPerTurn = 256;
constexpr int64_t kMaxBytesPerTurn = int64_t{4} << 20;
constexpr int64_t kFarewellMs = 500;  // for the refusal to reach its worker

Message refusal(ErrorCode code, const std::string& text) {
  Message message;
  message.header.mutable_refused()->set_code(static_cast<int>(code));
  message.header.mutable_refused()->set_text(text);
  return message;
}

Message wait_text(const std::string& text) {
  Message message;
  message.header.mutable_no_place_yet()->set_text(text);
  return message;
}

}  // namespace

std::optional<Message> JobDesk::on_message(const Message& message) {
  if (!message.header.has_hello()) return std::nullopt;
  const wire::Hello& hello = message.header.hello();
  if (Checked wrong = check_hello(hello)) return std::nullopt;
  const std::string other = other_job_text(wait_.job_token, hello);
  if (!other.empty()) return refusal(ErrorCode::kRefused, other);
  if (hello.role() != wire::ROLE_WORKER || job_) return wait_text("the job is not known yet");
  if (hello.job_keys().empty()) {
    return refusal(ErrorCode::kUsage,
                   "[job] the first server has no job: give it --job FILE or keys as flags, or let "
                   "the program say the job, as in pp.join(global_batch=256, optimizer='adamw', "
                   "lr=3e-4, epochs=2)");
  }
  try {
    Job job = parse_programs_job(hello.job_keys(), wait_.flags);
    check_job_against_workers(job, wait_.workers);
    job_ = std::move(job);
    return std::nullopt;  // the coordinator answers the next Hello
  } catch (const Error& error) {
    failure_ = error.what();
    return refusal(error.code(), failure_);
  }
}

std::optional<FoundJob> wait_for_job(const JobWait& wait, SignalFd& signals, int& signal) {
  const Log log("server 0");
  zmq::context_t context = make_context(1);
  ZapHandler handler(context, wait.keys.control_demand());
  Router control(handler, wait.listen, EndpointLimits{});
  const std::string bound = with_port(wait.listen, parse_address(control.address(), "listen").port);
  log.info(listening_line(control, wait.advertise) + ", for a worker's program to say the job");
  Announcements announcements(wait.announce_fd < 0 ? -1 : dup(wait.announce_fd), "");
  if (!announcements.address(control_address(control, wait.advertise)))
    log.warn("--announce-fd has no reader");
  JobDesk desk(wait);
  const int64_t began_ms = now_ms();
  int64_t end_ms = began_ms + static_cast<int64_t>(wait.timeout_s * 1000);
  while (!desk.job()) {
    std::vector<zmq::pollitem_t> items{{nullptr, signals.fd(), ZMQ_POLLIN, 0},
                                       {control.socket().handle(), 0, ZMQ_POLLIN, 0}};
    poll_sockets(items, kPollMs);
    if ((signal = signals.take()) != 0) return std::nullopt;
    TurnBudget budget(kMaxPerTurn, kMaxBytesPerTurn);
    while (const auto received = control.receive(&budget)) {
      const auto& [peer, message] = *received;
      if (const auto answer = desk.on_message(message)) control.send(peer, *answer);
    }
    for (const std::string& line : handler.take_notices()) log.warn(line);
    if (!desk.failure().empty()) end_ms = std::min(end_ms, now_ms() + kFarewellMs);
    if (now_ms() < end_ms) continue;
    if (!desk.failure().empty()) throw Error(ErrorCode::kUsage, desk.failure());
    throw Error(
        ErrorCode::kUnreachable,
        "[job] no worker's program has said the job within " +
            std::to_string((now_ms() - began_ms) / 1000) +
            " s (--join-timeout): start one that calls pp.join with keys, or give --job FILE");
  }
  announcements.job(*desk.job());
  return FoundJob{*desk.job(), bound};
}

}  // namespace pushpull
