// Makers of the CPU operations, called by cpu_backend.cpp. The specifications have
// been checked. `shared` outlives the results. Used on the backend's thread.
#pragma once

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "models/ops/cpu/activations.h"
#include "models/ops/cpu/primitive.h"
#include "models/ops/operation.h"
#include "models/ops/ops.h"

namespace pushpull::ops::cpu {

// A maker of plans, which casts the specification to its own type.
using Maker = std::unique_ptr<Operation> (*)(Shared& shared, const Spec& spec);

std::unique_ptr<Operation> make_activate(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_add(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_add_positions(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_attention(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_average_pool(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_batch_norm(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_convolution(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_cross_entropy(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_dropout(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_elements(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_embedding(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_flatten(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_layer_norm(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_linear(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_max_pool(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_select(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_squared_error(Shared& shared, const Spec& spec);

// Returns the elements of a value in memory. A value in blocks has zeros behind its last channel.
inline int64_t stored_elements(const ValueType& type) {
  if (type.layout == Layout::kPlain) return type.shape.size();
  return static_cast<int64_t>(floats_of(describe(dims_of(image_of(type)), native_tag())));
}

// The makers by Spec::name().
inline constexpr auto kMakers = std::to_array<std::pair<std::string_view, Maker>>({
    {"activate", make_activate},
    {"add positions", make_add_positions},
    {"add", make_add},
    {"attention", make_attention},
    {"average pool", make_average_pool},
    {"batch norm", make_batch_norm},
    {"convolution", make_convolution},
    {"cross-entropy", make_cross_entropy},
    {"dropout", make_dropout},
    {"elements", make_elements},
    {"embedding", make_embedding},
    {"flatten", make_flatten},
    {"layer norm", make_layer_norm},
    {"linear", make_linear},
    {"max pool", make_max_pool},
    {"select", make_select},
    {"squared error", make_squared_error},
});

}  // namespace pushpull::ops::cpu
