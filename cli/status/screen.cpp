#include "cli/status/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace pushpull {

namespace {

// Alternate screen, cursor off, no automatic line break; and back.
constexpr const char* kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J";
constexpr const char* kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";

}  // namespace

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

}  // namespace pushpull
