// A full-screen view on a terminal: plain ANSI on the alternate screen, keys without echo. The terminal is restored by the
// destructor, and while the program is suspended. One thread.
#pragma once

#include <termios.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "common/base/console.h"

namespace pushpull {

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

}  // namespace pushpull
