#include "client/check_sums.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/error.h"
#include "common/base/text.h"

namespace pushpull {

void check_sums(std::span<const HeadInfo> heads, int64_t samples, std::span<const HeadSums> sums) {
  for (size_t i = 0; i < std::min(heads.size(), sums.size()); ++i) {
    const auto& [loss, counted, metric] = sums[i];
    const std::string head = "[client] head " + heads[i].name + " reports ";
    const int64_t most = samples * heads[i].targets;
    if (counted < 0 || counted > most) {
      throw Error(ErrorCode::kUsage, head + std::to_string(counted) + " counted targets of " +
                                         std::to_string(samples) + " samples: expected 0 to " +
                                         std::to_string(most));
    }
    if (!counts_targets(heads[i].metric)) continue;
    if (metric >= 0.0 && metric <= static_cast<double>(counted) && std::floor(metric) == metric) {
      continue;
    }
    throw Error(ErrorCode::kUsage,
                head + print_real(metric) + " correct targets of " + std::to_string(counted) +
                    " counted ones: expected a whole number from 0 to " + std::to_string(counted) +
                    "; if a sample has several targets, report their count");
  }
}

}  // namespace pushpull
