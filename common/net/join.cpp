#include "common/net/join.h"

#include <unistd.h>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/net/address.h"

namespace pushpull {

namespace {

constexpr int64_t kHelloMs = 500;
constexpr int64_t kLogIntervalMs = 5000;

Message hello_of(const JoinOptions& options) {
  Message message;
  wire::Hello* hello = message.header.mutable_hello();
  hello->set_role(options.role);
  hello->set_host(host_name());
  hello->set_pid(getpid());
  hello->set_incarnation(options.incarnation);
  hello->set_version(program_version());
  hello->set_data_endpoint(options.data_endpoint);
  return message;
}

}  // namespace

std::string program_version() { return PUSHPULL_VERSION; }

wire::JobText join(Dealer& control, const JoinOptions& options, const Log& log,
                   const std::function<bool()>& stop) {
  const Message hello = hello_of(options);
  const int64_t begin = now_ms();
  int64_t said_hello = begin - kHelloMs;
  int64_t logged = begin - kLogIntervalMs + 1000;
  while (!stop()) {
    const int64_t now = now_ms();
    if (now - begin > static_cast<int64_t>(options.timeout_s * 1000)) {
      throw Error(ErrorCode::kUnreachable,
                  "[join] no server has answered at " + control.address() + " for " +
                      std::to_string((now - begin) / 1000) +
                      " s; is it running there? --join-timeout sets how long to wait");
    }
    if (now - logged >= kLogIntervalMs) {
      log.info("waiting for the server at " + control.address());
      logged = now;
    }
    if (now - said_hello >= kHelloMs) {
      control.send(hello);
      said_hello = now;
    }
    zmq::pollitem_t item{control.socket().handle(), 0, ZMQ_POLLIN, 0};
    poll_sockets({&item, 1}, 50);
    while (auto message = control.receive()) {
      if (message->header.has_job_text()) return message->header.job_text();
      if (message->header.has_refused()) {
        const wire::Refused& refused = message->header.refused();
        throw Error(static_cast<ErrorCode>(refused.code()), refused.text());
      }
    }
    if (control.foreign_version() != 0) {
      throw Error(ErrorCode::kProtocol,
                  "[join] the server at " + control.address() + " speaks protocol version " +
                      std::to_string(control.foreign_version()) + ", this program version " +
                      std::to_string(kProtocolVersion) + "; use programs of one release");
    }
  }
  throw Error(ErrorCode::kFailed, "[join] stopped before the server answered");
}

}  // namespace pushpull
