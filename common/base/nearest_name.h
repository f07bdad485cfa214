// "did you mean ...?": the name that a mistyped one most likely stands for. Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull {

// The name of `names` with the smallest edit distance to `typed` (Levenshtein), or the one that
// `typed` abbreviates, or the one that other trainers call `typed` ("learning-rate"). Case and
// underscores do not count. Empty where nothing is near.
std::string nearest_name(const std::string& typed, const std::vector<std::string>& names);

// "; did you mean NAME?" with `prefix` before the name, or nothing.
std::string did_you_mean(const std::string& typed, const std::vector<std::string>& names,
                         const std::string& prefix = "");

}  // namespace pushpull
