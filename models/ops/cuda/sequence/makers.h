// The makers of operations on sequences: on positions, on rows of a table and on heads.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "models/ops/cuda/maker.h"

namespace pushpull::ops::cuda {

std::unique_ptr<Operation> make_add_positions(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_attention(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_embedding(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_layer_norm(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_select(Shared& shared, const Spec& spec);

inline constexpr auto kSequenceMakers = std::to_array<std::pair<std::string_view, Maker>>({
    {"add positions", make_add_positions},
    {"attention", make_attention},
    {"embedding", make_embedding},
    {"layer norm", make_layer_norm},
    {"select", make_select},
});

}  // namespace pushpull::ops::cuda
