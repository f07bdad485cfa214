// `pushpull models`: lists the models, and says what the model of a job costs. Main thread.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "common/layout/fields.h"
#include "models/model.h"

namespace pushpull {

struct ProgramHelp;
struct Job;

// The memory of a worker that computes whole steps alone, without the buffers of messages.
struct WorkerMemory {
  int64_t weights_bytes = 0;     // one copy
  int64_t gradient_buffers = 0;  // sums along the fixed tree that exist at a time
  int64_t gradients_bytes = 0;   // of all buffers
  int64_t arena_bytes = 0;       // of one micro-batch
  int64_t total() const { return weights_bytes + gradients_bytes + arena_bytes; }
};
WorkerMemory worker_memory(const Job& job, const ModelFigures& figures);

// Writes the table of the models, or one JSON list.
void list_models(std::ostream& out, bool json);
// Writes what the job's model costs, as a table or as one JSON object.
//   tensors: also a line for each tensor.
void describe_model(std::ostream& out, const Job& job, const FieldTable& fields, bool tensors);
void describe_model_json(std::ostream& out, const Job& job, const FieldTable& fields);

const ProgramHelp& models_help();

// argv[0] is "models". Returns the exit code; throws Error.
int models_command(int argc, const char* const* argv);

}  // namespace pushpull
