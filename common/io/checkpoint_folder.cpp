#include "common/io/checkpoint_folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <string_view>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kStepPrefix = "step-";

// Parses 8 to 18 digits, so that the number fits. Returns nullopt for any other text.
std::optional<int64_t> parse_step(std::string_view digits) {
  int64_t step = 0;
  const bool shape =
      digits.size() >= 8 && digits.size() <= 18 &&
      std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!shape) return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return step;
}

}  // namespace

std::string slot_tensor_name(const std::string& tensor, const std::string& slot) {
  return tensor + "." + slot;
}

std::string step_folder_name(int64_t step) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "step-%08lld", static_cast<long long>(step));
  return text.data();
}

std::optional<int64_t> step_of_folder(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  return parse_step(std::string_view(name).substr(kStepPrefix.size()));
}

std::optional<int64_t> step_of_aside(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const size_t dash = name.rfind('-');
  if (dash < prefix.size()) return std::nullopt;
  return step_of_folder(name.substr(prefix.size(), dash - prefix.size()));
}

std::map<int64_t, std::string> whole_checkpoints(const std::string& dir) {
  std::map<int64_t, std::string> paths;
  std::map<int64_t, std::string> old_paths;
  std::error_code error;
  fs::directory_iterator entry(dir, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code absent;
    if (!fs::exists(entry->path() / kDoneFile, absent)) continue;
    if (const auto step = step_of_folder(name)) paths[*step] = entry->path().string();
    if (const auto step = step_of_aside(name, ".old-")) old_paths[*step] = entry->path().string();
  }
  if (error) {
    throw Error(ErrorCode::kData,
                "[checkpoint] cannot list the folder " + dir + ": " + error.message());
  }
  paths.merge(old_paths);
  return paths;
}

std::vector<std::string> folders_aside(const std::string& dir) {
  const fs::path store(dir);
  const std::string prefix = store.filename().string() + ".";
  std::vector<std::string> found;
  std::error_code error;
  fs::directory_iterator entry(store.parent_path(), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code absent;
    if (!name.starts_with(prefix) || !entry->is_directory(absent)) continue;
    if (parse_uint64(name.substr(prefix.size()))) found.push_back(entry->path().string());
  }
  if (error) {
    throw Error(ErrorCode::kData, "[checkpoint] cannot list the folder " +
                                      store.parent_path().string() + ": " + error.message());
  }
  return found;
}

}  // namespace pushpull
