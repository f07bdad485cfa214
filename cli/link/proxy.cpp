#include "cli/link/proxy.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "cli/link/proxy_connection.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/net/tcp_socket.h"

namespace pushpull {

bool LineReader::read_some() {
  std::array<char, 4096> piece{};
  const ssize_t count = read(fd_, piece.data(), piece.size());
  if (count <= 0) {
    text_ += '\n';
    return false;
  }
  text_.append(piece.data(), static_cast<size_t>(count));
  return true;
}

std::optional<std::string> LineReader::next() {
  const size_t end = text_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

namespace {

constexpr size_t kTurnBytes = size_t{1} << 20;  // per direction, before the next direction's turn
constexpr size_t kPieceBytes = BlockPool::kBlockBytes;
// User data of an epoll event: one of these constants, a listener, or twice a connection's number +
// side.
constexpr uint64_t kSignals = 0;
constexpr uint64_t kCommands = 1;
constexpr uint64_t kTimer = 2;
constexpr uint64_t kListeners = 16;
constexpr uint64_t kFirstConnection = 1 << 16;

int64_t now_us() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

class Proxy {
 public:
  explicit Proxy(const ProxyOptions& options);
  ProxyCounts run();

 private:
  struct Listener {
    UniqueFd fd;
    std::optional<SocketAddress> to;
  };
  using Timer = std::tuple<int64_t, uint64_t, uint64_t>;  // time, order of setting, connection

  void watch(int fd, uint32_t events, uint64_t what);
  void wait();
  void handle(const epoll_event& event);
  void run_due();
  bool read_commands();  // returns false at the end of the input
  void say_done(const std::string& text);
  void command_line(const std::string& text);
  void carry_out(LinkModel::Then then);

  void accept_some(Listener& listener);
  void open(UniqueFd client, const SocketAddress& to);
  void connected(Connection& connection);
  void reset(Connection& connection);
  void reset_all();
  void activate(Connection& connection);
  void activate_all();

  // Returns false if the connection was removed.
  bool move(Connection& connection, Way way);
  enum class Step { kNone, kSome, kRemoved };
  Step receive(Connection& connection, Way way);
  Step send_on(Connection& connection, Way way);
  void pass_end(Connection& connection, Way way);
  void broken(Connection& connection, size_t side);
  void set_timer(Connection& connection, Way way, int64_t at_us);

  const ProxyOptions& options_;
  SignalFd signals_;
  LinkModel model_;
  BlockPool pool_;
  UniqueFd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  UniqueFd timer_{timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
  std::vector<Listener> listeners_;
  size_t paused_at_ = 0;  // connections when descriptors ran out; 0 = they have not
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  uint64_t next_id_ = kFirstConnection;
  std::vector<uint64_t> active_;  // connections that may have work
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  uint64_t timers_set_ = 0;
  LineReader commands_{options_.commands_fd};
  size_t script_next_ = 0;
  int64_t began_us_ = now_us();
  bool quit_ = false;
  ProxyCounts counts_;
};

Proxy::Proxy(const ProxyOptions& options) : options_(options), model_(options.seed) {
  watch(signals_.fd(), EPOLLIN, kSignals);
  watch(timer_.get(), EPOLLIN, kTimer);
  for (const ProxyOptions::Port& port : options.ports) {
    Listener listener;
    if (port.to) {
      listener.to = resolve(*port.to);
    }
    listener.fd = listen_on(port.listen);
    watch(listener.fd.get(), EPOLLIN, kListeners + listeners_.size());
    std::cout << "listening on " << local_name(listener.fd.get()).to_string() << "\n";
    listeners_.push_back(std::move(listener));
  }
  std::cout << std::flush;
  for (const LinkCommand& command : options.at_start) {
    carry_out(model_.apply(command, began_us_));
  }
}

void Proxy::watch(int fd, uint32_t events, uint64_t what) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = what;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw Error(ErrorCode::kFailed, "[proxy] cannot watch a descriptor: " + errno_text());
  }
}

ProxyCounts Proxy::run() {
  if (options_.commands_fd >= 0) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = kCommands;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, options_.commands_fd, &event) != 0) {
      while (read_commands()) {  // a file or /dev/null: all input is available at once
      }
    }
  }
  while (!quit_) {
    wait();
    run_due();
    const std::vector<uint64_t> turn = std::exchange(active_, {});
    for (const uint64_t id : turn) {
      const auto found = connections_.find(id);
      if (found == connections_.end()) continue;
      Connection& connection = *found->second;
      connection.listed = false;
      if (move(connection, Way::kUp) && move(connection, Way::kDown) &&
          connection.flows[0].finished && connection.flows[1].finished) {
        connections_.erase(id);
      }
    }
    if (connections_.size() < paused_at_) {
      paused_at_ = 0;
      for (size_t i = 0; i < listeners_.size(); ++i) {
        watch(listeners_[i].fd.get(), EPOLLIN, kListeners + i);
      }
    }
  }
  reset_all();
  return counts_;
}

void Proxy::wait() {
  std::optional<int64_t> next = model_.next_tick_us();
  const auto sooner = [&](int64_t at_us) { next = std::min(next.value_or(at_us), at_us); };
  if (!timers_.empty()) {
    sooner(std::get<0>(timers_.top()));
  }
  if (script_next_ < options_.script.size()) {
    sooner(began_us_ + options_.script[script_next_].at_us);
  }
  if (options_.end_us > 0) {
    sooner(began_us_ + options_.end_us);
  }
  bool at_once = !active_.empty();
  if (next && !at_once) {
    const int64_t ahead = *next - now_us();
    at_once = ahead <= 0;
    itimerspec spec{};
    spec.it_value.tv_sec = ahead / 1'000'000;
    spec.it_value.tv_nsec = ahead % 1'000'000 * 1000;
    if (!at_once) {
      timerfd_settime(timer_.get(), 0, &spec, nullptr);
    }
  }
  std::array<epoll_event, 256> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), at_once ? 0 : -1);
  for (int i = 0; i < count && !quit_; ++i) {
    handle(events[static_cast<size_t>(i)]);
  }
}

void Proxy::handle(const epoll_event& event) {
  const uint64_t what = event.data.u64;
  if (what == kSignals) {
    quit_ = signals_.take() != 0;
  } else if (what == kCommands) {
    read_commands();
  } else if (what == kTimer) {
    uint64_t times = 0;
    [[maybe_unused]] const ssize_t count = read(timer_.get(), &times, sizeof times);
  } else if (what < kFirstConnection) {
    accept_some(listeners_[what - kListeners]);
  } else if (const auto found = connections_.find(what / 2); found != connections_.end()) {
    Connection& connection = *found->second;
    Side& side = connection.sides[what % 2];
    const bool over = (event.events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0;
    side.readable |= over || (event.events & EPOLLIN) != 0;
    side.writable |= over || (event.events & EPOLLOUT) != 0;
    if (what % 2 == 1 && connection.connecting) {
      connected(connection);
    } else {
      activate(connection);
    }
  }
}

// Executes the commands and timed changes that are due, and wakes connections whose bytes are due.
void Proxy::run_due() {
  const int64_t now = now_us();
  quit_ |= options_.end_us > 0 && now >= began_us_ + options_.end_us;
  while (script_next_ < options_.script.size() &&
         now >= began_us_ + options_.script[script_next_].at_us) {
    const TimedCommand& next = options_.script[script_next_++];
    carry_out(model_.apply(next.command, now));
    say_done(next.text);
  }
  if (const LinkModel::Then then = model_.tick(now); then != LinkModel::Then::kNothing) {
    carry_out(then);
  }
  while (!timers_.empty() && std::get<0>(timers_.top()) <= now) {
    const auto [at_us, order, id] = timers_.top();
    timers_.pop();
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;
    for (Flow& flow : found->second->flows) {
      flow.timer_us = flow.timer_us <= at_us ? -1 : flow.timer_us;
    }
    activate(*found->second);
  }
}

bool Proxy::read_commands() {
  const bool more = commands_.read_some();
  if (!more) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, options_.commands_fd, nullptr);
  while (const std::optional<std::string> line = commands_.next()) command_line(*line);
  return more;
}

void Proxy::command_line(const std::string& text) {
  if (text.find_first_not_of(" \t\r") == std::string::npos) return;
  try {
    carry_out(model_.apply(parse_link_command(text), now_us()));
    say_done(std::string(trim(text)));
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
  }
}

void Proxy::say_done(const std::string& text) {
  std::cout << std::fixed << std::setprecision(3) << static_cast<double>(now_us() - began_us_) / 1e6
            << " s: " << text << std::endl;
}

void Proxy::carry_out(LinkModel::Then then) {
  quit_ |= then == LinkModel::Then::kQuit;
  if (then == LinkModel::Then::kResetAll) reset_all();
  activate_all();  // held or slowed bytes may pass now
}

void Proxy::accept_some(Listener& listener) {
  for (int i = 0; i < 64; ++i) {
    UniqueFd client(accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (client.get() < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        paused_at_ = connections_.size() + 1;
        for (const Listener& one : listeners_) {
          epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, one.fd.get(), nullptr);
        }
      }
      return;
    }
    const std::optional<SocketAddress> to =
        listener.to ? listener.to : original_destination(client.get());
    if (model_.refusing() || !to || connections_.size() >= kMaxProxyConnections) {
      ++counts_.refused;
      close_with_reset(client);
      continue;
    }
    open(std::move(client), *to);
  }
}

void Proxy::open(UniqueFd client, const SocketAddress& to) {
  ++counts_.connections;
  const uint64_t id = next_id_++;
  auto connection = std::make_unique<Connection>(id, pool_);
  connection->sides[0].fd = std::move(client);
  connection->sides[1].fd = start_connect(to);
  if (connection->sides[1].fd.get() < 0) {
    close_with_reset(connection->sides[0].fd);
    ++counts_.resets;
    return;
  }
  for (size_t side = 0; side < 2; ++side) {
    send_at_once(connection->sides[side].fd.get());
    watch(connection->sides[side].fd.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
          id * 2 + side);
  }
  connection->connect_by_us = now_us() + options_.connect_ms * 1000;
  set_timer(*connection, Way::kUp, connection->connect_by_us);
  connections_.emplace(id, std::move(connection));
}

void Proxy::connected(Connection& connection) {
  if (connect_error(connection.sides[1].fd.get()) != 0) {
    reset(connection);
    return;
  }
  connection.connecting = !connection.sides[1].writable;
  activate(connection);
}

void Proxy::reset(Connection& connection) {
  ++counts_.resets;
  for (Side& side : connection.sides) {
    close_with_reset(side.fd);
  }
  connections_.erase(connection.id);
}

void Proxy::reset_all() {
  while (!connections_.empty()) {
    reset(*connections_.begin()->second);
  }
}

void Proxy::activate(Connection& connection) {
  if (!std::exchange(connection.listed, true)) {
    active_.push_back(connection.id);
  }
}

void Proxy::activate_all() {
  for (const auto& [id, connection] : connections_) {
    activate(*connection);
  }
}

bool Proxy::move(Connection& connection, Way way) {
  Flow& flow = connection.flows[static_cast<size_t>(way)];
  size_t taken = 0;
  for (bool more = true; more;) {
    const size_t before = flow.bytes.size();
    const Step in = receive(connection, way);
    taken += in == Step::kSome ? flow.bytes.size() - before : 0;
    const Step out = send_on(connection, way);
    if (out == Step::kRemoved) return false;
    more = in == Step::kSome || out == Step::kSome;
    if (more && taken >= kTurnBytes) {
      activate(connection);
      break;
    }
  }
  if (connection.connecting && now_us() >= connection.connect_by_us) {
    reset(connection);
    return false;
  }
  if (flow.end && !flow.finished && flow.bytes.size() == 0 && model_.open(way)) {
    if (now_us() < flow.end_due_us) {
      set_timer(connection, way, flow.end_due_us);
    } else if (*flow.end == End::kReset) {
      reset(connection);
      return false;
    } else if (!connection.connecting) {
      pass_end(connection, way);
    }
  }
  return true;
}

Proxy::Step Proxy::receive(Connection& connection, Way way) {
  Side& from = connection.sides[static_cast<size_t>(way)];
  const Side& to = connection.sides[1 - static_cast<size_t>(way)];
  Flow& flow = connection.flows[static_cast<size_t>(way)];
  if (!from.readable || from.read_all || to.broken || flow.bytes.size() >= model_.buffer_bytes()) {
    return Step::kNone;
  }
  const std::span<std::byte> space = flow.bytes.space();
  const ssize_t count = recv(from.fd.get(), space.data(), space.size(), 0);
  const int error = errno;
  flow.bytes.commit(static_cast<size_t>(std::max<ssize_t>(0, count)));
  const int64_t now = now_us();
  if (count > 0) {
    flow.line.arrive(static_cast<size_t>(count), now, model_.draw_delay_us());
    return Step::kSome;
  }
  if (count == 0) {
    from.read_all = true;
    flow.end = End::kFin;
    flow.end_due_us = flow.line.due_time(now, model_.draw_delay_us());
  } else if (error == EAGAIN) {
    from.readable = false;
  } else if (error != EINTR) {
    broken(connection, static_cast<size_t>(way));
  }
  return Step::kNone;
}

Proxy::Step Proxy::send_on(Connection& connection, Way way) {
  Side& to = connection.sides[1 - static_cast<size_t>(way)];
  Flow& flow = connection.flows[static_cast<size_t>(way)];
  if (to.broken) {
    flow.line.leave(flow.line.waiting());
    flow.bytes.clear();
  }
  if (flow.bytes.size() == 0 || !model_.open(way) || !to.writable) return Step::kNone;
  std::span<std::byte> piece = flow.bytes.front();
  const int64_t now = now_us();
  piece = piece.first(flow.line.due(now, std::min(piece.size(), kPieceBytes)));
  if (piece.empty()) {
    set_timer(connection, way, *flow.line.next_us());
    return Step::kNone;
  }
  const size_t allowed = model_.allowance(way, piece.size(), now);
  if (allowed == 0) {
    set_timer(connection, way, model_.next_allowance_us(way, piece.size()));
    return Step::kNone;
  }
  piece = piece.first(allowed);
  if (const std::optional<size_t> bit = model_.draw_corrupt_bit(piece.size())) {
    piece[*bit / 8] ^= std::byte{1} << (*bit % 8);
    ++counts_.corrupted;
  }
  const bool truncate = model_.take_truncation();
  if (truncate) {
    piece = piece.first(std::max<size_t>(1, piece.size() / 2));
  }
  const ssize_t count = send(to.fd.get(), piece.data(), piece.size(), MSG_NOSIGNAL);
  if (count > 0) {
    const auto bytes = static_cast<size_t>(count);
    (way == Way::kUp ? counts_.bytes_up : counts_.bytes_down) += bytes;
    model_.sent(way, bytes);
    flow.line.leave(bytes);
    flow.bytes.pop(bytes);
  } else if (errno == EAGAIN) {
    to.writable = false;
  } else if (errno != EINTR) {
    broken(connection, 1 - static_cast<size_t>(way));
  }
  if (truncate) {
    ++counts_.truncated;
    reset(connection);
    return Step::kRemoved;
  }
  return count > 0 ? Step::kSome : Step::kNone;
}

void Proxy::pass_end(Connection& connection, Way way) {
  shutdown(connection.sides[1 - static_cast<size_t>(way)].fd.get(), SHUT_WR);
  connection.flows[static_cast<size_t>(way)].finished = true;
}

// The other side sees the failure as over a real link: after the delay, and not while held.
void Proxy::broken(Connection& connection, size_t side) {
  connection.sides[side].broken = true;
  connection.sides[side].read_all = true;
  Flow& flow = connection.flows[side];
  flow.end = End::kReset;
  flow.finished = false;
  flow.end_due_us = flow.line.due_time(now_us(), model_.draw_delay_us());
  activate(connection);
}

void Proxy::set_timer(Connection& connection, Way way, int64_t at_us) {
  Flow& flow = connection.flows[static_cast<size_t>(way)];
  if (flow.timer_us < 0 || at_us < flow.timer_us) {
    flow.timer_us = at_us;
    timers_.emplace(at_us, timers_set_++, connection.id);
  }
}

}  // namespace

std::string ProxyCounts::to_string() const {
  return "connections=" + std::to_string(connections) + " bytes_up=" + std::to_string(bytes_up) +
         " bytes_down=" + std::to_string(bytes_down) + " resets=" + std::to_string(resets) +
         " refused=" + std::to_string(refused) + " corrupted=" + std::to_string(corrupted) +
         " truncated=" + std::to_string(truncated);
}

ProxyCounts run_proxy(const ProxyOptions& options) { return Proxy(options).run(); }

}  // namespace pushpull
