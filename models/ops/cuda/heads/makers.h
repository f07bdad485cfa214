// The makers of the losses of heads.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "models/ops/cuda/maker.h"

namespace pushpull::ops::cuda {

std::unique_ptr<Operation> make_cross_entropy(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_squared_error(Shared& shared, const Spec& spec);

inline constexpr auto kHeadMakers = std::to_array<std::pair<std::string_view, Maker>>({
    {"cross-entropy", make_cross_entropy},
    {"squared error", make_squared_error},
});

}  // namespace pushpull::ops::cuda
