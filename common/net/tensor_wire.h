// Converts a TensorTable to and from protobuf. Any thread.
#pragma once

#include "common/layout/tensor_table.h"
#include "common/net/message.h"

namespace pushpull {

using WireTensors = google::protobuf::RepeatedPtrField<wire::Tensor>;

void to_wire(const TensorTable& table, WireTensors* out);

// Throws Error(kProtocol) for what cannot be a model: no tensors, none or too many elements, an
// unknown rule.
TensorTable from_wire(const WireTensors& tensors);

// The first difference between two tables in words, or "".
std::string difference(const TensorTable& want, const TensorTable& got);

}  // namespace pushpull
