#include "ps/report/watch_page.h"

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

Address parse_metrics_listen(const std::string& text) {
  const size_t colon = text.rfind(':');
  std::string host_and_port = text;
  if (colon == std::string::npos) host_and_port = "127.0.0.1:" + text;
  if (colon == 0) host_and_port = "127.0.0.1" + text;
  try {
    return parse_address("tcp://" + host_and_port, "metrics-listen");
  } catch (const Error&) {
    throw Error(ErrorCode::kUsage, "[usage] --metrics-listen " + printable(text) +
                                       ": expected PORT or HOST:PORT, such as 9100 (on loopback) "
                                       "or 10.0.0.17:9100; port * picks a free one");
  }
}

}  // namespace pushpull

// One thread runs the handlers, so Asio needs no fences, which ThreadSanitizer does not support.
#define BOOST_ASIO_DISABLE_FENCED_BLOCK

#include <netdb.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/process.h"

namespace pushpull {

namespace watch {

// The names by which clients may ask for this page.
struct Names {
  std::vector<std::string> own;  // small letters
};

struct Texts {
  std::string status;
  std::string metrics;
};

// The newest texts. Thread-safe.
class Board {
 public:
  void put(Texts texts) {
    auto newest = std::make_shared<const Texts>(std::move(texts));
    const std::lock_guard lock(mutex_);
    texts_ = std::move(newest);
  }
  std::shared_ptr<const Texts> get() const {
    const std::lock_guard lock(mutex_);
    return texts_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const Texts> texts_;  // null before the first ones
};

}  // namespace watch

namespace {

using watch::Board;

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr std::chrono::milliseconds kRetryAccept{200};

using Response = http::response<http::string_body>;

Response plain(http::status status, const std::string& text) {
  Response out(status, 11);
  out.set(http::field::content_type, "text/plain; charset=utf-8");
  out.body() = text + "\n";
  return out;
}

std::string small_letters(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// Returns the host of a Host header, without its port and without a dot at its end.
std::string host_of(const std::string& field) {
  std::string host = small_letters(field);
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end == std::string::npos ? "" : host.substr(1, end - 1);
  }
  host.resize(std::min(host.find(':'), host.size()));
  if (host.ends_with('.')) host.pop_back();
  return host;
}

// A page in a browser may have made its own name one of this host (DNS rebinding); the browser then lets
// that page read what we answer, but names it in Host. An IP address is no name that one could rebind.
bool is_ours(const std::string& field, const watch::Names& names) {
  const std::string host = host_of(field);
  boost::system::error_code no_address;
  asio::ip::make_address(host, no_address);
  return !no_address || std::ranges::find(names.own, host) != names.own.end();
}

// Asks the resolver for the full name only if other hosts can reach the page.
watch::Names names_of(const Address& listen) {
  watch::Names names{{"localhost", small_letters(listen.host), small_letters(host_name())}};
  const std::string& host = names.own.back();
  names.own.push_back(host.substr(0, host.find('.')));
  if (listen.is_loopback()) return names;
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  addrinfo* found = nullptr;
  if (getaddrinfo(host_name().c_str(), nullptr, &hints, &found) != 0) return names;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  if (list->ai_canonname != nullptr) names.own.push_back(small_letters(list->ai_canonname));
  return names;
}

Response answer(const http::request<http::empty_body>& request, const Board& board,
                const watch::Names& names) {
  // HTTP/1.0 has no Host, and browsers do not speak it
  const auto [first, last] = request.equal_range(http::field::host);
  for (auto field = first; field != last; ++field) {
    const std::string host(field->value());
    if (is_ours(host, names)) continue;
    return plain(http::status::misdirected_request,
                 "this page is not called " + printable(host) +
                     ": ask for it by the host's own name, localhost or an IP address");
  }
  const bool head = request.method() == http::verb::head;
  if (!head && request.method() != http::verb::get) {
    Response out = plain(http::status::method_not_allowed, "only GET and HEAD are answered");
    out.set(http::field::allow, "GET, HEAD");
    return out;
  }
  const beast::string_view path = request.target().substr(0, request.target().find('?'));
  const bool metrics = path == "/metrics";
  if (!metrics && path != "/status") {
    return plain(http::status::not_found, "there are /metrics and /status");
  }
  const std::shared_ptr<const watch::Texts> texts = board.get();
  if (!texts) return plain(http::status::service_unavailable, "the job has just begun; ask again");
  Response out(http::status::ok, 11);
  out.set(http::field::content_type,
          metrics ? "text/plain; version=0.0.4; charset=utf-8" : "application/json");
  out.set(http::field::cache_control, "no-store");
  out.body() = metrics ? texts->metrics : texts->status + "\n";
  return out;
}

}  // namespace

namespace watch {

// One connection: reads a request, answers it, closes. Lives until its last handler has run.
class Client : public std::enable_shared_from_this<Client> {
 public:
  //   ended: called once, from the destructor.
  Client(tcp::socket socket, const Board& board, const watch::Names& names,
         std::function<void()> ended)
      : stream_(std::move(socket)), board_(board), names_(names), ended_(std::move(ended)) {
    parser_.header_limit(WatchPage::kMaxRequestBytes);
    parser_.body_limit(0);
  }
  ~Client() { ended_(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Whether the request has not come yet. Such a client makes place for a new one.
  bool is_silent() const { return !heard_; }
  void drop() { stream_.socket().close(ignored_); }

  // One deadline covers the whole exchange, however slowly bytes arrive or leave.
  void start(std::chrono::milliseconds deadline) {
    stream_.expires_after(deadline);
    http::async_read(stream_, buffer_, parser_,
                     [self = shared_from_this()](beast::error_code error, size_t /*bytes*/) {
                       self->on_read(error);
                     });
  }

 private:
  void on_read(beast::error_code error) {
    heard_ = true;
    if (error && error.category() != http::make_error_code(http::error::bad_line_ending).category())
      return;  // the connection is closed or the deadline is over
    response_ = error ? plain(http::status::bad_request, error.message())
                      : answer(parser_.get(), board_, names_);
    response_.keep_alive(false);
    response_.prepare_payload();
    if (!error && parser_.get().method() == http::verb::head) response_.body().clear();
    http::async_write(stream_, response_,
                      [self = shared_from_this()](beast::error_code, size_t /*bytes*/) {
                        beast::error_code ignored;
                        self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
                      });
  }

  beast::tcp_stream stream_;
  const Board& board_;
  const watch::Names& names_;
  const std::function<void()> ended_;
  beast::flat_buffer buffer_{WatchPage::kMaxRequestBytes};
  http::request_parser<http::empty_body> parser_;
  Response response_;
  bool heard_ = false;
  beast::error_code ignored_;
};

}  // namespace watch

namespace {

Error cannot_listen(const Address& listen, const std::string& reason) {
  return {ErrorCode::kUnreachable,
          "[metrics] cannot listen on " + listen.to_string() + ": " + reason};
}

}  // namespace

// All but `board` belongs to the thread once it runs.
struct WatchPage::Loop {
  explicit Loop(int64_t client_ms) : deadline(client_ms) {}

  void listen(const Address& address);
  void accept();
  void on_accept(beast::error_code error, tcp::socket socket);
  void drop_oldest_silent();
  void run();

  const std::chrono::milliseconds deadline;
  watch::Board board;
  std::list<std::weak_ptr<watch::Client>> order;  // of the clients, the oldest first
  watch::Names names;
  bool closing = false;  // the thread has ended: handlers are destroyed, not run
  size_t clients = 0;
  bool accepting = false;
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  asio::steady_timer pause{context};
  std::thread thread;
};

void WatchPage::Loop::listen(const Address& address) {
  try {
    tcp::resolver resolver(context);
    const auto found =
        resolver.resolve(address.host == "*" ? "0.0.0.0" : address.host,
                         address.port == "*" ? "0" : address.port, tcp::resolver::passive);
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor.open(endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen();
  } catch (const boost::system::system_error& e) {
    throw cannot_listen(address, e.code().message());
  }
}

void WatchPage::Loop::accept() {
  if (std::exchange(accepting, true)) return;
  acceptor.async_accept(
      [this](beast::error_code error, tcp::socket socket) { on_accept(error, std::move(socket)); });
}

void WatchPage::Loop::on_accept(beast::error_code error, tcp::socket socket) {
  accepting = false;
  if (error) {  // no descriptor is free, or the client has gone
    pause.expires_after(kRetryAccept);
    return pause.async_wait([this](beast::error_code) { accept(); });
  }
  ++clients;
  const auto ended = [this] {
    if (closing) return;
    --clients;
    accept();
  };
  const auto client = std::make_shared<watch::Client>(std::move(socket), board, names, ended);
  order.remove_if([](const std::weak_ptr<watch::Client>& one) { return one.expired(); });
  order.push_back(client);
  client->start(deadline);
  if (clients >= kMaxClients) drop_oldest_silent();
  if (clients < kMaxClients) accept();
}

// Its handler runs at once, and `ended` then accepts the next client.
void WatchPage::Loop::drop_oldest_silent() {
  for (const std::weak_ptr<watch::Client>& one : order) {
    const std::shared_ptr<watch::Client> client = one.lock();
    if (client && client->is_silent()) return client->drop();
  }
}

void WatchPage::Loop::run() {
  while (!context.stopped()) {
    try {
      context.run();
    } catch (const std::exception&) {
      // costs the connection of the handler that threw
    }
  }
}

WatchPage::WatchPage(const Address& listen, int64_t client_ms)
    : loop_(std::make_unique<Loop>(client_ms)) {
  loop_->listen(listen);
  loop_->names = names_of(listen);
  Address bound = listen;
  bound.port = std::to_string(loop_->acceptor.local_endpoint().port());
  url_ = "http" + bound.to_string().substr(std::string("tcp").size());
  loop_->accept();
  loop_->thread = std::thread([loop = loop_.get()] { loop->run(); });
}

WatchPage::~WatchPage() {
  loop_->context.stop();
  loop_->thread.join();
  loop_->closing = true;
}

void WatchPage::publish(std::string status, std::string metrics) {
  loop_->board.put({std::move(status), std::move(metrics)});
}

}  // namespace pushpull
