#include "ps/report/watch_page.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/unique_fd.h"

namespace pushpull {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9100\r\n\r\n";

UniqueFd connected(const WatchPage& page) {
  UniqueFd out(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<uint16_t>(std::stoi(page.url().substr(page.url().rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(out.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return out;
}

void send_text(const UniqueFd& to, const std::string& text) {
  EXPECT_EQ(send(to.get(), text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
}

// Returns all bytes until the other end closes.
std::string rest(const UniqueFd& from) {
  std::string out;
  std::string piece(65536, 0);
  for (ssize_t n = 0; (n = read(from.get(), piece.data(), piece.size())) > 0;) {
    out.append(piece, 0, static_cast<size_t>(n));
  }
  return out;
}

std::string asked(const WatchPage& page, const std::string& request) {
  const UniqueFd client = connected(page);
  send_text(client, request);
  return rest(client);
}

const Address kAnyPort{"127.0.0.1", "*"};

TEST(WatchPage, AnswersWithTheNewestTexts) {
  WatchPage page(kAnyPort);
  EXPECT_THAT(asked(page, kGet), StartsWith("HTTP/1.1 503 ")) << "there is nothing to tell yet";
  page.publish("{\"a\":1}", "old 1\n");
  page.publish("{\"a\":2}", "new 1\n");
  EXPECT_THAT(asked(page, kGet),
              testing::AllOf(StartsWith("HTTP/1.1 200 "), HasSubstr("version=0.0.4"),
                             HasSubstr("\r\n\r\nnew 1\n")));
  EXPECT_THAT(asked(page, "GET /status?x HTTP/1.0\r\n\r\n"),
              testing::AllOf(HasSubstr("application/json"), HasSubstr("\r\n\r\n{\"a\":2}\n")));
}

TEST(WatchPage, RefusesWhatItDoesNotServe) {
  WatchPage page(kAnyPort);
  page.publish("{}", "");
  EXPECT_THAT(asked(page, "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(asked(page, "DELETE /status HTTP/1.1\r\n\r\n"),
              testing::AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")));
  EXPECT_THAT(asked(page, "nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(asked(page, "POST /status HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde"),
              testing::Not(HasSubstr(" 200 ")));
  EXPECT_THAT(asked(page, "GET /status HTTP/1.1\r\nX: " + std::string(10'000, 'x') + "\r\n\r\n"),
              testing::Not(HasSubstr(" 200 ")));
  EXPECT_THAT(asked(page, kGet), StartsWith("HTTP/1.1 200 ")) << "it goes on";
}

std::string asked_as(const WatchPage& page, const std::string& host) {
  return asked(page, "GET /status HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
}

TEST(WatchPage, AnswersOnlyToAddressesAndItsOwnNames) {
  WatchPage page(kAnyPort);
  page.publish("{}", "");
  for (const std::string& host :
       {std::string("localhost"), std::string("LOCALHOST.:9100"), std::string("[::1]:9100"),
        std::string("10.1.2.3"), host_name()}) {
    EXPECT_THAT(asked_as(page, host), StartsWith("HTTP/1.1 200 ")) << host;
  }
  for (const char* host :
       {"evil.example", "evil.example:9100", "127.0.0.1.evil.example", "localhost.evil.example",
        "[::1", "x\r\nHost: localhost", "localhost\r\nHost: x", ""}) {
    EXPECT_THAT(asked_as(page, host),
                testing::AnyOf(StartsWith("HTTP/1.1 421 "), StartsWith("HTTP/1.1 400 ")))
        << host;
  }
  EXPECT_THAT(asked_as(page, "evil.example"),
              testing::AllOf(HasSubstr("\r\n\r\nthis page is not called evil.example: "),
                             testing::Not(HasSubstr("{}"))));
}

TEST(WatchPage, ClosesClientsThatAreSlow) {
  WatchPage page(kAnyPort, 50);
  page.publish("{}", "");
  const UniqueFd silent = connected(page);
  const UniqueFd half = connected(page);
  send_text(half, "GET /met");
  EXPECT_EQ(rest(silent), "");
  EXPECT_EQ(rest(half), "");
}

TEST(WatchPage, ClosesClientsThatDoNotRead) {
  WatchPage page(kAnyPort, 50);
  page.publish("{}", std::string(64 << 20, 'x'));  // more than the buffers of a connection
  const UniqueFd client = connected(page);
  send_text(client, kGet);
  usleep(200'000);
  EXPECT_LT(rest(client).size(), size_t{64} << 20);
}

TEST(WatchPage, SilentClientsMakePlaceForOthers) {
  constexpr int64_t kHourMs = 3'600'000;
  WatchPage page(kAnyPort, kHourMs);
  page.publish("{}", "");
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < 200; ++i) silent.push_back(connected(page));
  EXPECT_THAT(asked(page, kGet), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(rest(silent.front()), "") << "the oldest was closed";
}

TEST(WatchPage, EndsWithOpenConnections) {
  std::vector<UniqueFd> clients;
  WatchPage page(kAnyPort);
  for (size_t i = 0; i < WatchPage::kMaxClients + 1; ++i) clients.push_back(connected(page));
  usleep(20'000);
}

TEST(WatchPage, ATakenPortIsNamedWithTheReason) {
  const WatchPage page(kAnyPort);
  const std::string port = page.url().substr(page.url().rfind(':') + 1);
  try {
    const WatchPage second({"127.0.0.1", port});
    FAIL() << "two pages on a port";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("127.0.0.1:" + port + ": Address already in use"));
  }
}

TEST(MetricsListen, IsOnLoopbackWithoutAHost) {
  for (const char* text : {"9100", ":9100", "127.0.0.1:9100"}) {
    EXPECT_EQ(parse_metrics_listen(text).to_string(), "tcp://127.0.0.1:9100") << text;
  }
  EXPECT_EQ(parse_metrics_listen("[::1]:9100").host, "::1");
  EXPECT_EQ(parse_metrics_listen("node7:*").to_string(), "tcp://node7:*");
  for (const char* text : {"", ":", "x", "host:", "1:70000", "-1"}) {
    EXPECT_THROW(parse_metrics_listen(text), Error) << text;
  }
}

}  // namespace
}  // namespace pushpull
