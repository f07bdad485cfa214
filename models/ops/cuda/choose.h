// Picking one of a library's algorithms when a plan is made, on the backend's stream.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "models/ops/cuda/shared.h"

namespace pushpull::ops::cuda {

// The fastest of `count` candidates, which are given in the library's own order, best first: a
// later one must be 3 % faster, so that noise does not decide. Where times are not to be measured,
// the first that runs. -1: none runs.
//   run: enqueues candidate i; false where the library refuses it.
// Throws Error(kDevice) where the device fails.
int choose(Shared& shared, int count, const std::function<bool(int)>& run);

// What the job, or an earlier plan of this backend, has chosen for `key`; null: nothing yet.
const std::string* chosen(const Shared& shared, const std::string& key);

// Throws Error(kProtocol): `value` of `key` is nothing that this program can compute with.
[[noreturn]] void refuse_choice(const Shared& shared, const std::string& key,
                                const std::string& value, const std::string& why);

}  // namespace pushpull::ops::cuda
