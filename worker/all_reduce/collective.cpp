#include "worker/all_reduce/collective.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/simd.h"

namespace pushpull {

PUSHPULL_SIMD void add_floats(const float* a, const float* b, int64_t n, float* out) {
  PUSHPULL_ELEMENTWISE
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

Range chunk_of(int64_t elements, int i, int n) {
  constexpr int64_t kWhole = 16;
  const int64_t units = (elements + kWhole - 1) / kWhole;
  return {std::min(elements, i * units / n * kWhole),
          std::min(elements, (i + 1) * units / n * kWhole)};
}

int64_t segments_of(Range range, int64_t segment_elements) {
  return (range.size() + segment_elements - 1) / segment_elements;
}

Range segment_of(Range range, int64_t segment, int64_t segment_elements) {
  const int64_t lo = range.lo + segment * segment_elements;
  return {lo, std::min(range.hi, lo + segment_elements)};
}

Payload payload_of(const std::shared_ptr<const void>& owner, const float* floats, Range range) {
  return {owner, std::as_bytes(std::span(floats + range.lo, static_cast<size_t>(range.size())))};
}

namespace {

// A segment that waits for parts.
struct OpenSegment {
  std::vector<Payload> payloads;       // own the floats of received parts
  std::vector<const float*> pointers;  // by worker and part; null if not received
  int64_t open = 0;
};

}  // namespace

void exchange_whole(Peers& peers, const std::vector<SumPart>& mine, int64_t elements,
                    const std::vector<int>& counts, int64_t segment_elements,
                    const FinishSegment& finish) {
  const Range whole{0, elements};
  const int64_t segments = segments_of(whole, segment_elements);
  std::vector<int> first(counts.size());  // index of the worker's first part
  int total = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    first[r] = total;
    total += counts[r];
  }
  std::vector<int64_t> missing(counts.size());
  for (int r = 0; r < peers.size(); ++r) {
    if (r != peers.rank())
      missing[static_cast<size_t>(r)] = segments * counts[static_cast<size_t>(r)];
  }
  std::vector<OpenSegment> open(static_cast<size_t>(segments));
  const int own = first[static_cast<size_t>(peers.rank())];
  for (int64_t s = 0; s < segments; ++s) {
    OpenSegment& segment = open[static_cast<size_t>(s)];
    const Range range = segment_of(whole, s, segment_elements);
    segment.pointers.assign(static_cast<size_t>(total), nullptr);
    segment.open = total - std::ssize(mine);
    for (size_t p = 0; p < mine.size(); ++p) {
      segment.pointers[static_cast<size_t>(own) + p] = mine[p].floats + range.lo;
      for (int i = 1; i < peers.size(); ++i) {
        peers.send((peers.rank() + i) % peers.size(), static_cast<int>(p), static_cast<int>(s),
                   payload_of(mine[p].owner, mine[p].floats, range));
      }
    }
  }
  int64_t left = segments;
  if (peers.size() == 1) {
    for (; left > 0; --left) {
      const int64_t s = segments - left;
      finish(segment_of(whole, s, segment_elements), open[static_cast<size_t>(s)].pointers);
    }
  }
  while (left > 0) {
    Peers::Chunk chunk = peers.receive(missing);
    const auto from = static_cast<size_t>(chunk.rank);
    const bool known = chunk.stage < counts[from] && chunk.index < segments;
    const Range range = known ? segment_of(whole, chunk.index, segment_elements) : Range{};
    OpenSegment* segment = known ? &open[static_cast<size_t>(chunk.index)] : nullptr;
    const auto part = static_cast<size_t>(known ? first[from] + chunk.stage : 0);
    if (!known || static_cast<int64_t>(chunk.payload.float_count()) != range.size() ||
        segment->pointers[part] != nullptr) {
      peers.refuse(chunk);
      continue;
    }
    --missing[from];
    segment->pointers[part] = chunk.payload.floats();
    segment->payloads.push_back(std::move(chunk.payload));
    if (--segment->open > 0) continue;
    finish(range, segment->pointers);
    segment->payloads.clear();
    --left;
  }
}

void check_built(AllReduceKind kind) {
  if (kind != AllReduceKind::kGloo || has_gloo()) return;
  throw Error(ErrorCode::kUsage,
              "[all-reduce] this program was built without Gloo: install libgloo-dev and build "
              "again, or use strategy allreduce:ring");
}

std::unique_ptr<Collective> make_collective(AllReduceKind kind, Peers& peers, int64_t micro_batches,
                                            double timeout_s, const CollectiveOptions& options) {
  if (kind == AllReduceKind::kRing) return make_ring(peers, options);
  if (kind == AllReduceKind::kTree) return make_tree(peers, micro_batches, options);
  return make_gloo(peers, timeout_s);
}

}  // namespace pushpull
