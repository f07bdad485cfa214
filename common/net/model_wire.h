// A model as its workers declare it, to and from the wire: tensors with their rules, and heads. Plain
// functions; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/layout/metric.h"
#include "common/net/message.h"

namespace pushpull {

// Converts the heads of a model, and sums of their metrics, to and from protobuf. Any thread.
using WireHeads = google::protobuf::RepeatedPtrField<wire::Head>;

void to_wire(const std::vector<HeadInfo>& heads, WireHeads* out);

// Throws Error(kProtocol) for impossible heads: more than 64, two of one name, a name that HeadInfo
// does not allow, an unknown metric, targets outside 1 to 2^20.
std::vector<HeadInfo> from_wire(const WireHeads& heads);

// Describes the first difference between two lists of heads, for messages. Returns "" if they are
// equal.
std::string difference(const std::vector<HeadInfo>& want, const std::vector<HeadInfo>& got);

// Appends the sums of all heads to the result of a chunk.
void to_wire(std::span<const HeadSums> sums, wire::ChunkResult* out);
HeadSums from_wire(const wire::HeadSums& sums);

struct TensorTable;

using WireTensors = google::protobuf::RepeatedPtrField<wire::Tensor>;

void to_wire(const TensorTable& table, WireTensors* out);

// Throws Error(kProtocol) for an impossible model: no tensors, too many tensors or elements, an
// unknown rule.
TensorTable from_wire(const WireTensors& tensors);

// Describes the first difference between two tables, for messages. Returns "" if they are equal.
std::string difference(const TensorTable& want, const TensorTable& got);

}  // namespace pushpull
