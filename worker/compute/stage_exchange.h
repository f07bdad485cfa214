// What passes between the workers of a group, each of which computes one stage of a model on the same
// micro-batches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "common/base/buffer_pool.h"
#include "common/net/message.h"

namespace pushpull {

// Used by the trainer's thread, but for `wake`.
class StageExchange {
 public:
  using Kind = wire::StagePart::Kind;
  // A part, and the worker that it goes to or comes from.
  struct Part {
    int stage = 0;  // of that worker
    Kind kind = wire::StagePart::KIND_ACTIVATIONS;
    int64_t step = 0;
    int64_t index = 0;  // micro-batch of the step, or chunk of the evaluation
    friend auto operator<=>(const Part&, const Part&) = default;  // NOLINT(modernize-use-nullptr)
  };

  virtual ~StageExchange() = default;

  // Allocates parts that are sent. Parts in other memory may take longer.
  virtual FloatAllocator memory() { return heap_floats; }
  // Sends a part, and returns at once. Parts to one worker need not be received in this order.
  virtual void send(const Part& to, Payload floats) = 0;
  // Waits for a part, and exchanges other messages meanwhile. Throws what ends the task (the group
  // has changed, the job is over), and Error that names the worker if the part has another size.
  virtual Payload receive(const Part& from, size_t floats) = 0;

  // ---- while other threads of this worker compute ----
  // Returns a part if it has arrived. Throws Error as `receive` does.
  virtual std::optional<Payload> take(const Part& from, size_t floats) = 0;
  // Waits at most 20 ms, until one of these parts has arrived or `wake` was called, and exchanges other messages
  // meanwhile. Throws what ends the task.
  //   computes: a thread computes, so this worker does not only wait.
  virtual void wait(std::span<const Part> parts, bool computes) = 0;
  // Ends a wait, or the next one. Any thread.
  virtual void wake() = 0;
};

}  // namespace pushpull
