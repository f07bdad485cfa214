// The algorithm of each operation, if a library offers several. The first worker of a job chooses,
// and the others get its choices as text, because the bits of a result depend on them. One line per
// plan, "KEY VALUE": KEY names the operation and its shape; VALUE is written and read by the
// operation's file. Plain data.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace pushpull::ops {

class Choices {
 public:
  static constexpr size_t kMaxBytes = 64 << 10;

  // Throws Error(kProtocol) if the text is too long or cut off, a line lacks key or value, or a key
  // occurs twice.
  static Choices parse(const std::string& text);
  // Returns the text, sorted by key; every line ends with '\n'.
  std::string text() const;

  // Returns null if nothing was chosen for `key`.
  const std::string* find(const std::string& key) const;
  // key, value: not empty, plain text; the key has no blanks.
  void set(const std::string& key, std::string value);

  // Adds the choices for keys that have none.
  void add(const Choices& more) { of_.insert(more.of_.begin(), more.of_.end()); }

  bool empty() const { return of_.empty(); }

 private:
  std::map<std::string, std::string> of_;
};

}  // namespace pushpull::ops
