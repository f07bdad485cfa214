#include "cli/bench/socket_floor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <memory>
#include <span>
#include <system_error>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/unique_fd.h"

namespace pushpull {
namespace {

constexpr int kSocketBuffer = 256 << 10;
constexpr int kTimeoutS = 30;
constexpr int64_t kMovedBytes = int64_t{512} << 20;
constexpr int64_t kLeastRounds = 6;
constexpr int64_t kMostRounds = 1000;

enum class Request : uint64_t { kPush = 1, kPull = 2, kQuit = 3 };

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kFailed, "[bench] the floor over sockets: " + what + ": " +
                                      std::error_code(errno, std::generic_category()).message());
}

// False if the peer is gone, or silent for kTimeoutS.
bool send_all(int fd, const void* data, size_t n) {
  const char* at = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    n -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, void* data, size_t n) {
  char* at = static_cast<char*>(data);
  while (n > 0) {
    const ssize_t got = recv(fd, at, n, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    n -= static_cast<size_t>(got);
  }
  return true;
}

// Sends a header and the tensor after it, in one call if possible.
bool send_tensor(int fd, Request header, const std::vector<char>& tensor) {
  iovec parts[2] = {{&header, sizeof header}, {const_cast<char*>(tensor.data()), tensor.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
  if (sent < static_cast<ssize_t>(sizeof header)) return false;
  const size_t done = static_cast<size_t>(sent) - sizeof header;
  return send_all(fd, tensor.data() + done, tensor.size() - done);
}

void tune(int fd, bool tcp) {
  const int one = 1;
  const timeval timeout{kTimeoutS, 0};
  bool ok = !tcp || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0;
  for (const int which : {SO_SNDBUF, SO_RCVBUF}) {
    ok = ok && setsockopt(fd, SOL_SOCKET, which, &kSocketBuffer, sizeof kSocketBuffer) == 0;
  }
  for (const int which : {SO_SNDTIMEO, SO_RCVTIMEO}) {
    ok = ok && setsockopt(fd, SOL_SOCKET, which, &timeout, sizeof timeout) == 0;
  }
  if (!ok) fail("setsockopt");
}

// The seconds of each round of a client.
struct Round {
  double push = 0.0;
  double pull = 0.0;
};

bool run_client(int fd, int64_t bytes, std::span<Round> rounds) {
  std::vector<char> gradient(static_cast<size_t>(bytes), 1);
  std::vector<char> weights(static_cast<size_t>(bytes), 1);
  Request header{};
  const int64_t warm_up = std::max<int64_t>(2, static_cast<int64_t>(rounds.size()) / 10);
  for (int64_t i = -warm_up; i < static_cast<int64_t>(rounds.size()); ++i) {
    const double begin = now_seconds();
    if (!send_tensor(fd, Request::kPush, gradient)) return false;
    if (!receive_all(fd, &header, sizeof header)) return false;
    const double pushed = now_seconds();
    header = Request::kPull;
    if (!send_all(fd, &header, sizeof header)) return false;
    if (!receive_all(fd, &header, sizeof header)) return false;
    if (!receive_all(fd, weights.data(), weights.size())) return false;
    if (i >= 0) rounds[static_cast<size_t>(i)] = {pushed - begin, now_seconds() - pushed};
  }
  header = Request::kQuit;
  return send_all(fd, &header, sizeof header);
}

// Answers until the client quits; false if it disappears without quitting.
bool serve(int fd, const std::vector<char>& weights) {
  std::vector<char> gradient(weights.size(), 1);
  for (;;) {
    Request header{};
    if (!receive_all(fd, &header, sizeof header)) return false;
    switch (header) {
      case Request::kPush:
        if (!receive_all(fd, gradient.data(), gradient.size())) return false;
        if (!send_all(fd, &header, sizeof header)) return false;
        break;
      case Request::kPull:
        if (!send_tensor(fd, header, weights)) return false;
        break;
      default:
        return true;
    }
  }
}

// Both ends of one connection.
struct Pair {
  UniqueFd server;
  UniqueFd client;
};

Pair connect_pair(bool tcp) {
  if (!tcp) {
    int ends[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
    Pair pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
    tune(ends[0], false);
    tune(ends[1], false);
    return pair;
  }
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.get() < 0 || client.get() < 0) fail("socket");
  tune(listener.get(), true);
  tune(client.get(), true);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), generic, size) != 0 || listen(listener.get(), 1) != 0) fail("listen");
  if (getsockname(listener.get(), generic, &size) != 0) fail("getsockname");
  if (connect(client.get(), generic, size) != 0) fail("connect");
  UniqueFd server(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (server.get() < 0) fail("accept");
  tune(server.get(), true);
  return {std::move(server), std::move(client)};
}

// The clients' measurements, in memory shared with this process.
class SharedRounds {
 public:
  explicit SharedRounds(size_t count) : bytes_(count * sizeof(Round)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) fail("mmap");
  }
  ~SharedRounds() { munmap(memory_, bytes_); }
  SharedRounds(const SharedRounds&) = delete;
  SharedRounds& operator=(const SharedRounds&) = delete;

  std::span<Round> all() { return {static_cast<Round*>(memory_), bytes_ / sizeof(Round)}; }

 private:
  size_t bytes_;
  void* memory_;
};

// Starts one client process. It dies with this process.
pid_t start_client(std::vector<Pair>& pairs, size_t index, int64_t bytes, std::span<Round> rounds) {
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) fail("fork");
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (size_t i = 0; i < pairs.size(); ++i) {
    pairs[i].server.reset();  // so that its end is noticed
    if (i != index) pairs[i].client.reset();
  }
  _exit(run_client(pairs[index].client.get(), bytes, rounds) ? 0 : 1);
}

bool ended_well(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

SocketFloor floor_of(std::span<const Round> rounds, int64_t clients) {
  const size_t each = rounds.size() / static_cast<size_t>(clients);
  SocketFloor floor;
  for (size_t c = 0; c < static_cast<size_t>(clients); ++c) {
    std::vector<double> whole;
    std::vector<double> push;
    std::vector<double> pull;
    for (const Round& round : rounds.subspan(c * each, each)) {
      push.push_back(round.push * 1e6);
      pull.push_back(round.pull * 1e6);
      whole.push_back(push.back() + pull.back());
    }
    floor.exchange_us += percentiles(whole).p50 / static_cast<double>(clients);
    if (c == 0) floor.way = {percentiles(push), percentiles(pull)};
  }
  return floor;
}

}  // namespace

SocketFloor socket_floor(Transport transport, int64_t bytes, int64_t clients) {
  const int64_t rounds = std::clamp(kMovedBytes / bytes, kLeastRounds, kMostRounds);
  SharedRounds shared(static_cast<size_t>(rounds * clients));
  std::vector<Pair> pairs;
  for (int64_t i = 0; i < clients; ++i) pairs.push_back(connect_pair(transport == Transport::kTcp));
  std::vector<pid_t> pids;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto each = static_cast<size_t>(rounds);
    pids.push_back(start_client(pairs, i, bytes, shared.all().subspan(i * each, each)));
  }
  const std::vector<char> weights(static_cast<size_t>(bytes), 1);
  std::atomic<bool> good = true;
  {
    std::vector<std::jthread> threads;
    for (Pair& pair : pairs) {
      pair.client.reset();
      threads.emplace_back([&good, &weights, fd = pair.server.get()] {
        if (!serve(fd, weights)) good = false;
      });
    }
  }
  pairs.clear();  // a client that still waits notices the end
  for (const pid_t pid : pids) good = ended_well(pid) && good;
  if (!good) {
    throw Error(ErrorCode::kFailed,
                "[bench] the floor over sockets: a client did not end well; is there memory enough "
                "for another " +
                    std::to_string(bytes) + " bytes, twice for each worker?");
  }
  return floor_of(shared.all(), clients);
}

}  // namespace pushpull
