// The makers of operations that libraries compute: linear layers and convolutions.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "models/ops/cuda/maker.h"

namespace pushpull::ops::cuda {

std::unique_ptr<Operation> make_convolution(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_linear(Shared& shared, const Spec& spec);

inline constexpr auto kProductMakers = std::to_array<std::pair<std::string_view, Maker>>({
    {"convolution", make_convolution},
    {"linear", make_linear},
});

}  // namespace pushpull::ops::cuda
