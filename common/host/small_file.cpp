#include "common/host/small_file.h"

#include <fstream>

namespace pushpull {

namespace {

constexpr size_t kMostOfASmallFile = size_t{64} << 10U;

}  // namespace

std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string text(kMostOfASmallFile, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return std::nullopt;
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace pushpull
