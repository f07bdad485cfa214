// The makers of operations whose result at a place depends on their inputs at that place.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "models/ops/cuda/maker.h"

namespace pushpull::ops::cuda {

std::unique_ptr<Operation> make_flatten(Shared& shared, const Spec& spec);

inline constexpr auto kPointwiseMakers = std::to_array<std::pair<std::string_view, Maker>>({
    {"flatten", make_flatten},
});

}  // namespace pushpull::ops::cuda
