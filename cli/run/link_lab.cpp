#include "cli/run/link_lab.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iomanip>
#include <regex>
#include <sstream>
#include <thread>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"

namespace pushpull {
namespace {

constexpr int64_t kPatienceMs = 60'000;  // to create and to measure a lab

Error failed(const std::string& what) { return {ErrorCode::kFailed, "[link] " + what}; }

// A pipe. Other children do not inherit its ends.
struct Ends {
  UniqueFd reader;
  UniqueFd writer;
  Ends() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      throw failed("cannot make a pipe");
    }
    reader = UniqueFd(ends[0]);
    writer = UniqueFd(ends[1]);
  }
};

// Starts words[0] with standard input `in` and standard output and error `out`, in its own process
// group, so that the terminal's Ctrl-C does not reach it.
pid_t spawn(std::vector<std::string> words, int in, int out) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
  posix_spawnattr_t how;
  posix_spawnattr_init(&how);
  sigset_t none;
  sigemptyset(&none);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigmask(&how, &none);
  posix_spawnattr_setsigdefault(&how, &all);
  posix_spawnattr_setpgroup(&how, 0);
  posix_spawnattr_setflags(&how,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, argv[0], &files, &how, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&how);
  if (error != 0) {
    throw failed("cannot start " + words[0] + ": " +
                 std::strerror(error));  // NOLINT(concurrency-mt-unsafe): one thread
  }
  return pid;
}

// Returns the exit code of `pid`. Kills it if it does not end within kPatienceMs.
int wait_for_end(pid_t pid) {
  const int64_t deadline_ms = now_ms() + kPatienceMs;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (now_ms() > deadline_ms) {
      kill(-pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Returns the next line without its newline, or empty at the end of the stream or at the deadline.
std::optional<std::string> read_line(int fd, int64_t deadline_ms) {
  std::string line;
  while (true) {
    pollfd one{fd, POLLIN, 0};
    const int64_t left = deadline_ms - now_ms();
    const int ready = left > 0 ? poll(&one, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    char byte = 0;
    if (ready <= 0 || read(fd, &byte, 1) != 1) {
      return std::nullopt;
    }
    if (byte == '\n') {
      return line;
    }
    line += byte;
  }
}

std::string find_ip() {
  for (const char* path : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}) {
    if (access(path, X_OK) == 0) {
      return path;
    }
  }
  throw failed("there is no ip(8): install the package iproute2");
}

std::string next_name() {
  static int count = 0;
  return "p" + std::to_string(getpid()) + static_cast<char>('a' + count++ % 26);
}

}  // namespace

std::optional<LinkSpec> parse_link(const std::string& text) {
  if (text == "none") {
    return std::nullopt;
  }
  static const std::regex pattern(
      R"((any|[0-9]{1,9}(?:\.[0-9]{1,6})?[kmg]bit),([0-9]{1,9}(?:\.[0-9]{1,6})?(?:us|ms|s))(?:,([0-9]{1,2}(?:\.[0-9]{1,4})?)%)?)");
  std::smatch parts;
  if (!std::regex_match(text, parts, pattern)) {
    throw Error(ErrorCode::kUsage, "[link] '" + printable(text) +
                                       "': must be RATE,DELAY[,LOSS] such as 100mbit,5ms or "
                                       "1gbit,200us,0.1%, or none for this machine's loopback");
  }
  const auto is_zero = [](const std::string& number) {
    return number.find_first_of("123456789") == std::string::npos;
  };
  LinkSpec spec{.text = text, .rate = parts[1], .delay = parts[2], .loss = parts[3]};
  if (spec.rate == "any") {
    spec.rate.clear();
  } else if (is_zero(spec.rate)) {
    throw Error(ErrorCode::kUsage, "[link] '" + printable(text) +
                                       "': at rate 0 nothing arrives; use any for no limit");
  }
  if (is_zero(spec.delay)) {
    spec.delay.clear();
  }
  spec.loss = is_zero(spec.loss) ? "" : spec.loss + "%";
  return spec;
}

LinkLab::LinkLab(const LinkSpec& spec, int64_t hosts, const std::string& program_dir)
    : name_(next_name()), hosts_(hosts), script_(program_dir + "/pushpull-netlab"), ip_(find_ip()) {
  PP_ASSERT(hosts >= 2);
  measured_.asked = spec.text;
  std::vector<std::string> words = {script_, "up",      "--attached",         "--name",
                                    name_,   "--hosts", std::to_string(hosts)};
  for (const auto& [flag, value] :
       {std::pair{"--rate", spec.rate}, std::pair{"--delay", spec.delay},
        std::pair{"--loss", spec.loss}}) {
    if (!value.empty()) {
      words.insert(words.end(), {flag, value});
    }
  }
  Ends to_netlab;
  Ends from_netlab;
  netlab_ = spawn(words, to_netlab.reader.get(), from_netlab.writer.get());
  input_ = std::move(to_netlab.writer);
  output_ = std::move(from_netlab.reader);
  from_netlab.writer.reset();
  wait_until_ready();
  try {
    measure();
  } catch (...) {
    input_.reset();
    wait_for_end(netlab_);
    throw;
  }
}

LinkLab::~LinkLab() {
  input_.reset();
  wait_for_end(netlab_);
}

void LinkLab::wait_until_ready() {
  const int64_t deadline_ms = now_ms() + kPatienceMs;
  std::string last = "no reason was given";
  for (auto line = read_line(output_.get(), deadline_ms); line;
       line = read_line(output_.get(), deadline_ms)) {
    if (*line == name_) {
      return;
    }
    last = *line;
  }
  input_.reset();
  kill(netlab_, SIGTERM);
  wait_for_end(netlab_);
  constexpr std::string_view kTag = "[netlab] ";
  throw failed("cannot create hosts for '" + measured_.asked +
               "': " + printable(last.starts_with(kTag) ? last.substr(kTag.size()) : last, 400));
}

void LinkLab::measure() {
  Ends none;
  Ends output;
  none.writer.reset();
  const pid_t pid =
      spawn({script_, "measure", name_, "--plain"}, none.reader.get(), output.writer.get());
  output.writer.reset();
  const std::optional<std::string> line = read_line(output.reader.get(), now_ms() + kPatienceMs);
  if (!line) {
    kill(-pid, SIGTERM);
  }
  const int code = wait_for_end(pid);
  std::map<std::string, std::string> found;
  const size_t how = line ? line->find(" how=") : std::string::npos;
  std::istringstream words(line ? line->substr(0, how) : "");
  for (std::string word; words >> word;) {
    const size_t equal = word.find('=');
    found[word.substr(0, equal)] = equal == std::string::npos ? "" : word.substr(equal + 1);
  }
  const std::optional<double> rate = parse_real(found["rate_mbit"]);
  const std::optional<double> round_trip = parse_real(found["round_trip_ms"]);
  if (code != 0 || how == std::string::npos || !rate || !round_trip) {
    throw failed("cannot measure '" + measured_.asked +
                 "': " + printable(line.value_or("no answer in time"), 400));
  }
  measured_.bytes_per_second = *rate * 1e6 / 8;
  measured_.round_trip_ms = *round_trip;
  measured_.how = line->substr(how + std::strlen(" how="));
  congestion_control_ = found["congestion_control"];
}

std::string LinkLab::address(int64_t host) const { return "10.77.0." + std::to_string(host + 1); }

std::vector<std::string> LinkLab::prefix(int64_t host) const {
  PP_ASSERT(host >= 0 && host < hosts_);
  return {ip_, "netns", "exec", name_ + "-" + std::to_string(host)};
}

std::string link_text(const LinkMeasured& link) {
  std::ostringstream text;
  text << link.asked << ": measured " << std::fixed << std::setprecision(1)
       << link.bytes_per_second * 8 / 1e6 << " Mbit/s and " << std::setprecision(2)
       << link.round_trip_ms << " ms for a round trip (" << link.how << ")";
  return text.str();
}

int64_t hosts_of_job(int64_t servers, int64_t workers, int64_t per_host) {
  return servers + (workers + per_host - 1) / per_host;
}

void put_on_hosts(LauncherOptions& options, const LinkLab& lab, int64_t per_host) {
  std::vector<std::string>& words = options.coordinator_arguments;
  const auto listen = std::find(words.begin(), words.end(), "--listen");
  PP_ASSERT(listen != words.end() && listen + 1 != words.end());
  *(listen + 1) = "tcp://" + lab.address(0) + ":*";
  const int64_t servers = options.supervisor.servers;
  const int64_t workers = options.supervisor.workers;
  PP_ASSERT(hosts_of_job(servers, workers, per_host) <= lab.hosts());
  options.places.clear();
  for (int64_t slot = 0; slot < servers + workers; ++slot) {
    const int64_t host = slot < servers ? slot : servers + (slot - servers) / per_host;
    options.places.push_back({.prefix = lab.prefix(host), .arguments = {}});
  }
}

LinkLabs::LinkLabs(const std::vector<std::string>& links, int64_t hosts,
                   const std::string& program_dir, std::vector<std::string>& notes) {
  for (const std::string& link : links) {
    const std::optional<LinkSpec> spec = parse_link(link.empty() ? "none" : link);
    if (!spec) {
      links_.emplace_back();
      continue;
    }
    try {
      labs_[link] = std::make_unique<LinkLab>(*spec, hosts, program_dir);
      links_.push_back(link);
    } catch (const Error& error) {
      notes.push_back(std::string(error.what()) + "; left out");
    }
  }
  if (links_.empty()) {
    notes.emplace_back("[link] no link is available: the runs are on this machine's loopback");
    links_.emplace_back();
  }
}

std::vector<LinkMeasured> LinkLabs::measured() const {
  std::vector<LinkMeasured> all;
  for (const std::string& link : links_) {
    if (const auto found = labs_.find(link); found != labs_.end()) {
      all.push_back(found->second->measured());
    }
  }
  return all;
}

void LinkLabs::put_on(const std::string& link, LauncherOptions& options, int64_t per_host) const {
  if (!link.empty()) {
    put_on_hosts(options, *labs_.at(link), per_host);
  }
}

}  // namespace pushpull
