#include "cli/link/line_reader.h"

#include <unistd.h>

#include <array>

namespace pushpull {

bool LineReader::read_some() {
  std::array<char, 4096> piece{};
  const ssize_t count = read(fd_, piece.data(), piece.size());
  if (count <= 0) {
    text_ += '\n';
    return false;
  }
  text_.append(piece.data(), static_cast<size_t>(count));
  return true;
}

std::optional<std::string> LineReader::next() {
  const size_t end = text_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

}  // namespace pushpull
