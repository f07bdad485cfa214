// A page over HTTP for programs that watch a job: GET /metrics (Prometheus' text format) and GET
// /status (JSON). Requests are answered on a thread of its own from the newest texts, so clients
// cannot delay the job. Source of the HTTP part: Boost.Beast.
//
// Clients are not trusted. At most kMaxClients are connected: one more closes the oldest that has sent
// no request yet, or waits in the kernel's queue. Each connection carries one request of at most
// kMaxRequestBytes and is closed after kClientMs at most. A request whose Host is neither an IP address
// nor a name of this host gets 421, because of DNS rebinding. Publish from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/net/address.h"

namespace pushpull {

// How users watch a run beside its files in --out. Plain data and one parser; any thread.
struct WatchOptions {
  std::string tensorboard_dir;            // folder for event files; "" for none
  std::optional<Address> metrics_listen;  // where HTTP serves /metrics and /status; none: nowhere
};

// Parses PORT, :PORT or HOST:PORT. Without a host the address is 127.0.0.1. Throws Error(kUsage)
// naming --metrics-listen.
Address parse_metrics_listen(const std::string& text);

class WatchPage {
 public:
  static constexpr size_t kMaxClients = 16;
  static constexpr uint32_t kMaxRequestBytes = 8192;  // of line and header; a body is refused
  static constexpr int64_t kClientMs = 5000;

  // Listens, and starts the thread. Throws Error(kUnreachable) naming the address and the reason.
  explicit WatchPage(const Address& listen, int64_t client_ms = kClientMs);
  // Closes all connections and joins the thread.
  ~WatchPage();
  WatchPage(const WatchPage&) = delete;
  WatchPage& operator=(const WatchPage&) = delete;

  // Returns "http://127.0.0.1:9100", with the port that was chosen.
  const std::string& url() const { return url_; }
  // Replaces the texts. Before the first call, requests get 503.
  void publish(std::string status, std::string metrics);

 private:
  struct Loop;

  std::unique_ptr<Loop> loop_;
  std::string url_;
};

}  // namespace pushpull
