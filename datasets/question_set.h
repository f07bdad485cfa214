// `qa`: questions about a text, as tokens that any tokenizer has made. Constant after construction;
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/dataset.h"

namespace pushpull {

struct Job;

// Some questions of a file, each of `sequence` tokens.
struct QuestionSplit {
  std::vector<int32_t> ids;    // [samples, sequence]
  std::vector<uint8_t> flags;  // [samples, sequence]; kReal, kContext
  std::vector<int32_t> start;  // [samples], kNoTarget without an answer
  std::vector<int32_t> end;
  std::vector<int32_t> kind;  // the field `class`

  static constexpr uint8_t kReal = 1;     // `mask`: no padding
  static constexpr uint8_t kContext = 2;  // `types`
};

class QuestionSet final : public Dataset {
 public:
  // train, test: checked against `sequence`, `vocabulary` and `classes`.
  QuestionSet(QuestionSplit train, QuestionSplit test, int64_t sequence, int64_t vocabulary,
              int64_t classes);

  int64_t size(Split split) const override { return std::ssize(samples_of(split).start); }
  const FieldTable& fields() const override { return fields_; }
  const std::string& digest() const override { return digest_; }
  void read(const Request& request, float* block) const override;

 private:
  const QuestionSplit& samples_of(Split split) const {
    return split == Split::kTrain ? train_ : test_;
  }

  QuestionSplit train_;
  QuestionSplit test_;
  int64_t sequence_;
  FieldTable fields_;
  std::string digest_;
};

// Opens train.safetensors and test.safetensors in `dir`: I32 tensors `ids`, `mask` and `types`
// [N, sequence], `start`, `end` and, in both files or in none, `class` [N]. Without it the class is 1
// for a question with an answer, else 0. The vocabulary is the job's vocab, or else `vocab` of the
// metadata of train.safetensors; the classes are `classes` of its metadata, or else 5. Called by
// open_dataset. Throws Error(kData), which names the file, the record and the problem, and
// Error(kUsage) if train-samples or test-samples exceed the file.
std::unique_ptr<Dataset> open_qa(const Job& job, const std::string& dir);

}  // namespace pushpull
