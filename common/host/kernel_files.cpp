#include "common/host/kernel_files.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "common/base/text.h"

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

namespace {

constexpr int64_t kMostCpus = 65536;  // far more than the kernel supports

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  std::set<int> cpus;
  text = trim(text);
  if (text.empty()) return std::vector<int>();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view range = text.substr(begin, end - begin);
    const size_t dash = range.find('-');
    const auto first = parse_int64(range.substr(0, dash));
    const auto last = dash == range.npos ? first : parse_int64(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostCpus) return std::nullopt;
    for (int64_t cpu = *first; cpu <= *last; ++cpu) cpus.insert(static_cast<int>(cpu));
    begin = end + 1;
  }
  return std::vector<int>(cpus.begin(), cpus.end());
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string out;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    out += (out.empty() ? "" : ",") + std::to_string(cpus[i]);
    if (last > i) out += "-" + std::to_string(cpus[last]);
    i = last + 1;
  }
  return out;
}

}  // namespace pushpull
