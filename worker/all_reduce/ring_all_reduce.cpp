// allreduce:ring. Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of
// workstations, JPDC 69 (2009): n - 1 hops of reduce-scatter, then n - 1 of all-gather. Each worker
// sends 2 (n - 1) / n of the vector, which is optimal.
//
// The vector is cut into n chunks. Chunk c starts at worker c and goes once around the ring to
// worker c - 1; each worker adds its part (hops 0 .. n - 2). The complete chunk then goes around
// again, and each worker keeps a copy (hops n - 1 .. 2n - 3). At hop h worker r receives chunk r -
// 1 - h. A segment is forwarded as soon as it is added, so that all hops of a chunk overlap.
//
// Short sums, and all sums of two workers, are exchanged whole and added in the order of the ranks,
// in one hop (Thakur, Rabenseifner and Gropp, Optimization of collective communication operations
// in MPICH, IJHPCA 19 (2005), choose by size, too). For two workers this sends no more bytes.
#include <algorithm>
#include <cstring>

#include "common/base/buffer_pool.h"
#include "common/base/error.h"
#include "worker/all_reduce/collective.h"

namespace pushpull {

namespace {

class Ring : public Collective {
 public:
  Ring(Peers& peers, const CollectiveOptions& options)
      : peers_(peers),
        options_(options),
        segment_(std::max<int64_t>(1, options.segment_bytes / 4)) {}

  void sum(int64_t operation, const std::vector<SumPart>& parts, int64_t elements,
           const SumTarget& target) override;

 private:
  SumPart one_part(const std::vector<SumPart>& parts, int64_t elements);
  void whole(const SumPart& mine, int64_t elements, float* out);
  void around(const SumPart& mine, int64_t elements, const SumTarget& target);
  bool take(const SumPart& mine, int64_t elements, const SumTarget& target, Peers::Chunk& chunk);

  Peers& peers_;
  const CollectiveOptions options_;
  const int64_t segment_;  // elements
  std::unique_ptr<BufferPool> scratch_;
  std::vector<std::vector<bool>> seen_;  // by hop and segment
};

void Ring::sum(int64_t operation, const std::vector<SumPart>& parts, int64_t elements,
               const SumTarget& target) {
  PP_ASSERT(!parts.empty() && elements > 0);
  peers_.begin(operation);
  const SumPart mine = one_part(parts, elements);
  if (peers_.size() <= 2 || elements * 4 <= options_.whole_bytes) {
    whole(mine, elements, target.floats);
  } else {
    around(mine, elements, target);
  }
}

// Adds the parts of a share that spans several nodes of the tree.
SumPart Ring::one_part(const std::vector<SumPart>& parts, int64_t elements) {
  if (parts.size() == 1) return parts.front();
  if (!scratch_ || static_cast<int64_t>(scratch_->floats()) < elements) {
    scratch_ = std::make_unique<BufferPool>(static_cast<size_t>(elements));
  }
  // from a pool, because the previous buffer may still be in flight
  std::shared_ptr<float[]> buffer = scratch_->get();
  add_floats(parts[0].floats, parts[1].floats, elements, buffer.get());
  for (size_t i = 2; i < parts.size(); ++i) {
    add_floats(buffer.get(), parts[i].floats, elements, buffer.get());
  }
  const float* floats = buffer.get();
  return {{parts.front().node.lo, parts.back().node.hi}, std::move(buffer), floats};
}

void Ring::whole(const SumPart& mine, int64_t elements, float* out) {
  const std::vector<int> counts(static_cast<size_t>(peers_.size()), 1);
  exchange_whole(peers_, {mine}, elements, counts, segment_,
                 [&](Range segment, const std::vector<const float*>& parts) {
                   float* to = out + segment.lo;
                   if (parts.size() == 1) {
                     std::copy_n(parts[0], segment.size(), to);
                     return;
                   }
                   add_floats(parts[0], parts[1], segment.size(), to);
                   for (size_t r = 2; r < parts.size(); ++r) {
                     add_floats(to, parts[r], segment.size(), to);
                   }
                 });
}

void Ring::around(const SumPart& mine, int64_t elements, const SumTarget& target) {
  const int n = peers_.size();
  const int next = (peers_.rank() + 1) % n;
  const int previous = (peers_.rank() + n - 1) % n;
  std::vector<int64_t> missing(static_cast<size_t>(n));
  int64_t& left = missing[static_cast<size_t>(previous)];
  seen_.assign(static_cast<size_t>(2 * n - 2), {});
  for (int hop = 0; hop < 2 * n - 2; ++hop) {
    const int c = (peers_.rank() + 2 * n - 1 - hop) % n;
    const int64_t segments = segments_of(chunk_of(elements, c, n), segment_);
    seen_[static_cast<size_t>(hop)].assign(static_cast<size_t>(segments), false);
    left += segments;
  }
  const Range own = chunk_of(elements, peers_.rank(), n);
  for (int64_t s = 0; s < segments_of(own, segment_); ++s) {
    peers_.send(next, 0, static_cast<int>(s),
                payload_of(mine.owner, mine.floats, segment_of(own, s, segment_)));
  }
  while (left > 0) {
    Peers::Chunk chunk = peers_.receive(missing);
    if (chunk.rank == previous && take(mine, elements, target, chunk)) {
      --left;
    } else {
      peers_.refuse(chunk);
    }
  }
}

// Takes a segment from the previous worker: adds or keeps it, and forwards it. Returns false if it
// does not fit.
bool Ring::take(const SumPart& mine, int64_t elements, const SumTarget& target,
                Peers::Chunk& chunk) {
  const int n = peers_.size();
  const int hop = chunk.stage;
  if (hop > 2 * n - 3) return false;
  std::vector<bool>& seen = seen_[static_cast<size_t>(hop)];
  if (chunk.index >= std::ssize(seen) || seen[static_cast<size_t>(chunk.index)]) return false;
  const int c = (peers_.rank() + 2 * n - 1 - hop) % n;
  const Range range = segment_of(chunk_of(elements, c, n), chunk.index, segment_);
  if (static_cast<int64_t>(chunk.payload.float_count()) != range.size()) return false;
  seen[static_cast<size_t>(chunk.index)] = true;
  const int next = (peers_.rank() + 1) % n;
  float* to = target.floats + range.lo;
  if (hop < n - 1) {
    add_floats(chunk.payload.floats(), mine.floats + range.lo, range.size(), to);
    peers_.send(next, hop + 1, chunk.index, payload_of(target.owner, target.floats, range));
    return true;
  }
  if (hop < 2 * n - 3) peers_.send(next, hop + 1, chunk.index, chunk.payload);
  std::memcpy(to, chunk.payload.floats(), chunk.payload.bytes.size());
  return true;
}

}  // namespace

std::unique_ptr<Collective> make_ring(Peers& peers, const CollectiveOptions& options) {
  return std::make_unique<Ring>(peers, options);
}

}  // namespace pushpull
