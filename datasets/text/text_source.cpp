#include "datasets/text/text_source.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "common/base/error.h"
#include "common/io/file.h"
#include "datasets/text/tokenizer.h"
#include "datasets/text/utf8.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;

[[noreturn]] void refuse_text(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kData, "[data] " + path + ": " + why);
}

std::vector<std::string> files_of(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) refuse_text(path, "no such file or folder; check data-dir");
  if (!fs::is_directory(status)) return {path};
  std::vector<std::string> files;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".txt") files.push_back(entry->path().string());
  }
  if (error) refuse_text(path, "cannot be listed (" + error.message() + "); check its permissions");
  if (files.empty()) {
    refuse_text(path, "expected files whose names end in .txt, got none; check data-dir");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string TextSource::place(size_t offset) const {
  const auto next = std::upper_bound(
      files.begin(), files.end(), offset,
      [](size_t wanted, const TextSource::File& file) { return wanted < file.begin; });
  PP_ASSERT(next != files.begin());
  const File& file = *std::prev(next);
  const auto line = 1 + std::count(text.begin() + static_cast<int64_t>(file.begin),
                                   text.begin() + static_cast<int64_t>(offset), '\n');
  return file.path + ": byte " + std::to_string(offset - file.begin) + " (line " +
         std::to_string(line) + ")";
}

TextSource read_text_source(const std::string& path) {
  TextSource source;
  for (const std::string& name : files_of(path)) {
    InputFile file(name);
    const size_t before = source.text.size();
    if (file.size_bytes() > kMaxTextBytes - before) {
      refuse_text(name, "expected at most " + std::to_string(kMaxTextBytes) +
                            " bytes of text together, got " +
                            std::to_string(before + file.size_bytes()) + "; take a part of it");
    }
    source.files.push_back({name, before});
    source.text.resize(before + file.size_bytes());
    file.read(std::as_writable_bytes(std::span(source.text).subspan(before)));
    // A character does not go on in the next file.
    const std::string_view added = std::string_view(source.text).substr(before);
    if (const std::optional<size_t> invalid = find_invalid_utf8(added)) {
      throw Error(ErrorCode::kData, "[data] " + source.place(before + *invalid) + ": " +
                                        expected_at(added, *invalid));
    }
  }
  if (source.text.empty()) refuse_text(path, "expected text, got no bytes; check data-dir");
  return source;
}

}  // namespace pushpull
