// Finds the name that a mistyped one most likely stands for: "did you mean ...?". Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull {

// The entry of `names` closest to `typed`: the smallest edit distance (Levenshtein), a name that
// `typed` abbreviates, or the one that other trainers call `typed` ("learning-rate"). Case and
// underscores do not count. Empty if none is close.
std::string nearest_name(const std::string& typed, const std::vector<std::string>& names);

// "; did you mean NAME?" with `prefix` before the name, or "".
std::string did_you_mean(const std::string& typed, const std::vector<std::string>& names,
                         const std::string& prefix = "");

}  // namespace pushpull
