#include "ps/work/evaluations.h"

#include "common/net/model_wire.h"

namespace pushpull {

Evaluations::Evaluations(int64_t test_samples, int64_t micro_batch, std::vector<HeadInfo> heads)
    : chunks_((test_samples + micro_batch - 1) / micro_batch), heads_(std::move(heads)) {}

std::optional<Evaluation> Evaluations::add(int64_t step, const wire::ChunkResult& result) {
  if (result.chunk() < 0 || result.chunk() >= chunks_ || complete(step)) return std::nullopt;
  auto& results = open_[step];
  results[result.chunk()] = result;
  if (static_cast<int64_t>(results.size()) < chunks_) return std::nullopt;
  Evaluation out;
  out.step = step;
  for (const HeadInfo& head : heads_) out.heads.push_back({head, {}});
  for (const auto& [chunk, r] : results) {
    for (size_t i = 0; i < heads_.size(); ++i) {
      out.heads[i].sums.add(from_wire(r.sums(static_cast<int>(i))));
    }
  }
  // An older evaluation that is still open has lost its evaluator and never completes.
  open_.erase(open_.begin(), open_.upper_bound(step));
  newest_ = out;
  new_.push_back(out);
  return out;
}

bool Evaluations::complete(int64_t step) const {
  return chunks_ == 0 || (newest_ && newest_->step >= step);
}

}  // namespace pushpull
