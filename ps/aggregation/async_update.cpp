#include "ps/aggregation/async_update.h"

#include <algorithm>
#include <cmath>

#include "common/job/job.h"
#include "common/update/norm.h"
#include "common/update/optimizer_options.h"
#include "common/update/range_update.h"

namespace pushpull {

UpdateInfo async_update(const Job& job, int64_t total_steps, const AsyncPush& push) {
  UpdateInfo info;
  info.learning_rate = learning_rate(job.schedule, push.step, total_steps);
  // Zhang et al., Staleness-aware Async-SGD, arXiv 1511.05950. They count staleness from 1, hence 1
  // + staleness.
  if (job.staleness_aware) {
    info.learning_rate /= static_cast<double>(1 + std::max<int64_t>(0, push.staleness));
  }
  info.divisor = static_cast<double>(push.range.size());
  info.share = info.divisor / static_cast<double>(job.micro_batches());
  if (job.clip_norm > 0) info.clip = clip_factor(std::sqrt(push.squares), job.clip_norm);
  info.delay_compensation = job.delay_compensation;
  return info;
}

}  // namespace pushpull
