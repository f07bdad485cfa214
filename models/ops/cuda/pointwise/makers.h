// The makers of operations that compute each element from the inputs' elements at its place.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "models/ops/cuda/maker.h"

namespace pushpull::ops::cuda {

std::unique_ptr<Operation> make_activate(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_add(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_dropout(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_elements(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_flatten(Shared& shared, const Spec& spec);

inline constexpr auto kPointwiseMakers = std::to_array<std::pair<std::string_view, Maker>>({
    {"activate", make_activate},
    {"add", make_add},
    {"dropout", make_dropout},
    {"elements", make_elements},
    {"flatten", make_flatten},
});

}  // namespace pushpull::ops::cuda
