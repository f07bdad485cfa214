#include "common/io/json.h"

#include <cmath>

namespace pushpull {

void add_heads(nlohmann::ordered_json& out, const std::vector<HeadResult>& heads) {
  const HeadResult first = heads.empty() ? HeadResult() : heads.front();
  out["test_loss"] = json_number(first.loss());
  out["test_correct"] = correct_targets(first);
  out["test_total"] = first.sums.counted;
  out["test_accuracy"] =
      counts_targets(first.info.metric) ? json_number(first.value()) : nlohmann::ordered_json();
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const HeadResult& head : heads) {
    list.push_back({{"name", head.info.name},
                    {"metric", to_string(head.info.metric)},
                    {"value", json_number(head.value())},
                    {"loss", json_number(head.loss())},
                    {"counted", head.sums.counted}});
  }
  out["heads"] = std::move(list);
}

int64_t correct_targets(const HeadResult& head) {
  return counts_targets(head.info.metric) ? std::llround(head.sums.metric) : 0;
}

}  // namespace pushpull
