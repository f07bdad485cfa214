// Makers of plans on CUDA, in tables by Spec::name() for each family of operations, which
// cuda_backend.cpp searches. Used on the backend's thread.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/error.h"
#include "models/ops/cuda/shared.h"
#include "models/ops/operation.h"

namespace pushpull::ops::cuda {

// Casts the specification, which has been checked, to its own type. `shared` outlives the plan.
// Throws Error(kUsage) by `require_kernel` for a shape that the kernel cannot take.
using Maker = std::unique_ptr<Operation> (*)(Shared& shared, const Spec& spec);
using Makers = std::span<const std::pair<std::string_view, Maker>>;

// Throws Error(kUsage) "[models] SPEC WHAT on DEVICE; ..." unless `holds`. The graph adds the node's
// name.
inline void require_kernel(bool holds, const Shared& shared, const Spec& spec,
                           const std::string& what) {
  if (holds) return;
  throw Error(ErrorCode::kUsage, std::string("[models] ") + spec.name() + " " + what + " on " +
                                     shared.device->name() + "; start workers with --device cpu");
}

// The makers of operations that compute each element from the inputs' elements at its place.
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

// The makers of operations on images that have kernels of our own.
std::unique_ptr<Operation> make_average_pool(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_batch_norm(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_max_pool(Shared& shared, const Spec& spec);

inline constexpr auto kImageMakers = std::to_array<std::pair<std::string_view, Maker>>({
    {"average pool", make_average_pool},
    {"batch norm", make_batch_norm},
    {"max pool", make_max_pool},
});

// The makers of operations that libraries compute: linear layers and convolutions.
std::unique_ptr<Operation> make_convolution(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_linear(Shared& shared, const Spec& spec);

inline constexpr auto kProductMakers = std::to_array<std::pair<std::string_view, Maker>>({
    {"convolution", make_convolution},
    {"linear", make_linear},
});

// The makers of the losses of heads.
std::unique_ptr<Operation> make_cross_entropy(Shared& shared, const Spec& spec);
std::unique_ptr<Operation> make_squared_error(Shared& shared, const Spec& spec);

inline constexpr auto kHeadMakers = std::to_array<std::pair<std::string_view, Maker>>({
    {"cross-entropy", make_cross_entropy},
    {"squared error", make_squared_error},
});

// The makers of operations on sequences: on positions, on rows of a table and on heads.
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
