// Finds the name that a user most likely meant by a mistyped one: "did you mean ...?". Any thread.
#pragma once

#include <string>
#include <vector>

namespace pushpull {

// Returns the entry of `names` closest to `typed`: the one with the smallest edit distance
// (Levenshtein), a name that `typed` abbreviates, or our name for another trainer's term
// ("learning-rate"). Ignores case and underscores. Returns "" if no name is close.
std::string nearest_name(const std::string& typed, const std::vector<std::string>& names);

// Returns "; did you mean NAME?" with `prefix` before the name, or "".
std::string did_you_mean(const std::string& typed, const std::vector<std::string>& names,
                         const std::string& prefix = "");

}  // namespace pushpull
