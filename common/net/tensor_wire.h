// Converts a TensorTable to and from protobuf. Any thread.
#pragma once

#include "common/net/message.h"

namespace pushpull {

struct TensorTable;

using WireTensors = google::protobuf::RepeatedPtrField<wire::Tensor>;

void to_wire(const TensorTable& table, WireTensors* out);

// Throws Error(kProtocol) for an impossible model: no tensors, too many tensors or elements, an
// unknown rule.
TensorTable from_wire(const WireTensors& tensors);

// Describes the first difference between two tables, for messages. Returns "" if they are equal.
std::string difference(const TensorTable& want, const TensorTable& got);

}  // namespace pushpull
