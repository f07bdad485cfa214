#include "common/io/pretrained_names.h"

#include <array>
#include <string_view>
#include <utility>

namespace pushpull {

namespace {

constexpr std::array<std::string_view, 2> kBaseModels{"transformer.", "bert."};
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kNorms{
    {{".LayerNorm.weight", ".LayerNorm.gamma"}, {".LayerNorm.bias", ".LayerNorm.beta"}}};

}  // namespace

std::vector<std::string> pretrained_names(const std::string& name) {
  std::vector<std::string> names{name};
  for (const std::string_view prefix : kBaseModels) {
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  }
  for (const auto& [suffix, older] : kNorms) {
    if (!name.ends_with(suffix)) continue;
    for (size_t i = 0, count = names.size(); i < count; ++i) {
      const std::string& known = names[i];
      names.push_back(known.substr(0, known.size() - suffix.size()).append(older));
    }
  }
  return names;
}

}  // namespace pushpull
