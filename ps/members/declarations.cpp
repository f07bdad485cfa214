#include "ps/members/declarations.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/checkpoint.h"
#include "common/job/job.h"
#include "common/net/head_wire.h"
#include "common/net/tensor_wire.h"
#include "ps/members/measure.h"

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

void check_size(const std::string& text, size_t max_bytes, const char* what) {
  if (text.size() <= max_bytes) return;
  throw Error(ErrorCode::kProtocol, std::string("[declare] ") + what + " has " +
                                        std::to_string(text.size()) + " bytes; at most " +
                                        std::to_string(max_bytes) + " are allowed");
}

void check_memory(const wire::Declare& declare) {
  if (declare.arena_bytes() >= 0 && declare.slots() >= 0) return;
  throw Error(ErrorCode::kProtocol,
              "[declare] an arena of " + std::to_string(declare.arena_bytes()) + " bytes for " +
                  plural(declare.slots(), "slot") + ": expected numbers from 0");
}

// Limits the texts that the coordinator keeps. Workers parse the choices.
void check_texts(const wire::Declare& declare) {
  constexpr size_t kMaxChoicesBytes = size_t{64} << 10;
  check_size(declare.choices(), kMaxChoicesBytes, "the choice of algorithms");
  check_size(declare.tokenizer(), kMaxTokenizerBytes, "the tokenizer");
}

}  // namespace

Declarations::Declarations(const Job& job)
    : job_(job),
      same_bits_(job.strategy.traits().same_bits || !job.record.empty()),
      would_be_repeatable_(job.strategy.traits().step_versions) {}

std::string Declarations::take(const wire::Declare& declare) {
  check_samples(declare, job_);
  check_memory(declare);
  check_texts(declare);
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
    first_.tokenizer = declare.tokenizer();
    first_.arena_bytes = declare.arena_bytes();
    first_.slots = declare.slots();
    any_ = true;
  }
  check_job_against_data(job_, first_.train_samples);
  if (job_.follows_evaluations()) measure_of(job_, first_.heads, first_.test_samples);
  return "";
}

void Declarations::forget() {
  any_ = false;
  first_ = {};
}

std::string Declarations::difference_of_data(const wire::Declare& declare) const {
  if (declare.data_digest() == first_.data_digest &&
      declare.train_samples() == first_.train_samples &&
      declare.test_samples() == first_.test_samples) {
    return "";
  }
  const std::string path = job_.data_dir.empty() ? "" : " (data-dir = " + job_.data_dir + ")";
  return "its data differ: the job has " + std::to_string(first_.train_samples) + " + " +
         std::to_string(first_.test_samples) + " samples of dataset = " + job_.dataset + path +
         " with digest " + first_.data_digest.substr(0, 12) + ", this worker has " +
         std::to_string(declare.train_samples()) + " + " + std::to_string(declare.test_samples()) +
         " with " + declare.data_digest().substr(0, 12);
}

std::string Declarations::difference_from_first(const wire::Declare& declare) const {
  const std::string data = difference_of_data(declare);
  std::string model = difference(first_.table, from_wire(declare.tensors()));
  if (model.empty()) model = difference(first_.heads, from_wire(declare.heads()));
  // Other data may cause another model: a text with other characters has another vocabulary.
  if (!model.empty()) {
    return "its model does not fit: " + model + (data.empty() ? "" : "; " + data);
  }
  if (!data.empty()) return data;
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
