#include "ps/server/joined_server_loop.h"

#include <unistd.h>

#include <vector>

#include "common/base/console.h"
#include "common/base/error.h"
#include "common/host/shortage.h"
#include "common/net/address.h"
#include "common/net/data_proof.h"
#include "ps/server/data_plane.h"
#include "ps/server/server_member.h"

namespace pushpull {

namespace {

constexpr int kJoinedPollMs = 20;
constexpr int kLingerMs = 1000;

class JoinedServerLoop : public ServerHost {
 public:
  JoinedServerLoop(const JoinedServerProgram& program, SignalFd& signals);
  int run();

  std::string listen(const Job& job, uint64_t term_id, uint64_t run_id) override;
  void rename(const Job& job, uint64_t term_id) override {
    data_->listen_locally(job, term_id, log_);
  }
  ServedData& data() override { return data_->data(); }

 private:
  std::string listen_address() const;
  void turn();
  void send_all();
  int report_end();

  const JoinedServerProgram& program_;
  SignalFd& signals_;
  Log log_{"server"};
  const uint64_t incarnation_ = random_id();
  zmq::context_t context_{1};
  Dealer control_;
  std::unique_ptr<DataPlane> data_;  // created when the job is known
  AwakeClock clock_;
  ServerMember member_;
};

JoinOptions options_of(const JoinedServerProgram& program, uint64_t incarnation) {
  JoinOptions options;
  options.incarnation = incarnation;
  options.host = host_name();
  options.pid = getpid();
  options.coordinator = program.join;
  options.timeout_s = program.join_timeout_s;
  options.job_token = program.job_token;
  options.device = program.device ? program.device->name() : "cpu";
  return options;
}

JoinedServerLoop::JoinedServerLoop(const JoinedServerProgram& program, SignalFd& signals)
    : program_(program),
      signals_(signals),
      control_(context_, program.join, control_limits(), program.keys.control_credentials()),
      member_(options_of(program, incarnation_), *this) {}

std::string JoinedServerLoop::listen_address() const {
  Address address = parse_address(program_.join, "join");
  if (program_.listen.empty()) {
    address = {local_address_towards(address), "*"};
  } else {
    address = parse_address(program_.listen, "listen");
  }
  if (address.port == "*") address.port = program_.data_port;
  return address.to_string();
}

std::string JoinedServerLoop::listen(const Job& job, uint64_t term_id, uint64_t run_id) {
  data_ = std::make_unique<DataPlane>(
      listen_address(), job.slice_bytes, program_.device,
      program_.keys.data_demand(job.encrypt_data, run_id, listener_name(incarnation_)));
  data_->listen_locally(job, term_id, log_);
  const std::string& bound = data_->router().address();
  if (!program_.advertise.empty() || !parse_address(bound, "listen").is_everywhere()) {
    return advertised(bound, program_.advertise);
  }
  return advertised(bound, local_address_towards(parse_address(program_.join, "join")));
}

int JoinedServerLoop::run() {
  while (!member_.end()) {
    try {
      turn();
    } catch (const std::exception& e) {
      const Error error = error_of(e);
      member_.fail(error.code(), error.what());
    }
    send_all();
  }
  return report_end();
}

void JoinedServerLoop::turn() {
  std::vector<zmq::pollitem_t> items{{control_.socket().handle(), 0, ZMQ_POLLIN, 0},
                                     {nullptr, signals_.fd(), ZMQ_POLLIN, 0}};
  if (data_) {
    data_->wait(items, kJoinedPollMs);
  } else {
    poll_sockets(items, kJoinedPollMs);
  }
  const int64_t now = clock_.now_ms();
  while (!member_.end() && !(data_ && data_->sockets_are_idle())) {
    const auto message = control_.receive();
    if (!message) break;
    member_.on_message(now, *message);
    if (member_.state().version() >= 0) {
      log_.rename("server " + std::to_string(member_.state().rank()));
    }
  }
  if (const std::string line = control_.take_warning(); !line.empty()) log_.warn(line);
  if (control_.take_closed()) member_.on_closed(now);
  if (!member_.joined() && control_.foreign_version() != 0) {
    member_.fail(ErrorCode::kProtocol,
                 foreign_version_text(control_.address(), control_.foreign_version()));
  }
  if (!member_.joined() && !member_.end()) {
    if (const auto why = control_.refused()) member_.fail(ErrorCode::kRefused, *why);
  }
  if (member_.end()) return;
  if (data_) data_->receive();
  member_.on_tick(clock_.now_ms());
  if (member_.needs_connection(clock_.now_ms())) control_.open_second();
  if (data_) data_->send();
  const int signal = signals_.take();
  if (const std::string line = signals_.take_notice(); !line.empty()) log_.info(line);
  if (signal != 0) {
    if (member_.on_signal(clock_.now_ms(), signal)) {
      flush_output();
      _exit(128 + signal);
    }
  }
}

void JoinedServerLoop::send_all() {
  if (member_.end() && member_.joined()) control_.set_linger_ms(kLingerMs);
  for (const Message& message : member_.take_outgoing()) control_.send(message);
  for (const std::string& line : member_.take_notices()) log_.info(line);
}

int JoinedServerLoop::report_end() {
  const JobEnd& end = *member_.end();
  if (!member_.joined() && end.signal == 0) throw Error(end.code, end.text);
  if (!end.text.empty()) end.stopped() ? log_.info(end.text) : log_.error(end.text);
  return end.exit_code();
}

}  // namespace

int run_joined_server(const JoinedServerProgram& program, SignalFd& signals) {
  return JoinedServerLoop(program, signals).run();
}

}  // namespace pushpull
