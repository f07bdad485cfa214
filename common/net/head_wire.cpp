#include "common/net/head_wire.h"

#include <algorithm>
#include <set>

#include "common/base/error.h"

namespace pushpull {

namespace {

constexpr int kMaxHeads = 64;

std::string text(const HeadInfo& head) {
  return head.name + " (" + to_string(head.metric) + ", " + std::to_string(head.targets) +
         (head.targets == 1 ? " target" : " targets") + ")";
}

}  // namespace

void to_wire(const std::vector<HeadInfo>& heads, WireHeads* out) {
  for (const HeadInfo& head : heads) {
    wire::Head* h = out->Add();
    h->set_name(head.name);
    h->set_metric(to_string(head.metric));
    h->set_targets(head.targets);
  }
}

std::vector<HeadInfo> from_wire(const WireHeads& heads) {
  const auto fail = [](const std::string& what) {
    return Error(ErrorCode::kProtocol, "[declare] " + what);
  };
  if (heads.size() > kMaxHeads) {
    throw fail("a model with " + std::to_string(heads.size()) + " heads; at most " +
               std::to_string(kMaxHeads) + " are allowed");
  }
  std::vector<HeadInfo> out;
  std::set<std::string> names;
  for (const wire::Head& h : heads) {
    if (!is_head_name(h.name())) throw fail("a head has an impossible name");
    const std::optional<Metric> metric = metric_of(h.metric());
    if (!metric) throw fail("head " + h.name() + ": unknown metric");
    if (h.targets() < 1 || h.targets() > kMaxTargets) {
      throw fail("head " + h.name() + ": " + std::to_string(h.targets()) +
                 " targets of a sample; 1 to " + std::to_string(kMaxTargets) + " are allowed");
    }
    if (!names.insert(h.name()).second) throw fail("two heads are called " + h.name());
    out.push_back({h.name(), *metric, h.targets()});
  }
  return out;
}

std::string difference(const std::vector<HeadInfo>& want, const std::vector<HeadInfo>& got) {
  const size_t both = std::min(want.size(), got.size());
  for (size_t i = 0; i < both; ++i) {
    if (want[i] == got[i]) continue;
    return "head " + std::to_string(i) + ": the job has " + text(want[i]) + ", this worker has " +
           text(got[i]);
  }
  if (want.size() == got.size()) return "";
  return "the job's model has " + std::to_string(want.size()) + " heads, this worker's has " +
         std::to_string(got.size());
}

void to_wire(std::span<const HeadSums> sums, wire::ChunkResult* out) {
  for (const HeadSums& head : sums) {
    wire::HeadSums* s = out->add_sums();
    s->set_loss(head.loss);
    s->set_counted(head.counted);
    s->set_metric(head.metric);
  }
}

HeadSums from_wire(const wire::HeadSums& sums) {
  return {sums.loss(), sums.counted(), sums.metric()};
}

}  // namespace pushpull
