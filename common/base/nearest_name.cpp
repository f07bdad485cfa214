#include "common/base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

namespace pushpull {
namespace {

constexpr size_t kLongestName = 64;  // longer than any option name; bounds the work on junk
constexpr size_t kShortestAbbreviation = 3;

// Other trainers' names for our keys that an edit distance would not find.
const std::map<std::string, std::string>& other_words() {
  static const std::map<std::string, std::string> words = {
      {"batch", "global-batch"},      {"batch-size", "global-batch"},
      {"gamma", "lr-gamma"},          {"learning-rate", "lr"},
      {"max-steps", "steps"},         {"microbatch-size", "micro-batch"},
      {"num-epochs", "epochs"},       {"num-threads", "threads"},
      {"scheduler", "lr-schedule"},   {"staleness", "strategy"},
      {"warmup", "warmup-steps"},     {"wd", "weight-decay"},
      {"max-grad-norm", "clip-norm"}, {"output", "out"},
  };
  return words;
}

std::string normalized(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c == '_') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Source: Wagner & Fischer, J. ACM 21 (1974), one row at a time.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(const std::string& typed, const std::vector<std::string>& names) {
  if (typed.empty() || typed.size() > kLongestName) return "";
  const std::string word = normalized(typed);
  const auto known = other_words().find(word);
  if (known != other_words().end() && std::ranges::count(names, known->second) > 0) {
    return known->second;
  }
  std::string best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;  // more is too different
  for (const std::string& name : names) {
    const bool abbreviates = word.size() >= kShortestAbbreviation && name.starts_with(word);
    const size_t distance = abbreviates ? 0 : edit_distance(word, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(const std::string& typed, const std::vector<std::string>& names,
                         const std::string& prefix) {
  const std::string name = nearest_name(typed, names);
  return name.empty() ? "" : "; did you mean " + prefix + name + "?";
}

}  // namespace pushpull
