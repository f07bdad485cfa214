// The makers of operations on images that have kernels of our own.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "models/ops/cuda/maker.h"

namespace pushpull::ops::cuda {

std::unique_ptr<Operation> make_average_pool(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_batch_norm(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_max_pool(Shared& shared, const Spec& spec);

inline constexpr auto kImageMakers = std::to_array<std::pair<std::string_view, Maker>>({
    {"average pool", make_average_pool},
    {"batch norm", make_batch_norm},
    {"max pool", make_max_pool},
});

}  // namespace pushpull::ops::cuda
