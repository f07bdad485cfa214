// Selects one of a library's algorithms when a plan is made, on the backend's stream. Used on the
// backend's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

// Returns the index of one of `count` candidates, which are in the library's order, best first, or
// -1 if none runs. Without Shared::measure it is the first that runs: time has no part in it, so
// another process on such a GPU with such libraries chooses the same. With it, it is the fastest; a
// later one must be 3 % faster, so that noise rarely decides.
//   run: enqueues candidate i; returns false if the library rejects it.
// Throws Error(kDevice) if the device fails.
int choose(Shared& shared, int count, const std::function<bool(int)>& run);

// Returns the value that the job, or an earlier plan of this backend, chose for `key`, or null.
const std::string* chosen(const Shared& shared, const std::string& key);

// Throws Error(kProtocol), which says that this program cannot use `value` for `key`, and why.
[[noreturn]] void refuse_choice(const Shared& shared, const std::string& key,
                                const std::string& value, const std::string& why);

}  // namespace pushpull::ops::cuda
