#include "ps/members/declarations.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/job/job.h"
#include "common/net/head_wire.h"
#include "common/net/tensor_wire.h"

namespace pushpull {

namespace {

void check_samples(const wire::Declare& declare, const Job& job) {
  constexpr int64_t kMaxSamples = int64_t{1} << 31;
  // One worker may compute all chunks and sends the sums of all heads in one message.
  constexpr int64_t kMaxSums = 450'000;
  for (const int64_t samples : {declare.train_samples(), declare.test_samples()}) {
    if (samples >= 0 && samples < kMaxSamples) continue;
    throw Error(ErrorCode::kProtocol,
                "[declare] bad size of a data set: " + std::to_string(samples) + " samples");
  }
  const int64_t chunks = (declare.test_samples() + job.micro_batch - 1) / job.micro_batch;
  const int64_t heads = std::max(1, declare.heads_size());
  if (chunks <= kMaxSums / heads) return;
  throw Error(ErrorCode::kUsage, "[job] " + std::to_string(declare.test_samples()) +
                                     " test samples are " + std::to_string(chunks) +
                                     " chunks of micro-batch = " + std::to_string(job.micro_batch) +
                                     "; with " + plural(heads, "head") + " at most " +
                                     std::to_string(kMaxSums / heads) +
                                     " are allowed: raise micro-batch or lower test-samples");
}

// Limits the length of the choices. Workers parse them.
void check_choices(const wire::Declare& declare) {
  constexpr size_t kMaxBytes = size_t{64} << 10;
  if (declare.choices().size() <= kMaxBytes) return;
  throw Error(ErrorCode::kProtocol,
              "[declare] the choice of algorithms has " + std::to_string(declare.choices().size()) +
                  " bytes; at most " + std::to_string(kMaxBytes) + " are allowed");
}

}  // namespace

Declarations::Declarations(const Job& job)
    : job_(job),
      same_bits_(job.strategy.traits().same_bits || !job.record.empty()),
      would_be_repeatable_(job.strategy.traits().step_versions) {}

std::string Declarations::take(const wire::Declare& declare) {
  check_samples(declare, job_);
  check_choices(declare);
  if (any_) {
    std::string difference = difference_from_first(declare);
    if (!difference.empty()) return difference;
  } else {
    first_.table = from_wire(declare.tensors());
    first_.heads = from_wire(declare.heads());
    first_.train_samples = declare.train_samples();
    first_.test_samples = declare.test_samples();
    first_.data_digest = declare.data_digest();
    first_.numerics = declare.numerics();
    first_.choices = declare.choices();
    any_ = true;
  }
  check_job_against_data(job_, first_.train_samples);
  return "";
}

void Declarations::forget() {
  any_ = false;
  first_ = {};
}

std::string Declarations::difference_from_first(const wire::Declare& declare) const {
  const std::string tensors = difference(first_.table, from_wire(declare.tensors()));
  if (!tensors.empty()) return "its model does not fit: " + tensors;
  const std::string heads = difference(first_.heads, from_wire(declare.heads()));
  if (!heads.empty()) return "its model does not fit: " + heads;
  if (declare.data_digest() != first_.data_digest ||
      declare.train_samples() != first_.train_samples ||
      declare.test_samples() != first_.test_samples) {
    return "its data differ: the job has " + std::to_string(first_.train_samples) + " + " +
           std::to_string(first_.test_samples) + " samples with digest " +
           first_.data_digest.substr(0, 12) + ", this worker has " +
           std::to_string(declare.train_samples()) + " + " +
           std::to_string(declare.test_samples()) + " with " + declare.data_digest().substr(0, 12);
  }
  if (same_bits_ && declare.numerics() != first_.numerics) {
    return "its numerics differ: the job has \"" + first_.numerics + "\", this worker \"" +
           declare.numerics() + "\"; sync, allreduce and record need the same on all workers";
  }
  return "";
}

std::string Declarations::other_bits(const std::string& member,
                                     const wire::Declare& declare) const {
  if (!would_be_repeatable_ || declare.numerics() == first_.numerics) return "";
  return member + " has numerics \"" + declare.numerics() + "\", the first worker has \"" +
         first_.numerics + "\": the run continues, but cannot be repeated bit by bit";
}

}  // namespace pushpull
