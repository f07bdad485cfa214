// Measures the pieces of a model on the processor of this machine, for `pushpull plan --measure`.
#pragma once

#include <vector>

#include "models/stages.h"

namespace pushpull {

struct Job;
class Dataset;

// Returns the seconds that each piece between cuts takes for a micro-batch: medians of a few micro-batches, one piece
// after the other with the job's threads. Allocates the weights, a gradient and the arena of one micro-batch.
// Throws as make_staged_model does.
std::vector<PassCosts> measure_pieces(const Job& job, const Dataset& dataset);

}  // namespace pushpull
