// All-reduce: every worker contributes a vector and gets the sum of all. One interface, three
// algorithms: `tree` gives the bits of the parameter server; `ring` and `gloo` add in another
// order. Blocking; single-threaded.
//
// Words. An *operation* is one sum. A *part* is a partial sum of one worker: the gradients of the
// micro-batches of one node of the fixed tree. A *chunk* is the range of elements that one worker
// finishes. A *segment* is a piece of a chunk; it travels in one message, so that adding and
// sending overlap.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/job/strategy.h"
#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "worker/all_reduce/peers.h"

namespace pushpull {

// The sum over micro-batches `node`. Must not change until the last message with it has been sent.
struct SumPart {
  Range node;
  std::shared_ptr<const void> owner;
  const float* floats = nullptr;
};

// Memory for the sum. Each operation of a step writes its own range, so that by the next step all
// messages sent from that range have arrived.
struct SumTarget {
  std::shared_ptr<float[]> owner;
  float* floats = nullptr;
};

class Collective {
 public:
  virtual ~Collective() = default;

  // Sums `elements` floats over all workers. Every worker gets the same bits.
  //   operation: see Peers::begin.
  //   parts: of this worker, ascending maximal subtrees of its share.
  // Throws Error(kUnreachable), which names a worker, and JobOver.
  virtual void sum(int64_t operation, const std::vector<SumPart>& parts, int64_t elements,
                   const SumTarget& target) = 0;

  // Ends waits that cannot notice the end of the job themselves. Thread-safe.
  virtual void abort() {}
};

// Sizes; changed by benchmarks and tests.
struct CollectiveOptions {
  int64_t segment_bytes = int64_t{1} << 20;
  // A sum of at most this many bytes is exchanged whole: every worker sends its vector to all
  // others and adds them itself. That takes one hop instead of 2 (n - 1), and more bytes.
  int64_t whole_bytes = int64_t{1} << 16;
};

// Throws Error(kUsage) if the program was built without this algorithm.
void check_built(AllReduceKind kind);

// Makes the collective of the job. Borrows `peers`. micro_batches: per step; worker r has those of
// share r of peers.size().
std::unique_ptr<Collective> make_collective(AllReduceKind kind, Peers& peers, int64_t micro_batches,
                                            double timeout_s,
                                            const CollectiveOptions& options = {});

std::unique_ptr<Collective> make_ring(Peers& peers, const CollectiveOptions& options);
std::unique_ptr<Collective> make_tree(Peers& peers, int64_t micro_batches,
                                      const CollectiveOptions& options);
// timeout_s: limit for connecting.
std::unique_ptr<Collective> make_gloo(Peers& peers, double timeout_s);
bool has_gloo();

// ---- shared by the algorithms ----

// Computes out = a + b; `out` may be `a` or `b`.
void add_floats(const float* a, const float* b, int64_t n, float* out);

// Returns part `i` of [0, elements) cut into n; boundaries are multiples of 16 elements.
Range chunk_of(int64_t elements, int i, int n);
// Returns the number of segments of a range, and the elements of one of them.
int64_t segments_of(Range range, int64_t segment_elements);
Range segment_of(Range range, int64_t segment, int64_t segment_elements);

// Returns a payload that refers to the floats of a part or target.
Payload payload_of(const std::shared_ptr<const void>& owner, const float* floats, Range range);

// Sends all parts of this worker to all others and receives theirs. Calls `finish` for each segment
// once all its parts have arrived, ordered by worker and then by part.
//   counts: number of parts, by worker.
using FinishSegment = std::function<void(Range segment, const std::vector<const float*>& parts)>;
void exchange_whole(Peers& peers, const std::vector<SumPart>& mine, int64_t elements,
                    const std::vector<int>& counts, int64_t segment_elements,
                    const FinishSegment& finish);

}  // namespace pushpull
