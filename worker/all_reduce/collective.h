// All-reduce: every worker gives a vector and gets the sum of all of them. One interface, three
// algorithms: `tree` has the bits of the parameter server, `ring` and `gloo` add in another order.
// Blocking; one thread.
//
// Words. An *operation* is one sum. A *part* is a partial sum of this worker: the gradients of the
// micro-batches of one node of the fixed tree. A *chunk* is what one worker finishes; a *segment*
// is a piece of a chunk and travels in one message, so that adding and sending overlap.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/job/job.h"
#include "common/layout/fixed_tree.h"
#include "common/net/message.h"
#include "worker/all_reduce/peers.h"

namespace pushpull {

// The sum over micro-batches `node`; stays as it is until the last message with it has been sent.
struct SumPart {
  Range node;
  std::shared_ptr<const void> owner;
  const float* floats = nullptr;
};

// Memory for the sum. One operation at a time writes it, always the same one of a step: messages
// that an earlier step has sent from here have arrived by then.
struct SumTarget {
  std::shared_ptr<float[]> owner;
  float* floats = nullptr;
};

class Collective {
 public:
  virtual ~Collective() = default;

  // Sums `elements` floats over all workers.
  //   operation: see Peers::begin.
  //   parts: of this worker, ascending maximal subtrees of its share.
  // Every worker gets the same bits. Throws Error(kUnreachable) naming a worker, JobOver.
  virtual void sum(int64_t operation, const std::vector<SumPart>& parts, int64_t elements,
                   const SumTarget& target) = 0;

  // Ends waits that do not look for the end of the job themselves. Any thread.
  virtual void abort() {}
};

// Sizes, for measurements and tests.
struct CollectiveOptions {
  int64_t segment_bytes = int64_t{1} << 20;
  // A sum of at most so many bytes is exchanged whole: every worker sends all it has to all others
  // and adds by itself. One message's way instead of 2 (n - 1), for more bytes.
  int64_t whole_bytes = int64_t{1} << 16;
};

// Throws Error(kUsage) where the program was built without the algorithm.
void check_built(AllReduceKind kind);

// micro_batches: of a step; worker r has those of share r of peers.size(). peers: borrowed.
std::unique_ptr<Collective> make_collective(AllReduceKind kind, Peers& peers, int64_t micro_batches,
                                            double timeout_s,
                                            const CollectiveOptions& options = {});

std::unique_ptr<Collective> make_ring(Peers& peers, const CollectiveOptions& options);
std::unique_ptr<Collective> make_tree(Peers& peers, int64_t micro_batches,
                                      const CollectiveOptions& options);
// timeout_s: of connecting.
std::unique_ptr<Collective> make_gloo(Peers& peers, double timeout_s);
bool has_gloo();

// ---- what the algorithms share ----

// a + b -> out; out may be a or b.
void add_floats(const float* a, const float* b, int64_t n, float* out);

// Part `i` of [0, elements) cut into n; boundaries are multiples of 16 elements.
Range chunk_of(int64_t elements, int i, int n);
// How a range is cut into segments.
int64_t segments_of(Range range, int64_t segment_elements);
Range segment_of(Range range, int64_t segment, int64_t segment_elements);

// Floats of a part or a target as a payload.
Payload payload_of(const std::shared_ptr<const void>& owner, const float* floats, Range range);

// Every worker sends all its parts to all others. `finish` gets each segment once its parts are
// there: those of worker 0 in order, of worker 1, ...
//   counts: parts of each worker.
using FinishSegment = std::function<void(Range segment, const std::vector<const float*>& parts)>;
void exchange_whole(Peers& peers, const std::vector<SumPart>& mine, int64_t elements,
                    const std::vector<int>& counts, int64_t segment_elements,
                    const FinishSegment& finish);

}  // namespace pushpull
