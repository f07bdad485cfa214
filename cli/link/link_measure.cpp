#include "cli/link/link_measure.h"

#include <linux/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/net/tcp_socket.h"

namespace pushpull {
namespace {

using Clock = std::chrono::steady_clock;

// The first byte of a connection is its purpose.
constexpr char kEcho = 'e';  // every byte comes back
constexpr char kSink = 's';  // next byte: tenths of a second to count for; the count is sent back
constexpr char kLast = 'l';  // this was the last measurement
constexpr double kPatience = 10.0;
constexpr int kRoundTrips = 200;
constexpr size_t kBlock = size_t{256} << 10;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void wait_for(int fd, short events, double seconds, const char* what) {
  pollfd one{fd, events, 0};
  if (poll(&one, 1, static_cast<int>(seconds * 1000)) <= 0) {
    throw Error(ErrorCode::kUnreachable, std::string("[measure] ") + what + ": nothing within " +
                                             print_real(seconds) + " s");
  }
}

// Reads at least one byte. Returns 0 at the end of the stream.
size_t receive(int fd, char* to, size_t most) {
  wait_for(fd, POLLIN, kPatience, "waiting for bytes of the other end");
  const ssize_t count = recv(fd, to, most, 0);
  if (count < 0 && errno != EAGAIN) {
    throw Error(ErrorCode::kUnreachable, "[measure] the other end has gone: " + errno_text());
  }
  return count < 0 ? receive(fd, to, most) : static_cast<size_t>(count);
}

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    wait_for(fd, POLLOUT, kPatience, "waiting for the other end to read");
    const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN) {
      throw Error(ErrorCode::kUnreachable, "[measure] the other end has gone: " + errno_text());
    }
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(0, count)));
  }
}

void echo(int fd) {
  std::array<char, 64> bytes{};
  for (size_t count = receive(fd, bytes.data(), bytes.size()); count > 0;
       count = receive(fd, bytes.data(), bytes.size())) {
    send_all(fd, {bytes.data(), count});
  }
}

// Counts received bytes, except during the first fifth of the time: TCP must find the rate first,
// and token buckets start full. Counting starts when the receive buffer is empty, since its bytes
// arrived earlier.
void sink(int fd) {
  char tenths = 0;
  if (receive(fd, &tenths, 1) != 1) {
    return;
  }
  const double seconds = tenths / 10.0;
  std::vector<char> block(kBlock);
  receive(fd, block.data(), block.size());
  const Clock::time_point begin = Clock::now();
  double counted = 0;
  double from = 0;
  double now = 0;
  for (size_t count = 1; count > 0 && now < seconds; now = seconds_since(begin)) {
    count = receive(fd, block.data(), block.size());
    const double at = seconds_since(begin);
    if (from > 0) {
      counted += static_cast<double>(count);
    } else if (at >= seconds / 5 && (count < block.size() || at >= seconds * 2 / 5)) {
      from = at;
    }
  }
  send_all(fd, print_real(now > from ? counted / (now - from) : 0) + "\n");
  while (receive(fd, block.data(), block.size()) > 0) {  // until the other end has read the count
  }
}

UniqueFd connect_to(const Address& address, char purpose) {
  const SocketAddress to = resolve(address);
  const Clock::time_point begin = Clock::now();
  while (true) {
    UniqueFd fd = start_connect(to);
    if (fd.get() >= 0) {
      wait_for(fd.get(), POLLOUT, kPatience, "connecting");
      if (connect_error(fd.get()) == 0) {
        send_at_once(fd.get());
        send_all(fd.get(), {&purpose, 1});
        return fd;
      }
    }
    if (seconds_since(begin) > kPatience) {
      throw Error(ErrorCode::kUnreachable, "[measure] nothing listens at " + to.to_string());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

double median_round_trip_ms(const Address& to, double seconds) {
  const UniqueFd fd = connect_to(to, kEcho);
  std::vector<double> times;
  std::array<char, 64> bytes{};
  const Clock::time_point begin = Clock::now();
  while (times.size() < 3 || (times.size() < kRoundTrips && seconds_since(begin) < seconds)) {
    const Clock::time_point sent = Clock::now();
    send_all(fd.get(), {bytes.data(), bytes.size()});
    for (size_t got = 0; got < bytes.size();) {
      const size_t count = receive(fd.get(), bytes.data(), bytes.size() - got);
      if (count == 0) {
        throw Error(ErrorCode::kUnreachable, "[measure] the other end has closed");
      }
      got += count;
    }
    times.push_back(seconds_since(sent) * 1e3);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void measure_rate(const Address& to, double seconds, LinkFound& found) {
  UniqueFd fd = connect_to(to, kSink);
  const char tenths = static_cast<char>(std::clamp(std::lround(seconds * 10), 1L, 100L));
  send_all(fd.get(), {&tenths, 1});
  const std::string block(kBlock, 'x');
  std::string answer;
  const Clock::time_point begin = Clock::now();
  while (!answer.ends_with('\n')) {
    pollfd one{fd.get(), POLLIN | POLLOUT, 0};
    if (poll(&one, 1, 1000) < 0 || seconds_since(begin) > seconds + kPatience) {
      throw Error(ErrorCode::kUnreachable, "[measure] no count from the other end within " +
                                               print_real(seconds + kPatience) + " s");
    }
    if ((one.revents & ~POLLOUT) != 0) {
      char byte = 0;
      if (receive(fd.get(), &byte, 1) == 0) {
        throw Error(ErrorCode::kUnreachable, "[measure] the other end has closed");
      }
      answer += byte;
    } else if ((one.revents & POLLOUT) != 0 &&
               send(fd.get(), block.data(), block.size(), MSG_NOSIGNAL) < 0 && errno != EAGAIN) {
      throw Error(ErrorCode::kUnreachable, "[measure] the other end has gone: " + errno_text());
    }
  }
  found.bytes_per_second = parse_real(answer.substr(0, answer.size() - 1)).value_or(0);
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(fd.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0 && info.tcpi_bytes_sent) {
    found.retransmitted =
        static_cast<double>(info.tcpi_bytes_retrans) / static_cast<double>(info.tcpi_bytes_sent);
  }
  std::array<char, 32> name{};
  length = name.size() - 1;
  getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length);
  found.congestion_control = name.data();
  close_with_reset(fd);  // data still in buffers is useless
}

std::string rounded(double value) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(value < 10 ? 2 : 1) << value;
  return out.str();
}

}  // namespace

std::string LinkFound::to_string() const {
  return "rate_mbit=" + rounded(bytes_per_second * 8 / 1e6) +
         " round_trip_ms=" + rounded(round_trip_ms) +
         " retransmitted_percent=" + rounded(retransmitted * 100) +
         " congestion_control=" + congestion_control;
}

void answer_measuring(const Address& listen, double idle_s) {
  const UniqueFd listener = listen_on(listen);
  std::cout << "listening on " << local_name(listener.get()).to_string() << std::endl;
  while (true) {
    wait_for(listener.get(), POLLIN, idle_s, "waiting for a process that measures");
    const UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() < 0) {
      continue;
    }
    send_at_once(fd.get());
    try {
      char purpose = 0;
      receive(fd.get(), &purpose, 1);
      if (purpose == kLast) {
        return;
      }
      (purpose == kSink ? sink : echo)(fd.get());
    } catch (const Error&) {  // disconnected or silent: serve the next one
    }
  }
}

LinkFound measure_link(const Address& to, double seconds) {
  LinkFound found;
  found.round_trip_ms = median_round_trip_ms(to, seconds / 2);
  measure_rate(to, seconds, found);
  connect_to(to, kLast);
  return found;
}

}  // namespace pushpull
