// Which algorithm each operation uses where a library has several: chosen once, by the first worker
// of a job, and handed to the others as text, since bits depend on it. One line for each plan: "KEY
// VALUE", KEY of the operation and its shape without blanks, VALUE what its file wrote.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace pushpull::ops {

class Choices {
 public:
  static constexpr size_t kMaxBytes = size_t{64} << 10;

  // Throws Error(kProtocol): too long, a line without a value, a key twice.
  static Choices parse(const std::string& text);
  std::string text() const;  // sorted by key
  const std::string* find(const std::string& key) const;
  void set(const std::string& key, std::string value);

 private:
  std::map<std::string, std::string> of_;
};

}  // namespace pushpull::ops
