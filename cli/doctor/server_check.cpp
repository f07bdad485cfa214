// Measures the way to one server's data port.
#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "cli/doctor/checks.h"
#include "common/base/process.h"
#include "common/net/endpoint.h"
#include "common/net/join.h"
#include "common/shm/segment.h"

namespace pushpull {

namespace {

constexpr int kSmallPings = 21;
constexpr int64_t kPieceBytes = int64_t{1} << 18;
constexpr int kPieces = 16;   // each way
constexpr int kUnderWay = 2;  // pieces in flight
constexpr double kRateSeconds = 2.0;
constexpr double kPongSeconds = 3.0;
constexpr int kPollMs = 50;
constexpr double kSlowMs = 50.0;
constexpr int64_t kMaxProbeBytes = int64_t{1} << 20;

// Sends pings to one server; each gets one answer.
class Pinger {
 public:
  Pinger(zmq::context_t& context, const std::string& address, const Credentials& credentials)
      : dealer_(context, address, data_limits(kPieceBytes), credentials) {}

  void send(int64_t there_bytes, int64_t back_bytes, const std::string& host = "") {
    Message message;
    wire::Ping* ping = message.header.mutable_ping();
    ping->set_number(++number_);
    ping->set_answer_bytes(back_bytes);
    ping->set_host(host);
    if (there_bytes > 0) message.payloads.push_back(piece(there_bytes));
    dealer_.send(message);
  }
  // Returns the next answer, or empty if none arrives in time.
  std::optional<wire::Pong> take(double seconds) {
    const double end_s = now_seconds() + seconds;
    while (dealer_.foreign_version() == 0) {
      if (const auto message = dealer_.receive()) {
        if (message->header.has_pong()) return message->header.pong();
        continue;
      }
      const double left_s = end_s - now_seconds();
      if (left_s <= 0) return std::nullopt;
      zmq::pollitem_t item{dealer_.socket().handle(), 0, ZMQ_POLLIN, 0};
      // the connection may be made anew
      poll_sockets({&item, 1}, std::min(kPollMs, static_cast<int>(left_s * 1000.0) + 1));
    }
    return std::nullopt;
  }
  uint16_t foreign_version() const { return dealer_.foreign_version(); }

 private:
  Payload piece(int64_t bytes) {
    if (!filler_) filler_ = std::make_shared<std::vector<std::byte>>(kPieceBytes);
    return {filler_, std::span(*filler_).first(static_cast<size_t>(bytes))};
  }

  Dealer dealer_;
  std::shared_ptr<std::vector<std::byte>> filler_;
  int64_t number_ = 0;
};

std::optional<double> measure_latency(Pinger& pinger) {
  std::vector<double> times;
  for (int i = 0; i < kSmallPings; ++i) {
    const double begin_s = now_seconds();
    pinger.send(0, 0);
    if (!pinger.take(kPongSeconds)) return std::nullopt;
    times.push_back((now_seconds() - begin_s) * 1000.0);
  }
  std::nth_element(times.begin(), times.begin() + kSmallPings / 2, times.end());
  return times[kSmallPings / 2];
}

// Returns bytes per second in one direction, with a few pieces in flight, or 0 without an answer.
double measure_rate(Pinger& pinger, bool there) {
  const double begin_s = now_seconds();
  int sent = 0;
  int done = 0;
  while (done < kPieces && (done == 0 || now_seconds() - begin_s < kRateSeconds)) {
    for (; sent < std::min(kPieces, done + kUnderWay); ++sent) {
      pinger.send(there ? kPieceBytes : 0, there ? 0 : kPieceBytes);
    }
    if (!pinger.take(kPongSeconds)) break;
    ++done;
  }
  const double seconds = now_seconds() - begin_s;
  // Drains late answers, so that they are not taken for answers to later pings.
  for (int late = done; done > 0 && late < sent && pinger.take(kPongSeconds); ++late) {
  }
  return static_cast<double>(done) * static_cast<double>(kPieceBytes) / seconds;
}

void look_at_memory(const wire::Pong& pong, ServerWay& way) {
  way.here = pong.has_probe();
  way.memory = pong.text();
  if (!way.here) return;
  try {
    const Mapping mapping(pong.probe(), kMaxProbeBytes);
  } catch (const Error& e) {
    way.memory = e.what();
  }
}

std::string rate_text(double bytes_per_second) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.0f MB/s", bytes_per_second / 1e6);
  return text.data();
}

}  // namespace

std::vector<Finding> findings_of(const std::string& who, const std::string& address,
                                 const ServerWay& way) {
  std::array<char, 32> latency{};
  std::snprintf(latency.data(), latency.size(), "%.2f ms", way.latency_ms);
  const std::string text = address + ": latency " + latency.data() + ", " +
                           rate_text(way.there_per_second) + " there, " +
                           rate_text(way.back_per_second) + " back";
  std::vector<Finding> out;
  if (way.there_per_second == 0.0 || way.back_per_second == 0.0) {
    out.push_back(warning(who, text + "; small messages arrive and larger ones do not: is the MTU "
                                      "the same along the whole path?"));
  } else if (way.latency_ms > kSlowMs) {
    out.push_back(warning(who, text + "; a step takes at least that long: local:H and async wait "
                                      "less often"));
  } else {
    out.push_back(fine(who, text));
  }
  if (way.memory.empty()) {
    out.push_back(fine("shm of " + who, "its memory can be shared with this process"));
  } else if (way.here) {
    out.push_back(warning("shm of " + who, "it is on this host, but its memory cannot be shared: " +
                                               way.memory + "; gradients go over the socket"));
  } else {
    out.push_back(fine("shm of " + who, "none: " + way.memory));
  }
  return out;
}

std::vector<Finding> check_server(zmq::context_t& context, const std::string& who,
                                  const std::string& address, const Credentials& credentials) {
  Pinger pinger(context, address, credentials);
  pinger.send(0, 0, host_identity());
  const auto first = pinger.take(kPongSeconds);
  if (pinger.foreign_version() != 0) {
    return {
        wrong(who, foreign_version_text(address, pinger.foreign_version()), ErrorCode::kProtocol)};
  }
  if (!first) {
    return {wrong(who,
                  address + " accepts connections, but has not answered for " +
                      std::to_string(static_cast<int>(kPongSeconds)) +
                      " s: it is stopped, or another program listens there",
                  ErrorCode::kUnreachable)};
  }
  ServerWay way;
  look_at_memory(*first, way);
  const auto latency = measure_latency(pinger);
  if (!latency) {
    return {wrong(who, address + " stopped answering", ErrorCode::kUnreachable)};
  }
  way.latency_ms = *latency;
  way.there_per_second = measure_rate(pinger, true);
  way.back_per_second = measure_rate(pinger, false);
  return findings_of(who, address, way);
}

}  // namespace pushpull
