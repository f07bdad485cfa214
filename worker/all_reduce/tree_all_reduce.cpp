// allreduce:tree. Gives the bits of the parameter server without a server: each worker sends its
// partial sums (the maximal subtrees of its share, as in `sync`) to the owner of the chunk, which
// finishes the fixed tree and sends the sum to all. The tree fixes the order of additions, not the
// route of messages, so short sums are exchanged whole and finished by every worker.
#include <algorithm>
#include <cstring>

#include "common/base/error.h"
#include "common/update/range_update.h"
#include "worker/all_reduce/collective.h"

namespace pushpull {

namespace {

class Tree : public Collective {
 public:
  Tree(Peers& peers, int64_t micro_batches, const CollectiveOptions& options)
      : peers_(peers),
        leaves_(micro_batches),
        options_(options),
        segment_(std::max<int64_t>(1, options.segment_bytes / 4)) {
    for (int r = 0; r < peers.size(); ++r) {
      const auto nodes = maximal_subtrees(share_range(r, peers.size(), leaves_), leaves_);
      first_.push_back(static_cast<int>(nodes_.size()));
      counts_.push_back(static_cast<int>(nodes.size()));
      nodes_.insert(nodes_.end(), nodes.begin(), nodes.end());
    }
  }

  void sum(int64_t operation, const std::vector<SumPart>& parts, int64_t elements,
           const SumTarget& target) override;

 private:
  // A segment of this worker's chunk that waits for parts.
  struct OpenSegment {
    std::vector<Payload> payloads;
    std::vector<const float*> pointers;  // by node; null if not received
    int64_t open = 0;
  };

  void by_owners(const std::vector<SumPart>& mine, int64_t elements, const SumTarget& target);
  void open_own(const std::vector<SumPart>& mine, Range own);
  bool take_part(Peers::Chunk& chunk, Range own, const SumTarget& target);
  bool take_result(const Peers::Chunk& chunk, int64_t elements, float* out);
  void finish(Range segment, const std::vector<const float*>& pointers, float* out) const;
  void send_result(int64_t segment, Range range, const SumTarget& target);
  // The stage of messages with finished segments. Parts have lower stages.
  int result_stage() const { return static_cast<int>(nodes_.size()); }

  Peers& peers_;
  const int64_t leaves_;
  const CollectiveOptions options_;
  const int64_t segment_;     // elements
  std::vector<Range> nodes_;  // of all workers, ascending
  std::vector<int> first_;    // by worker: index of its first node in nodes_
  std::vector<int> counts_;
  std::vector<OpenSegment> segments_;
  std::vector<std::vector<bool>> results_;  // received, by owner and segment
};

void Tree::sum(int64_t operation, const std::vector<SumPart>& parts, int64_t elements,
               const SumTarget& target) {
  PP_ASSERT(std::ssize(parts) == counts_[static_cast<size_t>(peers_.rank())] && elements > 0);
  peers_.begin(operation);
  const bool one_each = std::ssize(nodes_) == peers_.size();
  if (peers_.size() == 1 || (peers_.size() == 2 && one_each) ||
      elements * 4 <= options_.whole_bytes) {
    exchange_whole(peers_, parts, elements, counts_, segment_,
                   [&](Range segment, const std::vector<const float*>& pointers) {
                     finish(segment, pointers, target.floats);
                   });
  } else {
    by_owners(parts, elements, target);
  }
}

void Tree::finish(Range segment, const std::vector<const float*>& pointers, float* out) const {
  std::vector<TreePart> parts;
  parts.reserve(pointers.size());
  for (size_t i = 0; i < pointers.size(); ++i) parts.push_back({nodes_[i], pointers[i]});
  TreeSum sum(std::move(parts), leaves_);
  for (int64_t lo = 0; lo < segment.size(); lo += TreeSum::kStride) {
    const int64_t n = std::min(TreeSum::kStride, segment.size() - lo);
    std::memcpy(out + segment.lo + lo, sum.block(lo, n), static_cast<size_t>(n) * sizeof(float));
  }
}

void Tree::open_own(const std::vector<SumPart>& mine, Range own) {
  segments_.assign(static_cast<size_t>(segments_of(own, segment_)), {});
  for (int64_t s = 0; s < std::ssize(segments_); ++s) {
    OpenSegment& segment = segments_[static_cast<size_t>(s)];
    segment.pointers.assign(nodes_.size(), nullptr);
    segment.open = std::ssize(nodes_) - std::ssize(mine);
    for (size_t p = 0; p < mine.size(); ++p) {
      const auto node = static_cast<size_t>(first_[static_cast<size_t>(peers_.rank())]) + p;
      segment.pointers[node] = mine[p].floats + segment_of(own, s, segment_).lo;
    }
  }
}

void Tree::by_owners(const std::vector<SumPart>& mine, int64_t elements, const SumTarget& target) {
  const int n = peers_.size();
  const Range own = chunk_of(elements, peers_.rank(), n);
  std::vector<int64_t> missing(static_cast<size_t>(n));
  results_.assign(static_cast<size_t>(n), {});
  int64_t left = 0;
  // starts with the next rank, so that not all workers send to worker 0 first
  for (int i = 1; i < n; ++i) {
    const int to = (peers_.rank() + i) % n;
    const auto at = static_cast<size_t>(to);
    const Range theirs = chunk_of(elements, to, n);
    const int64_t segments = segments_of(theirs, segment_);
    for (int64_t s = 0; s < segments; ++s) {
      for (size_t p = 0; p < mine.size(); ++p) {
        peers_.send(to, static_cast<int>(p), static_cast<int>(s),
                    payload_of(mine[p].owner, mine[p].floats, segment_of(theirs, s, segment_)));
      }
    }
    results_[at].assign(static_cast<size_t>(segments), false);
    missing[at] = segments + segments_of(own, segment_) * counts_[at];
    left += missing[at];
  }
  open_own(mine, own);
  while (left > 0) {
    Peers::Chunk chunk = peers_.receive(missing);
    const bool taken = chunk.stage == result_stage() ? take_result(chunk, elements, target.floats)
                                                     : take_part(chunk, own, target);
    if (!taken) {
      peers_.refuse(chunk);
      continue;
    }
    --missing[static_cast<size_t>(chunk.rank)];
    --left;
  }
}

bool Tree::take_part(Peers::Chunk& chunk, Range own, const SumTarget& target) {
  const auto from = static_cast<size_t>(chunk.rank);
  if (chunk.stage >= counts_[from] || chunk.index >= std::ssize(segments_)) return false;
  OpenSegment& segment = segments_[static_cast<size_t>(chunk.index)];
  const auto node = static_cast<size_t>(first_[from]) + static_cast<size_t>(chunk.stage);
  const Range range = segment_of(own, chunk.index, segment_);
  if (segment.pointers[node] != nullptr) return false;
  if (static_cast<int64_t>(chunk.payload.float_count()) != range.size()) return false;
  segment.pointers[node] = chunk.payload.floats();
  segment.payloads.push_back(std::move(chunk.payload));
  if (--segment.open > 0) return true;
  finish(range, segment.pointers, target.floats);
  segment.payloads.clear();
  send_result(chunk.index, range, target);
  return true;
}

void Tree::send_result(int64_t segment, Range range, const SumTarget& target) {
  for (int i = 1; i < peers_.size(); ++i) {
    peers_.send((peers_.rank() + i) % peers_.size(), result_stage(), static_cast<int>(segment),
                payload_of(target.owner, target.floats, range));
  }
}

bool Tree::take_result(const Peers::Chunk& chunk, int64_t elements, float* out) {
  std::vector<bool>& results = results_[static_cast<size_t>(chunk.rank)];
  if (chunk.index >= std::ssize(results) || results[static_cast<size_t>(chunk.index)]) return false;
  const Range range =
      segment_of(chunk_of(elements, chunk.rank, peers_.size()), chunk.index, segment_);
  if (static_cast<int64_t>(chunk.payload.float_count()) != range.size()) return false;
  results[static_cast<size_t>(chunk.index)] = true;
  std::memcpy(out + range.lo, chunk.payload.floats(), chunk.payload.bytes.size());
  return true;
}

}  // namespace

std::unique_ptr<Collective> make_tree(Peers& peers, int64_t micro_batches,
                                      const CollectiveOptions& options) {
  return std::make_unique<Tree>(peers, micro_batches, options);
}

}  // namespace pushpull
