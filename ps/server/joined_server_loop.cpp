// The program of every server but the first: joins the coordinator, then serves its slices.
#include <algorithm>
#include <memory>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/net/address.h"
#include "common/net/join.h"
#include "ps/server/data_plane.h"
#include "ps/server_loop.h"

namespace pushpull {

namespace {

constexpr int kPollMs = 20;
constexpr int64_t kNormsMs = 200;
constexpr int kLingerMs = 1000;

class JoinedServerLoop {
 public:
  JoinedServerLoop(const JoinedServerProgram& program, SignalFd& signals);
  int run();

 private:
  static std::string listen_address(const JoinedServerProgram& program);
  void join_job();
  std::string advertised_address() const;
  void turn();
  void take_message(const Message& message);
  void heartbeat();
  void norms();
  void record();
  void send_part(wire::RecordPart part);
  void arrived();
  void leave(int code, const std::string& text);

  const JoinedServerProgram& program_;
  SignalFd& signals_;
  Log log_{"server"};
  zmq::context_t context_{1};
  uint64_t incarnation_ = random_id();
  Dealer control_;
  std::unique_ptr<DataPlane> data_;  // made once the job is known
  wire::JobText text_;
  Job job_;
  wire::State state_;
  AwakeClock clock_;
  int64_t heard_ms_ = 0;  // by clock_
  int64_t heartbeat_ms_ = 0;
  int64_t norms_ms_ = 0;
  int64_t norms_step_ = -1;
  int64_t arrived_ms_ = 0;
  std::pair<int64_t, int> arrived_{-1, 0};  // step, pushes
  bool heartbeat_now_ = true;
  bool over_ = false;
  int exit_code_ = 0;
  int signal_ = 0;
};

std::string JoinedServerLoop::listen_address(const JoinedServerProgram& program) {
  if (!program.listen.empty()) return program.listen;
  Address address = parse_address(program.join, "join");
  address.host = local_address_towards(address);
  address.port = "*";
  return address.to_string();
}

JoinedServerLoop::JoinedServerLoop(const JoinedServerProgram& program, SignalFd& signals)
    : program_(program), signals_(signals), control_(context_, program.join, EndpointLimits{}) {}

// Asks for the job, listens, says where.
void JoinedServerLoop::join_job() {
  JoinOptions options{wire::ROLE_SERVER, incarnation_, "", program_.join_timeout_s};
  const auto stop = [&] { return signal_ != 0 || (signal_ = signals_.take()) != 0; };
  text_ = join(control_, options, log_, stop);
  job_ = parse_job_text(text_.ini(), "the coordinator's job");
  data_ = std::make_unique<DataPlane>(listen_address(program_), job_.slice_bytes, program_.device);
  data_->listen_locally(job_, text_.run(), log_);
  options.data_endpoint = advertised_address();
  text_ = join(control_, options, log_, stop);
  log_.info("joined, listening on " + options.data_endpoint);
  heard_ms_ = clock_.now_ms();
}

std::string JoinedServerLoop::advertised_address() const {
  const std::string& bound = data_->router().address();
  if (!program_.advertise.empty() || !parse_address(bound, "listen").is_everywhere()) {
    return advertised(bound, program_.advertise);
  }
  return advertised(bound, local_address_towards(parse_address(program_.join, "join")));
}

int JoinedServerLoop::run() {
  try {
    join_job();
  } catch (const Error&) {
    if (signal_ != 0) return 128 + signal_;
    throw;
  }
  try {
    while (!over_) turn();
  } catch (const Error& e) {
    leave(static_cast<int>(e.code()), e.what());
    log_.error(e.what());
    return static_cast<int>(e.code());
  }
  return exit_code_;
}

void JoinedServerLoop::leave(int code, const std::string& text) {
  if (data_ && data_->server() != nullptr) {
    for (wire::RecordPart& part : data_->server()->log().take_rest()) send_part(std::move(part));
  }
  Message message;
  message.header.mutable_leave()->set_incarnation(incarnation_);
  message.header.mutable_leave()->set_code(code);
  message.header.mutable_leave()->set_text(text);
  control_.set_linger_ms(kLingerMs);
  control_.send(message);
  over_ = true;
}

void JoinedServerLoop::take_message(const Message& message) {
  heard_ms_ = clock_.now_ms();
  const wire::Header& header = message.header;
  if (header.has_norm_total()) {
    if (data_->server() != nullptr) data_->server()->on_norm_total(header.norm_total());
    return;
  }
  if (header.has_record_taken()) {
    if (data_->server() != nullptr) data_->server()->log().confirm(header.record_taken().through());
    return;
  }
  if (header.has_chosen()) {
    if (data_->server() != nullptr) data_->server()->on_chosen(header.chosen());
    return;
  }
  if (header.has_refused()) {
    throw Error(static_cast<ErrorCode>(header.refused().code()), header.refused().text());
  }
  if (!header.has_state() || header.state().version() <= state_.version()) return;
  state_ = header.state();
  heartbeat_now_ = true;
  log_.rename("server " + std::to_string(state_.rank()));
  if (state_.phase() == wire::PHASE_FAILED) {
    log_.error(state_.text());
    leave(0, "");
    exit_code_ = state_.code();
    return;
  }
  data_->on_state(state_, text_.run(), incarnation_, std::max(1, state_.data_endpoints_size()),
                  job_, nullptr);
  if (state_.phase() == wire::PHASE_FINISHED) leave(0, "");
}

void JoinedServerLoop::heartbeat() {
  const int64_t now = now_ms();
  const auto interval_ms =
      std::min<int64_t>(1000, static_cast<int64_t>(job_.heartbeat_timeout_s * 200));
  if (!heartbeat_now_ && now - heartbeat_ms_ < interval_ms) return;
  heartbeat_now_ = false;
  heartbeat_ms_ = now;
  Message message;
  wire::Heartbeat* beat = message.header.mutable_heartbeat();
  beat->set_incarnation(incarnation_);
  beat->set_state_version(state_.version());
  *beat->mutable_stats() = data_->stats();
  control_.send(message);
}

void JoinedServerLoop::norms() {
  Server* server = data_->server();
  if (server == nullptr || !server->waiting_norms()) return;
  const int64_t now = now_ms();
  const int64_t step = server->waiting_norms()->step();
  if (step == norms_step_ && now - norms_ms_ < kNormsMs) return;
  norms_step_ = step;
  norms_ms_ = now;
  Message message;
  *message.header.mutable_norms() = *server->waiting_norms();
  control_.send(message);
}

void JoinedServerLoop::send_part(wire::RecordPart part) {
  part.set_incarnation(incarnation_);
  Message message;
  *message.header.mutable_record_part() = std::move(part);
  control_.send(message);
}

void JoinedServerLoop::record() {
  if (data_->server() == nullptr) return;
  if (auto part = data_->server()->log().due(now_ms())) send_part(std::move(*part));
}

void JoinedServerLoop::arrived() {
  Server* server = data_->server();
  if (server == nullptr || !server->waiting_arrived()) return;
  const int64_t now = now_ms();
  const std::pair<int64_t, int> here{server->waiting_arrived()->step(),
                                     server->waiting_arrived()->lo_size()};
  if (here == arrived_ && now - arrived_ms_ < kNormsMs) return;
  arrived_ = here;
  arrived_ms_ = now;
  Message message;
  *message.header.mutable_arrived() = *server->waiting_arrived();
  control_.send(message);
}

void JoinedServerLoop::turn() {
  zmq::pollitem_t items[] = {{control_.socket().handle(), 0, ZMQ_POLLIN, 0},
                             {data_->router().socket().handle(), 0, ZMQ_POLLIN, 0},
                             {nullptr, signals_.fd(), ZMQ_POLLIN, 0}};
  poll_sockets(items, kPollMs);
  while (!over_) {
    auto message = control_.receive();
    if (!message) break;
    take_message(*message);
  }
  if (over_) return;
  data_->receive();
  arrived();
  norms();
  record();
  data_->send();
  heartbeat();
  if (const int signal = signals_.take(); signal != 0) {
    leave(static_cast<int>(ErrorCode::kPeerLost), "it was ended by " + signal_name(signal));
    exit_code_ = 128 + signal;
    return;
  }
  const int64_t silent = clock_.now_ms() - heard_ms_;
  if (silent > static_cast<int64_t>(job_.heartbeat_timeout_s * 1000)) {
    throw Error(ErrorCode::kPeerLost, "[job] " + text_.coordinator() + " at " + control_.address() +
                                          " has been silent for " + std::to_string(silent / 1000) +
                                          " s");
  }
}

}  // namespace

int run_joined_server(const JoinedServerProgram& program, SignalFd& signals) {
  return JoinedServerLoop(program, signals).run();
}

}  // namespace pushpull
