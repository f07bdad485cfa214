// `pushpull eval`: computes the metrics of a checkpoint on a test split, in one process. Main
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/io/checkpoint.h"
#include "datasets/dataset.h"
#include "models/model.h"

namespace pushpull {

struct ProgramHelp;
struct Job;

// Evaluates each sample of the test split exactly once, and returns the results of all heads. Throws
// Error(kData) for an empty split.
std::vector<HeadResult> evaluate_all(const Job& job, const Dataset& dataset, Model& model,
                                     std::span<const float> weights);

// Returns the checkpoint's weights in the model's order. Throws Error(kData) that names `path` and
// a tensor that is missing, unknown or of another shape.
std::vector<float> weights_for(const Checkpoint& checkpoint, const TensorTable& table,
                               const std::string& path);

const ProgramHelp& eval_help();

// argv[0] is "eval". Returns the exit code; throws Error.
int eval_command(int argc, const char* const* argv);

}  // namespace pushpull
