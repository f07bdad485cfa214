#include "ps/members/declarations.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/io/checkpoint.h"
#include "common/job/job.h"
#include "common/net/model_wire.h"
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

// Texts that become part of JSON files and of lines.
void check_line(const std::string& text, const char* what) {
  if (is_plain_text(text)) return;
  throw Error(ErrorCode::kProtocol,
              std::string("[declare] ") + what +
                  " is not UTF-8 without control characters: " + printable(text));
}

void check_memory(const wire::Declare& declare) {
  if (declare.arena_bytes() >= 0 && declare.slots() >= 0) return;
  throw Error(ErrorCode::kProtocol,
              "[declare] an arena of " + std::to_string(declare.arena_bytes()) + " bytes for " +
                  plural(declare.slots(), "slot") + ": expected numbers from 0");
}

void check_local_stages(const wire::Declare& declare) {
  constexpr int kMostStages = 256;
  if (declare.local_stages() >= 0 && declare.local_stages() <= kMostStages) return;
  throw Error(ErrorCode::kProtocol, "[declare] this worker divides its stage into " +
                                        std::to_string(declare.local_stages()) +
                                        ": expected at most " + std::to_string(kMostStages) +
                                        "; give it a smaller --stages");
}

constexpr size_t kMaxFingerprintBytes = size_t{4} << 10;  // term.json holds them

// Limits the texts that the coordinator keeps. Workers parse the choices.
void check_texts(const wire::Declare& declare) {
  constexpr size_t kMaxChoicesBytes = size_t{64} << 10;
  check_size(declare.data_digest(), kMaxFingerprintBytes, "the data digest");
  check_size(declare.numerics(), kMaxFingerprintBytes, "the numerics fingerprint");
  check_line(declare.data_digest(), "the data digest");
  check_line(declare.numerics(), "the numerics fingerprint");
  check_size(declare.choices(), kMaxChoicesBytes, "the choice of algorithms");
  check_size(declare.tokenizer(), kMaxTokenizerBytes, "the tokenizer");
}

Declaration parse_declaration(const wire::Declare& declare) {
  Declaration out;
  out.table = from_wire(declare.tensors());
  out.heads = from_wire(declare.heads());
  out.train_samples = declare.train_samples();
  out.test_samples = declare.test_samples();
  out.data_digest = declare.data_digest();
  out.numerics = declare.numerics();
  out.choices = declare.choices();
  out.tokenizer = declare.tokenizer();
  out.own_weights = declare.own_weights();
  out.arena_bytes = declare.arena_bytes();
  out.slots = declare.slots();
  return out;
}

std::string model_sha256(const Declaration& declaration) {
  wire::Declare model;
  to_wire(declaration.table, model.mutable_tensors());
  to_wire(declaration.heads, model.mutable_heads());
  model.set_own_weights(declaration.own_weights);
  const std::string bytes = model.SerializeAsString();
  return sha256_hex(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

// Returns all fields but the hash of the model.
EarlierDeclaration without_model(const Declaration& declaration) {
  EarlierDeclaration out;
  out.train_samples = declaration.train_samples;
  out.test_samples = declaration.test_samples;
  out.data_digest = declaration.data_digest;
  out.numerics = declaration.numerics;
  return out;
}

std::string start_of(const std::string& hash) { return hash.substr(0, 12); }

// Returns the first part of a digest, up to a comma, that another one has not: the start of it if it is a hash.
std::string differing_part(const std::string& of, const std::string& from) {
  const auto differs = std::ranges::mismatch(of, from).in1 - of.begin();
  const size_t comma = of.rfind(", ", static_cast<size_t>(differs));
  const size_t begin = comma == std::string::npos ? 0 : comma + 2;
  const std::string part = of.substr(begin, of.find(", ", begin) - begin);
  return part.find(' ') == std::string::npos ? start_of(part) : part.substr(0, 60);
}

}  // namespace

// Throws Error(kProtocol) if the whole model is too large.
TensorTable Declarations::joined(const Parts& parts) {
  WireTensors all;
  for (const auto& [stage, part] : parts) {
    const int first = all.size();
    to_wire(part.table, &all);
    for (int i = first; i < all.size(); ++i) all.at(i).set_begins_stage(stage > 0 && i == first);
  }
  return from_wire(all);
}

EarlierDeclaration earlier_form(const Declaration& declaration) {
  EarlierDeclaration out = without_model(declaration);
  out.model_sha256 = model_sha256(declaration);
  return out;
}

Declarations::Declarations(const Job& job, std::optional<EarlierDeclaration> earlier)
    : job_(job),
      stages_(job.model == "external" ? job.stages : 1),
      earlier_(std::move(earlier)),
      // allreduce: the workers' replicas would drift apart
      same_bits_((job.strategy.traits().same_bits &&
                  (!job.mixed_numerics || job.strategy.kind == StrategyKind::kAllReduce)) ||
                 !job.record.empty()),
      would_be_repeatable_(job.strategy.traits().step_versions) {}

std::string Declarations::take(const wire::Declare& declare) {
  check_samples(declare, job_);
  check_memory(declare);
  check_local_stages(declare);
  check_texts(declare);
  if (const std::string text = difference_of_division(declare); !text.empty()) return text;
  Declaration got = parse_declaration(declare);
  const int stage = declare.own_stage().stage();
  Part part{std::exchange(got.table, {}), declare.own_stage().digest()};
  if (!parts_.empty()) {
    const std::string text = difference_from_first(difference_from_parts(stage, part), got);
    if (!text.empty()) return text;
  }
  if (!parts_.contains(stage)) {
    const std::string text = add(stage, std::move(part), got);
    if (!text.empty()) return text;
  }
  note_numerics(got.numerics);
  check_job_against_data(job_, first_.train_samples);
  if (job_.follows_evaluations()) measure_of(job_, first_.heads, first_.test_samples);
  return "";
}

// Returns the difference from the earlier terms, or "".
std::string Declarations::add(int stage, Part part, const Declaration& got) {
  Declaration whole = parts_.empty() ? got : first_;
  Parts parts = parts_;
  parts.emplace(stage, std::move(part));
  if (std::ssize(parts) == stages_) {
    whole.table = by_stage() ? joined(parts) : parts.at(0).table;
    const std::string text = difference_from_earlier(whole);
    if (!text.empty()) return text;
  }
  parts_ = std::move(parts);
  first_ = std::move(whole);
  return "";
}

void Declarations::note_numerics(const std::string& numerics) {
  constexpr size_t kMost = 16;
  std::vector<std::string>& others = first_.other_numerics;
  if (numerics == first_.numerics || others.size() == kMost) return;
  if (std::ranges::find(others, numerics) == others.end()) others.push_back(numerics);
}

void Declarations::keep(const std::set<int>& stages) {
  if (std::erase_if(parts_, [&](const auto& part) { return !stages.contains(part.first); }) == 0) {
    return;
  }
  first_.table = {};
  if (parts_.empty()) first_ = {};
}

std::string Declarations::difference_of_division(const wire::Declare& declare) const {
  const wire::OwnStage& own = declare.own_stage();
  if (declare.has_own_stage()) {
    const bool possible = own.stages() > 1 && own.stage() >= 0 && own.stage() < own.stages() &&
                          own.port() >= 0 && own.port() <= UINT16_MAX;
    if (!possible) {
      throw Error(ErrorCode::kProtocol, "[declare] stage " + std::to_string(own.stage()) + " of " +
                                            std::to_string(own.stages()) + " with port " +
                                            std::to_string(own.port()) + " cannot exist");
    }
    check_size(own.digest(), kMaxFingerprintBytes, "the digest of the stage");
  }
  const int64_t got = declare.has_own_stage() ? own.stages() : 1;
  if (got == stages_) return "";
  return "its program has " +
         (got == 1 ? "the whole model"
                   : "stage " + std::to_string(own.stage()) + " of " + std::to_string(got)) +
         ", and the job has stages = " + std::to_string(job_.stages) +
         (got == 1 ? ": attach a stage of it" : ": set stages = " + std::to_string(got));
}

// Checkpoints have the names of the whole model.
std::string Declarations::difference_from_parts(int stage, const Part& got) const {
  const std::string place = by_stage() ? "stage " + std::to_string(stage) + ", " : "";
  const auto known = parts_.find(stage);
  if (known != parts_.end()) {
    const std::string text = difference(known->second.table, got.table);
    if (!text.empty()) return place + text;
    return known->second.digest == got.digest
               ? ""
               : place + "data of the stage alone: the job has " + start_of(known->second.digest) +
                     ", this worker has " + start_of(got.digest);
  }
  for (const auto& [other, part] : parts_) {
    std::set<std::string> names;
    for (const TensorInfo& tensor : part.table.tensors) names.insert(tensor.name);
    for (const TensorInfo& tensor : got.table.tensors) {
      if (!names.contains(tensor.name)) continue;
      return "stage " + std::to_string(stage) + " has a tensor " + tensor.name + ", as stage " +
             std::to_string(other) +
             " has: give tensors the names that they have in the whole model";
    }
  }
  return "";
}

std::string Declarations::difference_of_data(const EarlierDeclaration& want,
                                             const Declaration& got) const {
  if (got.data_digest == want.data_digest && got.train_samples == want.train_samples &&
      got.test_samples == want.test_samples) {
    return "";
  }
  const std::string path = job_.data_dir.empty() ? "" : " (data-dir = " + job_.data_dir + ")";
  const std::string of = job_.model == "external" ? "" : " of dataset = " + job_.dataset + path;
  return "its data differ: the job has " + std::to_string(want.train_samples) + " + " +
         std::to_string(want.test_samples) + " samples" + of + " with digest " +
         differing_part(want.data_digest, got.data_digest) + ", this worker has " +
         std::to_string(got.train_samples) + " + " + std::to_string(got.test_samples) + " with " +
         differing_part(got.data_digest, want.data_digest);
}

std::string Declarations::difference_from_first(const std::string& of_part,
                                                const Declaration& got) const {
  std::string model = of_part;
  if (model.empty()) model = difference(first_.heads, got.heads);
  if (model.empty() && first_.own_weights != got.own_weights) {
    model = first_.own_weights ? "the job's has initial weights of its own, this worker's has none"
                               : "the job's has no initial weights of its own, this worker's has";
  }
  return difference_from(without_model(first_), model, got);
}

// Otherwise the fastest member of each new term would decide what the others must have.
std::string Declarations::difference_from_earlier(const Declaration& got) const {
  if (!earlier_) return "";
  const std::string hash = model_sha256(got);
  const std::string model = hash == earlier_->model_sha256
                                ? ""
                                : "the job has one with hash " + start_of(earlier_->model_sha256) +
                                      ", this worker one with " + start_of(hash);
  const std::string text = difference_from(*earlier_, model, got);
  if (text.empty()) return "";
  return text +
         "; an earlier term of the run has declared the job's (to go on with others, end the job, "
         "delete term.json in its output folder and resume)";
}

std::string Declarations::difference_from(const EarlierDeclaration& want, const std::string& model,
                                          const Declaration& got) const {
  const std::string data = difference_of_data(want, got);
  // Other data may cause another model: a text with other characters has another vocabulary.
  if (!model.empty()) {
    return "its model does not fit: " + model + (data.empty() ? "" : "; " + data);
  }
  if (!data.empty()) return data;
  if (same_bits_ && want.numerics && got.numerics != *want.numerics) {
    return "its numerics differ: the job has \"" + *want.numerics + "\", this worker \"" +
           got.numerics + "\"; sync, allreduce and record need the same on all workers" +
           (job_.strategy.kind == StrategyKind::kAllReduce || !job_.record.empty()
                ? ""
                : " (numerics = any allows others, and then bits depend on which worker computes "
                  "what)");
  }
  return "";
}

std::string Declarations::other_bits(const std::string& member,
                                     const wire::Declare& declare) const {
  if (!would_be_repeatable_ || declare.numerics() == first_.numerics) return "";
  return member + " has numerics \"" + declare.numerics() + "\", the first worker has \"" +
         first_.numerics +
         "\": the run continues, but its bits depend on which worker computes what, and it "
         "cannot be repeated bit by bit";
}

}  // namespace pushpull
