// Slurm's compressed lists of nodes: "gpu[003-005,7],login,r[1-2]n[01-12]-ib". Containers lack
// scontrol, which expands them. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pushpull {

// Returns the names in Slurm's order: that of the list, and of several brackets in one name the last
// one runs fastest. "[08-10]" keeps its zeros: 08, 09, 10.
//   limit: names after the first `limit` are checked, but not returned.
// Throws Error(kUsage) naming `variable` and the place for a list that Slurm does not write: empty
// names, ranges that run backwards, brackets that are nested or do not close.
std::vector<std::string> expand_node_list(std::string_view list, const std::string& variable,
                                          size_t limit);

}  // namespace pushpull
