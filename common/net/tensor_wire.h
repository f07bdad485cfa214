// TensorTable <-> protobuf. Any thread.
#pragma once

#include "common/layout/tensor_table.h"
#include "common/net/message.h"

namespace pushpull {

using WireTensors = google::protobuf::RepeatedPtrField<wire::Tensor>;

void to_wire(const TensorTable& table, WireTensors* out);

// Throws Error(kProtocol) for anything that cannot be a model: empty, no or too many elements, bad
// rule.
TensorTable from_wire(const WireTensors& tensors);

// The first difference between two tables in words, "" where there is none.
std::string difference(const TensorTable& want, const TensorTable& got);

}  // namespace pushpull
