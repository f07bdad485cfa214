// Which algorithm each operation uses where a library has several: chosen once, by the first worker
// of a job, and handed to the others as text, since the bits of a result depend on it. One line for
// each plan, "KEY VALUE": KEY names the operation and its shape, VALUE is what its file wrote.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace pushpull::ops {

class Choices {
 public:
  static constexpr size_t kMaxBytes = 64 << 10;

  // Throws Error(kProtocol): too long, cut off, a line without a key or a value, a key twice.
  static Choices parse(const std::string& text);
  // Sorted by key; every line ends with a line end.
  std::string text() const;

  // Null: nothing was chosen for it.
  const std::string* find(const std::string& key) const;
  // Neither is empty; a key has no blanks, both are plain text.
  void set(const std::string& key, std::string value);

  bool empty() const { return of_.empty(); }

 private:
  std::map<std::string, std::string> of_;
};

}  // namespace pushpull::ops
