// `pushpull-proxy`: emulates a network link with delay, rate and faults in front of TCP ports. It
// also measures links.
#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "cli/link/link_measure.h"
#include "cli/link/proxy.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/net/tcp_socket.h"

namespace pushpull {
namespace {

constexpr const char* kCommands =
    R"(commands, one a line, on standard input or in --script as "+SECONDS COMMAND":
  delay MS [JITTER]    each way: a round trip takes twice as long; order is kept
  rate MBIT            of all connections together, each way; 0: unlimited
  hold | release       a partition: nothing goes on, connections stay; its end
  oneway up|down       holds one way only (up: from the connecting side)
  drop SECONDS         hold, then reset and release
  reset                RST to both ends of every connection
  refuse | accept      reset, now and for every later connection; its end
  corrupt N            flips one bit in each of the next N pieces
  truncate             half of the next piece goes on, then RST
  quit
)";

const std::vector<KeyHelp>& options() {
  static const std::vector<KeyHelp> all = {
      {"listen", "", "HOST:PORT[,HOST:PORT...]: where to listen; port 0 picks a free one"},
      {"to", "",
       "HOST:PORT for each of them, in the same order; 'original': the destination of connections "
       "that this host's packet filter redirects"},
      {"delay-ms", "0", "delay each way"},
      {"jitter-ms", "0", "uniform random deviation from the delay; the order is kept"},
      {"rate-mbit", "0", "Mbit/s each way, all connections together; 0: unlimited"},
      {"for-s", "0", "end after this many seconds; 0: on `quit`"},
      {"seed", "1", "of jitter and of the bits that `corrupt` flips"},
      takes("FILE", {"script", "", "file with timed commands; replaces standard input"}),
      {"measure", "",
       "HOST:PORT: measure the link to the process that answers there, for --for-s (2)"},
      {"answer", "", "HOST:PORT: answer one --measure there"},
      {"insecure", "", "allow listening beyond loopback, where any host may connect", "", false},
  };
  return all;
}

std::string value_of(const CommandLine& line, const std::string& flag) {
  const auto found = line.local.find(flag);
  return found == line.local.end() ? "" : found->second;
}

double number_of(const CommandLine& line, const std::string& flag, double other, double most) {
  const std::string text = value_of(line, flag);
  if (text.empty() && !line.local.contains(flag)) {
    return other;
  }
  const std::optional<double> value = parse_real(text);
  if (!value || *value < 0 || *value > most) {
    throw Error(ErrorCode::kUsage, "[usage] --" + flag + " " + printable(text) +
                                       ": must be a number from 0 to " + print_real(most));
  }
  return *value;
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    parts.push_back(part);
  }
  return parts;
}

Address listen_of(const std::string& text, const std::string& flag, const CommandLine& line) {
  Address address = parse_host_port(text, flag);
  if (!address.is_loopback() && !line.local.contains("insecure")) {
    throw Error(ErrorCode::kUsage,
                "[usage] --" + flag + " " + printable(text) +
                    ": any host that reaches this port could use it; --insecure allows it, on a "
                    "network that you trust");
  }
  return address;
}

std::vector<ProxyOptions::Port> ports_of(const CommandLine& line) {
  const std::vector<std::string> listens = parts_of(value_of(line, "listen"));
  const std::vector<std::string> targets = parts_of(value_of(line, "to"));
  if (listens.empty() || listens.size() != targets.size()) {
    throw Error(ErrorCode::kUsage, "[usage] --listen names " + std::to_string(listens.size()) +
                                       " addresses, --to names " + std::to_string(targets.size()) +
                                       ": must be as many and at least one");
  }
  std::vector<ProxyOptions::Port> ports;
  for (size_t i = 0; i < listens.size(); ++i) {
    ProxyOptions::Port port{.listen = listen_of(listens[i], "listen", line), .to = {}};
    if (targets[i] != "original") {
      port.to = parse_host_port(targets[i], "to");
    }
    ports.push_back(port);
  }
  return ports;
}

std::vector<TimedCommand> script_of(const CommandLine& line) {
  const std::string path = value_of(line, "script");
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    throw Error(ErrorCode::kUsage,
                "[usage] --script " + printable(path, kMaxPathBytes) + ": cannot be read");
  }
  return parse_link_script(text.str());
}

int play(const CommandLine& line) {
  ProxyOptions proxy;
  proxy.ports = ports_of(line);
  const double delay = number_of(line, "delay-ms", 0, 60'000);
  const double jitter = number_of(line, "jitter-ms", 0, 60'000);
  proxy.at_start = {
      {.kind = LinkCommand::Kind::kDelay, .value = delay, .jitter = jitter},
      {.kind = LinkCommand::Kind::kRate, .value = number_of(line, "rate-mbit", 0, 1e6)}};
  proxy.end_us = std::llround(number_of(line, "for-s", 0, 1e6) * 1e6);
  proxy.seed = static_cast<uint64_t>(number_of(line, "seed", 1, 9e15));
  if (line.local.contains("script")) {
    proxy.script = script_of(line);
  } else {
    proxy.commands_fd = STDIN_FILENO;
  }
  raise_file_limit();
  std::cout << run_proxy(proxy).to_string() << std::endl;
  return 0;
}

const ProgramHelp& proxy_help() {
  static const ProgramHelp help = {
      .name = "pushpull-proxy",
      .summary = "emulates a slow or broken network link, without root",
      .usage = {"pushpull-proxy --listen HOST:PORT --to HOST:PORT [--delay-ms MS] "
                "[--jitter-ms MS] [--rate-mbit MBIT] [--script FILE]"},
      .options = options(),
      .more = kCommands};
  return help;
}

int main_of(int argc, char** argv) {
  const CommandLine line = parse_command_line(argc, argv, options(), JobFlags::kRefuse);
  if (print_help(line, proxy_help(), PUSHPULL_VERSION)) return 0;
  if (!line.positional.empty()) {
    throw Error(ErrorCode::kUsage, "[usage] unexpected word " + printable(line.positional.front()));
  }
  if (line.local.contains("measure")) {
    const Address to = parse_host_port(line.local.at("measure"), "measure");
    std::cout << measure_link(to, number_of(line, "for-s", 2, 10)).to_string() << std::endl;
    return 0;
  }
  if (line.local.contains("answer")) {
    answer_measuring(listen_of(line.local.at("answer"), "answer", line), 60);
    return 0;
  }
  return play(line);
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  for (int fd = 0; fd >= 0 && fd <= STDERR_FILENO;) {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);  // keeps sockets from getting descriptors 0 to 2
    if (fd > STDERR_FILENO) {
      close(fd);
    }
  }
  try {
    return pushpull::main_of(argc, argv);
  } catch (const pushpull::Error& error) {
    std::cerr << pushpull::printable(error.what(), 2 * pushpull::kMaxPathBytes) << std::endl;
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << "[proxy] " << error.what() << std::endl;
    return static_cast<int>(pushpull::ErrorCode::kFailed);
  }
}
