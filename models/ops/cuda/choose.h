// Selects one of a library's algorithms when a plan is made, on the backend's stream. The backend's
// thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

// Returns the fastest of `count` candidates, given in the library's order, best first. A later one
// must be 3 % faster, so that noise does not decide. Without measuring it is the first that runs.
// -1: none runs.
//   run: enqueues candidate i; false if the library rejects it.
// Throws Error(kDevice) if the device fails.
int choose(Shared& shared, int count, const std::function<bool(int)>& run);

// The value that the job, or an earlier plan of this backend, chose for `key`; null: none.
const std::string* chosen(const Shared& shared, const std::string& key);

// Throws Error(kProtocol): `value` of `key` is not an algorithm that this program can use.
[[noreturn]] void refuse_choice(const Shared& shared, const std::string& key,
                                const std::string& value, const std::string& why);

}  // namespace pushpull::ops::cuda
