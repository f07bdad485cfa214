// `pushpull top`: the program around TopJob and its view.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/status/ask_status.h"
#include "cli/status/top_view.h"
#include "common/base/console.h"
#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/unique_fd.h"
#include "common/job/command_line.h"
#include "common/job/job_keys.h"
#include "common/job/program_help.h"
#include "common/net/address.h"
#include "common/net/key_file.h"

namespace pushpull {
namespace {

// A full-screen view on a terminal: plain ANSI on the alternate screen, keys without echo. The terminal is restored by the
// destructor, and while the program is suspended. One thread.
class Screen {
 public:
  // in, out: descriptors of the terminal. A terminal that is stopped cannot block the program.
  Screen(int in, int out);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  struct Size {
    size_t rows = 24;
    size_t columns = 80;
  };
  Size size() const;

  // Replaces what is shown. The first line is shown in reverse.
  void draw(const std::vector<std::string>& lines);
  // Restores the terminal, stops this process as the terminal's suspend key does (SIGSTOP), and takes the terminal
  // again when it continues.
  void suspend();
  // Returns the keys that have been pressed, as the terminal encodes them, or nullopt if the terminal is gone.
  std::optional<std::string> take_keys();

 private:
  void enter();
  void leave();

  const int in_;
  const int out_;
  Console console_;
  termios before_{};
};

// Alternate screen, cursor off, no automatic line break; and back.
constexpr const char* kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr const char* kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";

Screen::Screen(int in, int out) : in_(in), out_(out), console_(out, out) {
  tcgetattr(in_, &before_);
  enter();
}

Screen::~Screen() { leave(); }

void Screen::enter() {
  termios mode = before_;
  mode.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // the keys of signals keep their effect
  mode.c_cc[VMIN] = 0;
  mode.c_cc[VTIME] = 0;
  tcsetattr(in_, TCSANOW, &mode);
  console_.out(kEnter);
}

void Screen::leave() {
  console_.out(kLeave);
  console_.flush();
  tcsetattr(in_, TCSANOW, &before_);
}

Screen::Size Screen::size() const {
  winsize size{};
  if (ioctl(out_, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {size.ws_row, size.ws_col};
}

void Screen::draw(const std::vector<std::string>& lines) {
  // Erases before it writes: after a full line the cursor stands on the last character.
  std::string text = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += "\r\n";
    text += "\x1b[K" + (i == 0 ? "\x1b[7m" + lines[i] + "\x1b[0m" : lines[i]);
  }
  if (lines.size() < size().rows) text += "\r\n\x1b[J";
  console_.out(text);
}

void Screen::suspend() {
  leave();
  raise(SIGSTOP);
  enter();
}

std::optional<std::string> Screen::take_keys() {
  pollfd readable{in_, POLLIN, 0};
  std::array<char, 64> bytes{};
  if (poll(&readable, 1, 0) <= 0) return "";
  if ((readable.revents & POLLIN) == 0) return std::nullopt;
  const ssize_t count = read(in_, bytes.data(), bytes.size());
  if (count <= 0) return std::nullopt;
  return std::string(bytes.data(), static_cast<size_t>(count));
}

constexpr double kTopSeconds = 5.0;
constexpr int64_t kLeastIntervalMs = 200;  // the coordinator answers five times a second
constexpr int kTopTurnMs = 250;            // the clock and the seconds of silence go on
constexpr size_t kWideColumns = 200;
constexpr size_t kManyRows = 5000;

const std::vector<KeyHelp>& top_options() {
  static const std::vector<KeyHelp> options = with_key_flags({
      {"join", "", "address of the first server: tcp://HOST:PORT"},
      {"interval", "1", "seconds between two looks"},
      {"once", "", "print the table once and end, as if the output were no terminal", "", false},
      {"join-timeout", "5", "with --once: seconds to wait for the answer"},
  });
  return options;
}

// Signals of a full-screen program as readable events. Create it before any thread starts.
class TopSignals {
 public:
  TopSignals() {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH, SIGCONT}) {
      sigaddset(&mask, signal);
    }
    sigprocmask(SIG_BLOCK, &mask, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
    fd_ = UniqueFd(signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC));
    PP_ASSERT(fd_.get() >= 0);
  }
  int fd() const { return fd_.get(); }
  // Returns the next pending signal, or 0.
  int take() const {
    signalfd_siginfo info{};
    const bool is_one = read(fd_.get(), &info, sizeof info) == sizeof info;
    return is_one ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  UniqueFd fd_;
};

std::string time_of_day() { return utc_now().substr(11, 8) + " UTC"; }

class Top {
 public:
  Top(const CommandLine& line, std::string address)
      : address_(std::move(address)),
        keys_(keys_of(line)),
        job_(std::max(kLeastIntervalMs,
                      static_cast<int64_t>(1000.0 * seconds_of(line, "interval", 1.0)))),
        context_(1) {}

  // Returns the exit code. Throws Error if the coordinator refuses the first question.
  int run();

 private:
  void ask();
  void draw(Screen& screen);
  void wait(const TopSignals& signals);
  // Both return true if the program should end.
  bool take_signals(const TopSignals& signals, Screen& screen);
  bool take_keys(const std::optional<std::string>& keys);
  void scroll(int64_t members);

  const std::string address_;
  const Keys keys_;
  TopJob job_;
  zmq::context_t context_;
  std::unique_ptr<StatusQuestion> question_;
  size_t first_member_ = 0;
  int ended_by_ = 0;  // signal
};

int Top::run() {
  const TopSignals signals;
  {
    Screen screen(STDIN_FILENO, STDOUT_FILENO);
    do {
      ask();
      draw(screen);
      wait(signals);
    } while (!take_signals(signals, screen) && !take_keys(screen.take_keys()));
  }
  return ended_by_ == 0 || ended_by_ == SIGINT ? 0 : 128 + ended_by_;
}

void Top::ask() {
  if (job_.give_up(now_ms())) question_.reset();
  if (job_.ask(now_ms())) question_ = std::make_unique<StatusQuestion>(context_, address_, keys_);
  if (!question_) return;
  try {
    auto answer = question_->turn();
    if (!answer) return;
    top_lines({address_, answer->document, "", "", 0}, 1, 1);  // throws if a field is missing
    job_.answered(now_ms(), std::move(answer->document));
  } catch (const Error& e) {
    if (!job_.document()) throw;
    job_.failed(now_ms(), e.what());
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::kProtocol,
                "[top] the answer of " + address_ + " lacks something: " + e.what());
  }
  question_.reset();  // a connection has a limited number of answers
}

void Top::draw(Screen& screen) {
  const Screen::Size size = screen.size();
  screen.draw(
      top_lines({address_, job_.document(), job_.trouble(now_ms()), time_of_day(), first_member_},
                size.rows, size.columns));
}

void Top::wait(const TopSignals& signals) {
  std::vector<zmq::pollitem_t> items = {{nullptr, STDIN_FILENO, ZMQ_POLLIN, 0},
                                        {nullptr, signals.fd(), ZMQ_POLLIN, 0}};
  if (question_) items.push_back(question_->item());
  poll_sockets(items, kTopTurnMs);
}

bool Top::take_signals(const TopSignals& signals, Screen& screen) {
  while (const int signal = signals.take()) {
    if (signal == SIGTSTP) {
      screen.suspend();
    } else if (signal != SIGWINCH && signal != SIGCONT) {
      ended_by_ = signal;
    }
  }
  return ended_by_ != 0;
}

bool Top::take_keys(const std::optional<std::string>& keys) {
  if (!keys) return true;
  constexpr int64_t kPage = 10;
  for (size_t i = 0; i < keys->size(); ++i) {
    char key = (*keys)[i];
    if (key == '\x1b' && i + 2 < keys->size()) {  // an arrow key: ESC [ A or ESC O A
      i += 2;
      key = (*keys)[i] == 'A' ? 'k' : (*keys)[i] == 'B' ? 'j' : ' ';
      if (key == ' ') continue;
    }
    if (key == 'q' || key == 'Q') return true;
    if (key == 'k') scroll(-1);
    if (key == 'j') scroll(1);
    if (key == 'b') scroll(-kPage);
    if (key == ' ') scroll(kPage);
  }
  return false;
}

void Top::scroll(int64_t members) {
  const int64_t count =
      job_.document() ? static_cast<int64_t>(job_.document()->at("members").size()) : 0;
  const int64_t wanted = static_cast<int64_t>(first_member_) + members;
  first_member_ =
      static_cast<size_t>(std::clamp<int64_t>(wanted, 0, std::max<int64_t>(0, count - 1)));
}

int print_once(const CommandLine& line, const std::string& address) {
  zmq::context_t context(1);
  const StatusAnswer answer =
      ask_status(context, address, keys_of(line), seconds_of(line, "join-timeout", kTopSeconds));
  try {
    for (const std::string& text :
         top_lines({address, answer.document, "", "", 0}, kManyRows, kWideColumns)) {
      std::cout << text.substr(0, text.find_last_not_of(' ') + 1) << "\n";
    }
  } catch (const nlohmann::json::exception& e) {
    throw Error(ErrorCode::kProtocol,
                "[top] the answer of " + address + " lacks something: " + e.what());
  }
  return 0;
}

bool is_screen() { return isatty(STDIN_FILENO) != 0 && is_terminal(STDOUT_FILENO); }

}  // namespace

const ProgramHelp& top_help() {
  static const ProgramHelp help = {
      .name = "pushpull top",
      .summary = "members and progress of a running job, live in a terminal; q ends it",
      .usage = {"pushpull top HOST:PORT|OUT [--interval SECONDS]",
                "pushpull top HOST:PORT|OUT --once"},
      .options = top_options()};
  return help;
}

int top_command(int argc, const char* const* argv) {
  const CommandLine line = parse_command_line(argc, argv, top_options(), JobFlags::kRefuse);
  if (print_help(line, top_help(), PUSHPULL_VERSION)) return 0;
  const std::string address = asked_address(line, "top");
  if (line.local.contains("once") || !is_screen()) return print_once(line, address);
  return Top(line, address).run();
}

}  // namespace pushpull
