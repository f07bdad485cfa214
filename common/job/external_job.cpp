#include "common/job/external_job.h"

#include "common/base/error.h"

namespace pushpull {

void refuse_external(const Job& job, const std::string& where, const std::string& instead) {
  if (job.model != "external") return;
  throw Error(ErrorCode::kUsage,
              where + ": model = external: only the program of the job's workers has the model; " +
                  instead);
}

}  // namespace pushpull
