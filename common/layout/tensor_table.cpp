#include "common/layout/tensor_table.h"

#include <algorithm>
#include <utility>

#include "common/base/text.h"

namespace pushpull {

bool is_name_pattern(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == '*';
  });
}

bool name_fits(std::string_view pattern, std::string_view name) {
  size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  name.remove_prefix(star);
  while (true) {
    pattern.remove_prefix(star + 1);
    star = pattern.find('*');
    if (star == std::string_view::npos) return name.ends_with(pattern);
    // the earliest match leaves the most text to the rest of the pattern
    const size_t at = name.find(pattern.substr(0, star));
    if (at == std::string_view::npos) return false;
    name.remove_prefix(at + star);
  }
}

std::string tensor_name_mistake(const std::string& name) {
  constexpr size_t kMaxNameBytes = 1024;
  if (name.empty()) return "the name is empty";
  if (!is_plain_text(name)) return "the name is not UTF-8 without control characters";
  if (name.size() > kMaxNameBytes) {
    return "the name has " + std::to_string(name.size()) + " bytes; at most " +
           std::to_string(kMaxNameBytes) + " are allowed";
  }
  return name == "__metadata__" ? "the format of checkpoints has reserved this name" : "";
}

void TensorTable::add(TensorInfo info) {
  info.offset = total;
  info.size = 1;
  for (const int64_t d : info.shape) info.size *= d;
  total += info.size;
  tensors.push_back(std::move(info));
}

int64_t TensorTable::trainable() const {
  int64_t elements = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.rule == UpdateRule::kOptimizer) elements += tensor.size;
  }
  return elements;
}

std::vector<int64_t> TensorTable::stage_begins() const {
  std::vector<int64_t> begins;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begins_stage) begins.push_back(tensor.offset);
  }
  return begins;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

}  // namespace pushpull
